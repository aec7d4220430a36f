//! The sizes at which the way to copy changes.
//!
//! Defaults come with the processor's [`Policy`](crate::Policy), `haul copy tune` measures better
//! ones, and no value can make a copy wrong: every way is a complete memmove, a threshold only
//! chooses between them.

use core::sync::atomic::{AtomicUsize, Ordering};

/// No threshold is below this many bytes: a copy loops over registers.
///
/// The start-up of `rep movsb` is 35 cycles or more (Intel Optimization Manual, 3.7.6) and that of
/// a streamed copy is a fence, so neither is a candidate there.
pub const LOOKUP_MIN: usize = 2048;

/// Sizes in bytes from which, or up to which, a way to copy is taken. [`NEVER`] turns a way off.
///
/// A size in `rep_movsb_min..rep_movsb_max` goes by `rep movsb`, where the policy says so only if
/// target and source are aligned alike; else one of `stream_copy_min` or more goes past the caches,
/// from `paged_copy_min` on with four pages side by side; else registers loop. The same for memset,
/// which has no pages.
///
/// ```
/// use haul_copy::Thresholds;
/// let mut mine = Thresholds::defaults();
/// assert!(mine.set("stream_copy_min", 0));
/// assert!(!mine.set("no_such_threshold", 0));
/// // Nothing hostile comes through: a streamed copy starts where the look-up does.
/// assert_eq!(mine.clamped().stream_copy_min, haul_copy::thresholds::LOOKUP_MIN);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thresholds {
    /// First size that `rep movsb` copies.
    pub rep_movsb_min: usize,
    /// First size above that it no longer copies.
    pub rep_movsb_max: usize,
    /// First size that is copied by non-temporal stores.
    pub stream_copy_min: usize,
    /// First size of those whose pages are interleaved.
    pub paged_copy_min: usize,
    /// First size that `rep stosb` fills.
    pub rep_stosb_min: usize,
    /// First size above that it no longer fills.
    pub rep_stosb_max: usize,
    /// First size that is filled by non-temporal stores.
    pub stream_fill_min: usize,
}

/// The value that turns a way off.
pub const NEVER: usize = usize::MAX;

/// What is in force in this process; `dispatch` sees to it that something is before it asks for a
/// way.
pub(crate) static IN_FORCE: InForce = InForce::new();

/// Thresholds that all threads read and any may replace.
///
/// Each is read on its own, relaxed: a copy that sees some old and some new values takes a way that
/// is slower, never one that is wrong. 0 is "not set yet", which no clamped threshold is. A place
/// is written in two ways: by [`InForce::install`], whatever it holds, and with a default by an
/// exchange that only replaces 0. So whatever was installed stays, however late a thread comes with
/// the defaults that it started to ask for before: asking takes tens of microseconds where a
/// hypervisor answers.
pub(crate) struct InForce {
    values: [AtomicUsize; Thresholds::NAMES.len()],
    /// The smallest size whose copy does not go by registers. Below, nothing else is looked at. It
    /// may be a moment older than the rest.
    copy_lookup: AtomicUsize,
    /// The same of fills.
    fill_lookup: AtomicUsize,
}

impl InForce {
    const fn new() -> Self {
        Self {
            values: [const { AtomicUsize::new(0) }; Thresholds::NAMES.len()],
            copy_lookup: AtomicUsize::new(0),
            fill_lookup: AtomicUsize::new(0),
        }
    }

    /// Every place with what `thresholds`, clamped, put there.
    fn places(&self, thresholds: Thresholds) -> impl Iterator<Item = (&AtomicUsize, usize)> {
        let clamped = thresholds.clamped();
        let copy = clamped.rep_movsb_min.min(clamped.stream_copy_min);
        let fill = clamped.rep_stosb_min.min(clamped.stream_fill_min);
        let lookups = [(&self.copy_lookup, copy), (&self.fill_lookup, fill)];
        self.values.iter().zip(clamped.to_array()).chain(lookups)
    }

    fn install(&self, thresholds: Thresholds) {
        for (place, value) in self.places(thresholds) {
            place.store(value, Ordering::Relaxed);
        }
    }

    fn install_where_unset(&self, defaults: Thresholds) {
        for (place, value) in self.places(defaults) {
            // What somebody has installed meanwhile stays.
            let _ = place.compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn is_unset(&self) -> bool {
        let lookups = [&self.copy_lookup, &self.fill_lookup];
        self.values.iter().chain(lookups).any(|place| place.load(Ordering::Relaxed) == 0)
    }

    /// What is in force, after `defaults` are where nothing is.
    pub(crate) fn get_or(&self, defaults: impl FnOnce() -> Thresholds) -> Thresholds {
        if self.is_unset() {
            self.install_where_unset(defaults());
        }
        Thresholds::from_array(core::array::from_fn(|index| self.value(index)))
    }

    #[inline(always)]
    fn value(&self, index: usize) -> usize {
        self.values[index].load(Ordering::Relaxed)
    }
}

impl Thresholds {
    /// The names of all thresholds, as `haul.toml`, C and the command line spell them.
    pub const NAMES: &'static [&'static str; 7] = &[
        "rep_movsb_min",
        "rep_movsb_max",
        "stream_copy_min",
        "paged_copy_min",
        "rep_stosb_min",
        "rep_stosb_max",
        "stream_fill_min",
    ];

    /// Registers only, whatever the size.
    pub const REGISTERS_ONLY: Self = Self {
        rep_movsb_min: NEVER,
        rep_movsb_max: NEVER,
        stream_copy_min: NEVER,
        paged_copy_min: NEVER,
        rep_stosb_min: NEVER,
        rep_stosb_max: NEVER,
        stream_fill_min: NEVER,
    };

    /// Puts these in force, [clamped](Self::clamped), for all threads of this process. Of two that
    /// are installed at the same time each threshold has the value of one.
    pub fn install(self) {
        IN_FORCE.install(self);
    }

    /// The same with every value raised to [`LOOKUP_MIN`].
    #[must_use]
    pub fn clamped(self) -> Self {
        Self::from_array(self.to_array().map(|value| value.max(LOOKUP_MIN)))
    }

    /// The threshold of that name; `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<usize> {
        Self::index(name).map(|index| self.to_array()[index])
    }

    /// Sets the threshold of that name; `false` if there is none.
    #[must_use]
    pub fn set(&mut self, name: &str, bytes: usize) -> bool {
        let Some(index) = Self::index(name) else { return false };
        let mut values = self.to_array();
        values[index] = bytes;
        *self = Self::from_array(values);
        true
    }

    fn index(name: &str) -> Option<usize> {
        Self::NAMES.iter().position(|&known| known == name)
    }

    fn to_array(self) -> [usize; 7] {
        [
            self.rep_movsb_min,
            self.rep_movsb_max,
            self.stream_copy_min,
            self.paged_copy_min,
            self.rep_stosb_min,
            self.rep_stosb_max,
            self.stream_fill_min,
        ]
    }

    fn from_array(values: [usize; 7]) -> Self {
        let [
            rep_movsb_min,
            rep_movsb_max,
            stream_copy_min,
            paged_copy_min,
            rep_stosb_min,
            rep_stosb_max,
            stream_fill_min,
        ] = values;
        Self {
            rep_movsb_min,
            rep_movsb_max,
            stream_copy_min,
            paged_copy_min,
            rep_stosb_min,
            rep_stosb_max,
            stream_fill_min,
        }
    }
}

/// How bytes are moved that are many enough to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A loop over registers.
    Registers,
    /// `rep movsb`, `rep stosb`.
    String,
    /// Non-temporal stores.
    Stream,
    /// Non-temporal stores, pages interleaved.
    Paged,
}

/// Whether a copy of `length` bytes goes by registers without a further look.
#[inline(always)]
pub(crate) fn copies_by_registers(length: usize) -> bool {
    length < IN_FORCE.copy_lookup.load(Ordering::Relaxed)
}

/// Whether a fill of `length` bytes goes by registers without a further look.
#[inline(always)]
pub(crate) fn fills_by_registers(length: usize) -> bool {
    length < IN_FORCE.fill_lookup.load(Ordering::Relaxed)
}

/// Whether copies of any size go by `rep movsb`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn moves_strings() -> bool {
    IN_FORCE.value(0) != NEVER
}

/// The way for a copy of `length` bytes; `string` says whether `rep movsb` may take it, by where
/// target and source lie.
#[inline(always)]
pub(crate) fn copy_way(length: usize, string: bool) -> Way {
    let string_min = IN_FORCE.value(0);
    let string_max = IN_FORCE.value(1);
    let stream_min = IN_FORCE.value(2);
    let paged_min = IN_FORCE.value(3);
    if length >= string_min && length < string_max && string {
        Way::String
    } else if length < stream_min {
        Way::Registers
    } else if length < paged_min {
        Way::Stream
    } else {
        Way::Paged
    }
}

/// The way for a fill of `length` bytes.
#[inline(always)]
pub(crate) fn fill_way(length: usize) -> Way {
    let string_min = IN_FORCE.value(4);
    let string_max = IN_FORCE.value(5);
    let stream_min = IN_FORCE.value(6);
    if length >= string_min && length < string_max {
        Way::String
    } else if length < stream_min {
        Way::Registers
    } else {
        Way::Stream
    }
}

#[cfg(test)]
mod tests;
