//! Units as types: bytes, nanoseconds, bytes a second.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
///
/// It parses a number with or without a unit; binary units are `KiB`, `MiB`, `GiB`, `TiB`, decimal
/// ones `kB`, `MB`, `GB`, `TB`. Its text form is exact, in the largest binary unit that needs at
/// most two decimals, and parses to the same number.
///
/// ```
/// use haul_model::Bytes;
/// assert_eq!("1.5MiB".parse::<Bytes>().unwrap(), Bytes(1_572_864));
/// assert_eq!("2kB".parse::<Bytes>().unwrap(), Bytes(2_000));
/// assert_eq!(Bytes(4096).to_string(), "4 KiB");
/// assert_eq!(Bytes(1025).to_string(), "1025 B");
/// assert!("4k".parse::<Bytes>().is_err(), "1000 or 1024?");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A duration in nanoseconds, shown with three digits: `51.2 ns`, `1.20 µs`, `3.40 ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Nanos(pub f64);

/// A rate in bytes a second, shown with three digits in decimal units: `18.2 GB/s` (10^9).
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct BytesPerSecond(pub f64);

/// The reason why a text is not a size, a list of sizes, or a size class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitError {
    /// The text does not start with a number.
    NoNumber {
        /// The given text.
        text: String,
    },
    /// The unit is unknown.
    UnknownUnit {
        /// The given text.
        text: String,
        /// The part after the number.
        unit: String,
    },
    /// The size has a fraction of a byte.
    NotWhole {
        /// The given text.
        text: String,
    },
    /// The size is above [`u64::MAX`] bytes.
    TooLarge {
        /// The given text.
        text: String,
    },
    /// The range or class ends before it starts.
    Reversed {
        /// The given text.
        text: String,
    },
    /// The range contains no power of two, so that nothing would be measured.
    NoPower {
        /// The given text.
        text: String,
    },
    /// The step of a range is 0.
    NoStep {
        /// The given text.
        text: String,
    },
    /// The text contains too many sizes.
    TooMany {
        /// The given text.
        text: String,
        /// The largest number of sizes.
        limit: usize,
    },
    /// The size class has no dash.
    NoDash {
        /// The given text.
        text: String,
    },
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber { text } => write!(
                f,
                "{text:?} is not a size: it must start with a number; write for example 64, 4KiB or 1.5MiB"
            ),
            Self::UnknownUnit { text, unit } => write!(
                f,
                "{text:?} is not a size: the unit {unit:?} is not known; \
                 write B, KiB, MiB, GiB, TiB (1024) or kB, MB, GB, TB (1000)"
            ),
            Self::NotWhole { text } => write!(
                f,
                "{text:?} is not a whole number of bytes; write it in a smaller unit, or round it"
            ),
            Self::TooLarge { text } => {
                write!(f, "{text:?} is above the largest size, 2^64 - 1 bytes; write a smaller one")
            }
            Self::Reversed { text } => {
                write!(f, "{text:?} ends before it starts; write the smaller size first")
            }
            Self::NoPower { text } => write!(
                f,
                "{text:?} contains no power of two; widen the range, add a step (3000..5000:100), or \
                 list the sizes: 3000,5000"
            ),
            Self::NoStep { text } => write!(
                f,
                "the step of {text:?} is 0; write a step of at least 1 byte, such as 64..1500:4"
            ),
            Self::TooMany { text, limit } => write!(
                f,
                "{text:?} contains more than {limit} sizes; write a larger step or a narrower range"
            ),
            Self::NoDash { text } => write!(
                f,
                "{text:?} is not a size class; write its first and last size, both included: 17-64 or 1KiB-4KiB"
            ),
        }
    }
}

impl std::error::Error for UnitError {}

const BINARY: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const DECIMAL: [(&str, u64); 4] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];

impl Bytes {
    /// The size in the largest binary unit that is not above it, rounded to three digits. It is for
    /// readers and is not exact, such as `62.7 GiB` of memory.
    ///
    /// ```
    /// assert_eq!(haul_model::Bytes(67_345_678_336).approximate(), "62.7 GiB");
    /// assert_eq!(haul_model::Bytes(512).approximate(), "512 B");
    /// ```
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    pub fn approximate(self) -> String {
        match BINARY.iter().find(|(_, unit)| self.0 >= *unit) {
            Some((name, unit)) => format!("{} {name}", three_digits(self.0 as f64 / *unit as f64)),
            None => format!("{} B", self.0),
        }
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
            return Err(UnitError::NoNumber { text: text.into() });
        }
        let unit = unit_bytes(unit.trim_start()).ok_or_else(|| UnitError::UnknownUnit {
            text: text.into(),
            unit: unit.trim().into(),
        })?;
        decimal_times(whole, fraction.trim_end_matches('0'), unit, text)
    }
}

/// `whole.fraction * unit`, exactly.
fn decimal_times(whole: &str, fraction: &str, unit: u64, text: &str) -> Result<Bytes, UnitError> {
    let too_large = || UnitError::TooLarge { text: text.into() };
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    // A binary unit has 40 factors of two and a decimal unit 12 factors of ten, so a 41st decimal
    // cannot give a whole number of bytes. 18 decimals are enough in practice, and a multiplication
    // by 10^18 still fits into 128 bits.
    let scale = match u32::try_from(fraction.len()) {
        Ok(digits) if digits <= 18 => 10_u128.pow(digits),
        _ => return Err(UnitError::NotWhole { text: text.into() }),
    };
    let fraction: u128 =
        if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| too_large())? };
    let scaled = fraction * u128::from(unit);
    if !scaled.is_multiple_of(scale) {
        return Err(UnitError::NotWhole { text: text.into() });
    }
    let bytes = u128::from(whole) * u128::from(unit) + scaled / scale;
    u64::try_from(bytes).map(Bytes).map_err(|_| too_large())
}

fn unit_bytes(unit: &str) -> Option<u64> {
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    BINARY.iter().chain(&DECIMAL).find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, unit) in BINARY {
            let hundredths = u128::from(self.0 % unit) * 100;
            if self.0 < unit || !hundredths.is_multiple_of(u128::from(unit)) {
                continue;
            }
            let whole = self.0 / unit;
            let shown = match hundredths / u128::from(unit) {
                0 => format!("{whole} {name}"),
                tens if tens.is_multiple_of(10) => format!("{whole}.{} {name}", tens / 10),
                hundredths => format!("{whole}.{hundredths:02} {name}"),
            };
            return f.pad(&shown);
        }
        f.pad(&format!("{} B", self.0))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]))
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(
            self.0,
            &[(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
        ))
    }
}

/// The value in the largest unit that is not above the rounded value. Smaller values use the last
/// unit.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let (size, name) = units
        .iter()
        // 999.7 is rounded to 1000, so it already belongs to the next unit.
        .find(|(size, _)| value.abs() >= size * 0.9995)
        .or(units.last())
        .copied()
        .unwrap_or((1.0, ""));
    format!("{} {name}", three_digits(value / size))
}

/// A number with three significant digits and no exponent; whole numbers keep all their digits.
///
/// ```
/// use haul_model::units::three_digits;
/// assert_eq!(three_digits(0.012345), "0.0123");
/// assert_eq!(three_digits(9.999), "10.0");
/// assert_eq!(three_digits(51.23), "51.2");
/// assert_eq!(three_digits(123456.7), "123457");
/// ```
#[must_use]
pub fn three_digits(value: f64) -> String {
    let decimals = |value: f64| -> usize {
        match value.abs() {
            v if v >= 100.0 || v == 0.0 => 0,
            v if v >= 10.0 => 1,
            v if v >= 1.0 => 2,
            v if v >= 0.1 => 3,
            v if v >= 0.01 => 4,
            _ => 6,
        }
    };
    let shown = format!("{value:.*}", decimals(value));
    // 9.999 rounds to 10.00, which has one digit too many, so the decimals are chosen from the
    // rounded number.
    let rounded = shown.parse().unwrap_or(value);
    format!("{value:.*}", decimals(rounded))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Result<u64, UnitError> {
        text.parse::<Bytes>().map(|bytes| bytes.0)
    }

    #[test]
    fn bytes_parse_exactly() {
        for (text, expected) in [
            ("0", 0),
            ("64", 64),
            ("64 B", 64),
            (" 4KiB ", 4096),
            ("1.5MiB", 3 << 19),
            ("2kB", 2_000),
            ("0.5kB", 500),
            ("1GiB", 1 << 30),
            ("1.50000000000000000000000 TiB", 3 << 39),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_rejected_with_remedy() {
        let refused = |text: &str, remedy: &str| {
            let message = bytes(text).expect_err(text).to_string();
            assert!(message.contains(remedy), "{text:?}: {message}");
            assert!(message.contains(text), "{text:?} is named: {message}");
        };
        for text in ["", "KiB", "-1", "+1", ".5KiB", "1.KiB", "1.2.3", "x64", "NaN", "inf"] {
            refused(text, "must start with a number");
        }
        for text in ["4k", "4K", "4KB", "4kib", "64 bytes", "1e3", "4KiB/s", "1KiB 2"] {
            refused(text, "write B, KiB");
        }
        for text in ["1.5", "0.1KiB", "0.0000000000000000001GiB"] {
            refused(text, "round it");
        }
        for text in
            ["18446744073709551616", "16777216TiB", "99999999999999999999999999999999999999999"]
        {
            refused(text, "write a smaller one");
        }
    }

    #[test]
    fn bytes_display_in_binary_units() {
        for (size, expected) in [
            (0, "0 B"),
            (100, "100 B"),
            (1023, "1023 B"),
            (4096, "4 KiB"),
            (4097, "4097 B"),
            (3 << 19, "1.5 MiB"),
            (1280 << 10, "1.25 MiB"),
            (1 << 30, "1 GiB"),
            (1024 + 512 + 256 + 128, "1920 B"),
        ] {
            assert_eq!(Bytes(size).to_string(), expected);
        }
        assert_eq!(format!("[{:>8}]", Bytes(4096)), "[   4 KiB]");
    }

    #[test]
    fn times_and_rates_display_three_digits() {
        for (nanos, expected) in [
            (0.0, "0 ns"),
            (0.25, "0.250 ns"),
            (51.23, "51.2 ns"),
            (999.4, "999 ns"),
            (999.7, "1.00 µs"),
            (3_400_000.0, "3.40 ms"),
            (2.5e12, "2500 s"),
        ] {
            assert_eq!(Nanos(nanos).to_string(), expected);
        }
        assert_eq!(BytesPerSecond(18.24e9).to_string(), "18.2 GB/s");
        assert_eq!(BytesPerSecond(9.5e8).to_string(), "950 MB/s");
        assert_eq!(BytesPerSecond(12.0).to_string(), "12.0 B/s");
    }

    proptest! {
        #[test]
        fn displayed_bytes_parse_to_same_number(size: u64) {
            prop_assert_eq!(bytes(&Bytes(size).to_string()), Ok(size));
        }

        #[test]
        fn displayed_round_sizes_parse_to_same_number(mantissa in 1_u64..10_000, shift in 0_u32..50) {
            let size = mantissa << shift;
            prop_assert_eq!(bytes(&Bytes(size).to_string()), Ok(size));
        }

        #[test]
        fn bytes_accept_or_reject_any_text(text in ".{0,40}") {
            let _ = bytes(&text);
        }

        #[test]
        fn decimal_sizes_match_integer_arithmetic(whole in 0_u64..1000, eighths in 0_u64..8) {
            let text = format!("{whole}.{:03}MiB", eighths * 125);
            prop_assert_eq!(bytes(&text), Ok((whole << 20) + eighths * (1 << 17)));
        }
    }
}
