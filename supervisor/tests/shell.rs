//! Completions and manual pages come from the command line's own table, and shells and `man` can read them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a helper that fails is a test that fails")]

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use clap::CommandFactory;
use refmill_supervisor::args::Args;

fn refmill(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_refmill")).args(arguments).output().unwrap()
}

fn completions(shell: &str) -> String {
    let output = refmill(&["completions", shell]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The names of the manual pages that there must be: one a command, `refmill-jobs-list` for `refmill jobs list`.
fn pages(command: &clap::Command, name: &str) -> Vec<String> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    let below = below.flat_map(|below| pages(below, &format!("{name}-{}", below.get_name())));
    std::iter::once(name.to_owned()).chain(below).collect()
}

/// What bash offers after a line, by the script itself.
fn offered(words: &[&str]) -> Vec<String> {
    let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let last = words.len() - 1;
    let (word, before) = (words[last], words[last.saturating_sub(1)]);
    let call = format!(
        "\nCOMP_WORDS=({line}); COMP_CWORD={last}; _refmill refmill '{word}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash").arg("-c").arg(completions("bash") + &call).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_parses_its_completions() {
    let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(completions("bash").as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn bash_offers_commands_options_and_values() {
    assert_eq!(offered(&["refmill", "ins"]), ["inspect"]);
    assert_eq!(offered(&["refmill", "run", "--reci"]), ["--recipe"]);
    assert_eq!(offered(&["refmill", "run", "--intent", "sat"]), ["saturation"]);
}

#[test]
fn every_shell_has_completions_that_name_every_command() {
    let commands: Vec<String> =
        Args::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    assert!(commands.len() > 10);
    let missing = |shell: &&str| {
        let script = completions(shell);
        commands.iter().filter(|name| !script.contains(name.as_str())).count()
    };
    assert_eq!(["bash", "elvish", "fish", "powershell", "zsh"].iter().map(missing).collect::<Vec<_>>(), [0; 5]);
}

#[test]
fn shell_that_is_not_known_is_refused() {
    assert_eq!(refmill(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn every_command_has_a_manual_page_and_there_is_no_other() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("man");
    assert!(refmill(&["man", "--out", folder.to_str().unwrap()]).status.success());
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let mut wanted: Vec<String> = pages(&Args::command(), "refmill").iter().map(|name| format!("{name}.1")).collect();
    wanted.sort();
    assert_eq!(names, wanted);
    assert!(names.contains(&"refmill-jobs-retry.1".to_owned()));
    let whole = |name: &&String| {
        let page = fs::read_to_string(folder.join(name)).unwrap();
        [".TH ", ".SH NAME", ".SH SYNOPSIS"].iter().all(|part| page.contains(part))
    };
    assert_eq!(names.iter().filter(whole).count(), names.len());
}

#[test]
fn folder_that_cannot_be_made_is_told() {
    let output = refmill(&["man", "--out", "/proc/no/such"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("refmill: cannot write the manual pages"));
}
