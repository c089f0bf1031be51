//! What is prepared for a worker before it is started, as far as the policy asks and the machine lets: namespaces, a
//! cgroup, limits.

use nix::errno::Errno;
use refmill::limits::Limits;
use refmill::posture::Posture;

use super::cgroup::{self, Leaf};
use super::namespaces;
use super::posture::{Gap, Layer, SandboxPolicy, Status, Verdict};
use super::spawn::{Isolation, Namespaces};

/// How workers are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confinement {
    /// What must hold.
    pub policy: SandboxPolicy,
    /// Most host memory that a worker may use, in bytes.
    pub memory_bytes: u64,
}

/// Most bytes that a pixel takes while it is worked on: 16 bits of four channels as decoded, the same once more in the
/// decoder's own buffers, and 8 bits of four channels as converted and as coded.
const PIXEL_BYTES: u64 = 24;
/// What a worker takes whatever the image, in bytes: program, colour transforms, tensors.
const BASE_BYTES: u64 = 1 << 30;
/// What the CUDA driver and pinned memory take besides.
const CUDA_BYTES: u64 = 4 << 30;

/// Host memory that a worker can need for one image under `limits`, in bytes, by what its stages keep at a time.
#[must_use]
pub fn needed_memory(limits: &Limits, gpu: bool) -> u64 {
    let pixels = limits.pixels.saturating_mul(PIXEL_BYTES);
    let files = limits.output_bytes.saturating_add(limits.input_bytes.saturating_mul(2));
    let base = if gpu { BASE_BYTES.saturating_add(CUDA_BYTES) } else { BASE_BYTES };
    pixels.saturating_add(files).saturating_add(base)
}

/// What one worker starts in. It must outlive the worker's process.
#[derive(Debug)]
pub struct Prepared {
    confinement: Confinement,
    namespaces: Option<Namespaces>,
    leaf: Option<Leaf>,
    gaps: Vec<Gap>,
}

impl Confinement {
    /// Prepares what can be had.
    ///
    /// # Errors
    /// A [`Gap`] that the policy does not bear.
    pub fn prepare(self) -> Result<Prepared, Gap> {
        let mut prepared = Prepared { confinement: self, namespaces: None, leaf: None, gaps: Vec::new() };
        if self.policy == SandboxPolicy::Off {
            return Ok(prepared);
        }
        match namespaces::available() {
            Ok(Namespaces::WithUser) => prepared.namespaces = Some(Namespaces::WithUser),
            Ok(Namespaces::WithoutUser) => {
                prepared.namespaces = Some(Namespaces::WithoutUser);
                let found = "user namespaces are refused, so a worker has the supervisor's id and mounts";
                prepared.lack(Gap::new(Layer::Namespaces, found))?;
            }
            Err(why) => {
                prepared
                    .lack(Gap::new(Layer::Namespaces, format!("workers have no namespaces of their own: {why}")))?;
            }
        }
        let leaf = cgroup::parent().map_err(str::to_owned);
        match leaf.and_then(|parent| parent.leaf(self.memory_bytes).map_err(|error| error.to_string())) {
            Ok(leaf) => prepared.leaf = Some(leaf),
            Err(why) => prepared.lack(Gap::new(Layer::Memory, format!("no cgroup limits a worker's memory: {why}")))?,
        }
        Ok(prepared)
    }
}

impl Prepared {
    fn lack(&mut self, gap: Gap) -> Result<(), Gap> {
        if self.confinement.policy == SandboxPolicy::Strict {
            return Err(gap);
        }
        self.gaps.push(gap);
        Ok(())
    }

    /// What the worker's process does to itself before exec, on a device of `kind`.
    #[must_use]
    pub fn isolation(&self, kind: &str) -> Isolation {
        if self.confinement.policy == SandboxPolicy::Off {
            return Isolation::none();
        }
        let isolation = Isolation::new(self.namespaces);
        if kind == "cpu" { isolation.limited(self.confinement.memory_bytes) } else { isolation }
    }

    /// Puts the worker's process into its cgroup. It takes a while, best while the worker starts its device.
    ///
    /// # Errors
    /// A [`Gap`] that the policy does not bear.
    pub fn enter(&mut self, pid: u32) -> Result<(), Gap> {
        let Some(Err(error)) = self.leaf.as_ref().map(|leaf| leaf.take(pid)) else { return Ok(()) };
        if error.raw_os_error() == Some(Errno::ESRCH as i32) {
            // It has ended already, which is seen in a moment, with the reason.
            return Ok(());
        }
        self.leaf = None;
        self.lack(Gap::new(Layer::Memory, format!("worker could not be put into its cgroup: {error}")))
    }

    /// Whether the worker that is ready is confined as the policy asks.
    ///
    /// # Errors
    /// A [`Gap`] that the policy does not bear.
    pub fn judge(&self, kind: &str, told: Posture, pid: u32) -> Result<Verdict, Gap> {
        let unread =
            |error| Gap::new(Layer::SelfTest, format!("the kernel's word on process {pid} cannot be read: {error}"));
        let status = Status::of(pid).map_err(unread)?;
        self.confinement.policy.judge(kind, told, status, &self.gaps)
    }

    /// The limit on the worker's memory, in bytes, if the kernel killed it for being over it.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<u64> {
        let leaf = self.leaf.as_ref()?;
        (leaf.out_of_memory_kills() > 0).then(|| leaf.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_memory_follows_the_limits_and_the_device() {
        let small = Limits { pixels: 1, output_bytes: 10, input_bytes: 100, ..Limits::default() };
        assert_eq!(needed_memory(&small, false), BASE_BYTES + 24 + 10 + 200);
        assert_eq!(needed_memory(&small, true), BASE_BYTES + CUDA_BYTES + 24 + 10 + 200);
        let absurd = Limits { pixels: u64::MAX, ..Limits::default() };
        assert_eq!(needed_memory(&absurd, true), u64::MAX);
    }

    #[test]
    fn nothing_is_prepared_where_nothing_is_asked() {
        let prepared = Confinement { policy: SandboxPolicy::Off, memory_bytes: 1 }.prepare().unwrap();
        assert!(prepared.namespaces.is_none() && prepared.leaf.is_none() && prepared.gaps.is_empty());
        assert_eq!(prepared.out_of_memory(), None);
    }
}
