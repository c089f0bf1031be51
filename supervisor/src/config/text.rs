//! The list of keys as people read it: as a file to start from, and as a page of the documentation.

use super::keys::{self, Key};
use super::sections::{SECTIONS, Section};
use crate::table::wrap;

/// Columns of a comment in the example.
const WIDTH: usize = 100;

/// A configuration in which every key stands at its default, with what it means. What has no default is commented out.
#[must_use]
pub fn example() -> String {
    let mut text = comment("The configuration of refmill. Every value is the default; what has none is commented out.");
    for section in SECTIONS.iter() {
        text.push('\n');
        text += &comment(section.about);
        text += &if section.several { format!("#[[{}]]\n", section.name) } else { format!("[{}]\n", section.name) };
        for key in keys_of(section) {
            text += &comment(&format!("{} ({})", key.about, key.takes.shown()));
            text += &entry(key);
        }
    }
    text
}

/// The same as tables in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = String::new();
    for section in SECTIONS.iter() {
        let name = if section.several { format!("[[{}]]", section.name) } else { format!("[{}]", section.name) };
        text += &format!("### `{name}`\n\n{}\n\n", section.about);
        text += "| key | default | takes | SIGHUP | meaning |\n| --- | --- | --- | --- | --- |\n";
        for key in keys_of(section) {
            let default = key.default().map_or_else(|| "none".into(), |value| format!("`{value}`"));
            let (name, takes, live) = (key.name(), key.takes.shown(), if key.live { "yes" } else { "no" });
            text += &format!("| `{name}` | {default} | {takes} | {live} | {} |\n", key.about);
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

fn keys_of(section: &Section) -> impl Iterator<Item = &'static Key> + use<> {
    let name = section.name;
    keys::all().filter(move |key| key.section() == name)
}

fn entry(key: &Key) -> String {
    match (key.default(), key.example) {
        (Some(value), _) => format!("{} = {value}\n", key.name()),
        // Whatever its name: the example says one.
        (None, Some(example)) if key.name() == "*" => format!("#{example}\n"),
        (None, example) => format!("#{} = {}\n", key.name(), example.unwrap_or_default()),
    }
}

fn comment(text: &str) -> String {
    wrap(text, WIDTH).iter().map(|line| format!("# {line}\n")).collect()
}
