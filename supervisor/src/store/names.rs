//! What an input's artifacts are called at the other side. A function of the input's own key alone, so that a listing
//! that has changed changes no name; two keys never share one, and none leaves the place where names are put.

/// Longest part between two slashes, in bytes: file systems take 255, and an ending and a temporary name need room.
const MAX_PART: usize = 200;
/// Longest name, in bytes: S3 takes keys of 1,024, prefix and ending included.
pub const MAX_NAME: usize = 700;
/// Digits of the hash that stands for what was cut off: 128 bits.
const HASH_DIGITS: usize = 32;
/// Context of that hash.
const CONTEXT: &str = "refmill 2026 shortened object name 1";

/// The name for a key, to which endings are added. The key below the prefix stays as it is as far as it can: `%`, `~`,
/// `\` and control characters are percent-encoded, as is a part that is `.` or `..`; a slash that would make an empty
/// part becomes `%2F`. What is too long is cut, and a `~` and a hash of all of it stand for the rest.
#[must_use]
pub fn name(key: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    // Slashes that lead, or follow another one, belong to the next part.
    let mut carried = String::new();
    for part in key.split('/') {
        if part.is_empty() {
            carried.push_str("%2F");
        } else {
            parts.push(shortened(carried.clone() + &encoded(part)));
            carried.clear();
        }
    }
    if !carried.is_empty() {
        parts.push(shortened(carried));
    }
    let name = parts.join("/");
    if name.len() <= MAX_NAME { name } else { cut(parts.first().map_or("", String::as_str), key) }
}

fn encoded(part: &str) -> String {
    if matches!(part, "." | "..") {
        return part.replace('.', "%2E");
    }
    let mut text = String::with_capacity(part.len());
    for character in part.chars() {
        if character.is_control() || matches!(character, '%' | '~' | '\\') {
            character.to_string().bytes().for_each(|byte| text += &format!("%{byte:02X}"));
        } else {
            text.push(character);
        }
    }
    text
}

fn shortened(part: String) -> String {
    if part.len() <= MAX_PART { part } else { cut(&part, &part) }
}

/// As much of `start` as there is room for, and the hash of `whole`.
fn cut(start: &str, whole: &str) -> String {
    let mut start = start.to_owned();
    refmill::failure::truncate_utf8(&mut start, MAX_PART.saturating_sub(HASH_DIGITS).saturating_sub(1));
    let hash = blake3::Hasher::new_derive_key(CONTEXT).update(whole.as_bytes()).finalize().to_hex();
    format!("{start}~{}", hash.get(..HASH_DIGITS).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn plain_key_is_its_own_name() {
        for key in ["a.jpg", "2024/06/über uns.JPG", "a+b.png", "x/y=1/z &c.webp", "図/絵.png"] {
            assert_eq!(name(key), key);
        }
    }

    #[test]
    fn parts_that_lead_elsewhere_are_encoded() {
        assert_eq!(name("../../etc/passwd.png"), "%2E%2E/%2E%2E/etc/passwd.png");
        assert_eq!(name("./a.png"), "%2E/a.png");
        assert_eq!(name("/etc/a.png"), "%2Fetc/a.png");
        assert_eq!(name("a//b///c.png"), "a/%2Fb/%2F%2Fc.png");
        assert_eq!(name("a\\..\\b.png"), "a%5C..%5Cb.png");
        assert_eq!(name("..."), "...");
    }

    #[test]
    fn encoded_text_and_control_characters_are_told_apart_from_what_they_stand_for() {
        assert_eq!(name("a%2Fb.png"), "a%252Fb.png");
        assert_eq!(name("a\n\u{7f}\u{85}.png"), "a%0A%7F%C2%85.png");
        assert_ne!(name("a//b"), name("a/%2Fb"));
    }

    #[test]
    fn long_parts_and_long_keys_are_cut_and_stay_apart() {
        let (one, other) = ("x".repeat(900) + "1.jpg", "x".repeat(900) + "2.jpg");
        assert_eq!(name(&one).len(), MAX_PART);
        assert_ne!(name(&one), name(&other));
        let deep = |end| format!("{}{end}.jpg", "ab/".repeat(300));
        assert!(name(&deep(1)).len() <= MAX_NAME);
        assert_ne!(name(&deep(1)), name(&deep(2)));
        assert!(name(&"é".repeat(500)).is_char_boundary(100));
    }

    fn key() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "/", ".", "..", "%", "2F", "~", "\\", "\u{1}", "é"]), 0..8)
            .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn names_stay_inside_and_no_two_keys_share_one(keys in prop::collection::vec(key(), 1..40)) {
            let mut seen: HashMap<String, String> = HashMap::new();
            for key in keys {
                let name = name(&key);
                prop_assert!(!name.is_empty() && !name.starts_with('/') && !name.ends_with('/'), "{key:?} {name:?}");
                prop_assert!(name.split('/').all(|part| !matches!(part, "" | "." | "..")), "{key:?} {name:?}");
                prop_assert!(!name.chars().any(char::is_control));
                if let Some(other) = seen.insert(name, key.clone()) {
                    prop_assert_eq!(other, key);
                }
            }
        }
    }
}
