//! The name of a shared heap.

use core::fmt;

use super::Error;

/// The longest name of a heap, in bytes: a file name must have room for it and haul's prefix.
pub const NAME_BYTES_MAX: usize = 64;

/// The name of a shared heap: 1 to 64 letters, digits, dots, hyphens and underscores. It does not
/// begin with a dot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] if the name is empty, too long, begins with a dot, or contains another
    /// character.
    pub fn new(name: &str) -> Result<Self, Error> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let bad = name.bytes().position(|byte| !is_plain(byte));
        let problem = match bad {
            _ if name.is_empty() => NameProblem::Empty,
            _ if name.len() > NAME_BYTES_MAX => NameProblem::TooLong(name.len()),
            _ if name.starts_with('.') => NameProblem::LeadingDot,
            Some(position) => NameProblem::Character { position },
            None => {
                let mut bytes = [0; NAME_BYTES_MAX];
                bytes[..name.len()].copy_from_slice(name.as_bytes());
                return Ok(Self { bytes, length: name.len() as u8 });
            }
        };
        Err(Error::BadName(problem))
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        // `new` accepts ASCII only, so this never falls back.
        core::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameProblem {
    /// It has no character.
    Empty,
    /// It is too long: it has this many bytes.
    TooLong(usize),
    /// It begins with a dot.
    LeadingDot,
    /// The byte at this position is not allowed.
    Character {
        /// Position in bytes.
        position: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn names_are_checked() {
        for good in ["a", "Heap-1.x_y", &"x".repeat(64)] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ".a", "a/b", "../x", "a b", "ä", "a\0", &"x".repeat(65)] {
            let message = Name::new(bad).unwrap_err().to_string();
            assert!(message.ends_with("dots, hyphens and underscores"), "{message}");
        }
    }
}
