//! The checks: their codes, why each matters, and what to do. `docs/doctor.md` is made from this list.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Serialize;

/// How a check ended, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Not looked at, for the reason that is told.
    Skipped,
    /// Worth knowing.
    Note,
    /// refmill works, but not as it could or should.
    Warning,
    /// refmill does not work so.
    Failure,
}

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The configuration.
    Config,
    /// Whether this is a container.
    Container,
    /// Memory of the machine.
    Memory,
    /// Descriptors.
    Descriptors,
    /// Memory that may be locked.
    Memlock,
    /// Shared memory.
    SharedMemory,
    /// The folder for sockets.
    TemporaryFolder,
    /// The kernel's driver.
    DriverModule,
    /// The kernel's driver and the library.
    DriverMatch,
    /// The driver and the kernels.
    DriverPtx,
    /// Device nodes.
    DeviceNodes,
    /// The GPU by its UUID.
    GpuListed,
    /// `CUDA_VISIBLE_DEVICES`.
    VisibleDevices,
    /// MIG.
    Mig,
    /// MPS.
    Mps,
    /// Namespaces.
    Namespaces,
    /// Control groups.
    Cgroup,
    /// A worker's start.
    WorkerStart,
    /// Landlock.
    Landlock,
    /// The list of calls.
    Seccomp,
    /// What a worker tried in vain.
    SandboxSelfTest,
    /// A built-in image.
    Image,
    /// The GPU is the one asked for.
    GpuIdentity,
    /// The context.
    GpuContext,
    /// Device memory.
    GpuAllocation,
    /// Where it begins.
    GpuAlignment,
    /// Page-locked memory.
    GpuCopy,
    /// Kernels.
    GpuKernel,
    /// The driver's pool.
    GpuPool,
    /// Waits.
    GpuWaits,
    /// The GPU's JPEG decoder.
    GpuDecoder,
    /// What is left once a context is gone.
    GpuTeardown,
    /// The watermark.
    Watermark,
    /// The queue's file.
    QueueFile,
    /// A queue beside it.
    QueueRoundTrip,
    /// The folder of artifacts.
    OutputFolder,
    /// The room in it.
    OutputSpace,
}

/// What there is to say about a check.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Stable and machine-readable; never renamed.
    pub code: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

/// A check with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Which.
    pub check: Check,
    /// How it ended.
    pub severity: Severity,
    /// What was seen.
    pub seen: String,
}

impl Checked {
    /// A check, how it ended, and what was seen.
    #[must_use]
    pub fn new(check: Check, severity: Severity, seen: impl Into<String>) -> Self {
        Self { check, severity, seen: seen.into() }
    }
}

/// Does `work` on a thread of its own and waits no longer than `limit`: what hangs is told, and left behind.
pub fn within(
    limit: Duration,
    checks: &'static [Check],
    work: impl FnOnce() -> Vec<Checked> + Send + 'static,
) -> Vec<Checked> {
    let (sender, answers) = mpsc::channel();
    // Nobody listens any more where it came too late.
    let spawned = thread::Builder::new().name("check".into()).spawn(move || drop(sender.send(work())));
    let seen = match spawned {
        Ok(_) => match answers.recv_timeout(limit) {
            Ok(checked) => return checked,
            Err(mpsc::RecvTimeoutError::Timeout) => format!("no answer within {} s", limit.as_secs()),
            Err(mpsc::RecvTimeoutError::Disconnected) => "the check broke off".into(),
        },
        Err(error) => format!("no thread for the check: {error}"),
    };
    checks.iter().map(|check| Checked::new(*check, Severity::Failure, seen.clone())).collect()
}

const fn about(code: &'static str, why: &'static str, remedy: &'static str) -> About {
    About { code, why, remedy }
}

impl Check {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 37] = [
        Self::Config,
        Self::Container,
        Self::Memory,
        Self::Descriptors,
        Self::Memlock,
        Self::SharedMemory,
        Self::TemporaryFolder,
        Self::DriverModule,
        Self::DriverMatch,
        Self::DriverPtx,
        Self::DeviceNodes,
        Self::GpuListed,
        Self::VisibleDevices,
        Self::Mig,
        Self::Mps,
        Self::Namespaces,
        Self::Cgroup,
        Self::WorkerStart,
        Self::Landlock,
        Self::Seccomp,
        Self::SandboxSelfTest,
        Self::Image,
        Self::GpuIdentity,
        Self::GpuContext,
        Self::GpuAllocation,
        Self::GpuAlignment,
        Self::GpuCopy,
        Self::GpuKernel,
        Self::GpuPool,
        Self::GpuWaits,
        Self::GpuDecoder,
        Self::GpuTeardown,
        Self::Watermark,
        Self::QueueFile,
        Self::QueueRoundTrip,
        Self::OutputFolder,
        Self::OutputSpace,
    ];

    /// Its code, why it matters and what to do.
    #[must_use]
    pub fn about(self) -> About {
        match self {
            Self::Config => about(
                "config",
                "`serve` does not start with a configuration that it cannot read.",
                "Mend what `refmill config check` names.",
            ),
            Self::Container => about(
                "container",
                "A container decides which devices, calls and cgroups there are.",
                "With NVIDIA's runtime set NVIDIA_DRIVER_CAPABILITIES=compute,utility,video; give the pod a GPU resource.",
            ),
            Self::Memory => about(
                "memory",
                "A worker that gets less memory than its limits allow is killed in the middle of an image.",
                "Lower `[limits]` or --worker-memory, start fewer workers, or raise the pod's memory.",
            ),
            Self::Descriptors => about(
                "descriptors",
                "Each worker and each connection takes some descriptors.",
                "Raise LimitNOFILE or `ulimit -n` to 1024 at least.",
            ),
            Self::Memlock => about(
                "memlock",
                "The driver locks pages itself and does not count them here; RDMA and other software beside refmill does.",
                "Nothing for refmill alone; else LimitMEMLOCK=infinity.",
            ),
            Self::SharedMemory => about(
                "shared_memory",
                "Images and artifacts travel in sealed memory that the supervisor makes.",
                "Allow memfd_create with sealing in the container's seccomp profile.",
            ),
            Self::TemporaryFolder => about(
                "temporary_folder",
                "A worker is met at a socket in TMPDIR, whose path may have 107 bytes.",
                "Point TMPDIR to a short path that can be written.",
            ),
            Self::DriverModule => about(
                "driver_module",
                "Without the kernel's driver there is no GPU.",
                "Install the NVIDIA driver on the host; in a container use the NVIDIA runtime.",
            ),
            Self::DriverMatch => about(
                "driver_match",
                "libcuda and the kernel's driver must be of one version: with another the ABI does not match and cuInit fails, also where nvidia-smi works.",
                "Reboot or reload the module after an upgrade; in a container mount the host's libcuda instead of bringing one.",
            ),
            Self::DriverPtx => about(
                "driver_ptx",
                "The kernels are PTX ISA 8.0, which drivers before 525 do not read.",
                "Install driver 525 or later.",
            ),
            Self::DeviceNodes => about(
                "device_nodes",
                "CUDA opens nvidiactl, nvidia-uvm, nvidia-uvm-tools and the GPU's own node for reading and writing.",
                "Load nvidia-uvm (`nvidia-modprobe -u -c=0`), and give this user the nodes: group, mode, or the container's devices.",
            ),
            Self::GpuListed => about(
                "gpu_listed",
                "Workers are given one GPU by its UUID; an index means another card after a change.",
                "Take a UUID from `nvidia-smi -L`.",
            ),
            Self::VisibleDevices => about(
                "visible_devices",
                "Workers are started with their own UUID in CUDA_VISIBLE_DEVICES, whatever stands here; other software takes this one.",
                "Use UUIDs: what follows an index that does not exist is hidden without a word.",
            ),
            Self::Mig => about(
                "mig",
                "A GPU in MIG mode runs nothing as a whole; only its instances do.",
                "Name an instance: --gpu MIG-..., as `nvidia-smi -L` lists it.",
            ),
            Self::Mps => about(
                "mps",
                "With MPS all clients share one server: a fault in one ends the others, and confined workers cannot reach its pipe.",
                "Stop the MPS daemon on GPUs that refmill uses (`echo quit | nvidia-cuda-mps-control`).",
            ),
            Self::Namespaces => about(
                "namespaces",
                "A worker of its own user, network and mounts reaches nothing of this user's.",
                "Allow user namespaces, or run as root.",
            ),
            Self::Cgroup => about(
                "cgroup",
                "Without one, a worker's memory is bounded by nobody but the machine.",
                "Delegate a cgroup, as systemd does with Delegate=memory pids.",
            ),
            Self::WorkerStart => about(
                "worker_start",
                "No image is processed without one.",
                "Read what the worker said; --worker names the program.",
            ),
            Self::Landlock => about(
                "landlock",
                "It keeps files, ports and signals from a worker that was taken over.",
                "Run Linux 6.12 or later with landlock among its lsm.",
            ),
            Self::Seccomp => about(
                "seccomp",
                "It keeps system calls from a worker that was taken over.",
                "Use the refmill-worker of this very build; --sandbox=off is for finding faults alone.",
            ),
            Self::SandboxSelfTest => about(
                "sandbox_self_test",
                "What must be refused was tried in vain by the worker itself.",
                "Use the refmill-worker of this very build.",
            ),
            Self::Image => about(
                "image",
                "Every stage of a job, with a result that is known.",
                "Use a build whose tests pass on this machine's processor.",
            ),
            Self::GpuIdentity => about(
                "gpu_identity",
                "Quotas and memory are counted for the GPU that was named.",
                "Name it by its UUID.",
            ),
            Self::GpuContext => about(
                "gpu_context",
                "A context that does not answer fails every job.",
                "Reset the GPU, look for Xid in the kernel's log.",
            ),
            Self::GpuAllocation => about(
                "gpu_allocation",
                "Images and tensors need device memory; a confined driver opens its nodes again for it.",
                "Free the GPU's memory, and look at device_nodes.",
            ),
            Self::GpuAlignment => about(
                "gpu_alignment",
                "Rows and tensors begin at multiples of 256 bytes, as kernels and copies expect.",
                "Use a driver that is supported.",
            ),
            Self::GpuCopy => about(
                "gpu_copy",
                "Page-locked memory is what copies at the bus' own rate.",
                "Give the process memory that can be locked; look for PCIe errors in the kernel's log.",
            ),
            Self::GpuKernel => about(
                "gpu_kernel",
                "Tensors must not depend on the device.",
                "Do not use this GPU: memory or driver is faulty.",
            ),
            Self::GpuPool => about(
                "gpu_pool",
                "The driver keeps freed memory for the next image, as PyTorch's cache does; it has to go back when it is told to.",
                "Use a driver that is supported; recycle workers by the watermark.",
            ),
            Self::GpuWaits => about(
                "gpu_waits",
                "A wait for a whole stream or device holds up every image beside.",
                "Look for failed jobs on this GPU: only a failure waits so.",
            ),
            Self::GpuDecoder => about(
                "gpu_decoder",
                "Without nvJPEG's engines the CPU decodes, several times slower.",
                "Name libnvjpeg by REFMILL_NVJPEG; cards without engines decode on the CPU.",
            ),
            Self::GpuTeardown => about(
                "gpu_teardown",
                "A worker that ends must leave nothing behind, or recycling helps nobody.",
                "Look for processes that hold the GPU, and reset it.",
            ),
            Self::Watermark => about(
                "watermark",
                "A mark under what an idle worker takes would recycle without end.",
                "Raise the mark, or lower what else uses the memory.",
            ),
            Self::QueueFile => about(
                "queue_file",
                "A queue that is broken or cannot be written loses the service.",
                "Restore the file, or name another with --queue.",
            ),
            Self::QueueRoundTrip => about(
                "queue_round_trip",
                "A job has to survive being put, taken and acked on this very file system.",
                "Use a local file system, not NFS or FUSE; free the disk; give this user the folder.",
            ),
            Self::OutputFolder => about(
                "output_folder",
                "Artifacts are written here, each whole or not at all.",
                "Create the folder, or give this user the right to write.",
            ),
            Self::OutputSpace => about(
                "output_space",
                "A job that finds the disk full fails and is tried again.",
                "Free the disk or name another folder.",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_that_hangs_is_told_in_time() {
        let checked = within(Duration::ZERO, &[Check::Mps], || {
            thread::sleep(Duration::from_secs(60));
            Vec::new()
        });
        assert_eq!(checked, [Checked::new(Check::Mps, Severity::Failure, "no answer within 0 s")]);
    }

    #[test]
    fn codes_differ() {
        let mut codes = Check::ALL.map(|check| check.about().code);
        codes.sort_unstable();
        assert!(codes.windows(2).all(|pair| pair[0] != pair[1]), "{codes:?}");
    }
}
