//! What is done about a finding: repaired (the default), rejected, or ignored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::{Code, Failure};
use crate::finding::{Finding, FindingCode, Severity};

/// What is done about findings of one code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The rule of the finding decides, and the report says so.
    Repair,
    /// The image is refused with [`Code::PolicyReject`].
    Reject,
    /// As repair, but the finding does not make the image a repaired one.
    Ignore,
}

/// The actions of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Policy {
    /// Reject every defect that no entry names.
    pub strict: bool,
    /// Actions by code; the last entry of a code counts.
    pub actions: Vec<(FindingCode, Action)>,
}

impl Policy {
    /// What is done about a finding.
    #[must_use]
    pub fn action(&self, finding: &Finding) -> Action {
        let named = self.actions.iter().rev().find(|(code, _)| *code == finding.code).map(|(_, action)| *action);
        let strict = self.strict && finding.severity >= Severity::Defect;
        named.unwrap_or(if strict { Action::Reject } else { Action::Repair })
    }

    /// Applies the policy to a finding.
    ///
    /// # Errors
    /// [`Code::PolicyReject`] naming the finding.
    pub fn apply(&self, mut finding: Finding) -> Result<Finding, Failure> {
        match self.action(&finding) {
            Action::Repair => Ok(finding),
            Action::Ignore => {
                finding.severity = Severity::Info;
                Ok(finding)
            }
            Action::Reject => {
                let Finding { code, place, found, .. } = &finding;
                let at = if place.is_empty() { String::new() } else { format!(" in {place}") };
                let message = format!("{}{at}: {found}; the policy rejects it", code.as_str());
                Err(Failure::new(Code::PolicyReject, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defect() -> Finding {
        Finding::new(FindingCode::IccCorrupt, "iCCP", "zlib stream is broken")
    }

    #[test]
    fn default_policy_repairs() {
        assert_eq!(Policy::default().action(&defect()), Action::Repair);
    }

    #[test]
    fn strict_policy_rejects_defects_and_names_them() {
        let policy = Policy { strict: true, actions: Vec::new() };
        let failure = policy.apply(defect()).unwrap_err();
        assert_eq!(failure.code, Code::PolicyReject);
        assert_eq!(failure.message, "icc_corrupt in iCCP: zlib stream is broken; the policy rejects it");
    }

    #[test]
    fn strict_policy_lets_information_pass() {
        let policy = Policy { strict: true, actions: Vec::new() };
        assert!(policy.apply(Finding::new(FindingCode::ExifAbsent, "", "")).is_ok());
    }

    #[test]
    fn named_action_beats_strict() {
        let policy = Policy { strict: true, actions: vec![(FindingCode::IccCorrupt, Action::Ignore)] };
        assert_eq!(policy.apply(defect()).unwrap().severity, Severity::Info);
    }
}
