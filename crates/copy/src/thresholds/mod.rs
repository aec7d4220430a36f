//! The sizes from which another copying method is used.
//!
//! The processor's [`Policy`](crate::Policy) has default thresholds, and `haul copy tune` measures
//! better ones. No value can make a copy wrong: every method is a complete memmove, and a threshold
//! only chooses between methods.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu::same;

/// The smallest value of a threshold, in bytes. Below, a copy always uses registers.
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
    rep_movsb_min: AtomicUsize,
    rep_movsb_max: AtomicUsize,
    stream_copy_min: AtomicUsize,
    paged_copy_min: AtomicUsize,
    rep_stosb_min: AtomicUsize,
    rep_stosb_max: AtomicUsize,
    stream_fill_min: AtomicUsize,
    /// Copies of this size and more may use a method other than registers. For smaller ones, no
    /// other value is read. This value may be a moment older than the others.
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
            rep_movsb_min: AtomicUsize::new(0),
            rep_movsb_max: AtomicUsize::new(0),
            stream_copy_min: AtomicUsize::new(0),
            paged_copy_min: AtomicUsize::new(0),
            rep_stosb_min: AtomicUsize::new(0),
            rep_stosb_max: AtomicUsize::new(0),
            stream_fill_min: AtomicUsize::new(0),
            copy_lookup: AtomicUsize::new(0),
            fill_lookup: AtomicUsize::new(0),
        }
    }

    /// Every atomic, with its value in the clamped `thresholds`.
    fn atomics(&self, thresholds: Thresholds) -> [(&AtomicUsize, usize); 9] {
        let clamped = thresholds.clamped();
        [
            (&self.rep_movsb_min, clamped.rep_movsb_min),
            (&self.rep_movsb_max, clamped.rep_movsb_max),
            (&self.stream_copy_min, clamped.stream_copy_min),
            (&self.paged_copy_min, clamped.paged_copy_min),
            (&self.rep_stosb_min, clamped.rep_stosb_min),
            (&self.rep_stosb_max, clamped.rep_stosb_max),
            (&self.stream_fill_min, clamped.stream_fill_min),
            (&self.copy_lookup, clamped.rep_movsb_min.min(clamped.stream_copy_min)),
            (&self.fill_lookup, clamped.rep_stosb_min.min(clamped.stream_fill_min)),
        ]
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
        let atomics = self.atomics(Thresholds::REGISTERS_ONLY);
        atomics.iter().any(|(atomic, _)| atomic.load(Ordering::Relaxed) == 0)
    }

    /// The thresholds in force, after every unset value has been set from `defaults`.
    pub(crate) fn get_or(&self, defaults: impl FnOnce() -> Thresholds) -> Thresholds {
        if self.is_unset() {
            self.install_where_unset(defaults());
        }
        Thresholds {
            rep_movsb_min: read(&self.rep_movsb_min),
            rep_movsb_max: read(&self.rep_movsb_max),
            stream_copy_min: read(&self.stream_copy_min),
            paged_copy_min: read(&self.paged_copy_min),
            rep_stosb_min: read(&self.rep_stosb_min),
            rep_stosb_max: read(&self.rep_stosb_max),
            stream_fill_min: read(&self.stream_fill_min),
        }
    }
}

/// A value of [`IN_FORCE`].
#[inline(always)]
fn read(atomic: &AtomicUsize) -> usize {
    atomic.load(Ordering::Relaxed)
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
        Self {
            rep_movsb_min: self.rep_movsb_min.max(LOOKUP_MIN),
            rep_movsb_max: self.rep_movsb_max.max(LOOKUP_MIN),
            stream_copy_min: self.stream_copy_min.max(LOOKUP_MIN),
            paged_copy_min: self.paged_copy_min.max(LOOKUP_MIN),
            rep_stosb_min: self.rep_stosb_min.max(LOOKUP_MIN),
            rep_stosb_max: self.rep_stosb_max.max(LOOKUP_MIN),
            stream_fill_min: self.stream_fill_min.max(LOOKUP_MIN),
        }
    }

    /// The threshold with this name; `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<usize> {
        let mut copy = *self;
        copy.field(name).map(|bytes| *bytes)
    }

    /// Sets the threshold with this name. Returns `false` if there is none.
    #[must_use]
    pub fn set(&mut self, name: &str, bytes: usize) -> bool {
        self.field(name).map(|field| *field = bytes).is_some()
    }

    /// The field with this name, one of [`NAMES`](Self::NAMES).
    fn field(&mut self, name: &str) -> Option<&mut usize> {
        let is = |known| same(known, name);
        match self {
            Self { rep_movsb_min, .. } if is("rep_movsb_min") => Some(rep_movsb_min),
            Self { rep_movsb_max, .. } if is("rep_movsb_max") => Some(rep_movsb_max),
            Self { stream_copy_min, .. } if is("stream_copy_min") => Some(stream_copy_min),
            Self { paged_copy_min, .. } if is("paged_copy_min") => Some(paged_copy_min),
            Self { rep_stosb_min, .. } if is("rep_stosb_min") => Some(rep_stosb_min),
            Self { rep_stosb_max, .. } if is("rep_stosb_max") => Some(rep_stosb_max),
            Self { stream_fill_min, .. } if is("stream_fill_min") => Some(stream_fill_min),
            _ => None,
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
    length < read(&IN_FORCE.copy_lookup)
}

/// Whether a fill of `length` bytes uses registers, without reading other thresholds.
#[inline(always)]
pub(crate) fn fills_by_registers(length: usize) -> bool {
    length < read(&IN_FORCE.fill_lookup)
}

/// Whether `rep movsb` is used for any size of a copy.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn uses_strings() -> bool {
    read(&IN_FORCE.rep_movsb_min) != NEVER
}

/// The method for a copy of `length` bytes. `string` says whether the addresses of target and
/// source allow `rep movsb`.
#[inline(always)]
pub(crate) fn copy_method(length: usize, string: bool) -> Method {
    let string_min = read(&IN_FORCE.rep_movsb_min);
    let string_max = read(&IN_FORCE.rep_movsb_max);
    let stream_min = read(&IN_FORCE.stream_copy_min);
    let paged_min = read(&IN_FORCE.paged_copy_min);
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
    let string_min = read(&IN_FORCE.rep_stosb_min);
    let string_max = read(&IN_FORCE.rep_stosb_max);
    let stream_min = read(&IN_FORCE.stream_fill_min);
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
