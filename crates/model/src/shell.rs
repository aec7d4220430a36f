//! Words of a POSIX shell's command line. Every command that haul shows quotes its words here.

/// A word as a POSIX shell reads it: between single quotes, unless every character stands for
/// itself.
///
/// ```
/// use haul_model::shell::quoted;
/// assert_eq!(quoted("--sizes=4KiB"), "--sizes=4KiB");
/// assert_eq!(quoted("it's; rm"), r"'it'\''s; rm'");
/// assert_eq!(quoted(""), "''");
/// ```
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
