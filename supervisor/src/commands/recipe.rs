//! `refmill recipe`: the recipes that there are, one of them as TOML, and whether a file is one.

use std::fmt::Write;

use refmill::exit::ExitCode;
use refmill::recipe::{Recipe, Size, TensorSpec};

use super::{CommandError, print};
use crate::args::RecipeCommand;
use crate::recipe::{self, BUILT_IN, LoadError};

pub(super) fn recipe(command: &RecipeCommand) -> Result<ExitCode, CommandError> {
    match command {
        RecipeCommand::List => {
            let recipes: Result<Vec<Recipe>, LoadError> = BUILT_IN.iter().map(|(name, _)| recipe::load(name)).collect();
            print(&recipes?.iter().map(summary).collect::<String>())
        }
        RecipeCommand::Show { name } => match recipe::built_in(name) {
            Some(text) => print(text),
            None => {
                let message = format!("recipe `{name}` is not built in; there are {}", recipe::names());
                Err(CommandError::Usage { message })
            }
        },
        RecipeCommand::Check { file } => print(&summary(&recipe::read(file)?)),
    }
}

fn summary(recipe: &Recipe) -> String {
    let mut text = format!("{}\n", recipe.name);
    for tensor in &recipe.tensors {
        // Writing to a String cannot fail.
        writeln!(text, "  {}", line(tensor)).ok();
    }
    text
}

fn line(tensor: &TensorSpec) -> String {
    let size = match tensor.size {
        Size::Cover { width, height } => format!("cover {width}x{height}"),
        Size::Contain { width, height } => format!("contain {width}x{height}"),
        Size::Stretch { width, height } => format!("stretch {width}x{height}"),
        Size::LongSide { side } => format!("long side {side}"),
    };
    let word = |value: Result<serde_json::Value, _>| {
        value.ok().and_then(|value: serde_json::Value| value.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let dtype = word(serde_json::to_value(tensor.dtype));
    let layout = word(serde_json::to_value(tensor.layout));
    format!("{:<16} {size:<18} {dtype:<5} {layout}", tensor.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_tensors_with_size_and_type() {
        let text = summary(&recipe::load("clip").unwrap());
        assert_eq!(text, "clip\n  clip_pixels      cover 224x224      f32   nchw\n");
    }
}
