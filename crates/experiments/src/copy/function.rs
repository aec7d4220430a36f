//! The three measured functions.

use std::str::FromStr;

use crate::error::Error;

/// A function of the C library that moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Copies between areas that do not overlap.
    Memcpy,
    /// Copies between areas that may overlap.
    Memmove,
    /// Fills with one byte.
    Memset,
}

impl Function {
    /// All functions.
    pub const ALL: [Self; 3] = [Self::Memcpy, Self::Memmove, Self::Memset];

    /// The function's name in C, commands and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcpy => "memcpy",
            Self::Memmove => "memmove",
            Self::Memset => "memset",
        }
    }
}

impl FromStr for Function {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|function| function.name() == text);
        found.ok_or_else(|| Error::UnknownFunction { name: text.into() })
    }
}
