//! The sizes from which another copying method is used.
//!
//! The processor's [`Policy`](crate::Policy) has default thresholds, and `haul copy tune` measures
//! better ones. No value can make a copy wrong: every method is a complete memmove, and a threshold
//! only chooses between methods.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The smallest value of a threshold, in bytes. A smaller copy always uses registers.
///
/// `rep movsb` takes 35 cycles or more to start (Intel Optimization Manual, 3.7.6) and a streamed
/// copy ends in a fence, so neither is worthwhile at smaller sizes.
pub const LOOKUP_MIN: usize = 2048;

/// The sizes in bytes from which, or below which, a copying method is used. [`NEVER`] disables a
/// method.
///
/// A copy of a size in `rep_movsb_min..rep_movsb_max` uses `rep movsb`; the policy may restrict
/// this to copies whose target and source have the same offset in a cache line. Otherwise, a copy
/// of `stream_copy_min` bytes or more bypasses the caches, and from `paged_copy_min` on it
/// interleaves four pages. Otherwise, a copy loops over registers. The rules of memset are the
/// same, without pages.
///
/// ```
/// use haul_copy::Thresholds;
/// let mut mine = Thresholds::defaults();
/// assert!(mine.set("stream_copy_min", 0));
/// assert!(!mine.set("no_such_threshold", 0));
/// // A threshold that is too small is raised to the minimum.
/// assert_eq!(mine.clamped().stream_copy_min, haul_copy::LOOKUP_MIN);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thresholds {
    /// The smallest size that uses `rep movsb`.
    pub rep_movsb_min: usize,
    /// The smallest size above `rep_movsb_min` that no longer uses `rep movsb`.
    pub rep_movsb_max: usize,
    /// The smallest size that is copied with non-temporal stores.
    pub stream_copy_min: usize,
    /// The smallest streamed size that interleaves pages.
    pub paged_copy_min: usize,
    /// The smallest size that uses `rep stosb`.
    pub rep_stosb_min: usize,
    /// The smallest size above `rep_stosb_min` that no longer uses `rep stosb`.
    pub rep_stosb_max: usize,
    /// The smallest size that is filled with non-temporal stores.
    pub stream_fill_min: usize,
}

/// The value that disables a method.
pub const NEVER: usize = usize::MAX;

/// The thresholds in force in this process. `dispatch` ensures that the thresholds are set before
/// it chooses a method.
pub(crate) static IN_FORCE: InForce = InForce::new();

/// Thresholds that all threads read and any thread may replace.
///
/// Each value is read separately, with relaxed ordering: a copy that sees some old and some new
/// values may use a slower method, but never copies wrongly. The value 0 means "not set yet"; no
/// clamped threshold is 0. [`InForce::install`] writes a value unconditionally; a default is
/// written by a compare-exchange that only replaces 0. Installed values therefore persist even if
/// a thread that determines the defaults finishes later: determining them takes tens of
/// microseconds under a hypervisor that traps `cpuid`.
pub(crate) struct InForce {
    values: [AtomicUsize; Thresholds::NAMES.len()],
    /// Copies of this size and more may use a method other than registers. A smaller copy reads
    /// no other value. This value may be a moment older than the others.
    copy_lookup: AtomicUsize,
    /// Like `copy_lookup`, for fills.
    fill_lookup: AtomicUsize,
}

impl InForce {
    /// The offset of the limit below which copies use registers, for code in assembly.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(crate) const COPY_LOOKUP_OFFSET: usize = core::mem::offset_of!(Self, copy_lookup);

    const fn new() -> Self {
        Self {
            values: [const { AtomicUsize::new(0) }; Thresholds::NAMES.len()],
            copy_lookup: AtomicUsize::new(0),
            fill_lookup: AtomicUsize::new(0),
        }
    }

    /// Every atomic, with its value in the clamped `thresholds`.
    fn atomics(&self, thresholds: Thresholds) -> impl Iterator<Item = (&AtomicUsize, usize)> {
        let clamped = thresholds.clamped();
        let copy = clamped.rep_movsb_min.min(clamped.stream_copy_min);
        let fill = clamped.rep_stosb_min.min(clamped.stream_fill_min);
        let lookups = [(&self.copy_lookup, copy), (&self.fill_lookup, fill)];
        self.values.iter().zip(clamped.to_array()).chain(lookups)
    }

    fn install(&self, thresholds: Thresholds) {
        for (atomic, value) in self.atomics(thresholds) {
            atomic.store(value, Ordering::Relaxed);
        }
    }

    fn install_where_unset(&self, defaults: Thresholds) {
        for (atomic, value) in self.atomics(defaults) {
            // This keeps a value that another thread has installed meanwhile.
            let _ = atomic.compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn is_unset(&self) -> bool {
        let lookups = [&self.copy_lookup, &self.fill_lookup];
        self.values.iter().chain(lookups).any(|atomic| atomic.load(Ordering::Relaxed) == 0)
    }

    /// The thresholds in force, after every unset value has been set from `defaults`.
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

    /// Thresholds with which every size uses registers.
    pub const REGISTERS_ONLY: Self = Self {
        rep_movsb_min: NEVER,
        rep_movsb_max: NEVER,
        stream_copy_min: NEVER,
        paged_copy_min: NEVER,
        rep_stosb_min: NEVER,
        rep_stosb_max: NEVER,
        stream_fill_min: NEVER,
    };

    /// Puts these thresholds in force, [clamped](Self::clamped), for all threads of this process.
    /// If two threads install thresholds at the same time, each threshold has the value of one of
    /// these installations.
    pub fn install(self) {
        IN_FORCE.install(self);
    }

    /// These thresholds with every value below [`LOOKUP_MIN`] raised to that minimum.
    #[must_use]
    pub fn clamped(self) -> Self {
        Self::from_array(self.to_array().map(|value| value.max(LOOKUP_MIN)))
    }

    /// The threshold with this name; `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<usize> {
        Self::index(name).map(|index| self.to_array()[index])
    }

    /// Sets the threshold with this name. Returns `false` if there is none.
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

/// The method of a copy or a fill that is long enough to have a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// A loop over registers.
    Registers,
    /// `rep movsb`, `rep stosb`.
    String,
    /// Non-temporal stores.
    Stream,
    /// Non-temporal stores, pages interleaved.
    Paged,
}

/// Whether a copy of `length` bytes uses registers, without reading other thresholds.
#[inline(always)]
pub(crate) fn copies_by_registers(length: usize) -> bool {
    length < IN_FORCE.copy_lookup.load(Ordering::Relaxed)
}

/// Whether a fill of `length` bytes uses registers, without reading other thresholds.
#[inline(always)]
pub(crate) fn fills_by_registers(length: usize) -> bool {
    length < IN_FORCE.fill_lookup.load(Ordering::Relaxed)
}

/// Whether `rep movsb` is used for any size of a copy.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn uses_strings() -> bool {
    IN_FORCE.value(0) != NEVER
}

/// The method for a copy of `length` bytes. `string` says whether the addresses of target and
/// source allow `rep movsb`.
#[inline(always)]
pub(crate) fn copy_method(length: usize, string: bool) -> Method {
    let string_min = IN_FORCE.value(0);
    let string_max = IN_FORCE.value(1);
    let stream_min = IN_FORCE.value(2);
    let paged_min = IN_FORCE.value(3);
    if length >= string_min && length < string_max && string {
        Method::String
    } else if length < stream_min {
        Method::Registers
    } else if length < paged_min {
        Method::Stream
    } else {
        Method::Paged
    }
}

/// The method for a fill of `length` bytes.
#[inline(always)]
pub(crate) fn fill_method(length: usize) -> Method {
    let string_min = IN_FORCE.value(4);
    let string_max = IN_FORCE.value(5);
    let stream_min = IN_FORCE.value(6);
    if length >= string_min && length < string_max {
        Method::String
    } else if length < stream_min {
        Method::Registers
    } else {
        Method::Stream
    }
}

#[cfg(test)]
mod tests;
