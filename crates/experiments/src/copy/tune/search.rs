//! From times by way and size to strings and thresholds: pure arithmetic.
//!
//! The thresholds are few and their values are the sizes that were measured, so all combinations
//! are tried, of copies with strings anywhere and with those that are aligned alike alone. A
//! combination costs, at each size, the logarithm of its way's ratio to the default, where that is
//! beyond doubt: see [`counted`]. The cheapest wins; among equals the one that changes the way of
//! the fewest sizes, then the fewest thresholds.

use haul_copy::Policy;
use haul_copy::policy::Strings;
use haul_copy::thresholds::NEVER;
use haul_model::Comparison;

use crate::copy::Function;

/// A way has to be faster by this to count, even where the floor is lower: a guest's neighbours
/// change more from day to day.
pub const GAIN_MARGIN: f64 = 0.015;

/// A way that is slower by this counts as slower: a change has to be worth it.
pub const LOSS_MARGIN: f64 = 0.003;

/// How often the worst of the bad offsets is taken to come: 63 of a page's 4,096 distances are the
/// worst on Zen 4, the processor with the worst that is known.
const BAD_OFFSET_SHARE: f64 = 63.0 / 4096.0;

/// A string that takes so many times as long as registers at the worst offset is not taken: a
/// program may have that offset always. Zen 4 takes 20 times as long, and Zen 5 1.8.
const BAD_OFFSET_MAX: f64 = 3.0;

/// How bytes are moved, as thresholds choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A loop over registers.
    Registers,
    /// `rep movsb` or `rep stosb`.
    String,
    /// `rep movsb` where target and source are aligned alike, registers elsewhere. Copies only.
    AlikeString,
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
    /// Each way's time over that of the base, as far as it counts: see [`counted`].
    pub ratios: Vec<(Way, f64)>,
}

impl Trained {
    /// Has strings anywhere cost what they cost with the worst of the bad offsets in its share of
    /// calls. `over_registers` is their time there over that of registers.
    pub fn add_worst(&mut self, over_registers: f64) {
        let of = |wanted| self.ratios.iter().find(|(way, _)| *way == wanted).map(|(_, it)| *it);
        let worst = of(Way::Registers).map_or(over_registers, |ratio| ratio * over_registers);
        for (way, ratio) in &mut self.ratios {
            if *way == Way::String {
                *ratio = if over_registers > BAD_OFFSET_MAX {
                    f64::INFINITY
                } else {
                    *ratio * (1.0 - BAD_OFFSET_SHARE) + worst * BAD_OFFSET_SHARE
                };
            }
        }
    }
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
                &[Self::Registers, Self::String, Self::AlikeString, Self::Stream, Self::Paged]
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
            Self::AlikeString => "rep_movsb_alike",
            Self::Stream => "stream",
            Self::Paged => "paged",
        }
    }

    /// The base with thresholds under which every size goes this way, for both functions.
    #[must_use]
    pub fn forced(self, base: Policy) -> Policy {
        let (string, stream, paged) = match self {
            Self::Registers => (NEVER, NEVER, NEVER),
            Self::String | Self::AlikeString => (0, NEVER, NEVER),
            Self::Stream => (NEVER, 0, NEVER),
            Self::Paged => (NEVER, 0, 0),
        };
        let mut forced = base;
        match self {
            Self::String => forced.strings = Strings::Any,
            Self::AlikeString => forced.strings = Strings::Alike,
            Self::Registers | Self::Stream | Self::Paged => {}
        }
        forced = set(forced, Function::Memcpy, [string, NEVER, stream, paged]);
        set(forced, Function::Memset, [string, NEVER, stream, NEVER]).clamped()
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

/// The way of a size under this policy.
#[must_use]
pub fn way(function: Function, policy: &Policy, size: usize) -> Way {
    let at = |index: usize| {
        names(function).get(index).and_then(|name| policy.thresholds.get(name)).unwrap_or(NEVER)
    };
    if (at(0)..at(1)).contains(&size) {
        let is_alike = policy.strings == Strings::Alike && function != Function::Memset;
        if is_alike { Way::AlikeString } else { Way::String }
    } else if size < at(2) {
        Way::Registers
    } else if size < at(3) {
        Way::Stream
    } else {
        Way::Paged
    }
}

/// The base with the cheapest strings and thresholds of a function for what was trained; those of
/// other functions, and all of them where nothing is cheaper, are the base's. So is the way of
/// sizes beyond those trained: what loses up to there may gain behind it, as streaming does.
#[must_use]
pub fn best(function: Function, trained: &[Trained], base: Policy) -> Policy {
    let mut values: Vec<usize> = trained.iter().map(|trained| trained.size).collect();
    values.push(NEVER);
    let is_fill = function == Function::Memset;
    let paged: &[usize] = if is_fill { &[NEVER] } else { &values };
    let strings: &[Strings] = if is_fill { &[base.strings] } else { &Strings::ALL };
    let (mut winner, mut least) = (base, cost(function, trained, &base, &base));
    for &string_min in &values {
        // A range that is empty is written in one way only: never.
        let tops =
            values.iter().filter(|&&top| top > string_min || string_min == NEVER && top == NEVER);
        for (&string_max, &strings) in tops.flat_map(|top| strings.iter().map(move |s| (top, s))) {
            for &stream_min in &values {
                for &paged_min in paged.iter().filter(|&&paged_min| paged_min >= stream_min) {
                    let mut tried =
                        set(base, function, [string_min, string_max, stream_min, paged_min]);
                    tried.strings = strings;
                    let price = cost(function, trained, &tried, &base);
                    if price < least {
                        (winner, least) = (tried, price);
                    }
                }
            }
        }
    }
    keep_beyond(function, trained, winner, &base)
}

/// Has what the base does at some size, and these nowhere, done beyond the sizes that were trained.
/// Not where the largest of them is streamed: pages in turn are a way to stream, and lost there.
fn keep_beyond(
    function: Function,
    trained: &[Trained],
    mut found: Policy,
    base: &Policy,
) -> Policy {
    let largest = trained.iter().map(|trained| trained.size).max().unwrap_or(0);
    if way(function, &found, largest) == Way::Stream {
        return found;
    }
    let beyond = largest.saturating_mul(2);
    // The first two are the string's range, which has an end of its own.
    for name in &names(function)[2..] {
        if let (Some(NEVER), Some(before)) = (found.thresholds.get(name), base.thresholds.get(name))
            && before != NEVER
        {
            let known = found.thresholds.set(name, before.max(beyond));
            debug_assert!(known, "{name} is a threshold");
        }
    }
    found
}

/// What a policy costs: the sum of the logarithms of its ways' ratios, in units of 10^-9 so that
/// equal costs are equal; how many sizes go another way; how many thresholds and choices differ.
fn cost(
    function: Function,
    trained: &[Trained],
    policy: &Policy,
    base: &Policy,
) -> (i64, usize, usize) {
    // The base's own way is the baseline itself: 1 by definition, whatever its twin under force
    // came to.
    let changed = trained.iter().filter_map(|trained| {
        let way = way(function, policy, trained.size);
        (way != self::way(function, base, trained.size)).then_some((way, trained))
    });
    let logarithms = changed.clone().map(|(way, trained)| {
        let found = trained.ratios.iter().find(|(tried, _)| *tried == way);
        found.map_or(f64::INFINITY, |&(_, ratio)| ratio.ln())
    });
    let differing = names(function)
        .iter()
        .filter(|name| policy.thresholds.get(name) != base.thresholds.get(name))
        .count();
    let differing = differing + usize::from(policy.strings != base.strings);
    ((logarithms.sum::<f64>() * 1e9) as i64, changed.count(), differing)
}

fn set(mut policy: Policy, function: Function, values: [usize; 4]) -> Policy {
    for (name, value) in names(function).iter().zip(values) {
        let known = policy.thresholds.set(name, value);
        debug_assert!(known, "{name} is a threshold");
    }
    policy
}

#[cfg(test)]
mod tests {
    use haul_copy::Thresholds;

    use super::*;

    const SIZES: [usize; 8] = [2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144];

    /// A policy with strings anywhere and no way but registers.
    fn registers() -> Policy {
        let mut policy = Policy::for_this_processor();
        policy.strings = Strings::Any;
        policy.thresholds = Thresholds::REGISTERS_ONLY;
        policy
    }

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
                    assert_eq!(way(function, &forced.forced(registers()), size), forced);
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
        let found = best(Function::Memcpy, &data, registers());
        let values: Vec<usize> = names(Function::Memcpy)
            .iter()
            .map(|name| found.thresholds.get(name).unwrap())
            .collect();
        assert_eq!(values, [8192, 65_536, 131_072, 262_144]);
        assert_eq!(found.thresholds.stream_fill_min, NEVER, "fills are left alone");
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
        assert_eq!(best(Function::Memcpy, &data, registers()), registers());
    }

    /// A way that gains at one size and makes no difference at others is taken at that size only.
    #[test]
    fn no_more_sizes_change_than_need_to() {
        let data =
            trained(|way, size| if way == Way::String && size == 65_536 { 0.9 } else { 1.0 });
        let found = best(Function::Memcpy, &data, registers());
        assert_eq!(
            (found.thresholds.rep_movsb_min, found.thresholds.rep_movsb_max),
            (65_536, 131_072)
        );
        assert_eq!(found.thresholds.stream_copy_min, NEVER);
    }

    #[test]
    fn a_bad_default_is_mended_and_a_good_one_stays() {
        let mut defaults = registers();
        assert!(defaults.thresholds.set("stream_copy_min", 16_384));
        // Under these defaults streaming is the baseline from 16 KiB on, and loses up to 64 KiB.
        let data = trained(|way, size| match way {
            Way::Registers if (16_384..65_536).contains(&size) => 0.5,
            Way::Registers if size < 16_384 => 1.0,
            Way::Stream if size >= 16_384 => 1.0,
            _ => 1.5,
        });
        let found = best(Function::Memcpy, &data, defaults);
        assert_eq!(found.thresholds.stream_copy_min, 65_536);
        assert_eq!(found.thresholds.rep_movsb_min, NEVER);
        assert_eq!(best(Function::Memcpy, &data, found).thresholds.stream_copy_min, 65_536);
    }

    #[test]
    fn beyond_what_was_trained_the_defaults_stay() {
        let mut defaults = registers();
        assert!(
            defaults.thresholds.set("stream_copy_min", 16_384)
                && defaults.thresholds.set("paged_copy_min", 1 << 30)
        );
        let data = trained(|way, _| if way == Way::Registers { 0.5 } else { 1.5 });
        let found = best(Function::Memcpy, &data, defaults);
        assert_eq!(
            (found.thresholds.stream_copy_min, found.thresholds.paged_copy_min),
            (2 * 262_144, 1 << 30)
        );
    }

    /// What streams at the largest size, and better than by pages, does so beyond.
    #[test]
    fn pages_that_lose_to_streaming_are_not_taken_beyond() {
        let mut defaults = registers();
        assert!(
            defaults.thresholds.set("stream_copy_min", 16_384)
                && defaults.thresholds.set("paged_copy_min", 16_384)
        );
        let data = trained(|way, _| if way == Way::Stream { 0.9 } else { 1.0 });
        let found = best(Function::Memcpy, &data, defaults).thresholds;
        assert_eq!(found.paged_copy_min, NEVER);
    }

    /// Strings that gain where lines are alike alone are taken there alone, and anywhere where they
    /// gain.
    #[test]
    fn strings_are_taken_where_they_gain() {
        for (anywhere, expected) in [(1.4, Strings::Alike), (0.8, Strings::Any)] {
            let mut base = registers();
            base.strings = Strings::Alike;
            let data = trained(|way, size| match way {
                Way::String if size >= 32_768 => anywhere,
                Way::AlikeString if size >= 32_768 => 0.95,
                Way::Registers => 1.0,
                _ => 1.5,
            });
            let found = best(Function::Memcpy, &data, base);
            assert_eq!(found.strings, expected, "{found:?}");
            assert_eq!(found.thresholds.rep_movsb_min, 32_768);
            let fills = best(Function::Memset, &data, base);
            assert_eq!(fills.strings, Strings::Alike, "no fill has a source");
        }
    }

    /// A cliff forbids strings anywhere; a bad offset that comes now and then is counted as often.
    #[test]
    fn a_bad_offset_counts() {
        let of = |over_registers| {
            let mut data = trained(|way, _| if way == Way::String { 0.9 } else { 1.0 });
            data.iter_mut().for_each(|trained| trained.add_worst(over_registers));
            best(Function::Memcpy, &data, registers()).thresholds.rep_movsb_min
        };
        assert_eq!(of(1.8), 2048);
        assert_eq!(of(20.0), NEVER);
        let mut one = trained(|way, _| if way == Way::String { 0.99 } else { 1.0 });
        one[0].add_worst(1.8);
        let (_, ratio) = one[0].ratios[1];
        assert!((ratio - (0.99 * (1.0 - BAD_OFFSET_SHARE) + 1.8 * BAD_OFFSET_SHARE)).abs() < 1e-12);
        assert!(ratio > 1.0, "a gain of 1% is less than a loss of 80% now and then");
    }
}
