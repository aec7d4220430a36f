//! Computes the use of string instructions and the thresholds from the times of each method and
//! size: pure arithmetic.
//!
//! There are few thresholds, and their values are the measured sizes. The search therefore tries
//! all combinations. For copies, it tries them with string instructions at any alignment, and
//! with string instructions only if target and source are aligned alike. At each size, the cost
//! of a combination is the logarithm of the ratio of its method to the default, if that ratio is
//! beyond doubt: see [`counted`]. The cheapest combination wins. Among combinations of equal
//! cost, the one that changes the method of the fewest sizes wins, and among these the one with
//! the fewest changed thresholds.

use haul_copy::NEVER;
use haul_copy::Policy;
use haul_copy::Strings;
use haul_model::Comparison;

use crate::copy::Function;

/// A method must be faster by this much to count, even if the noise floor is lower: a guest's
/// neighbours cause larger changes from day to day.
pub const GAIN_MARGIN: f64 = 0.015;

/// A method that is slower by this much counts as slower. The margin is smaller than
/// [`GAIN_MARGIN`], because a change needs stronger evidence than the default.
pub const LOSS_MARGIN: f64 = 0.003;

/// The assumed share of copies with the worst of the bad offsets: on Zen 4, which has the worst
/// known offsets, 63 of the 4,096 distances within a page are the worst.
const BAD_OFFSET_SHARE: f64 = 63.0 / 4096.0;

/// If a string instruction needs more than this many times the time of registers at the worst
/// offset, the string instruction is not used, because a program may use that offset in every
/// call. Zen 4 needs 20 times the time, and Zen 5 1.8 times.
const BAD_OFFSET_MAX: f64 = 3.0;

/// A method of moving bytes, as thresholds choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A loop over registers.
    Registers,
    /// `rep movsb` or `rep stosb`.
    String,
    /// `rep movsb` if target and source are aligned alike, registers otherwise. Copies only.
    AlikeString,
    /// Stores that bypass the caches.
    Stream,
    /// Stores that bypass the caches, with pages interleaved. Copies only.
    Paged,
}

/// The result of training at one size.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The size in bytes, at which a threshold may lie.
    pub size: usize,
    /// The weight of the size's ratios.
    pub weight: f64,
    /// The time of each method divided by the time of the base, or 1 if the difference is in
    /// doubt: see [`counted`].
    pub ratios: Vec<(Method, f64)>,
}

impl Trained {
    /// Adds the cost of the worst bad offset, for its share of calls, to string instructions at
    /// any alignment. `over_registers` is the time of string instructions divided by the time of
    /// registers at that offset.
    pub fn add_worst(&mut self, over_registers: f64) {
        let of =
            |wanted| self.ratios.iter().find(|(method, _)| *method == wanted).map(|(_, it)| *it);
        let worst = of(Method::Registers).map_or(over_registers, |ratio| ratio * over_registers);
        for (method, ratio) in &mut self.ratios {
            if *method == Method::String {
                *ratio = if over_registers > BAD_OFFSET_MAX {
                    f64::INFINITY
                } else {
                    *ratio * (1.0 - BAD_OFFSET_SHARE) + worst * BAD_OFFSET_SHARE
                };
            }
        }
    }
}

/// The ratio of a comparison, or 1 if the ratio is in doubt: if the interval contains 1, or if
/// the ratio is within the noise floor or the margin.
#[must_use]
pub fn counted(comparison: &Comparison) -> f64 {
    let gains =
        comparison.ratio_high < 1.0 && comparison.ratio < 1.0 - comparison.floor.max(GAIN_MARGIN);
    let loses =
        comparison.ratio_low > 1.0 && comparison.ratio > 1.0 + comparison.floor.max(LOSS_MARGIN);
    if gains || loses { comparison.ratio } else { 1.0 }
}

impl Method {
    /// The methods that a function can use.
    #[must_use]
    pub fn of(function: Function) -> &'static [Self] {
        match function {
            Function::Memset => &[Self::Registers, Self::String, Self::Stream],
            Function::Memcpy | Function::Memmove => {
                &[Self::Registers, Self::String, Self::AlikeString, Self::Stream, Self::Paged]
            }
        }
    }

    /// The method's name in records.
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

    /// The base, but with thresholds under which every size of copies and fills uses this method.
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
        let sizes =
            Sizes { string_min: string, string_max: NEVER, stream_min: stream, paged_min: paged };
        sizes.put(Function::Memset, sizes.put(Function::Memcpy, forced)).clamped()
    }
}

/// The thresholds of one function.
#[derive(Clone, Copy)]
struct Sizes {
    string_min: usize,
    string_max: usize,
    stream_min: usize,
    /// [`NEVER`] for a function without interleaved pages.
    paged_min: usize,
}

impl Sizes {
    /// Those of a function under this policy.
    fn of(function: Function, policy: &Policy) -> Self {
        let thresholds = policy.thresholds;
        match function {
            Function::Memset => Self {
                string_min: thresholds.rep_stosb_min,
                string_max: thresholds.rep_stosb_max,
                stream_min: thresholds.stream_fill_min,
                paged_min: NEVER,
            },
            Function::Memcpy | Function::Memmove => Self {
                string_min: thresholds.rep_movsb_min,
                string_max: thresholds.rep_movsb_max,
                stream_min: thresholds.stream_copy_min,
                paged_min: thresholds.paged_copy_min,
            },
        }
    }

    /// The policy with these thresholds for the function.
    fn put(self, function: Function, mut policy: Policy) -> Policy {
        let thresholds = &mut policy.thresholds;
        match function {
            Function::Memset => {
                thresholds.rep_stosb_min = self.string_min;
                thresholds.rep_stosb_max = self.string_max;
                thresholds.stream_fill_min = self.stream_min;
            }
            Function::Memcpy | Function::Memmove => {
                thresholds.rep_movsb_min = self.string_min;
                thresholds.rep_movsb_max = self.string_max;
                thresholds.stream_copy_min = self.stream_min;
                thresholds.paged_copy_min = self.paged_min;
            }
        }
        policy
    }
}

/// The names of a function's thresholds.
#[must_use]
pub fn names(function: Function) -> &'static [&'static str] {
    match function {
        Function::Memset => &["rep_stosb_min", "rep_stosb_max", "stream_fill_min"],
        Function::Memcpy | Function::Memmove => {
            &["rep_movsb_min", "rep_movsb_max", "stream_copy_min", "paged_copy_min"]
        }
    }
}

/// The method of a size under this policy.
#[must_use]
pub fn method(function: Function, policy: &Policy, size: usize) -> Method {
    let sizes = Sizes::of(function, policy);
    if (sizes.string_min..sizes.string_max).contains(&size) {
        let is_alike = policy.strings == Strings::Alike && function != Function::Memset;
        if is_alike { Method::AlikeString } else { Method::String }
    } else if size < sizes.stream_min {
        Method::Registers
    } else if size < sizes.paged_min {
        Method::Stream
    } else {
        Method::Paged
    }
}

/// The base, but with the use of string instructions and the thresholds of a function that cost
/// the least at the trained sizes. Thresholds of other functions, and all thresholds if nothing
/// is cheaper, stay those of the base. Sizes above the trained sizes keep the base's method,
/// because a method that loses at the trained sizes may win at larger sizes, as streaming does.
#[must_use]
pub fn best(function: Function, trained: &[Trained], base: Policy) -> Policy {
    let mut values: Vec<usize> = trained.iter().map(|trained| trained.size).collect();
    values.push(NEVER);
    let is_fill = function == Function::Memset;
    let paged: &[usize] = if is_fill { &[NEVER] } else { &values };
    let strings: &[Strings] = if is_fill { &[base.strings] } else { &Strings::ALL };
    let (mut winner, mut least) = (base, cost(function, trained, &base, &base));
    for &string_min in &values {
        // An empty range has one form only: never.
        let tops =
            values.iter().filter(|&&top| top > string_min || string_min == NEVER && top == NEVER);
        for (&string_max, &strings) in tops.flat_map(|top| strings.iter().map(move |s| (top, s))) {
            for &stream_min in &values {
                for &paged_min in paged.iter().filter(|&&paged_min| paged_min >= stream_min) {
                    let sizes = Sizes { string_min, string_max, stream_min, paged_min };
                    let mut tried = sizes.put(function, base);
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

/// Keeps the base's method for sizes above the trained ones if the found thresholds do not use it
/// anywhere, or hide it behind strings without an end. An exception is a largest size that is
/// streamed without interleaved pages, because interleaved pages have lost there.
fn keep_beyond(function: Function, trained: &[Trained], found: Policy, base: &Policy) -> Policy {
    let largest = trained.iter().map(|trained| trained.size).max().unwrap_or(0);
    if found == *base || method(function, &found, largest) == Method::Stream {
        return found;
    }
    let beyond = largest.saturating_mul(2);
    let is_string = |policy: &Policy, size| {
        matches!(method(function, policy, size), Method::String | Method::AlikeString)
    };
    let goes_on = is_string(base, largest.saturating_add(1));
    let (before, mut kept) = (Sizes::of(function, base), Sizes::of(function, &found));
    // A range of strings that includes the largest size hides every range that begins within it.
    let (mut hidden_from, mut end) = (NEVER, beyond);
    if is_string(&found, largest) {
        hidden_from = kept.string_min;
        end = if goes_on { before.string_max } else { beyond };
        kept.string_max = end;
    } else if goes_on && kept.string_min == NEVER && beyond < before.string_max {
        kept.string_min = before.string_min.max(beyond);
        kept.string_max = before.string_max;
    }
    let keep = |found: usize, before: usize| match before {
        _ if found < hidden_from => found,
        NEVER => NEVER,
        _ => before.max(end),
    };
    kept.stream_min = keep(kept.stream_min, before.stream_min);
    kept.paged_min = keep(kept.paged_min, before.paged_min);
    kept.put(function, found)
}

/// The cost of a policy: the weighted sum of the logarithms of the ratios of its methods, in units
/// of 10^-9 so that equal costs are equal; the number of sizes with another method; the number of
/// changed thresholds and choices.
fn cost(
    function: Function,
    trained: &[Trained],
    policy: &Policy,
    base: &Policy,
) -> (i64, usize, usize) {
    // The base's own method is the baseline: its ratio is 1 by definition, even if the forced
    // policy with the same method measured another ratio.
    let changed = trained.iter().filter_map(|trained| {
        let method = method(function, policy, trained.size);
        (method != self::method(function, base, trained.size)).then_some((method, trained))
    });
    let logarithms = changed.clone().map(|(method, trained)| {
        let found = trained.ratios.iter().find(|(tried, _)| *tried == method);
        trained.weight * found.map_or(f64::INFINITY, |&(_, ratio)| ratio.ln())
    });
    let differing = names(function)
        .iter()
        .filter(|name| policy.thresholds.get(name) != base.thresholds.get(name))
        .count();
    let differing = differing + usize::from(policy.strings != base.strings);
    ((logarithms.sum::<f64>() * 1e9) as i64, changed.count(), differing)
}

#[cfg(test)]
mod tests;
