//! Reads and writes one value of `haul.toml`. Errors name the key, the value and the valid
//! values.

use haul_model::Bytes;
use toml::{Table, Value};

use crate::error::Error;

/// Parses a size: an integer of bytes, text with a unit, or `never`.
pub(super) fn threshold(key: &str, value: &Value) -> Result<usize, Error> {
    const EXPECTED: &str = "a size: bytes from 0, a text such as \"2 KiB\", or \"never\"";
    let bytes = match value {
        Value::Integer(bytes) => u64::try_from(*bytes).ok(),
        Value::String(text) if text == "never" => Some(u64::MAX),
        Value::String(text) => text.parse::<Bytes>().ok().map(|bytes| bytes.0),
        _ => None,
    };
    let bytes = bytes.ok_or_else(|| wrong(key, value, EXPECTED))?;
    // A size above the address space counts as `never`, on 32-bit and 64-bit machines.
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

pub(super) fn only_known(table: &Table, section: &str, known: &[&str]) -> Result<(), Error> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(Error::UnknownKey {
            key: shorten(&format!("{section}{key}")),
            known: known.join(", "),
        }),
    }
}

pub(super) fn text_of(table: &Table, section: &str, name: &str) -> Result<String, Error> {
    let key = format!("{section}{name}");
    match table.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong(&key, other, "a string")),
        None => Err(Error::MissingKey { key }),
    }
}

pub(super) fn number_of(table: &Table, section: &str, name: &str) -> Result<f64, Error> {
    let key = format!("{section}{name}");
    match table.get(name) {
        Some(Value::Float(number)) if number.is_finite() => Ok(*number),
        #[expect(clippy::cast_precision_loss, reason = "a ratio that was written without a point")]
        Some(Value::Integer(number)) => Ok(*number as f64),
        Some(other) => Err(wrong(&key, other, "a finite number")),
        None => Err(Error::MissingKey { key }),
    }
}

pub(super) fn wrong(key: &str, value: &Value, expected: &'static str) -> Error {
    Error::Value { key: key.into(), value: shorten(&value.to_string()), expected }
}

/// Formats a size. A value above TOML's integers is `never`, like `usize::MAX`.
pub(super) fn shown(bytes: usize) -> String {
    match i64::try_from(bytes) {
        Ok(bytes) if usize::try_from(bytes) != Ok(usize::MAX) => bytes.to_string(),
        _ => quoted("never"),
    }
}

pub(super) fn quoted(text: &str) -> String {
    Value::String(text.into()).to_string()
}

/// A short, printable form of untrusted text.
pub(super) fn shorten(text: &str) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 60;
    let mut shown: String = text
        .chars()
        .take(SHOWN_CHARACTERS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(SHOWN_CHARACTERS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}
