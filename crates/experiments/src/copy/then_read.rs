//! What a reader takes of a target right after the call.

use std::str::FromStr;

use crate::error::Error;

/// Bytes of one load.
pub const LOAD_BYTES: usize = 8;

/// Who reads what was just written: some processors make the reader of a store wait (a store under
/// a mask that is not forwarded, a load that spans several stores), and a copy that looks fast
/// alone is then slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThenRead {
    /// Nobody.
    #[default]
    Nothing,
    /// Loads the first [`LOAD_BYTES`] bytes: whoever sets or looks at a structure's first field.
    First,
    /// Loads the last [`LOAD_BYTES`] bytes; the first, where there are fewer.
    Last,
    /// Loads every byte.
    All,
}

impl ThenRead {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::First, Self::Last, Self::All];

    /// The readers that a choice between ways to copy is judged by, half each.
    pub const JUDGES: [Self; 2] = [Self::Nothing, Self::First];

    /// As the command line and the record parameter `then_read` spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::First => "first",
            Self::Last => "last",
            Self::All => "all",
        }
    }

    /// What is read, as an experiment's name ends: nothing for nobody.
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
