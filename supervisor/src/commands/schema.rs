//! `refmill schema`: the report's form, for those who read it with other programs.

use refmill::exit::ExitCode;
use refmill::report::Report;

use super::{CommandError, print};

pub(super) fn print_schema() -> Result<ExitCode, CommandError> {
    print(&report_schema())
}

/// The JSON schema of the report, as `docs/report.schema.json` holds it.
#[must_use]
pub fn report_schema() -> String {
    let schema = schemars::schema_for!(Report);
    format!("{:#}\n", schema.as_value())
}
