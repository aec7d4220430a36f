//! Lists and classes of sizes, as `--sizes` and `--size-class` accept them.

use std::fmt;
use std::str::FromStr;

use crate::units::{Bytes, UnitError};

/// Sizes to measure, ascending and without duplicates: `4KiB`, `64,100,4KiB`, or `2KiB..1GiB`,
/// which means every power of two from the first size to the last, both included.
///
/// ```
/// use haul_model::{Bytes, Sizes};
/// let sizes: Sizes = "2KiB..8KiB,100".parse().unwrap();
/// assert_eq!(sizes.0, [Bytes(100), Bytes(2048), Bytes(4096), Bytes(8192)]);
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

impl FromStr for Sizes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                Some((first, last)) => {
                    sizes.extend(powers_of_two(first.parse()?, last.parse()?, part)?)
                }
                None => sizes.push(part.parse()?),
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(Self(sizes))
    }
}

fn powers_of_two(first: Bytes, last: Bytes, text: &str) -> Result<Vec<Bytes>, UnitError> {
    if last < first {
        return Err(UnitError::Reversed { text: text.into() });
    }
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
