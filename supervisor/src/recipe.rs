//! Recipes in TOML: the built-in ones and the user's go through the same parser, and every error names its line.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use refmill::recipe::{Dtype, Filter, Layout, Normalise, Recipe, RecipeError, Size, TensorSpec};
use serde::Deserialize;
use toml::Spanned;

/// The built-in recipes, by name, as TOML.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("sdxl", include_str!("../recipes/sdxl.toml")),
    ("sd15", include_str!("../recipes/sd15.toml")),
    ("flux", include_str!("../recipes/flux.toml")),
    ("clip", include_str!("../recipes/clip.toml")),
];

/// Longest recipe file, in bytes.
pub const MAX_RECIPE_BYTES: u64 = 64 << 10;

/// Why a recipe cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Neither a built-in nor a file.
    #[error("recipe `{name}` is neither built in ({}) nor a .toml file that exists", names())]
    Unknown {
        /// As typed.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read recipe file {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is too long to be a recipe.
    #[error("recipe file {path} has over {MAX_RECIPE_BYTES} bytes, the limit for a recipe")]
    Long {
        /// The file.
        path: String,
    },
    /// The text is not a recipe.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// An error with its place in the text, and the offending line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    file: String,
    line: usize,
    column: usize,
    text: String,
    width: usize,
    message: String,
}

/// The names of the built-in recipes.
#[must_use]
pub fn names() -> String {
    BUILT_IN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The TOML of a built-in recipe.
#[must_use]
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The recipe that `--recipe` names: a built-in, else a file.
///
/// # Errors
/// A [`LoadError`]; for a text that is not a recipe it shows file, line and column.
pub fn load(wanted: &str) -> Result<Recipe, LoadError> {
    if let Some(text) = built_in(wanted) {
        return Ok(parse(wanted, text)?);
    }
    let path = Path::new(wanted);
    if !path.is_file() && path.extension().is_none_or(|extension| extension != "toml") {
        return Err(LoadError::Unknown { name: wanted.into() });
    }
    read(path)
}

/// The recipe in a file.
///
/// # Errors
/// As [`load`].
pub fn read(path: &Path) -> Result<Recipe, LoadError> {
    let name = path.display().to_string();
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_RECIPE_BYTES + 1).read_to_string(&mut text));
    let bytes = read.map_err(|source| LoadError::Read { path: name.clone(), source })?;
    if bytes as u64 > MAX_RECIPE_BYTES {
        return Err(LoadError::Long { path: name });
    }
    Ok(parse(&name, &text)?)
}

/// Reads a recipe; `file` is what errors call the text.
///
/// # Errors
/// The first error with its place.
pub fn parse(file: &str, text: &str) -> Result<Recipe, TextError> {
    let fail = |span: Range<usize>, message: String| TextError::new(file, text, &span, message);
    let raw: RawRecipe = toml::from_str(text)
        .map_err(|error| fail(error.span().unwrap_or(0..0), error.message().trim().replace('\n', ", ")))?;
    let background = colour(raw.background.get_ref()).ok_or_else(|| {
        let message = format!("background `{}` is not of the form #rrggbb", raw.background.get_ref());
        fail(raw.background.span(), message)
    })?;
    let mut tensors = Vec::new();
    for tensor in &raw.tensor {
        tensors.push(tensor.get_ref().check().map_err(|message| fail(tensor.span(), message))?);
    }
    let recipe = Recipe { name: raw.name.get_ref().clone(), background, tensors };
    recipe.check().map_err(|error| fail(raw.place_of(&error), error.to_string()))?;
    Ok(recipe)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    name: Spanned<String>,
    #[serde(default = "white")]
    background: Spanned<String>,
    #[serde(default)]
    tensor: Vec<Spanned<RawTensor>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    name: String,
    fit: RawFit,
    width: Option<u32>,
    height: Option<u32>,
    size: Option<u32>,
    side: Option<u32>,
    filter: Filter,
    layout: Layout,
    dtype: Dtype,
    range: Option<[f32; 2]>,
    mean: Option<[f32; 3]>,
    std: Option<[f32; 3]>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawFit {
    Cover,
    Contain,
    Stretch,
    LongSide,
}

impl RawRecipe {
    /// Where the text says what `error` is about: the tensor's table, or the recipe's name.
    fn place_of(&self, error: &RecipeError) -> Range<usize> {
        let wanted = match error {
            RecipeError::Count { .. } => return self.name.span(),
            RecipeError::Name { name } if !self.tensor.iter().any(|tensor| shown(tensor) == *name) => {
                return self.name.span();
            }
            RecipeError::Name { name }
            | RecipeError::Duplicate { name, .. }
            | RecipeError::Side { name, .. }
            | RecipeError::Normalise { name, .. } => name,
        };
        let mut named = self.tensor.iter().filter(|tensor| shown(tensor) == *wanted);
        // Of two tensors of one name the second is one too many; every other error is found at the first.
        let tensor = match error {
            RecipeError::Duplicate { .. } => named.nth(1),
            _ => named.next(),
        };
        tensor.map_or_else(|| self.name.span(), Spanned::span)
    }
}

/// The tensor's name as a [`RecipeError`] shows it: cut like there.
fn shown(tensor: &Spanned<RawTensor>) -> String {
    let name = &tensor.get_ref().name;
    if name.len() > 80 { name.chars().take(80).collect() } else { name.clone() }
}

impl RawTensor {
    fn check(&self) -> Result<TensorSpec, String> {
        Ok(TensorSpec {
            name: self.name.clone(),
            size: self.fitted()?,
            filter: self.filter,
            layout: self.layout,
            dtype: self.dtype,
            normalise: self.normalise()?,
        })
    }

    fn fitted(&self) -> Result<Size, String> {
        let name = &self.name;
        if matches!(self.fit, RawFit::LongSide) {
            return match (self.side, self.size, self.width, self.height) {
                (Some(side), None, None, None) => Ok(Size::LongSide { side }),
                _ => Err(format!("tensor `{name}`: fit `long_side` takes `side` and nothing else")),
            };
        }
        let (width, height) = match (self.side, self.size, self.width, self.height) {
            (None, Some(size), None, None) => (size, size),
            (None, None, Some(width), Some(height)) => (width, height),
            _ => return Err(format!("tensor `{name}` takes either `size` or both `width` and `height`")),
        };
        Ok(match self.fit {
            RawFit::Cover | RawFit::LongSide => Size::Cover { width, height },
            RawFit::Contain => Size::Contain { width, height },
            RawFit::Stretch => Size::Stretch { width, height },
        })
    }

    fn normalise(&self) -> Result<Normalise, String> {
        match (self.range, self.mean, self.std) {
            (None, None, None) => Ok(Normalise::None),
            (Some([min, max]), None, None) => Ok(Normalise::Range { min, max }),
            (None, Some(mean), Some(std)) => Ok(Normalise::MeanStd { mean, std }),
            _ => Err(format!("tensor `{}` takes either `range` or both `mean` and `std`", self.name)),
        }
    }
}

fn white() -> Spanned<String> {
    Spanned::new(0..0, "#ffffff".into())
}

fn colour(text: &str) -> Option<[u8; 3]> {
    let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6)?;
    let channel = |at: Range<usize>| {
        let pair = digits.get(at)?;
        if pair.bytes().all(|byte| byte.is_ascii_hexdigit()) { u8::from_str_radix(pair, 16).ok() } else { None }
    };
    Some([channel(0..2)?, channel(2..4)?, channel(4..6)?])
}

impl TextError {
    /// An error about `span` of `text`, which is called `file`.
    pub(crate) fn new(file: &str, text: &str, span: &Range<usize>, message: String) -> Self {
        let start = (0..=span.start.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
        let line = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        let marked = text.get(start..span.end).and_then(|part| part.lines().next()).unwrap_or_default();
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count().saturating_add(1),
            column: column.saturating_add(1),
            text: line.chars().take(200).collect(),
            width: marked.chars().count().clamp(1, 80),
            message,
        }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, text, width, message } = self;
        let margin = line.to_string().len();
        let indent: String =
            text.chars().take(column.saturating_sub(1)).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "{file}:{line}:{column}: {message}")?;
        writeln!(f, "{:margin$} |", "")?;
        writeln!(f, "{line} | {text}")?;
        write!(f, "{:margin$} | {indent}{}", "", "^".repeat(*width))
    }
}

impl std::error::Error for TextError {}

#[cfg(test)]
mod tests {
    use super::*;

    const TENSOR: &str = "name = \"t\"\nfit = \"cover\"\nsize = 64\nfilter = \"bicubic\"\nlayout = \"nchw\"\n";

    fn error(text: &str) -> String {
        parse("r.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_built_in_parses_under_its_own_name() {
        let parsed: Vec<String> = BUILT_IN.iter().map(|(name, text)| parse(name, text).unwrap().name).collect();
        assert_eq!(parsed, ["sdxl", "sd15", "flux", "clip"]);
    }

    #[test]
    fn sdxl_names_its_three_consumers() {
        let recipe = load("sdxl").unwrap();
        let names: Vec<&str> = recipe.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["controlnet_hint", "vae_pixels", "clip_pixels"]);
        assert_eq!(recipe.tensors[1].normalise, Normalise::Range { min: -1.0, max: 1.0 });
        assert_eq!(recipe.background, [255; 3]);
    }

    #[test]
    fn unknown_key_is_shown_with_line_and_caret() {
        let text = error("name = \"r\"\nbackgruond = \"#000000\"\n");
        assert!(text.starts_with("r.toml:2:1: unknown field `backgruond`"), "{text}");
        assert!(text.ends_with("2 | backgruond = \"#000000\"\n  | ^^^^^^^^^^"), "{text}");
    }

    #[test]
    fn wrong_value_is_shown_where_it_stands() {
        let text = error("name = \"r\"\n[[tensor]]\nname = \"t\"\nfit = \"crop\"\n");
        assert!(text.starts_with("r.toml:4:7: unknown variant `crop`"), "{text}");
    }

    #[test]
    fn syntax_error_is_shown_where_it_stands() {
        assert!(error("name = \"r\"\nx = = 1\n").starts_with("r.toml:2:"), "{}", error("name = \"r\"\nx = = 1\n"));
    }

    #[test]
    fn semantic_error_is_shown_at_the_tensors_table() {
        let good = format!("name = \"r\"\n[[tensor]]\n{}dtype = \"u8\"\n", TENSOR.replace("\"t\"", "\"a\""));
        let text = error(&format!("{good}[[tensor]]\n{TENSOR}dtype = \"f32\"\n"));
        assert!(text.starts_with("r.toml:9:1: tensor `t`: needs `range` or `mean` and `std`"), "{text}");
        assert!(text.ends_with("9 | [[tensor]]\n  | ^^^^^^^^^^"), "{text}");
    }

    #[test]
    fn second_of_two_equal_names_is_shown() {
        let tensor = format!("[[tensor]]\n{TENSOR}dtype = \"u8\"\n");
        let text = error(&format!("name = \"r\"\n{tensor}{tensor}"));
        assert!(text.starts_with("r.toml:9:1: tensor `t` stands twice"), "{text}");
    }

    #[test]
    fn size_beside_width_is_refused_at_the_tensor() {
        let text = error(&format!("name = \"r\"\n[[tensor]]\n{TENSOR}width = 3\ndtype = \"u8\"\n"));
        assert!(text.starts_with("r.toml:2:1: tensor `t` takes either `size` or both"), "{text}");
    }

    #[test]
    fn recipe_without_tensors_is_shown_at_its_name() {
        let text = error("name = \"r\"\n");
        assert!(text.starts_with("r.toml:1:8: recipe `r` has 0 tensors"), "{text}");
    }

    #[test]
    fn background_that_is_no_colour_is_shown() {
        let text = error("name = \"r\"\nbackground = \"white\"\n");
        assert!(text.starts_with("r.toml:2:14: background `white` is not of the form #rrggbb"), "{text}");
    }

    #[test]
    fn name_of_neither_recipe_nor_file_lists_the_built_ins() {
        let text = load("sdx").unwrap_err().to_string();
        assert_eq!(text, "recipe `sdx` is neither built in (sdxl, sd15, flux, clip) nor a .toml file that exists");
    }

    #[test]
    fn file_over_the_limit_is_refused() {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(file.path(), "#".repeat(70_000)).unwrap();
        assert!(matches!(load(file.path().to_str().unwrap()), Err(LoadError::Long { .. })));
    }
}
