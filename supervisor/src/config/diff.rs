//! What differs between two configurations, key by key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use toml::Value;

use super::{Config, keys};

/// One key whose value is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where it stands; entries of lists by their name, such as `tenant.studio.weight`.
    pub path: String,
    /// What it was; none where it was not said.
    pub old: Option<String>,
    /// What it is now.
    pub new: Option<String>,
    /// Whether a running server takes the new value.
    pub live: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".into());
        let (path, old, new) = (&self.path, shown(&self.old), shown(&self.new));
        if self.live {
            write!(formatter, "{path} is {new}, it was {old}")
        } else {
            write!(formatter, "{path} stays {old}: {new} needs a restart")
        }
    }
}

/// All that differs, by path.
#[must_use]
pub fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let (old, new) = (flat(old), flat(new));
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing = paths.into_iter().filter(|path| old.get(*path) != new.get(*path));
    let change = |path: &String| {
        let of = |all: &Flat| all.get(path).map(|(_, value)| value.clone());
        let key = old.get(path).or_else(|| new.get(path)).map(|(key, _)| key.as_str()).unwrap_or_default();
        Change { path: path.clone(), old: of(&old), new: of(&new), live: keys::find(key).is_some_and(|key| key.live) }
    };
    differing.map(change).collect()
}

/// Values by their path, each with its key as the list of keys has it.
type Flat = BTreeMap<String, (String, String)>;

fn flat(config: &Config) -> Flat {
    let mut flat = Flat::new();
    // Tables, numbers and texts: it always serialises.
    if let Ok(value) = Value::try_from(config) {
        add(("", ""), &value, &mut flat);
    }
    flat
}

fn add((key, path): (&str, &str), value: &Value, flat: &mut Flat) {
    let below = |prefix: &str, name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                add((&below(key, name), &below(path, name)), value, flat);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let named = ["name", "device"].iter().find_map(|name| item.get(name)?.as_str());
                let name = named.map_or_else(|| number.to_string(), ToOwned::to_owned);
                add((key, &below(path, &name)), item, flat);
            }
        }
        leaf => {
            flat.insert(path.to_owned(), (key.to_owned(), leaf.to_string()));
        }
    }
}
