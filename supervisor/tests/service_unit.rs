//! The systemd unit: what `serve` needs of it, and what systemd itself says of it where it is installed.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::Parser;
use refmill_supervisor::args::{Args, Command as Typed};
use refmill_supervisor::config::Config;

fn unit() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd/refmill.service")).unwrap()
}

/// The settings of the unit; of one that stands several times, the last.
fn settings(unit: &str) -> BTreeMap<String, String> {
    let lines = unit.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
    lines.map(|line| line.split_once('=').unwrap()).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn unit_starts_serve_by_a_configuration_and_waits_for_its_word() {
    let settings = settings(&unit());
    let typed = Args::try_parse_from(settings["ExecStart"].split(' ')).unwrap();
    assert!(matches!(typed.command, Typed::Serve(args) if args.config.is_some()));
    assert_eq!((settings["Type"].as_str(), settings["NotifyAccess"].as_str()), ("notify", "main"));
    assert_eq!(settings["ExecReload"], "/bin/kill -HUP $MAINPID");
}

#[test]
fn unit_gives_a_drain_the_time_that_it_has() {
    let settings = settings(&unit());
    let stop: u32 = settings["TimeoutStopSec"].parse().unwrap();
    assert!(stop > Config::default().queue.grace_s && settings["KillMode"] == "mixed");
}

#[test]
fn unit_leaves_workers_what_they_confine_themselves_with() {
    let settings = settings(&unit());
    let kept_out = ["RestrictNamespaces", "MemoryDenyWriteExecute", "PrivateDevices"];
    assert!(kept_out.iter().all(|key| !settings.contains_key(*key)));
    assert!(settings["SystemCallFilter"].contains("landlock_restrict_self") && settings["Delegate"].contains("memory"));
    assert_eq!(settings["OOMPolicy"], "continue");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refmill.service");
    // The program and the manual page are not installed here.
    let unit =
        unit().replace("/usr/local/bin/refmill", "/bin/true").replace("Documentation=man:refmill-serve(1)\n", "");
    fs::write(&path, unit).unwrap();
    let Ok(verified) = Command::new("systemd-analyze").arg("verify").arg(&path).output() else {
        eprintln!("skipped: systemd-analyze is not installed");
        return;
    };
    let said = String::from_utf8(verified.stderr).unwrap();
    let about_it: Vec<&str> = said.lines().filter(|line| line.contains("refmill.service")).collect();
    assert!(verified.status.success() && about_it.is_empty(), "{said}");
}
