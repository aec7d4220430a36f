//! From times by way and size to thresholds: pure arithmetic.
//!
//! The thresholds are few and their values are the sizes that were measured, so all combinations
//! are tried. A combination costs, at each size, the logarithm of its way's ratio to the default,
//! where that is beyond doubt: see [`counted`]. The cheapest wins; among equals the one that changes
//! the way of the fewest sizes, then the fewest thresholds.

use haul_copy::Thresholds;
use haul_copy::thresholds::NEVER;
use haul_model::Comparison;

use crate::copy::Function;

/// A way has to be faster by this to count, even where the floor is lower: a guest's neighbours
/// change more from day to day.
pub const GAIN_MARGIN: f64 = 0.015;

/// A way that is slower by this counts as slower: a change has to be worth it.
pub const LOSS_MARGIN: f64 = 0.003;

/// How bytes are moved, as thresholds choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A loop over registers.
    Registers,
    /// `rep movsb` or `rep stosb`.
    String,
    /// Past the caches.
    Stream,
    /// Past the caches, pages interleaved. Copies only.
    Paged,
}

/// What training found at one size.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The size in bytes.
    pub size: usize,
    /// Each way's time over that of the default thresholds, as far as it counts: see [`counted`].
    pub ratios: Vec<(Way, f64)>,
}

/// The ratio of a comparison, or 1 where it is in doubt: where the interval holds 1, where it is
/// within the noise floor, or within the margin.
#[must_use]
pub fn counted(comparison: &Comparison) -> f64 {
    let gains =
        comparison.ratio_high < 1.0 && comparison.ratio < 1.0 - comparison.floor.max(GAIN_MARGIN);
    let loses =
        comparison.ratio_low > 1.0 && comparison.ratio > 1.0 + comparison.floor.max(LOSS_MARGIN);
    if gains || loses { comparison.ratio } else { 1.0 }
}

impl Way {
    /// The ways that a function has.
    #[must_use]
    pub fn of(function: Function) -> &'static [Self] {
        match function {
            Function::Memset => &[Self::Registers, Self::String, Self::Stream],
            Function::Memcpy | Function::Memmove => {
                &[Self::Registers, Self::String, Self::Stream, Self::Paged]
            }
        }
    }

    /// As records spell it.
    #[must_use]
    pub fn name(self, function: Function) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::String if function == Function::Memset => "rep_stosb",
            Self::String => "rep_movsb",
            Self::Stream => "stream",
            Self::Paged => "paged",
        }
    }

    /// Thresholds under which every size goes this way, for both functions.
    #[must_use]
    pub fn forced(self) -> Thresholds {
        let (string, stream, paged) = match self {
            Self::Registers => (NEVER, NEVER, NEVER),
            Self::String => (0, NEVER, NEVER),
            Self::Stream => (NEVER, 0, NEVER),
            Self::Paged => (NEVER, 0, 0),
        };
        let copies =
            set(Thresholds::REGISTERS_ONLY, Function::Memcpy, [string, NEVER, stream, paged]);
        set(copies, Function::Memset, [string, NEVER, stream, NEVER]).clamped()
    }
}

/// The names of a function's thresholds: string from, string to, stream from, paged from.
#[must_use]
pub fn names(function: Function) -> &'static [&'static str] {
    match function {
        Function::Memset => &["rep_stosb_min", "rep_stosb_max", "stream_fill_min"],
        Function::Memcpy | Function::Memmove => {
            &["rep_movsb_min", "rep_movsb_max", "stream_copy_min", "paged_copy_min"]
        }
    }
}

/// The way of a size under these thresholds, where source and target are aligned alike.
#[must_use]
pub fn way(function: Function, thresholds: &Thresholds, size: usize) -> Way {
    let at = |index: usize| {
        names(function).get(index).and_then(|name| thresholds.get(name)).unwrap_or(NEVER)
    };
    if (at(0)..at(1)).contains(&size) {
        Way::String
    } else if size < at(2) {
        Way::Registers
    } else if size < at(3) {
        Way::Stream
    } else {
        Way::Paged
    }
}

/// The cheapest thresholds of a function for what was trained; those of other functions, and all
/// of them where nothing is cheaper, are the defaults'. So is the way of sizes beyond those trained: what
/// loses up to there may gain behind it, as streaming does.
#[must_use]
pub fn best(function: Function, trained: &[Trained], defaults: Thresholds) -> Thresholds {
    let mut values: Vec<usize> = trained.iter().map(|trained| trained.size).collect();
    values.push(NEVER);
    let paged: &[usize] = if function == Function::Memset { &[NEVER] } else { &values };
    let (mut winner, mut least) = (defaults, cost(function, trained, &defaults, &defaults));
    for &string_min in &values {
        // A range that is empty is written in one way only: never.
        let tops =
            values.iter().filter(|&&top| top > string_min || string_min == NEVER && top == NEVER);
        for &string_max in tops {
            for &stream_min in &values {
                for &paged_min in paged.iter().filter(|&&paged_min| paged_min >= stream_min) {
                    let tried =
                        set(defaults, function, [string_min, string_max, stream_min, paged_min]);
                    let price = cost(function, trained, &tried, &defaults);
                    if price < least {
                        (winner, least) = (tried, price);
                    }
                }
            }
        }
    }
    keep_beyond(function, trained, winner, &defaults)
}

/// Has what the defaults do at some size, and these nowhere, done beyond the sizes that were trained.
fn keep_beyond(
    function: Function,
    trained: &[Trained],
    mut thresholds: Thresholds,
    defaults: &Thresholds,
) -> Thresholds {
    let beyond = trained.iter().map(|trained| trained.size).max().unwrap_or(0).saturating_mul(2);
    // The first two are the string's range, which has an end of its own.
    for name in &names(function)[2..] {
        if let (Some(NEVER), Some(default)) = (thresholds.get(name), defaults.get(name))
            && default != NEVER
        {
            let known = thresholds.set(name, default.max(beyond));
            debug_assert!(known, "{name} is a threshold");
        }
    }
    thresholds
}

/// What thresholds cost: the sum of the logarithms of their ratios, in units of 10^-9 so that
/// equal costs are equal; how many sizes go another way; how many thresholds differ.
fn cost(
    function: Function,
    trained: &[Trained],
    thresholds: &Thresholds,
    defaults: &Thresholds,
) -> (i64, usize, usize) {
    // The default's own way is the baseline itself: 1 by definition, whatever its twin under force
    // came to.
    let changed = trained.iter().filter_map(|trained| {
        let way = way(function, thresholds, trained.size);
        (way != self::way(function, defaults, trained.size)).then_some((way, trained))
    });
    let logarithms = changed.clone().map(|(way, trained)| {
        let found = trained.ratios.iter().find(|(tried, _)| *tried == way);
        found.map_or(f64::INFINITY, |&(_, ratio)| ratio.ln())
    });
    let differing =
        names(function).iter().filter(|name| thresholds.get(name) != defaults.get(name));
    ((logarithms.sum::<f64>() * 1e9) as i64, changed.count(), differing.count())
}

fn set(mut thresholds: Thresholds, function: Function, values: [usize; 4]) -> Thresholds {
    for (name, value) in names(function).iter().zip(values) {
        let known = thresholds.set(name, value);
        debug_assert!(known, "{name} is a threshold");
    }
    thresholds
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 8] = [2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144];

    /// Trained data in which each way costs what the function says.
    fn trained(ratio: impl Fn(Way, usize) -> f64) -> Vec<Trained> {
        let one = |&size: &usize| Trained {
            size,
            ratios: Way::of(Function::Memcpy).iter().map(|&way| (way, ratio(way, size))).collect(),
        };
        SIZES.iter().map(one).collect()
    }

    #[test]
    fn forced_ways_are_taken_at_every_size() {
        for function in Function::ALL {
            for &forced in Way::of(function) {
                for size in SIZES {
                    assert_eq!(way(function, &forced.forced(), size), forced);
                }
            }
        }
    }

    #[test]
    fn crossovers_are_found() {
        let data = trained(|way, size| match way {
            Way::Registers => 1.0,
            Way::String if (8192..65_536).contains(&size) => 0.8,
            Way::Stream if size >= 131_072 => 0.7,
            Way::Paged if size >= 262_144 => 0.6,
            _ => 1.5,
        });
        let found = best(Function::Memcpy, &data, Thresholds::REGISTERS_ONLY);
        let values: Vec<usize> =
            names(Function::Memcpy).iter().map(|name| found.get(name).unwrap()).collect();
        assert_eq!(values, [8192, 65_536, 131_072, 262_144]);
        assert_eq!(found.stream_fill_min, NEVER, "fills are left alone");
    }

    #[test]
    fn doubt_counts_as_no_difference() {
        let comparison = |ratio_low, ratio, ratio_high, floor| Comparison {
            baseline: "default".into(),
            ratio,
            ratio_low,
            ratio_high,
            floor,
        };
        assert_eq!(counted(&comparison(0.95, 0.96, 0.97, 0.01)), 0.96);
        assert_eq!(counted(&comparison(0.95, 0.96, 0.97, 0.05)), 1.0, "within the floor");
        assert_eq!(counted(&comparison(0.90, 0.96, 1.01, 0.01)), 1.0, "the interval holds 1");
        assert_eq!(counted(&comparison(0.988, 0.99, 0.992, 0.001)), 1.0, "not worth a change");
        assert_eq!(counted(&comparison(1.008, 1.01, 1.012, 0.001)), 1.01, "but worth to avoid");
    }

    #[test]
    fn nothing_better_changes_nothing() {
        let data = trained(|_, _| 1.0);
        assert_eq!(
            best(Function::Memcpy, &data, Thresholds::REGISTERS_ONLY),
            Thresholds::REGISTERS_ONLY
        );
    }

    /// A way that gains at one size and makes no difference at others is taken at that size only.
    #[test]
    fn no_more_sizes_change_than_need_to() {
        let data =
            trained(|way, size| if way == Way::String && size == 65_536 { 0.9 } else { 1.0 });
        let found = best(Function::Memcpy, &data, Thresholds::REGISTERS_ONLY);
        assert_eq!((found.rep_movsb_min, found.rep_movsb_max), (65_536, 131_072));
        assert_eq!(found.stream_copy_min, NEVER);
    }

    #[test]
    fn a_bad_default_is_mended_and_a_good_one_stays() {
        let mut defaults = Thresholds::REGISTERS_ONLY;
        assert!(defaults.set("stream_copy_min", 16_384));
        // Under these defaults streaming is the baseline from 16 KiB on, and loses up to 64 KiB.
        let data = trained(|way, size| match way {
            Way::Registers if (16_384..65_536).contains(&size) => 0.5,
            Way::Registers if size < 16_384 => 1.0,
            Way::Stream if size >= 16_384 => 1.0,
            _ => 1.5,
        });
        let found = best(Function::Memcpy, &data, defaults);
        assert_eq!(found.stream_copy_min, 65_536);
        assert_eq!(found.rep_movsb_min, NEVER);
        assert_eq!(best(Function::Memcpy, &data, found).stream_copy_min, 65_536);
    }

    #[test]
    fn beyond_what_was_trained_the_defaults_stay() {
        let mut defaults = Thresholds::REGISTERS_ONLY;
        assert!(defaults.set("stream_copy_min", 16_384) && defaults.set("paged_copy_min", 1 << 30));
        let data = trained(|way, _| if way == Way::Registers { 0.5 } else { 1.5 });
        let found = best(Function::Memcpy, &data, defaults);
        assert_eq!((found.stream_copy_min, found.paged_copy_min), (2 * 262_144, 1 << 30));
    }
}
