//! `refmill doctor` from outside, on this machine and on machines that are broken on purpose. Needs the worker beside
//! the program.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use refmill_supervisor::doctor::check::Check;
use refmill_supervisor::doctor::report;
use refmill_supervisor::queue::SqliteQueue;
use refmill_supervisor::queue::sqlite::Durability;
use serde_json::Value;
use tempfile::TempDir;

const GPU: &str = "GPU-0a1b2c3d-0000-1111-2222-333344445555";
const OTHER: &str = "GPU-ffffffff-0000-1111-2222-333344445555";
const MIG: &str = "MIG-0a1b2c3d-0000-1111-2222-333344445555";

/// A folder with everything that one call needs.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(place.path("root/proc")).unwrap();
        fs::write(place.path("root/proc/meminfo"), "MemTotal: 999999999 kB\nMemAvailable: 999999999 kB\n").unwrap();
        place
    }

    /// One with a driver, a library of the same version, a GPU and its nodes.
    fn with_gpu() -> Self {
        let place = Self::new();
        place.module("580.95.05");
        place.library("usr/lib64", "580.95.05");
        let folder = place.path("root/proc/driver/nvidia/gpus/0000:01:00.0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("information"), format!("GPU UUID: \t {GPU}\n")).unwrap();
        fs::create_dir_all(place.path("root/dev")).unwrap();
        for node in ["nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"] {
            fs::write(place.path("root/dev").join(node), "").unwrap();
        }
        place
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn module(&self, version: &str) {
        fs::create_dir_all(self.path("root/proc/driver/nvidia")).unwrap();
        let text = format!("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n");
        fs::write(self.path("root/proc/driver/nvidia/version"), text).unwrap();
    }

    fn library(&self, folder: &str, version: &str) {
        let folder = self.path("root").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("libcuda.so.{version}")), "").unwrap();
        symlink(format!("libcuda.so.{version}"), folder.join("libcuda.so.1")).unwrap();
    }

    fn command(&self, more: &[&str]) -> Command {
        self.on(&self.path("queue.db"), more)
    }

    /// The same with another queue.
    fn on(&self, queue: &Path, more: &[&str]) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_refmill"));
        assert!(program.with_file_name("refmill-worker").is_file(), "build the worker first");
        let mut command = Command::new(program);
        command.arg("doctor").arg("--machine-root").arg(self.path("root"));
        command.arg("--queue").arg(queue).arg("--out").arg(self.path("out"));
        let variables = [
            "CUDA_VISIBLE_DEVICES",
            "CUDA_MPS_PIPE_DIRECTORY",
            "NVIDIA_DRIVER_CAPABILITIES",
            "LD_LIBRARY_PATH",
            "KUBERNETES_SERVICE_HOST",
        ];
        for name in variables {
            command.env_remove(name);
        }
        command.args(more);
        command
    }

    /// How one check ended, and what was seen.
    fn check(&self, code: &str, more: &[&str]) -> (String, String) {
        seen(&self.command(&[&["--json"], more].concat()).output().unwrap(), code)
    }
}

fn seen(output: &Output, code: &str) -> (String, String) {
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let one = told["checks"].as_array().unwrap().iter().find(|one| one["code"] == code).unwrap();
    assert!(!one["why"].as_str().unwrap().is_empty() && !one["remedy"].as_str().unwrap().is_empty());
    (one["severity"].as_str().unwrap().into(), one["seen"].as_str().unwrap().into())
}

fn ends(found: &(String, String), severity: &str, text: &str) {
    assert!(found.0 == severity && found.1.contains(text), "{found:?} is not {severity} with `{text}`");
}

#[test]
fn published_checks_are_the_programs_own() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/doctor.md");
    let published = fs::read_to_string(path).unwrap();
    assert_eq!(published, report::markdown(), "run `refmill doctor --markdown > docs/doctor.md`");
}

#[test]
fn machine_without_a_gpu_passes_the_image_inside_a_confined_worker() {
    let place = Place::new();
    let output = place.command(&["--json", "--tolerant"]).output().unwrap();
    ends(&seen(&output, "worker_start"), "ok", "one worker");
    ends(&seen(&output, "image"), "ok", "as they must be");
    ends(&seen(&output, "sandbox_self_test"), "ok", "15 of 15");
    ends(&seen(&output, "gpu_kernel"), "skipped", "no GPU");
    ends(&seen(&output, "driver_match"), "skipped", "no GPU");
    ends(&seen(&output, "queue_round_trip"), "ok", "put, taken and acked");
    ends(&seen(&output, "output_folder"), "ok", "can be written");
    ends(&seen(&output, "watermark"), "ok", "after one image");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["checks"].as_array().unwrap().len(), Check::ALL.len());
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(!place.path("queue.db").exists(), "the doctor made a queue");
}

#[test]
fn failure_is_exit_code_3_with_why_and_what_to_do() {
    let place = Place::new();
    fs::write(place.path("queue.db"), "this is no database, and long enough to be told from an empty one").unwrap();
    let output = place.command(&[]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("failure") && text.contains("why:") && text.contains("do:"), "{text}");
}

#[test]
fn unknown_gpu_form_is_exit_code_2() {
    assert_eq!(Place::new().command(&["--gpu", "0"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn queue_that_is_not_one_is_named() {
    let place = Place::new();
    fs::write(place.path("queue.db"), "this is no database, and long enough to be told from an empty one").unwrap();
    ends(&place.check("queue_file", &[]), "failure", "cannot be read as a queue");
}

#[test]
fn queue_of_something_else_is_named() {
    let place = Place::new();
    rusqlite::Connection::open(place.path("queue.db")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    ends(&place.check("queue_file", &[]), "failure", "not a queue of refmill");
}

#[test]
fn queue_in_a_folder_that_is_not_there_fails_its_round_trip() {
    let place = Place::new();
    let output = place.on(&place.path("none/queue.db"), &["--json"]).output().unwrap();
    ends(&seen(&output, "queue_round_trip"), "failure", "cannot be written");
}

#[test]
fn folder_of_artifacts_that_is_a_file_is_named() {
    let place = Place::new();
    fs::write(place.path("out"), "").unwrap();
    ends(&place.check("output_folder", &[]), "failure", "is no folder");
}

#[test]
fn configuration_that_cannot_be_read_is_a_finding_and_not_the_end() {
    let place = Place::new();
    fs::write(place.path("refmill.toml"), "[queue]\nnonsense = 1\n").unwrap();
    let config = place.path("refmill.toml");
    ends(&place.check("config", &["--config", config.to_str().unwrap()]), "failure", "nonsense");
}

#[test]
fn temporary_folder_that_cannot_be_used_is_named() {
    let place = Place::new();
    let (none, long) = (place.path("none"), place.path(&"x".repeat(90)));
    fs::create_dir(&long).unwrap();
    let with =
        |folder: &Path| seen(&place.command(&["--json"]).env("TMPDIR", folder).output().unwrap(), "temporary_folder");
    ends(&with(&none), "failure", "cannot be written");
    ends(&with(&long), "failure", "can be used");
}

#[test]
fn machine_with_too_little_memory_is_warned_of() {
    let place = Place::new();
    fs::write(place.path("root/proc/meminfo"), "MemAvailable: 1024 kB\n").unwrap();
    ends(&place.check("memory", &[]), "warning", "1 MiB available");
}

#[test]
fn container_is_noted_and_one_without_the_video_libraries_is_warned_of() {
    let place = Place::with_gpu();
    fs::write(place.path("root/.dockerenv"), "").unwrap();
    ends(&place.check("container", &[]), "note", "Docker");
    let mut command = place.command(&["--json"]);
    let output = command.env("NVIDIA_DRIVER_CAPABILITIES", "compute,utility").output().unwrap();
    ends(&seen(&output, "container"), "warning", "no video");
}

#[test]
fn worker_that_does_not_start_is_told_with_its_end() {
    let place = Place::new();
    let output = place.command(&["--json", "--worker", "/bin/false"]).output().unwrap();
    ends(&seen(&output, "worker_start"), "failure", "exited with 1");
    ends(&seen(&output, "image"), "skipped", "no worker");
}

#[test]
fn unconfined_worker_is_a_failure() {
    let place = Place::new();
    let output = place.command(&["--json", "--sandbox", "off"]).output().unwrap();
    ends(&seen(&output, "seccomp"), "failure", "everything");
    ends(&seen(&output, "landlock"), "warning", "not enforced");
    ends(&seen(&output, "sandbox_self_test"), "failure", "a worker can open a file");
}

#[test]
fn sound_driver_passes_and_its_worker_fails_where_the_gpu_is_forged() {
    let place = Place::with_gpu();
    let output = place.command(&["--json"]).output().unwrap();
    ends(&seen(&output, "driver_module"), "ok", "580.95.05");
    ends(&seen(&output, "driver_match"), "ok", "580.95.05");
    ends(&seen(&output, "driver_ptx"), "ok", "580");
    ends(&seen(&output, "device_nodes"), "ok", "1 GPU nodes");
    ends(&seen(&output, "gpu_listed"), "ok", GPU);
    ends(&seen(&output, "visible_devices"), "ok", "not set");
    ends(&seen(&output, "mig"), "ok", "no MIG");
    ends(&seen(&output, "mps"), "ok", "no MPS");
    ends(&seen(&output, "worker_start"), "failure", "");
}

#[test]
fn library_of_another_version_is_an_abi_mismatch() {
    let place = Place::with_gpu();
    place.module("570.10.01");
    ends(&place.check("driver_match", &[]), "failure", "ABI mismatch");
}

#[test]
fn library_for_forward_compatibility_is_a_note() {
    let place = Place::with_gpu();
    fs::remove_dir_all(place.path("root/usr/lib64")).unwrap();
    place.library("usr/local/cuda/compat", "590.1.1");
    ends(&place.check("driver_match", &[]), "note", "forward compatibility");
}

#[test]
fn library_that_is_missing_is_named() {
    let place = Place::with_gpu();
    fs::remove_dir_all(place.path("root/usr")).unwrap();
    ends(&place.check("driver_match", &[]), "failure", "libcuda.so.1 is in none");
}

#[test]
fn old_driver_does_not_read_the_kernels() {
    let place = Place::with_gpu();
    place.module("515.65.01");
    ends(&place.check("driver_ptx", &[]), "failure", "525 or later");
}

#[test]
fn driver_without_a_version_is_a_failure() {
    let place = Place::with_gpu();
    fs::remove_file(place.path("root/proc/driver/nvidia/version")).unwrap();
    ends(&place.check("driver_module", &[]), "failure", "no version");
}

#[test]
fn missing_node_is_named() {
    let place = Place::with_gpu();
    fs::remove_file(place.path("root/dev/nvidia-uvm-tools")).unwrap();
    ends(&place.check("device_nodes", &[]), "failure", "/dev/nvidia-uvm-tools is missing");
}

#[test]
fn gpu_that_is_not_listed_is_named() {
    ends(&Place::with_gpu().check("gpu_listed", &["--gpu", OTHER]), "failure", "is not among");
}

#[test]
fn visible_devices_by_index_are_warned_of() {
    let place = Place::with_gpu();
    let output = place.command(&["--json"]).env("CUDA_VISIBLE_DEVICES", "0,1").output().unwrap();
    ends(&seen(&output, "visible_devices"), "warning", "indexes");
}

#[test]
fn instance_where_there_is_none_and_a_whole_gpu_where_there_are_some_are_named() {
    let place = Place::with_gpu();
    ends(&place.check("mig", &["--gpu", MIG]), "failure", "shows none");
    fs::create_dir_all(place.path("root/proc/driver/nvidia/capabilities/gpu0/mig/gi1")).unwrap();
    ends(&place.check("mig", &[]), "warning", "1 MIG instances");
    ends(&place.check("mig", &["--gpu", MIG]), "ok", "1 MIG instances");
}

#[test]
fn mps_daemon_is_warned_of() {
    let place = Place::with_gpu();
    fs::create_dir_all(place.path("pipe")).unwrap();
    fs::write(place.path("pipe/control"), "").unwrap();
    let output = place.command(&["--json"]).env("CUDA_MPS_PIPE_DIRECTORY", place.path("pipe")).output().unwrap();
    ends(&seen(&output, "mps"), "warning", "MPS daemon");
}

#[test]
fn queue_of_refmill_is_sound() {
    let place = Place::new();
    SqliteQueue::open(&place.path("queue.db"), Durability::Full, true).unwrap();
    ends(&place.check("queue_file", &[]), "ok", "is sound");
}
