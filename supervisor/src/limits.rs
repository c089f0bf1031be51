//! `--limit KEY=VALUE`: bounds as typed become [`Limits`]. Touches nothing.

use refmill::limits::Limits;

/// Why a `--limit` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// No `=`.
    #[error("limit `{text}` is not of the form KEY=VALUE, such as pixels=50000000")]
    Form {
        /// As typed.
        text: String,
    },
    /// Not a key of [`Limits`].
    #[error("limit `{key}` is not known; the keys are {KEYS}")]
    Key {
        /// As typed.
        key: String,
    },
    /// Not a number that the key takes.
    #[error("limit `{key}` is `{value}`, it takes a whole number from 1 to {max}")]
    Value {
        /// The key.
        key: String,
        /// As typed.
        value: String,
        /// The largest value that is taken.
        max: u64,
    },
}

const KEYS: &str = "input_bytes, width, height, pixels, frames, metadata_bytes, output_bytes, wall_ms";
/// Sizes end here: a file cannot be longer than this, and the sum of two still fits.
const MAX_BYTES: u64 = 1 << 40;
/// A day.
const MAX_WALL_MS: u64 = 86_400_000;

/// The limits of the configuration with `typed` applied in order; a later one wins.
///
/// # Errors
/// A [`LimitError`] naming the key and the value as typed.
pub fn over(configured: Limits, typed: &[String]) -> Result<Limits, LimitError> {
    typed.iter().try_fold(configured, |limits, text| apply(limits, text))
}

fn apply(mut limits: Limits, text: &str) -> Result<Limits, LimitError> {
    let Some((key, value)) = text.split_once('=') else { return Err(LimitError::Form { text: text.into() }) };
    let (key, value) = (key.trim(), value.trim());
    match key {
        "input_bytes" => limits.input_bytes = number(key, value, MAX_BYTES)?,
        "width" => limits.width = narrow(key, value)?,
        "height" => limits.height = narrow(key, value)?,
        "pixels" => limits.pixels = number(key, value, MAX_BYTES)?,
        "frames" => limits.frames = narrow(key, value)?,
        "metadata_bytes" => limits.metadata_bytes = number(key, value, MAX_BYTES)?,
        "output_bytes" => limits.output_bytes = number(key, value, MAX_BYTES)?,
        "wall_ms" => limits.wall_ms = number(key, value, MAX_WALL_MS)?,
        _ => return Err(LimitError::Key { key: key.into() }),
    }
    Ok(limits)
}

fn number(key: &str, value: &str, max: u64) -> Result<u64, LimitError> {
    let refused = || LimitError::Value { key: key.into(), value: value.into(), max };
    let number: u64 = value.replace('_', "").parse().map_err(|_| refused())?;
    if (1..=max).contains(&number) { Ok(number) } else { Err(refused()) }
}

fn narrow(key: &str, value: &str) -> Result<u32, LimitError> {
    let max = u64::from(u32::MAX);
    let number = number(key, value, max)?;
    u32::try_from(number).map_err(|_| LimitError::Value { key: key.into(), value: value.into(), max })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(texts: &[&str]) -> Result<Limits, LimitError> {
        over(Limits::default(), &texts.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn every_key_is_applied() {
        let limits = typed(&[
            "input_bytes=1",
            "width=2",
            "height=3",
            "pixels=4",
            "frames=5",
            "metadata_bytes=6",
            "output_bytes=7",
            "wall_ms=8",
        ]);
        let expected = Limits {
            input_bytes: 1,
            width: 2,
            height: 3,
            pixels: 4,
            frames: 5,
            metadata_bytes: 6,
            output_bytes: 7,
            wall_ms: 8,
        };
        assert_eq!(limits, Ok(expected));
    }

    #[test]
    fn digits_may_be_grouped() {
        assert_eq!(typed(&["pixels=50_000_000"]).unwrap().pixels, 50_000_000);
    }

    #[test]
    fn unknown_key_is_named_with_the_known_ones() {
        let error = typed(&["pixel=4"]).unwrap_err().to_string();
        assert!(error.starts_with("limit `pixel` is not known; the keys are input_bytes, width,"), "{error}");
    }

    #[test]
    fn value_out_of_range_is_named_with_its_bound() {
        let error = typed(&["width=99999999999"]).unwrap_err().to_string();
        assert_eq!(error, "limit `width` is `99999999999`, it takes a whole number from 1 to 4294967295");
    }

    #[test]
    fn zero_is_refused() {
        assert!(matches!(typed(&["wall_ms=0"]), Err(LimitError::Value { .. })));
    }

    #[test]
    fn text_without_a_value_is_refused() {
        assert_eq!(typed(&["pixels"]), Err(LimitError::Form { text: "pixels".into() }));
    }
}
