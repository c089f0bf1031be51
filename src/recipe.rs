//! Recipes: which tensors are derived from one image, and how their elements are laid out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Widest and highest tensor that a recipe may ask for, in pixels.
pub const MAX_SIDE: u32 = 8192;
/// Name of the tensor that an image's alpha channel becomes, unless the recipe uses the name itself. It follows the
/// recipe's own tensors.
pub const ALPHA_MASK: &str = "alpha_mask";
/// Most tensors that a recipe may ask for.
pub const MAX_TENSORS: usize = 16;

/// A named set of tensors, all derived from one image that is sRGB and upright.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recipe {
    /// Its name: a built-in, or the name in the user's TOML.
    pub name: String,
    /// What transparent pixels are composited on, sRGB 8-bit.
    pub background: [u8; 3],
    /// The tensors, in the order in which they are stored.
    pub tensors: Vec<TensorSpec>,
}

/// One derived tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TensorSpec {
    /// Its key in the safetensors file.
    pub name: String,
    /// How the image is fitted into the size.
    pub size: Size,
    /// How pixels are resampled. Both filters widen with the reduction, so they do not alias.
    pub filter: Filter,
    /// Order of the axes.
    pub layout: Layout,
    /// Type of the elements.
    pub dtype: Dtype,
    /// What the 8-bit codes 0..255 become.
    pub normalise: Normalise,
}

/// Size in pixels and how the image is fitted into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Fills `width` x `height`; what sticks out is cropped evenly, the odd pixel at the right or bottom.
    Cover {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// Fits inside `width` x `height` and keeps its own shape: the tensor may be smaller on one side.
    Contain {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// Becomes exactly `width` x `height`, whatever its own shape.
    Stretch {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The longer side becomes `side`; the other follows.
    LongSide {
        /// Longer side in pixels.
        side: u32,
    },
}

/// Resampling kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Lanczos windowed sinc, three lobes.
    Lanczos3,
    /// Catmull-Rom cubic (a = -0.5), as Pillow's BICUBIC.
    Bicubic,
}

/// Order of the axes; N is always 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Batch, channel, row, column.
    Nchw,
    /// Batch, row, column, channel.
    Nhwc,
}

/// Element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// Unsigned 8-bit: the sRGB codes themselves.
    U8,
}

impl Dtype {
    /// Bytes per element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

/// What an 8-bit sRGB code `v` becomes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Normalise {
    /// `min + v / 255 * (max - min)`.
    Range {
        /// What 0 becomes.
        min: f32,
        /// What 255 becomes.
        max: f32,
    },
    /// `(v / 255 - mean) / std`, by channel.
    MeanStd {
        /// Mean of R, G, B.
        mean: [f32; 3],
        /// Standard deviation of R, G, B; not zero.
        std: [f32; 3],
    },
    /// The code as it is; the only choice for [`Dtype::U8`].
    None,
}

impl Normalise {
    /// The same as `v * scale + offset`, by channel.
    #[must_use]
    pub fn affine(self) -> ([f32; 3], [f32; 3]) {
        match self {
            Self::Range { min, max } => ([(max - min) / 255.0; 3], [min; 3]),
            Self::MeanStd { mean: [r, g, b], std: [sr, sg, sb] } => {
                ([1.0 / (255.0 * sr), 1.0 / (255.0 * sg), 1.0 / (255.0 * sb)], [-r / sr, -g / sg, -b / sb])
            }
            Self::None => ([1.0; 3], [0.0; 3]),
        }
    }
}

/// Why a recipe cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecipeError {
    /// No tensors, or too many.
    #[error("recipe `{name}` has {count} tensors, it takes 1 to {MAX_TENSORS}")]
    Count {
        /// The recipe.
        name: String,
        /// How many it has.
        count: usize,
    },
    /// A name that cannot be a key.
    #[error("name `{name}` is not 1 to 64 of a-z, A-Z, 0-9, `_`, `-`, `.`")]
    Name {
        /// The name as given.
        name: String,
    },
    /// Two tensors of one name.
    #[error("tensor `{name}` stands twice in recipe `{recipe}`")]
    Duplicate {
        /// The recipe.
        recipe: String,
        /// The tensor.
        name: String,
    },
    /// A side out of bounds.
    #[error("tensor `{name}` has a side of {side} pixels, it takes 1 to {MAX_SIDE}")]
    Side {
        /// The tensor.
        name: String,
        /// The side as given.
        side: u32,
    },
    /// A range or a mean/std that cannot be computed with.
    #[error("tensor `{name}`: {problem}")]
    Normalise {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl Recipe {
    /// Checks what the types alone do not say.
    ///
    /// # Errors
    /// The first [`RecipeError`] found, in the order in which the recipe is written.
    pub fn check(&self) -> Result<(), RecipeError> {
        check_name(&self.name)?;
        if self.tensors.is_empty() || self.tensors.len() > MAX_TENSORS {
            return Err(RecipeError::Count { name: self.name.clone(), count: self.tensors.len() });
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            tensor.check()?;
            if self.tensors.iter().take(index).any(|earlier| earlier.name == tensor.name) {
                return Err(RecipeError::Duplicate { recipe: self.name.clone(), name: tensor.name.clone() });
            }
        }
        Ok(())
    }
}

impl TensorSpec {
    fn check(&self) -> Result<(), RecipeError> {
        check_name(&self.name)?;
        let (width, height) = match self.size {
            Size::Cover { width, height } | Size::Contain { width, height } | Size::Stretch { width, height } => {
                (width, height)
            }
            Size::LongSide { side } => (side, side),
        };
        if let Some(side) = [width, height].into_iter().find(|&side| side == 0 || side > MAX_SIDE) {
            return Err(RecipeError::Side { name: self.name.clone(), side });
        }
        let problem = match self.normalise {
            Normalise::None if self.dtype != Dtype::U8 => Some("needs `range` or `mean` and `std` unless dtype is u8"),
            Normalise::Range { .. } | Normalise::MeanStd { .. } if self.dtype == Dtype::U8 => {
                Some("u8 holds the sRGB codes as they are, so it takes neither `range` nor `mean` and `std`")
            }
            Normalise::Range { min, max } if !(min.is_finite() && max.is_finite() && min != max) => {
                Some("`range` needs two different finite numbers")
            }
            Normalise::MeanStd { mean, std }
                if !(mean.iter().all(|m| m.is_finite()) && std.iter().all(|s| s.is_finite() && *s > 0.0)) =>
            {
                Some("`mean` needs finite numbers and `std` positive ones")
            }
            _ => None,
        };
        problem.map_or(Ok(()), |problem| Err(RecipeError::Normalise { name: self.name.clone(), problem }))
    }
}

fn check_name(name: &str) -> Result<(), RecipeError> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if fits { Ok(()) } else { Err(RecipeError::Name { name: name.chars().take(80).collect() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> TensorSpec {
        TensorSpec {
            name: name.into(),
            size: Size::Cover { width: 64, height: 64 },
            filter: Filter::Bicubic,
            layout: Layout::Nchw,
            dtype: Dtype::F32,
            normalise: Normalise::Range { min: -1.0, max: 1.0 },
        }
    }

    fn recipe(tensors: Vec<TensorSpec>) -> Recipe {
        Recipe { name: "r".into(), background: [255; 3], tensors }
    }

    #[test]
    fn two_tensors_of_one_name_are_refused() {
        let error = recipe(vec![spec("a"), spec("a")]).check().unwrap_err();
        assert_eq!(error.to_string(), "tensor `a` stands twice in recipe `r`");
    }

    #[test]
    fn side_out_of_bounds_is_refused() {
        let mut tensor = spec("a");
        tensor.size = Size::LongSide { side: 9000 };
        let error = recipe(vec![tensor]).check().unwrap_err();
        assert_eq!(error.to_string(), "tensor `a` has a side of 9000 pixels, it takes 1 to 8192");
    }

    #[test]
    fn u8_with_a_range_is_refused() {
        let mut tensor = spec("a");
        tensor.dtype = Dtype::U8;
        assert!(matches!(recipe(vec![tensor]).check(), Err(RecipeError::Normalise { .. })));
    }

    #[test]
    fn path_in_a_name_is_refused() {
        assert!(matches!(recipe(vec![spec("../a")]).check(), Err(RecipeError::Name { .. })));
    }

    #[test]
    fn affine_of_a_range_maps_both_ends() {
        let (scale, offset) = Normalise::Range { min: -1.0, max: 1.0 }.affine();
        assert!((255.0 * scale[0] + offset[0] - 1.0).abs() < 1e-6);
        assert!((offset[0] + 1.0).abs() < 1e-6);
    }
}
