//! The version of a driver.

use std::fmt;
use std::str::FromStr;

use crate::pcie::error::PcieError;
use crate::pcie::number::whole;

/// A release of DPDK: `dpdk-22.11`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The year without the century.
    pub year: u8,
    /// The month, 1 to 12.
    pub month: u8,
}

impl Version {
    /// The first release whose sources the rules follow.
    pub const FIRST: Self = Self { year: 22, month: 11 };
    /// The last release whose sources the rules follow.
    pub const LAST: Self = Self { year: 26, month: 7 };

    /// The release whose rules are used for this one: this release if it is between
    /// [`FIRST`](Self::FIRST) and [`LAST`](Self::LAST), else the nearer of the two.
    #[must_use]
    pub fn nearest(self) -> Self {
        self.clamp(Self::FIRST, Self::LAST)
    }
}

impl FromStr for Version {
    type Err = PcieError;

    /// Parses `dpdk-22.11`, optionally followed by the number of a maintenance release:
    /// `dpdk-22.11.11`.
    fn from_str(text: &str) -> Result<Self, PcieError> {
        let refused = || PcieError::Driver { text: text.to_owned() };
        let numbers = text.trim().strip_prefix("dpdk-").ok_or_else(refused)?;
        let mut parts = numbers.split('.').map(whole);
        let mut next = || parts.next().flatten();
        let (year, month) = (next().ok_or_else(refused)?, next().ok_or_else(refused)?);
        let rest: Option<Vec<u64>> = parts.collect();
        let is_release = (16..=99).contains(&year) && (1..=12).contains(&month);
        match rest {
            Some(rest) if is_release && rest.len() <= 1 => {
                Ok(Self { year: year as u8, month: month as u8 })
            }
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("dpdk-{}.{:02}", self.year, self.month))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse_and_invalid_text_is_rejected() {
        for (text, expected) in [("dpdk-22.11", (22, 11)), ("dpdk-25.07.2", (25, 7))] {
            let version: Version = text.parse().unwrap();
            assert_eq!((version.year, version.month), expected);
        }
        for bad in [
            "",
            "22.11",
            "dpdk-",
            "dpdk-22",
            "dpdk-22.13",
            "dpdk-1.8",
            "dpdk-22.11.x",
            "dpdk-22.11.1.1",
            "linux-6.1",
            "dpdk-99999999999999999999.1",
        ] {
            let message = bad.parse::<Version>().unwrap_err().to_string();
            assert!(message.contains("dpdk-22.11"), "{bad}: {message}");
        }
    }

    #[test]
    fn nearest_clamps_unknown_releases() {
        for (text, nearest) in [
            ("dpdk-19.11", "dpdk-22.11"),
            ("dpdk-23.11", "dpdk-23.11"),
            ("dpdk-30.03", "dpdk-26.07"),
        ] {
            assert_eq!(text.parse::<Version>().unwrap().nearest().to_string(), nearest);
        }
    }
}
