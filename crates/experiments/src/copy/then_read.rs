//! The part of a target that is read right after the call.

use std::str::FromStr;

use crate::error::Error;

/// Bytes of one load.
pub const LOAD_BYTES: usize = 8;

/// The reader of the written bytes. Some processors delay a load after a store (a masked store is
/// not forwarded, or a load spans several stores). On these processors, a copy that is fast
/// without a reader may be slow with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThenRead {
    /// No reader reads the target.
    #[default]
    Nothing,
    /// Loads the first [`LOAD_BYTES`] bytes, like a program that reads the first field of a
    /// structure.
    First,
    /// Loads the last [`LOAD_BYTES`] bytes, or the first bytes if there are fewer.
    Last,
    /// Loads every byte.
    All,
}

impl ThenRead {
    /// All readers.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::First, Self::Last, Self::All];

    /// The readers that decide between methods of copying, with half the weight each.
    pub const JUDGES: [Self; 2] = [Self::Nothing, Self::First];

    /// The reader's name on the command line and in the record parameter `then_read`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::First => "first",
            Self::Last => "last",
            Self::All => "all",
        }
    }

    /// The end of an experiment's name: empty without a reader.
    pub(super) fn suffix(self) -> String {
        if self == Self::Nothing { String::new() } else { format!(", then read {}", self.name()) }
    }
}

impl FromStr for ThenRead {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|reader| reader.name() == text);
        found.ok_or_else(|| Error::UnknownReader { name: text.into() })
    }
}
