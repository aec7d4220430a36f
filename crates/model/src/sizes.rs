//! Lists and classes of sizes, as `--sizes` and `--size-class` accept them.

use std::fmt;
use std::str::FromStr;

use crate::units::{Bytes, UnitError};

/// Sizes to measure, ascending and without duplicates: `4KiB` or `64,100,4KiB`.
///
/// A part may also be a range that includes both ends. `FIRST..LAST` is every power of two in the
/// range; `FIRST..LAST:STEP` is `FIRST` and every `STEP`-th size after it. At most
/// [`Sizes::COUNT_MAX`] sizes are accepted.
///
/// ```
/// use haul_model::{Bytes, Sizes};
/// let sizes: Sizes = "2KiB..8KiB,100".parse().unwrap();
/// assert_eq!(sizes.0, [Bytes(100), Bytes(2048), Bytes(4096), Bytes(8192)]);
/// let sizes: Sizes = "60..64:2".parse().unwrap();
/// assert_eq!(sizes.0, [Bytes(60), Bytes(62), Bytes(64)]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<Bytes>);

/// A class of sizes from `first` to `last`, both included: `0-16`, `1KiB-4KiB`.
///
/// Its text form is in plain bytes and is the name of the class in records.
///
/// ```
/// use haul_model::{Bytes, SizeClass};
/// let class: SizeClass = "17-64".parse().unwrap();
/// assert_eq!((class.first, class.last), (Bytes(17), Bytes(64)));
/// assert_eq!("1KiB-2KiB".parse::<SizeClass>().unwrap().to_string(), "1024-2048");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeClass {
    /// The smallest size of the class.
    pub first: Bytes,
    /// The largest size of the class; not below `first`.
    pub last: Bytes,
}

impl Sizes {
    /// The largest number of sizes in a text: every size of a packet.
    pub const COUNT_MAX: usize = 1 << 16;
}

impl FromStr for Sizes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                Some((first, rest)) => sizes.extend(range(first, rest, part)?),
                None => sizes.push(part.parse()?),
            }
        }
        if sizes.len() > Self::COUNT_MAX {
            return Err(too_many(text));
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(Self(sizes))
    }
}

/// The sizes of `FIRST..LAST` or `FIRST..LAST:STEP`, where `rest` follows the dots.
fn range(first: &str, rest: &str, text: &str) -> Result<Vec<Bytes>, UnitError> {
    let (last, step) = match rest.split_once(':') {
        Some((last, step)) => (last, Some(step.parse::<Bytes>()?)),
        None => (rest, None),
    };
    let (first, last) = (first.parse::<Bytes>()?, last.parse::<Bytes>()?);
    if last < first {
        return Err(UnitError::Reversed { text: text.into() });
    }
    match step {
        None => powers_of_two(first, last, text),
        Some(Bytes(0)) => Err(UnitError::NoStep { text: text.into() }),
        Some(step) => {
            let count = (last.0 - first.0) / step.0;
            if count >= Sizes::COUNT_MAX as u64 {
                return Err(too_many(text));
            }
            Ok((0..=count).map(|index| Bytes(first.0 + index * step.0)).collect())
        }
    }
}

fn too_many(text: &str) -> UnitError {
    UnitError::TooMany { text: text.into(), limit: Sizes::COUNT_MAX }
}

fn powers_of_two(first: Bytes, last: Bytes, text: &str) -> Result<Vec<Bytes>, UnitError> {
    let powers: Vec<Bytes> = (0..u64::BITS)
        .map(|bit| Bytes(1 << bit))
        .filter(|size| (first..=last).contains(size))
        .collect();
    if powers.is_empty() {
        return Err(UnitError::NoPower { text: text.into() });
    }
    Ok(powers)
}

impl FromStr for SizeClass {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (first, last) =
            text.split_once('-').ok_or_else(|| UnitError::NoDash { text: text.into() })?;
        let class = Self { first: first.parse()?, last: last.parse()? };
        if class.last < class.first {
            return Err(UnitError::Reversed { text: text.into() });
        }
        Ok(class)
    }
}

impl fmt::Display for SizeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.first.0, self.last.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(text: &str) -> Vec<u64> {
        text.parse::<Sizes>().unwrap().0.into_iter().map(|size| size.0).collect()
    }

    #[test]
    fn range_expands_to_powers_of_two() {
        assert_eq!(sizes("2KiB..16KiB"), [2048, 4096, 8192, 16384]);
        assert_eq!(sizes("3000..10000"), [4096, 8192]);
        assert_eq!(sizes("0..2"), [1, 2]);
        assert_eq!(sizes("4KiB..4KiB"), [4096]);
        assert_eq!(sizes("2KiB..1GiB").len(), 20);
        assert_eq!(sizes("0..18446744073709551615").len(), 64);
        assert_eq!(sizes("7,4KiB,7"), [7, 4096]);
    }

    #[test]
    fn range_with_step_expands_to_every_step() {
        assert_eq!(sizes("60..64:1"), [60, 61, 62, 63, 64]);
        assert_eq!(sizes("64..100:16,80"), [64, 80, 96]);
        assert_eq!(sizes("1KiB..2KiB:512B"), [1024, 1536, 2048]);
        assert_eq!(sizes("9..9:100"), [9]);
        assert_eq!(sizes("18446744073709551614..18446744073709551615:1").len(), 2);
        assert_eq!(sizes("0..65535:1").len(), Sizes::COUNT_MAX);
    }

    #[test]
    fn impossible_step_is_refused() {
        let refused = |text: &str| text.parse::<Sizes>().unwrap_err();
        assert!(matches!(refused("60..64:0"), UnitError::NoStep { .. }));
        assert!(matches!(refused("64..60:1"), UnitError::Reversed { .. }));
        for text in ["0..65536:1", "0..18446744073709551615:1", "0..65535:1,9GiB"] {
            let error = refused(text);
            assert!(matches!(error, UnitError::TooMany { limit: 65_536, .. }), "{error}");
        }
        for text in ["60..64:", "60..64:x", "60..64+1", "60..:1", "60:1", "60..64:1:1", "60..64:-1"]
        {
            refused(text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |text: &str| text.parse::<Sizes>().unwrap_err();
        assert!(matches!(refused("1GiB..2KiB"), UnitError::Reversed { .. }));
        assert!(matches!(refused("5..7"), UnitError::NoPower { .. }));
        for text in ["", ",", "1..", "..1", "1...4", "..", "64;128", "4KiB,"] {
            refused(text);
        }
        for text in ["", "16", "-", "0-", "-16", "64-17", "0..16", "a-b", "0-16-32"] {
            text.parse::<SizeClass>().expect_err(text);
        }
    }

    proptest! {
        #[test]
        fn classes_round_trip(a: u64, b: u64) {
            let class = SizeClass { first: Bytes(a.min(b)), last: Bytes(a.max(b)) };
            prop_assert_eq!(class.to_string().parse(), Ok(class));
        }

        #[test]
        fn sizes_ascend_and_stay_within_range(a: u64, b: u64) {
            let (low, high) = (a.min(b), a.max(b));
            if let Ok(Sizes(sizes)) = format!("{low}..{high}").parse() {
                prop_assert!(sizes.is_sorted_by(|a, b| a < b));
                prop_assert!(sizes.iter().all(|s| s.0.is_power_of_two() && (low..=high).contains(&s.0)));
            }
        }
    }
}
