//! The text form of rates and counts on the command line.

use std::str::FromStr;

use super::error::PcieError;

/// The largest accepted rate in packets a second. It is above the rate of every link, and every
/// sum over a lower rate is finite.
const PACKETS_PER_S_MAX: f64 = 1e12;

/// Packets a second: `10M`, `14.88Mpps`, `250k`, `1000`.
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
        let refused = || PcieError::Rate { text: text.to_owned() };
        match scaled(text) {
            Some((value, Unit::Packets)) => Self::new(value).map_err(|_| refused()),
            Some((_, Unit::Bits)) => Err(PcieError::RateOfBits { text: text.to_owned() }),
            None => Err(refused()),
        }
    }
}

/// The unit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// No unit, `pps`, `packets/s`.
    Packets,
    /// `bit/s`, `bps`, `b/s`.
    Bits,
}

/// Parses a number with an optional suffix (`k`, `M`, `G`, `T`) and an optional unit. `None` if the
/// text is invalid.
pub(super) fn scaled(text: &str) -> Option<(f64, Unit)> {
    let text = text.trim();
    // Only digits and a point: Rust's own parser of floats would also accept names and exponents.
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let rest = rest.trim_start();
    let factors = [('k', 1e3), ('K', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12)];
    let scaled =
        factors.into_iter().find_map(|(sign, factor)| Some((factor, rest.strip_prefix(sign)?)));
    let (factor, unit) = scaled.unwrap_or((1.0, rest));
    let unit = match unit {
        "" | "pps" | "packets/s" => Unit::Packets,
        "bit/s" | "bps" | "b/s" => Unit::Bits,
        _ => return None,
    };
    Some((number * factor, unit))
}

/// Parses a whole number of decimal digits. `None` for any other text, and for numbers above 64
/// bits.
pub(super) fn whole(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_with_suffix_and_unit() {
        for (text, expected) in [
            ("10M", 1e7),
            ("1000", 1e3),
            ("250k", 2.5e5),
            ("250K", 2.5e5),
            ("0.5G", 5e8),
            ("1T", 1e12),
            ("14.88Mpps", 14.88e6),
            ("2.5 Mpps", 2.5e6),
            ("7packets/s", 7.0),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().packets_per_s(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_rates_are_rejected_with_value_and_remedy() {
        for text in [
            "",
            "0",
            "-1",
            "NaN",
            "inf",
            "1e9",
            "10m",
            "1.1T",
            "M",
            "1.2.3",
            "µ",
            "99999G",
            "1kk",
            "1Gp",
            "5 packets",
            "10Mpps2",
            "1GB/s",
            "1Gbit",
            "k",
            ".",
        ] {
            let message = text.parse::<Rate>().unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")), "{message}");
            assert!(message.contains("such as 10M"), "{message}");
        }
        let message = "10Gbit/s".parse::<Rate>().unwrap_err().to_string();
        assert!(message.contains("10M") && message.contains("bits"), "{message}");
        assert!(Rate::new(f64::NAN).is_err() && Rate::new(f64::INFINITY).is_err());
    }
}
