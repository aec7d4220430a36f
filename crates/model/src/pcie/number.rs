//! Rates and counts as a command line writes them.

use std::str::FromStr;

use super::error::PcieError;

/// More packets a second than any link carries; every sum over a rate below it stays finite.
const PACKETS_PER_S_MAX: f64 = 1e12;

/// Packets a second: `10M`, `14.88M`, `250k`, `1000`.
///
/// ```
/// use haul_model::pcie::Rate;
/// assert_eq!("14.88M".parse::<Rate>().unwrap().packets_per_s(), 14_880_000.0);
/// assert!("0".parse::<Rate>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// A rate above 0 and at most 10^12.
    ///
    /// # Errors
    /// [`PcieError::Rate`] for any other number.
    pub fn new(packets_per_s: f64) -> Result<Self, PcieError> {
        if packets_per_s > 0.0 && packets_per_s <= PACKETS_PER_S_MAX {
            return Ok(Self(packets_per_s));
        }
        Err(PcieError::Rate { text: packets_per_s.to_string() })
    }

    /// Packets a second.
    #[must_use]
    pub fn packets_per_s(self) -> f64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = PcieError;

    fn from_str(text: &str) -> Result<Self, PcieError> {
        parse_rate(text)
    }
}

/// A rate with or without a suffix: `k`, `M`, `G` or `T`.
///
/// # Errors
/// [`PcieError::Rate`] where the text is no number, or one that [`Rate::new`] refuses.
pub fn parse_rate(text: &str) -> Result<Rate, PcieError> {
    let refused = || PcieError::Rate { text: text.to_owned() };
    let trimmed = text.trim();
    let (number, factor) = match trimmed.chars().last() {
        Some('k') => (&trimmed[..trimmed.len() - 1], 1e3),
        Some('M') => (&trimmed[..trimmed.len() - 1], 1e6),
        Some('G') => (&trimmed[..trimmed.len() - 1], 1e9),
        Some('T') => (&trimmed[..trimmed.len() - 1], 1e12),
        _ => (trimmed, 1.0),
    };
    // Digits alone: what Rust reads as a float has names and exponents as well.
    if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(refused());
    }
    let number: f64 = number.parse().map_err(|_| refused())?;
    Rate::new(number * factor).map_err(|_| refused())
}

/// A whole number in decimal digits alone; `None` for anything else, and beyond 64 bits.
pub(super) fn whole(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_their_suffix() {
        for (text, expected) in
            [("10M", 1e7), ("1000", 1e3), ("250k", 2.5e5), ("0.5G", 5e8), ("1T", 1e12)]
        {
            assert_eq!(parse_rate(text).unwrap().packets_per_s(), expected, "{text}");
        }
    }

    #[test]
    fn impossible_rates_are_refused_by_value_and_remedy() {
        for text in ["", "0", "-1", "NaN", "inf", "1e9", "10m", "1.1T", "M", "1.2.3", "µ", "99999G"]
        {
            let message = parse_rate(text).unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")), "{message}");
            assert!(message.contains("such as 10M"), "{message}");
        }
        assert!(Rate::new(f64::NAN).is_err() && Rate::new(f64::INFINITY).is_err());
    }
}
