//! A cgroup for each worker, with a limit on its memory and on its threads; made where the supervisor may, removed
//! with the worker. Version 2 where its memory controller is to be had, else version 1.
//!
//! Of version 2 a cgroup has either processes or controlled children. So where this process is alone in its own, it
//! moves one level down, into `supervisor`; where it is not alone, nobody is moved.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// Most threads and processes of a worker; a decoder takes one a core.
const MAX_TASKS: u64 = 1024;
/// Where this process goes, so that its cgroup may have children with limits.
const OWN: &str = "supervisor";
const PREFIX: &str = "refmill-";
/// A killed process is gone from its cgroup a moment after it is reaped.
const REMOVE_TRIES: u32 = 50;

/// Where workers' cgroups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    memory: Place,
    /// Absent where only memory can be limited.
    tasks: Option<Place>,
}

/// A folder of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    V1(PathBuf),
    V2(PathBuf),
}

/// One worker's cgroup; removed when dropped, which is after its process.
#[derive(Debug)]
pub struct Leaf {
    folders: Vec<PathBuf>,
    events: PathBuf,
    memory_bytes: u64,
}

/// The parent of all workers' cgroups, or why there can be none. Found once; a process may be moved for it.
pub fn parent() -> Result<&'static Parent, &'static str> {
    static FOUND: OnceLock<Result<Parent, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let parent = find()?;
        parent.sweep();
        Ok(parent)
    });
    found.as_ref().map_err(String::as_str)
}

impl Parent {
    /// A new cgroup below this one.
    ///
    /// # Errors
    /// What the kernel says; nothing is left behind.
    pub fn leaf(&self, memory_bytes: u64) -> io::Result<Leaf> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let memory = self.memory.path().join(&name);
        let events = memory.join(if self.memory.is_v2() { "memory.events" } else { "memory.oom_control" });
        let mut leaf = Leaf { folders: Vec::new(), events, memory_bytes };
        leaf.add(&memory)?;
        if self.memory.is_v2() {
            put(&memory.join("memory.max"), memory_bytes)?;
            // One that swaps is slow for all; kernels without swap accounting have no such file.
            put(&memory.join("memory.swap.max"), 0).ok();
        } else {
            put(&memory.join("memory.limit_in_bytes"), memory_bytes)?;
            put(&memory.join("memory.memsw.limit_in_bytes"), memory_bytes).ok();
        }
        if let Some(tasks) = &self.tasks {
            let folder = tasks.path().join(&name);
            if folder != memory {
                leaf.add(&folder)?;
            }
            put(&folder.join("pids.max"), MAX_TASKS)?;
        }
        Ok(leaf)
    }

    /// Removes what supervisors left that were killed: empty cgroups whose maker is gone.
    fn sweep(&self) {
        let places = [Some(&self.memory), self.tasks.as_ref()];
        for entry in
            places.into_iter().flatten().filter_map(|place| fs::read_dir(place.path()).ok()).flatten().flatten()
        {
            let name = entry.file_name();
            let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok());
            if maker.is_some_and(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)) {
                // One with a process in it stays.
                fs::remove_dir(entry.path()).ok();
            }
        }
    }
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::V1(path) | Self::V2(path) => path,
        }
    }

    fn is_v2(&self) -> bool {
        matches!(self, Self::V2(_))
    }
}

impl Leaf {
    fn add(&mut self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)?;
        self.folders.push(folder.to_owned());
        Ok(())
    }

    /// Takes a process in. The kernel needs some 50 ms for it, whatever the process does meanwhile.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&self, pid: u32) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| put(&folder.join("cgroup.procs"), pid))
    }

    /// The limit, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// How often the kernel killed a process in here since it was over the limit; what tells that from a crash.
    #[must_use]
    pub fn out_of_memory_kills(&self) -> u64 {
        fs::read_to_string(&self.events).map_or(0, |text| counter(&text, "oom_kill"))
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        for folder in &self.folders {
            for _ in 0..REMOVE_TRIES {
                match fs::remove_dir(folder) {
                    Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
                        thread::sleep(Duration::from_millis(2));
                    }
                    // What cannot be removed now is swept by a later supervisor.
                    _ => break,
                }
            }
        }
    }
}

fn find() -> Result<Parent, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"));
    let (own, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
    let memory = place(&own, &mounts, "memory")?;
    // Without it memory is limited all the same.
    let tasks = place(&own, &mounts, "pids").ok();
    Ok(Parent { memory, tasks })
}

/// Where cgroups with one controller can be made.
fn place(own: &str, mounts: &str, controller: &str) -> Result<Place, String> {
    if let Some(folder) = version_1(own, mounts, controller) {
        return writable(&folder).map(|()| Place::V1(folder));
    }
    let folder =
        version_2(own, mounts).ok_or_else(|| format!("no cgroup with the {controller} controller is mounted"))?;
    delegated(&folder, controller).map(Place::V2)
}

/// The cgroup below which version 2 has `controller` for children; this process is moved where that is needed.
fn delegated(own: &Path, controller: &str) -> Result<PathBuf, String> {
    let has = |folder: &Path, file: &str| {
        fs::read_to_string(folder.join(file)).is_ok_and(|list| list.split_whitespace().any(|word| word == controller))
    };
    let parent = if own.ends_with(OWN) { own.parent().unwrap_or(own) } else { own };
    if !has(parent, "cgroup.controllers") {
        return Err(format!("{} has no {controller} controller", parent.display()));
    }
    writable(parent)?;
    if has(parent, "cgroup.subtree_control") {
        return Ok(parent.to_owned());
    }
    let enable = || put(&parent.join("cgroup.subtree_control"), format!("+{controller}"));
    let Err(error) = enable() else { return Ok(parent.to_owned()) };
    if error.raw_os_error() != Some(Errno::EBUSY as i32) {
        return Err(format!("cannot enable the {controller} controller in {}: {error}", parent.display()));
    }
    let processes = fs::read_to_string(parent.join("cgroup.procs")).unwrap_or_default();
    if processes.split_whitespace().any(|pid| pid.parse() != Ok(std::process::id())) {
        return Err(format!("{} has other processes, so it can have no children with limits", parent.display()));
    }
    let moved = fs::create_dir_all(parent.join(OWN))
        .and_then(|()| put(&parent.join(OWN).join("cgroup.procs"), std::process::id()))
        .and_then(|()| enable());
    moved
        .map(|()| parent.to_owned())
        .map_err(|error| format!("cannot move into {}: {error}", parent.join(OWN).display()))
}

fn writable(folder: &Path) -> Result<(), String> {
    use nix::unistd::{AccessFlags, access};
    let denied = |error: Errno| format!("{} cannot be written: {error}", folder.display());
    access(folder, AccessFlags::W_OK)
        .and_then(|()| access(&folder.join("cgroup.procs"), AccessFlags::W_OK))
        .map_err(denied)
}

fn put(path: &Path, value: impl std::fmt::Display) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.to_string().as_bytes())
}

/// The folder of this process in the version 1 hierarchy of `controller`.
fn version_1(own: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })?;
    mounted(mounts, path, |kind, options| kind == "cgroup" && options.split(',').any(|option| option == controller))
}

/// The folder of this process in the version 2 hierarchy.
fn version_2(own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounted(mounts, path, |kind, _| kind == "cgroup2")
}

/// Where `path` lies below the mount that `wanted` picks, by proc_pid_mountinfo(5).
fn mounted(mounts: &str, path: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        // What is mounted may be a part of the hierarchy, as in a container.
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        wanted(kind, options).then(|| Path::new(point).join(below.strip_prefix("/").unwrap_or(below)))
    })
}

fn counter(text: &str, name: &str) -> u64 {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
33 30 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
34 30 0:30 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
41 30 0:37 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
    const OWN: &str = "9:name=systemd:/\n4:memory:/a/b\n2:cpu,cpuacct:/docker/x/y\n0::/user.slice\n";

    #[test]
    fn version_1_is_found_by_its_controller() {
        assert_eq!(version_1(OWN, MOUNTS, "memory"), Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(version_1(OWN, MOUNTS, "pids"), None);
    }

    #[test]
    fn part_of_a_hierarchy_that_is_mounted_is_left_out_of_the_path() {
        assert_eq!(version_1(OWN, MOUNTS, "cpuacct"), Some("/sys/fs/cgroup/cpu,cpuacct/y".into()));
    }

    #[test]
    fn version_2_is_found_by_its_type() {
        assert_eq!(version_2(OWN, MOUNTS), Some("/sys/fs/cgroup/unified/user.slice".into()));
    }

    #[test]
    fn what_a_killed_supervisor_left_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        // No process has the first id: it is over the kernel's own limit.
        let names = ["refmill-4194305-0", &format!("refmill-{}-0", std::process::id()), "other-4194305-0"];
        names.iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
        Parent { memory: Place::V2(folder.path().into()), tasks: None }.sweep();
        assert_eq!(names.map(|name| folder.path().join(name).exists()), [false, true, true]);
    }

    #[test]
    fn kills_are_counted_apart_from_what_is_called_alike() {
        assert_eq!(counter("low 0\noom 5\noom_kill 2\noom_group_kill 1\n", "oom_kill"), 2);
        assert_eq!(counter("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"), 3);
        assert_eq!(counter("", "oom_kill"), 0);
    }
}
