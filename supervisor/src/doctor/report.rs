//! What the doctor says: to people, to programs, and as `docs/doctor.md`.

use std::fmt::Write;

use refmill::exit::ExitCode;
use serde_json::{Value, json};

use super::check::{Check, Checked, Severity};
use crate::table;

const INTRODUCTION: &str = "\
# refmill doctor

<!-- Made by `refmill doctor --markdown > docs/doctor.md`; a test compares. -->

`refmill doctor` looks at the machine, the driver, the queue and the folder of artifacts, starts one worker as `serve`
does, confined and on the device that is meant, and has it try out what jobs need. Every check has a deadline, and it
needs no terminal: it can be an init container's command.

Each check ends with **ok**, **note** (worth knowing), **warning** (refmill works, but not as it should), **failure**
(refmill does not work so) or **skipped** with its reason. The exit code is 0 up to a note, 1 for a warning, 3 for a
failure, and 2 where the command line cannot be used; `--tolerant` ends a warning with 0 as well. `--json` prints one
object. Codes are never renamed.

";

/// A word for people.
fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Skipped => "skipped",
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Failure => "failure",
    }
}

/// How the program ends.
#[must_use]
pub fn exit_code(checked: &[Checked], tolerant: bool) -> ExitCode {
    match checked.iter().map(|one| one.severity).max() {
        Some(Severity::Failure) => ExitCode::Unfit,
        Some(Severity::Warning) if !tolerant => ExitCode::Doubtful,
        _ => ExitCode::Fit,
    }
}

/// A table; why and remedy for what is wrong.
#[must_use]
pub fn text(checked: &[Checked]) -> String {
    let mut rows: Vec<[String; 3]> = Vec::new();
    for one in checked {
        let about = one.check.about();
        rows.push([word(one.severity).into(), about.code.into(), one.seen.clone()]);
        if one.severity >= Severity::Warning {
            rows.push([String::new(), String::new(), format!("why: {}", about.why)]);
            rows.push([String::new(), String::new(), format!("do: {}", about.remedy)]);
        }
    }
    let count = |severity| checked.iter().filter(|one| one.severity == severity).count();
    let (failures, warnings) = (count(Severity::Failure), count(Severity::Warning));
    format!(
        "{}{} checks, {warnings} warnings, {failures} failures\n",
        table::render(&rows, &[8, 18, 90]),
        checked.len()
    )
}

/// One object.
#[must_use]
pub fn json(checked: &[Checked]) -> Value {
    let one = |one: &Checked| {
        let about = one.check.about();
        json!({
            "code": about.code,
            "severity": word(one.severity),
            "seen": one.seen,
            "why": about.why,
            "remedy": about.remedy,
        })
    };
    let worst = checked.iter().map(|one| one.severity).max().unwrap_or(Severity::Ok);
    json!({ "worst": word(worst), "checks": checked.iter().map(one).collect::<Vec<_>>() })
}

/// `docs/doctor.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str("| code | why | what to do |\n| --- | --- | --- |\n");
    for check in Check::ALL {
        let about = check.about();
        // Writing to a String cannot fail.
        writeln!(text, "| `{}` | {} | {} |", about.code, about.why, about.remedy).ok();
    }
    text
}
