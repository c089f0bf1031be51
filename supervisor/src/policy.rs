//! `--strict` and `--policy CODE=ACTION` as a [`Policy`].

use refmill::finding::FindingCode;
use refmill::policy::{Action, Policy};

/// Why a policy cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Not of the form CODE=ACTION.
    #[error("--policy is `{given}`, it takes CODE=ACTION, such as icc_corrupt=reject")]
    Form {
        /// As typed.
        given: String,
    },
    /// No such finding.
    #[error("--policy names `{code}`, which is no finding; `refmill explain` lists the codes")]
    Code {
        /// As typed.
        code: String,
    },
    /// No such action.
    #[error("--policy {code}={action}: the action is repair, reject or ignore")]
    Action {
        /// The finding.
        code: String,
        /// As typed.
        action: String,
    },
}

/// The policy of the configuration and, after it, the policies as typed; the last one of a code counts.
///
/// # Errors
/// The first [`PolicyError`].
pub fn over(configured: Policy, strict: bool, policies: &[String]) -> Result<Policy, PolicyError> {
    let mut actions = configured.actions;
    for given in policies {
        actions.push(entry(given)?);
    }
    Ok(Policy { strict: configured.strict || strict, actions })
}

fn entry(given: &str) -> Result<(FindingCode, Action), PolicyError> {
    let (name, action) = given.split_once('=').ok_or_else(|| PolicyError::Form { given: given.into() })?;
    let code = FindingCode::ALL.iter().copied().find(|code| code.as_str() == name);
    let code = code.ok_or_else(|| PolicyError::Code { code: name.into() })?;
    let action = match action {
        "repair" => Action::Repair,
        "reject" => Action::Reject,
        "ignore" => Action::Ignore,
        other => return Err(PolicyError::Action { code: name.into(), action: other.into() }),
    };
    Ok((code, action))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(strict: bool, policies: &[String]) -> Result<Policy, PolicyError> {
        over(Policy::default(), strict, policies)
    }

    #[test]
    fn typed_entry_comes_after_the_configured_one() {
        let configured = Policy { strict: true, actions: vec![(FindingCode::IccCorrupt, Action::Reject)] };
        let policy = over(configured, false, &["icc_corrupt=ignore".into()]).unwrap();
        let finding = refmill::finding::Finding::new(FindingCode::IccCorrupt, "", "");
        assert_eq!((policy.action(&finding), policy.strict), (Action::Ignore, true));
    }

    #[test]
    fn entry_names_code_and_action() {
        let policy = parse(true, &["icc_corrupt=ignore".into()]).unwrap();
        assert_eq!(policy, Policy { strict: true, actions: vec![(FindingCode::IccCorrupt, Action::Ignore)] });
    }

    #[test]
    fn unknown_code_is_refused() {
        let error = parse(false, &["icc_broken=reject".into()]).unwrap_err();
        assert_eq!(error, PolicyError::Code { code: "icc_broken".into() });
    }

    #[test]
    fn unknown_action_is_refused() {
        assert!(matches!(parse(false, &["icc_corrupt=drop".into()]), Err(PolicyError::Action { .. })));
    }

    #[test]
    fn entry_without_an_action_is_refused() {
        assert!(matches!(parse(false, &["icc_corrupt".into()]), Err(PolicyError::Form { .. })));
    }
}
