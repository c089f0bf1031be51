//! Why a job ended without artifacts, and who is to blame: the blame decides whether trying again can help.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who caused a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The image: the same bytes fail everywhere.
    Input,
    /// The configured limits: the same bytes may pass with others.
    Limits,
    /// A format or feature that this build does not read.
    Unsupported,
    /// The GPU or its driver.
    Device,
    /// refmill itself, or the machine it runs on.
    Internal,
}

impl Blame {
    /// Every blame.
    pub const ALL: [Self; 5] = [Self::Input, Self::Limits, Self::Unsupported, Self::Device, Self::Internal];

    /// The blame as it stands in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Limits => "limits",
            Self::Unsupported => "unsupported",
            Self::Device => "device",
            Self::Internal => "internal",
        }
    }

    /// Whether another attempt, on another worker, can end differently.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Device | Self::Internal)
    }
}

/// Stable, machine-readable reasons. A code is never renamed or reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The input has no bytes.
    Empty,
    /// No known image signature at the start of the input.
    NotAnImage,
    /// A known image format that this build does not read.
    Unsupported,
    /// The pixel data or the container around it is damaged.
    Corrupt,
    /// The data ends before the image does.
    Truncated,
    /// A limit of [`crate::limits::Limits`] does not hold.
    OverLimit,
    /// Nobody of the tenant's name may have jobs in the queue.
    TenantUnknown,
    /// The tenant has as many jobs in the queue as it may have.
    QueueFull,
    /// The job may need more device memory than its tenant may have.
    OverQuota,
    /// The policy says `reject` for a finding that was made.
    PolicyReject,
    /// The pixels could not be converted to sRGB.
    Colour,
    /// A derived tensor could not be made.
    Tensor,
    /// The input could not be read by the supervisor.
    Unreadable,
    /// An artifact could not be written by the supervisor.
    Unwritable,
    /// The GPU or its driver failed.
    Device,
    /// The worker process ended while it held the job.
    WorkerCrashed,
    /// The worker process stood still while it held the job.
    WorkerHung,
    /// The worker broke the protocol of [`crate::wire`].
    WorkerProtocol,
    /// Anything else that is refmill's own fault.
    Internal,
}

impl Code {
    /// Who is to blame for failures of this code.
    #[must_use]
    pub fn blame(self) -> Blame {
        match self {
            Self::Empty | Self::NotAnImage | Self::Corrupt | Self::Truncated | Self::PolicyReject | Self::Colour => {
                Blame::Input
            }
            Self::Unreadable | Self::Tensor => Blame::Input,
            Self::Unsupported => Blame::Unsupported,
            Self::OverLimit | Self::TenantUnknown | Self::QueueFull | Self::OverQuota => Blame::Limits,
            Self::Device => Blame::Device,
            Self::Unwritable | Self::WorkerCrashed | Self::WorkerHung | Self::WorkerProtocol | Self::Internal => {
                Blame::Internal
            }
        }
    }

    /// The code as it stands in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::NotAnImage => "not_an_image",
            Self::Unsupported => "unsupported",
            Self::Corrupt => "corrupt",
            Self::Truncated => "truncated",
            Self::OverLimit => "over_limit",
            Self::TenantUnknown => "tenant_unknown",
            Self::QueueFull => "queue_full",
            Self::OverQuota => "over_quota",
            Self::PolicyReject => "policy_reject",
            Self::Colour => "colour",
            Self::Tensor => "tensor",
            Self::Unreadable => "unreadable",
            Self::Unwritable => "unwritable",
            Self::Device => "device",
            Self::WorkerCrashed => "worker_crashed",
            Self::WorkerHung => "worker_hung",
            Self::WorkerProtocol => "worker_protocol",
            Self::Internal => "internal",
        }
    }
}

/// The stages of one job, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The supervisor reads the input.
    Intake,
    /// The format is recognised by its signature.
    Open,
    /// EXIF, ICC and container are judged; no pixel is decoded.
    Inspect,
    /// What the findings mean for orientation and colour is decided.
    Repair,
    /// Pixels are decoded as stored.
    Decode,
    /// Pixels are converted to sRGB.
    Colour,
    /// The repaired image is encoded.
    Encode,
    /// Pixels are made available to the device, once.
    Upload,
    /// The recipe's tensors are derived on the device.
    Tensors,
    /// The report is written.
    Report,
    /// The supervisor publishes the artifacts.
    Publish,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 11] = [
        Self::Intake,
        Self::Open,
        Self::Inspect,
        Self::Repair,
        Self::Decode,
        Self::Colour,
        Self::Encode,
        Self::Upload,
        Self::Tensors,
        Self::Report,
        Self::Publish,
    ];

    /// The stage as it stands in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intake => "intake",
            Self::Open => "open",
            Self::Inspect => "inspect",
            Self::Repair => "repair",
            Self::Decode => "decode",
            Self::Colour => "colour",
            Self::Encode => "encode",
            Self::Upload => "upload",
            Self::Tensors => "tensors",
            Self::Report => "report",
            Self::Publish => "publish",
        }
    }
}

/// A precise error: what was tried, the value, the limit, and a machine-readable code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct Failure {
    /// The stable code.
    pub code: Code,
    /// Who is to blame; decides about another attempt.
    pub blame: Blame,
    /// The stage that failed, where one is known.
    pub stage: Option<Stage>,
    /// What was attempted, with the value and the limit. At most [`Failure::MAX_MESSAGE`] bytes.
    pub message: String,
}

impl Failure {
    /// Longest message, in bytes; a longer one is cut.
    pub const MAX_MESSAGE: usize = 512;

    /// A failure with its code's own blame and no stage yet.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut message = message.into();
        truncate_utf8(&mut message, Self::MAX_MESSAGE);
        Self { code, blame: code.blame(), stage: None, message }
    }

    /// A limit that does not hold.
    #[must_use]
    pub fn over_limit(what: &str, value: u64, limit: u64) -> Self {
        Self::new(Code::OverLimit, format!("{what} is {value}, the limit is {limit}"))
    }

    /// The same failure, found in `stage`, unless a stage is already named.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        self.stage.get_or_insert(stage);
        self
    }
}

/// Cuts `text` to at most `max` bytes without splitting a character.
pub fn truncate_utf8(text: &mut String, max: usize) {
    if text.len() > max {
        let cut = (0..=max).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_longer_than_the_limit_is_cut_at_a_character() {
        let failure = Failure::new(Code::Corrupt, "ä".repeat(400));
        assert_eq!(failure.message.len(), 512);
        assert_eq!(failure.message, "ä".repeat(256));
    }

    #[test]
    fn code_text_matches_its_serialised_form() {
        let code = Code::NotAnImage;
        assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{}\"", code.as_str()));
        let of = |blame: Blame| format!("\"{}\"", blame.as_str());
        assert!(Blame::ALL.iter().all(|&blame| serde_json::to_string(&blame).unwrap() == of(blame)));
        let text = |stage: Stage| format!("\"{}\"", stage.as_str());
        assert!(Stage::ALL.iter().all(|&stage| serde_json::to_string(&stage).unwrap() == text(stage)));
    }

    #[test]
    fn only_device_and_internal_failures_are_retryable() {
        assert!(Code::Device.blame().is_retryable() && Code::WorkerCrashed.blame().is_retryable());
        assert!(!Code::Corrupt.blame().is_retryable() && !Code::OverLimit.blame().is_retryable());
    }

    #[test]
    fn first_stage_named_is_kept() {
        let failure = Failure::new(Code::Corrupt, "x").at(Stage::Decode).at(Stage::Colour);
        assert_eq!(failure.stage, Some(Stage::Decode));
    }
}
