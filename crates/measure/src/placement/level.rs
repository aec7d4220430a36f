//! The level of the memory hierarchy from which the bytes of an operation come.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// A level of the memory hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The first-level data cache.
    L1,
    /// The second-level cache.
    L2,
    /// The last-level cache.
    Llc,
    /// Memory: each operation misses every cache.
    Cold,
    /// All levels, in the proportions of [`MIXED_SHARES`](super::MIXED_SHARES).
    Mixed,
    /// The nearest cache that holds both buffers of a copy; each copy uses the same two buffers.
    /// No placement is drawn at this level.
    Nearest,
}

impl Level {
    /// All levels at which placements are drawn, nearest first.
    pub const ALL: [Self; 5] = [Self::L1, Self::L2, Self::Llc, Self::Cold, Self::Mixed];

    /// The name in commands and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::L1 => "l1",
            Self::L2 => "l2",
            Self::Llc => "llc",
            Self::Cold => "cold",
            Self::Mixed => "mixed",
            Self::Nearest => "nearest",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| Error::UnknownLevel { name: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for level in Level::ALL {
            assert_eq!(level.name().parse::<Level>().unwrap(), level);
        }
        let message = "l4".parse::<Level>().unwrap_err().to_string();
        assert!(
            message.contains("\"l4\"") && message.contains("l1, l2, llc, cold and mixed"),
            "{message}"
        );
    }
}
