//! `refmill explain`: what a finding means, by which rule it is decided, and what to do about it.

use refmill::exit::ExitCode;
use refmill::finding::FindingCode;

use super::{CommandError, print};
use crate::args::ExplainArgs;
use crate::findings;

pub(super) fn explain(args: &ExplainArgs) -> Result<ExitCode, CommandError> {
    match &args.code {
        None if args.markdown => print(&findings::markdown()),
        None => print(&findings::list()),
        Some(text) => match FindingCode::from_text(text) {
            Some(code) => print(&findings::explain(code)),
            None => Err(CommandError::Usage { message: findings::unknown(text) }),
        },
    }
}
