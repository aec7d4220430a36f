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

/// Has what the base does beyond the sizes that were trained done there, where these do it nowhere
/// or hide it behind strings without an end.
/// Not where the largest of them is streamed: pages in turn are a way to stream, and lost there.
fn keep_beyond(
    function: Function,
    trained: &[Trained],
    mut found: Policy,
    base: &Policy,
) -> Policy {
    let largest = trained.iter().map(|trained| trained.size).max().unwrap_or(0);
    if found == *base || way(function, &found, largest) == Way::Stream {
        return found;
    }
    let beyond = largest.saturating_mul(2);
    let [string_min, string_max, later @ ..] = names(function) else { return found };
    let at = |policy: &Policy, name: &str| policy.thresholds.get(name).unwrap_or(NEVER);
    let is_string = |policy: &Policy, size| {
        matches!(way(function, policy, size), Way::String | Way::AlikeString)
    };
    let goes_on = is_string(base, largest.saturating_add(1));
    let (base_min, base_max) = (at(base, string_min), at(base, string_max));
    let mut kept = Vec::new();
    // A string's range that reaches the largest size hides all that begins within it.
    let (mut hidden_from, mut end) = (NEVER, beyond);
    if is_string(&found, largest) {
        hidden_from = at(&found, string_min);
        end = if goes_on { base_max } else { beyond };
        kept.push((string_max, end));
    } else if goes_on && at(&found, string_min) == NEVER && beyond < base_max {
        kept.extend([(string_min, base_min.max(beyond)), (string_max, base_max)]);
    }
    for name in later.iter().filter(|name| at(&found, name) >= hidden_from) {
        let before = at(base, name);
        kept.push((name, if before == NEVER { NEVER } else { before.max(end) }));
    }
    for (name, value) in kept {
        let known = found.thresholds.set(name, value);
        debug_assert!(known, "{name} is a threshold");
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
mod tests;
