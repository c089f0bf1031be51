//! What is asked of a worker: one image, the artifacts wanted from it, and the bounds that hold meanwhile.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::policy::Policy;
use crate::recipe::Recipe;

/// One image to be processed. Its bytes travel beside it, in memory that the supervisor made and sealed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Number of the job on this worker; answers carry it back.
    pub id: u64,
    /// Length of the input in the input region, in bytes.
    pub input_len: u64,
    /// The extension of the input's name, lower case, without the dot; empty where there is none.
    pub extension: String,
    /// BLAKE3-256 of the input, hexadecimal; stored with the tensors.
    pub source_hash: String,
    /// How far the job goes.
    pub depth: Depth,
    /// Whether the repaired image is wanted, and which.
    pub image: ImageWanted,
    /// What a lossless repair leaves out.
    pub strip: Strip,
    /// What is done about findings.
    pub policy: Policy,
    /// The tensors that are wanted; none at all without a recipe.
    pub recipe: Option<Recipe>,
    /// How colours are converted.
    pub colour: ColourOptions,
    /// The bounds that hold.
    pub limits: Limits,
}

/// How far a job goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Depth {
    /// The verdict on what is not pixels alone: those are not even read, where the format tells where they lie.
    Headers,
    /// The verdict alone: no pixel is decoded.
    Inspect,
    /// Everything that is wanted.
    Full,
}

/// What a lossless repair leaves out, besides what is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strip {
    /// Nothing.
    Nothing,
    /// The GPS IFD and XMP's GPS properties.
    Gps,
    /// GPS, serial numbers, owner and artist names, maker notes, thumbnails, and XMP.
    Private,
    /// All metadata but orientation and colour.
    All,
}

/// Which repaired image is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageWanted {
    /// None.
    No,
    /// The same file with its metadata made right: every coded pixel stays bit-identical.
    Lossless,
    /// PNG: pixels in sRGB, upright, 8-bit, alpha kept, the sRGB chunk set.
    ConvertedPng,
    /// Two small PNG for people: the pixels as stored, and upright in sRGB.
    Thumbnails,
}

/// How colours are converted to sRGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ColourOptions {
    /// The rendering intent.
    pub intent: Intent,
    /// Black point compensation (ISO 18619); has an effect with [`Intent::RelativeColorimetric`] and
    /// [`Intent::Saturation`].
    pub black_point_compensation: bool,
}

impl Default for ColourOptions {
    fn default() -> Self {
        Self { intent: Intent::RelativeColorimetric, black_point_compensation: true }
    }
}

/// ICC rendering intents (ICC.1:2022 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// Perceptual.
    Perceptual,
    /// Media-relative colorimetric.
    RelativeColorimetric,
    /// Saturation.
    Saturation,
    /// ICC-absolute colorimetric.
    AbsoluteColorimetric,
}
