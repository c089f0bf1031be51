//! A text against the list of keys, then what several values say together. Every error has its place in the text.

use std::collections::BTreeMap;
use std::ops::Range;

use refmill::finding::FindingCode;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Takes};
use super::sections::SECTIONS;
use super::{Config, http};
use crate::devices::GpuUuid;
use crate::pool::watermark::WatermarkError;
use crate::queue::tenant::{self, MAX_TENANTS};
use crate::recipe::TextError;

/// Most slots: each is a process at least.
const MAX_SLOTS: usize = 64;

/// Where a text says what: `tenant[1].name` and the like.
type Places = BTreeMap<String, Range<usize>>;
/// What is wrong, and where: at the first of these places that the text has.
pub(super) type Fault = (Vec<String>, String);

pub(super) fn parse(file: &str, text: &str) -> Result<Config, TextError> {
    let fail = |span: Range<usize>, message: String| TextError::new(file, text, &span, message);
    let refused =
        |error: toml::de::Error| fail(error.span().unwrap_or(0..0), error.message().trim().replace('\n', ", "));
    let document = DeTable::parse(text).map_err(refused)?;
    let mut places = Places::new();
    walk(("", ""), document.get_ref(), &mut places).map_err(|(span, message)| fail(span, message))?;
    let config: Config = toml::from_str(text).map_err(refused)?;
    let checks = [slots, tenants, policy, watermark, retry, http::check];
    let faults = checks.map(|check| check(&config));
    match faults.into_iter().flatten().next() {
        None => Ok(config),
        Some((paths, message)) => {
            let span = paths.iter().find_map(|path| places.get(path)).cloned().unwrap_or(0..0);
            Err(fail(span, message))
        }
    }
}

/// Checks every value of a table by itself. `at` is the table's place, without and with the numbers of arrays.
fn walk(at: (&str, &str), table: &DeTable<'_>, places: &mut Places) -> Result<(), (Range<usize>, String)> {
    for (name, value) in table {
        let below = |prefix: &str| match prefix {
            "" => name.get_ref().to_string(),
            prefix => format!("{prefix}.{}", name.get_ref()),
        };
        let (path, place) = (below(at.0), below(at.1));
        places.insert(place.clone(), value.span());
        let section = SECTIONS.iter().find(|section| section.name == path);
        match (value.get_ref(), section) {
            (DeValue::Table(inner), Some(section)) if !section.several => walk((&path, &place), inner, places)?,
            (DeValue::Array(items), Some(section)) if section.several => {
                for (number, item) in items.iter().enumerate() {
                    let place = format!("{place}[{number}]");
                    places.insert(place.clone(), item.span());
                    let DeValue::Table(inner) = item.get_ref() else {
                        return Err((item.span(), format!("`{path}` is a list of tables, each written [[{path}]]")));
                    };
                    walk((&path, &place), inner, places)?;
                }
            }
            (_, Some(section)) => {
                let form = if section.several { format!("[[{path}]]") } else { format!("[{path}]") };
                return Err((name.span(), format!("`{path}` is a table, written {form}")));
            }
            (_, None) => match keys::find(&path) {
                Some(key) => {
                    let span = value.span();
                    takes(key.takes, value)
                        .map_err(|given| (span, format!("`{path}` is {given}, it takes {}", key.takes.shown())))?;
                }
                None => return Err((name.span(), unknown(&path, at.0))),
            },
        }
    }
    Ok(())
}

fn unknown(path: &str, section: &str) -> String {
    let keys = keys::all().filter(|key| key.section() == section).map(|key| key.name());
    let tables = SECTIONS.iter().filter_map(|table| match table.name.rsplit_once('.') {
        Some((above, name)) => (above == section).then_some(name),
        None => section.is_empty().then_some(table.name),
    });
    let known: Vec<&str> = keys.chain(tables).collect();
    let place = if section.is_empty() { "the file".into() } else { format!("`{section}`") };
    format!("`{path}` is not known; {place} takes {}", known.join(", "))
}

/// Whether a key takes this value.
///
/// # Errors
/// The value as it is shown.
fn takes(takes: Takes, value: &Spanned<DeValue<'_>>) -> Result<(), String> {
    let value = value.get_ref();
    let fits = match (takes, value) {
        (Takes::Number(least, most), DeValue::Integer(number)) => {
            let number = u64::from_str_radix(&number.as_str().replace('_', ""), number.radix());
            number.is_ok_and(|number| (least..=most).contains(&number))
        }
        (Takes::Switch, DeValue::Boolean(_)) => true,
        (Takes::Text(_), DeValue::String(text)) => !text.is_empty(),
        (Takes::OneOf(words), DeValue::String(text)) => words.contains(&text.as_ref()),
        _ => false,
    };
    if fits { Ok(()) } else { Err(shown(value)) }
}

fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("`{}`", text.chars().take(80).collect::<String>()),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        other => format!("a {}", other.type_str()),
    }
}

fn slots(config: &Config) -> Option<Fault> {
    let at = |number: usize, key: &str| vec![format!("slot[{number}].{key}"), format!("slot[{number}]")];
    if config.slots.len() > MAX_SLOTS {
        let message = format!("there are {} slots, the limit is {MAX_SLOTS}", config.slots.len());
        return Some((at(MAX_SLOTS, "device"), message));
    }
    config.slots.iter().enumerate().find_map(|(number, slot)| {
        let fault = |message| Some((at(number, "device"), message));
        match slot.device.as_str() {
            "auto" | "cuda" if config.slots.len() > 1 => {
                let message = format!(
                    "`slot.device` is `{}`, which chooses one device: it is the only slot or none",
                    slot.device
                );
                return fault(message);
            }
            "auto" | "cpu" | "cuda" => {}
            uuid => {
                if let Err(error) = GpuUuid::parse(uuid) {
                    return fault(format!("`slot.device` is none of `auto`, `cpu` and `cuda`: {error}"));
                }
            }
        }
        let earlier = config.slots.iter().take(number).any(|earlier| earlier.device == slot.device);
        if earlier { fault(format!("`slot.device` is `{}`, as that of an earlier slot", slot.device)) } else { None }
    })
}

fn tenants(config: &Config) -> Option<Fault> {
    let at = |number: usize| vec![format!("tenant[{number}].name"), format!("tenant[{number}]")];
    if config.tenants.len() > MAX_TENANTS {
        let message = format!("there are {} tenants, the limit is {MAX_TENANTS}", config.tenants.len());
        return Some((at(MAX_TENANTS), message));
    }
    config.tenants.iter().enumerate().find_map(|(number, entry)| {
        let name = &entry.name;
        if !tenant::is_name(name) {
            let shown: String = name.chars().take(80).collect();
            let takes = keys::find("tenant.name").map(|key| key.takes.shown()).unwrap_or_default();
            return Some((at(number), format!("`tenant.name` is `{shown}`, it takes {takes}")));
        }
        let earlier = config.tenants.iter().take(number).any(|earlier| earlier.name == *name);
        earlier.then(|| (at(number), format!("`tenant.name` is `{name}`, as that of an earlier tenant")))
    })
}

fn policy(config: &Config) -> Option<Fault> {
    let is_code = |name: &str| FindingCode::ALL.iter().any(|code| code.as_str() == name);
    let name = config.policy.findings.keys().find(|name| !is_code(name))?;
    let message = format!("`policy.findings.{name}` names no finding; `refmill explain` lists the codes");
    Some((vec![format!("policy.findings.{name}")], message))
}

fn watermark(config: &Config) -> Option<Fault> {
    let error = config.watermark.check().err()?;
    let at = |key: &str| format!("watermark.{key}");
    let places = match &error {
        WatermarkError::OverHard { mark, hard, .. } => vec![at(mark), at(hard)],
        WatermarkError::Range { key, .. } => vec![at(key)],
    };
    Some((places, format!("`watermark`: {error}")))
}

fn retry(config: &Config) -> Option<Fault> {
    let (base, most) = (config.retry.base_ms, config.retry.most_ms);
    (most < base).then(|| {
        let message = format!("`retry.most_ms` is {most}, less than `retry.base_ms`, which is {base}");
        (vec!["retry.most_ms".into(), "retry.base_ms".into()], message)
    })
}
