//! What a worker says, as people may be shown it.

/// How it ended, with its last words where it had some.
pub(super) fn with_words(how: &str, words: &str) -> String {
    if words.is_empty() { how.to_owned() } else { format!("{how} ({words})") }
}

/// A text from a worker as it may stand in a terminal: cut, and without control characters.
pub(super) fn printable(text: &str, max: usize) -> String {
    text.chars().take(max).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
