//! Text in columns, wrapped between words.

/// Rows of cells as lines: every column as wide as it needs and at most as its entry of `widths`, two blanks
/// between them and in front.
#[must_use]
pub fn render<const N: usize>(rows: &[[String; N]], widths: &[usize; N]) -> String {
    let mut needed = [0; N];
    for row in rows {
        needed.iter_mut().zip(row).for_each(|(width, cell)| *width = (*width).max(cell.chars().count()));
    }
    needed.iter_mut().zip(widths).for_each(|(width, most)| *width = (*width).min(*most));
    let mut text = String::new();
    for row in rows {
        let mut cells: Vec<_> = row.iter().zip(needed).map(|(cell, width)| wrap(cell, width).into_iter()).collect();
        loop {
            let lines: Vec<Option<String>> = cells.iter_mut().map(Iterator::next).collect();
            if lines.iter().all(Option::is_none) {
                break;
            }
            let padded =
                lines.into_iter().zip(needed).map(|(line, width)| format!("  {:<width$}", line.unwrap_or_default()));
            text.push_str(padded.collect::<String>().trim_end());
            text.push('\n');
        }
    }
    text
}

/// The lines of a text, each of at most `width` characters; a longer word is cut.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let used = lines.last().map_or(0, |line| line.chars().count());
            let blank = usize::from(used > 0);
            if used + blank + word.len() > width && used > 0 {
                lines.push(String::new());
                continue;
            }
            let rest = word.split_off(word.len().min(width.max(1)));
            if let Some(line) = lines.last_mut() {
                line.extend(std::iter::repeat_n(' ', blank).chain(word));
            }
            word = rest;
            if word.is_empty() {
                break;
            }
            lines.push(String::new());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words_and_long_words_are_cut() {
        assert_eq!(wrap("to be or not", 5), ["to be", "or", "not"]);
        assert_eq!(wrap("abcdefg h", 3), ["abc", "def", "g h"]);
        assert_eq!(wrap("", 3), [""]);
    }

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let rows = [["a".to_owned(), "one two".to_owned()], ["bcd".to_owned(), "x".to_owned()]];
        assert_eq!(render(&rows, &[9, 4]), "  a    one\n       two\n  bcd  x\n");
    }
}
