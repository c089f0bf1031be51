//! `refmill doctor`: whether this machine can do what refmill needs.

use refmill::exit::ExitCode;

use super::{CommandError, print, warn_unconfined};
use crate::args::DoctorArgs;
use crate::doctor::{self, report};
use crate::settings;

pub(super) fn doctor(args: DoctorArgs) -> Result<ExitCode, CommandError> {
    if args.markdown {
        return print(&report::markdown());
    }
    let (json, tolerant) = (args.json, args.tolerant);
    let patient = settings::patient(args)?;
    warn_unconfined(patient.plan.confinement.policy);
    let checked = doctor::examine(patient);
    let text = if json { format!("{}\n", report::json(&checked)) } else { report::text(&checked) };
    print(&text)?;
    Ok(report::exit_code(&checked, tolerant))
}
