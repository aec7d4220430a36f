//! Every choice about copying that depends on the processor, as one value.
//!
//! A [`Policy`] has a measured default for each microarchitecture (`rows`), and a default by
//! features for a processor that has not been measured. `haul copy tune` measures a better policy
//! for a machine, and `haul.toml` stores it. No value can make a copy wrong: every choice is
//! between complete copies, and a choice that this processor cannot run is ignored.

mod rows;

use core::sync::atomic::{AtomicU8, Ordering};

use crate::cpu::{self, Facts, Isa};
use crate::thresholds::{IN_FORCE, Thresholds};

/// How copies and fills of up to 256 bytes are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Small {
    /// With masked loads and stores of AVX-512 for the smallest sizes, and two or four of its whole
    /// registers for the others. Every copy is one call.
    Masks,
    /// Like [`Masks`](Self::Masks) in functions that are called, which includes all fills from Rust
    /// and all copies and fills through a pointer. Copies that are inlined into the caller use
    /// [`Pieces`](Self::Pieces).
    MasksInCalls,
    /// With pieces of 1 to 16 bytes that overlap. Up to 64 bytes, they are inlined into the caller.
    Pieces,
}

/// Which copies may use `rep movsb` if [`Thresholds`] allow it for their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strings {
    /// All copies.
    Any,
    /// Copies whose target and source have the same offset in a cache line. On Zen 4, `rep movsb`
    /// falls from 80 to 30 GB/s for other copies, and to 2.7 GB/s if the target's offset in its
    /// page is 1 to 63 bytes above the source's.
    Alike,
}

/// How this process copies and fills.
///
/// ```
/// use haul_copy::{Isa, Policy};
/// let mut mine = Policy::for_this_processor();
/// mine.isa = Isa::Avx512;
/// let lacking = mine.install(); // in force from here on, for all threads
/// assert_eq!(lacking.isa.is_some(), !Isa::Avx512.is_available());
/// assert!(Policy::current().isa.is_available());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// How small copies and fills are done.
    pub small: Small,
    /// The instruction set of blocks and loops.
    pub isa: Isa,
    /// Which copies may use `rep movsb`.
    pub strings: Strings,
    /// The sizes from which another copying method is used.
    pub thresholds: Thresholds,
}

/// The choices of a policy that this processor cannot run. The default replaces each of these
/// choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// The shape of small copies.
    pub small: Option<Small>,
    /// The instruction set.
    pub isa: Option<Isa>,
}

impl Lacking {
    /// Whether the processor can run every choice.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The number of the instruction set in force. 0 before the first copy above 64 bytes.
pub(crate) static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The number of the shape of small copies: its index in [`Small::ALL`] plus 1. 0 before the first
/// copy above 64 bytes.
static SMALL: AtomicU8 = AtomicU8::new(0);

/// 1 if small copies that are inlined into the caller are calls of code with masks; 0 otherwise,
/// and before the first copy above 64 bytes. The inline code of `haul.h` reads it.
#[unsafe(export_name = "haul_small_by_masks")]
pub(crate) static SMALL_BY_MASKS: AtomicU8 = AtomicU8::new(0);

/// Which copies may use `rep movsb`: [`ANY`], [`ALIKE`], or 0 before a policy is in force.
static STRINGS: AtomicU8 = AtomicU8::new(0);
const ANY: u8 = 1;
const ALIKE: u8 = 2;

impl Policy {
    /// The names of the choices that have named values, as `haul.toml` and the command line spell
    /// them. The remaining parts of a policy are named in [`Thresholds::NAMES`].
    pub const CHOICES: &'static [&'static str; 3] = &["small", "isa", "strings"];

    /// The default for this processor.
    ///
    /// Cost: reads the processor's facts, see [`cpu::facts`].
    #[must_use]
    pub fn for_this_processor() -> Self {
        Self::for_processor(cpu::facts()).within(Isa::is_available)
    }

    /// This policy with the widest available instruction set that is not wider than the policy's.
    /// [`Facts`] name only the widest instruction set, and a hypervisor may hide a narrower one.
    fn within(self, is_there: impl Fn(Isa) -> bool) -> Self {
        let fits = |isa: &Isa| *isa <= self.isa && is_there(*isa);
        Self { isa: Isa::ALL.into_iter().rfind(fits).unwrap_or(Isa::Scalar), ..self }
    }

    /// The default for a processor with these `facts`.
    #[must_use]
    pub fn for_processor(facts: Facts) -> Self {
        rows::policy(&facts)
    }

    /// The name of the microarchitecture whose row [`for_processor`](Self::for_processor) uses, and
    /// the row's source. `None` if the processor has no row, so that its features decide.
    #[must_use]
    pub fn row(facts: Facts) -> Option<(&'static str, &'static str)> {
        rows::row(&facts).map(|row| (row.name, row.source))
    }

    /// The policy in force in this process. If none was installed, the first call puts the default
    /// in force; it never replaces a policy that another thread installs meanwhile.
    #[must_use]
    pub fn current() -> Self {
        let thresholds = Thresholds::current();
        if [&CHOSEN, &SMALL, &STRINGS].iter().any(|one| one.load(Ordering::Relaxed) == 0) {
            Self::for_this_processor().install_choices_where_unset();
        }
        Self {
            small: Small::from_number(SMALL.load(Ordering::Relaxed)),
            isa: Isa::from_number(CHOSEN.load(Ordering::Relaxed)),
            strings: if allows_any_string() { Strings::Any } else { Strings::Alike },
            thresholds,
        }
    }

    /// Puts this policy in force, [clamped](Self::clamped), for all threads of this process.
    /// Returns the choices that this processor [lacks](Self::lacking). Copies that are running
    /// stay correct. If two threads install policies at the same time, each choice and each
    /// threshold is the value of one of the two policies.
    pub fn install(self) -> Lacking {
        let clamped = self.clamped();
        // The thresholds are written first, because a copy that reads a new choice should also
        // read the new thresholds. If relaxed accesses are reordered so that it reads old
        // thresholds, the copy uses a slower method once.
        clamped.thresholds.install();
        STRINGS.store(clamped.strings_number(), Ordering::Relaxed);
        SMALL.store(clamped.small.number(), Ordering::SeqCst);
        CHOSEN.store(clamped.isa as u8, Ordering::SeqCst);
        publish_to_callers();
        self.lacking()
    }

    /// The choices of this policy that this processor cannot run.
    #[must_use]
    pub fn lacking(&self) -> Lacking {
        let lacks_masks = self.small != Small::Pieces && !cpu::has_masks();
        Lacking {
            small: lacks_masks.then_some(self.small),
            isa: (!self.isa.is_available()).then_some(self.isa),
        }
    }

    /// This policy with the default for every choice that this processor [lacks](Self::lacking),
    /// and with the thresholds [clamped](Thresholds::clamped).
    #[must_use]
    pub fn clamped(self) -> Self {
        let mut clamped = Self { thresholds: self.thresholds.clamped(), ..self };
        let lacking = self.lacking();
        if !lacking.is_nothing() {
            let default = Self::for_this_processor();
            clamped.small = if lacking.small.is_some() { default.small } else { self.small };
            clamped.isa = if lacking.isa.is_some() { default.isa } else { self.isa };
        }
        clamped
    }

    /// The name of the value of a choice, one of [`CHOICES`](Self::CHOICES). `None` for any other
    /// name.
    #[must_use]
    pub fn choice(&self, name: &str) -> Option<&'static str> {
        Self::index(name).map(|index| match index {
            0 => self.small.name(),
            1 => self.isa.name(),
            _ => self.strings.name(),
        })
    }

    /// Sets the choice `name` to the value named `value`. Returns `false`, and changes nothing, if
    /// either name is unknown.
    #[must_use]
    pub fn choose(&mut self, name: &str, value: &str) -> bool {
        match Self::index(name) {
            Some(0) => Small::from_name(value).map(|small| self.small = small),
            Some(1) => Isa::from_name(value).map(|isa| self.isa = isa),
            Some(2) => Strings::from_name(value).map(|strings| self.strings = strings),
            _ => None,
        }
        .is_some()
    }

    /// The names of the values of a choice, one of [`CHOICES`](Self::CHOICES). Empty for any other
    /// name.
    pub fn values(name: &str) -> impl Iterator<Item = &'static str> {
        let index = Self::index(name);
        let small = Small::ALL.into_iter().map(Small::name);
        let isa = Isa::ALL.into_iter().map(Isa::name);
        let strings = Strings::ALL.into_iter().map(Strings::name);
        let (is_small, is_isa, is_strings) = (index == Some(0), index == Some(1), index == Some(2));
        small
            .filter(move |_| is_small)
            .chain(isa.filter(move |_| is_isa))
            .chain(strings.filter(move |_| is_strings))
    }

    /// The index of a name in [`CHOICES`](Self::CHOICES).
    fn index(name: &str) -> Option<usize> {
        Self::CHOICES.iter().position(|known| cpu::same(known, name))
    }

    fn strings_number(&self) -> u8 {
        if self.strings == Strings::Any { ANY } else { ALIKE }
    }

    fn install_choices_where_unset(self) {
        let choices = [
            (&STRINGS, self.strings_number()),
            (&SMALL, self.small.number()),
            (&CHOSEN, self.isa as u8),
        ];
        for (atomic, number) in choices {
            // This keeps a choice that another thread has installed meanwhile.
            let _ = atomic.compare_exchange(0, number, Ordering::SeqCst, Ordering::Relaxed);
        }
        publish_to_callers();
    }
}

/// Publishes the shape of small copies to the code that reads it in every call. Either value is
/// correct at any time, because both copies are complete. A thread that finds that another thread
/// has changed [`SMALL`] meanwhile publishes again, so that the last choice is the published one.
fn publish_to_callers() {
    loop {
        let number = SMALL.load(Ordering::SeqCst);
        let small = Small::from_number(number);
        SMALL_BY_MASKS.store(u8::from(small == Small::Masks), Ordering::SeqCst);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        crate::arch::x86_64::masked::set_in_force(small != Small::Pieces, small == Small::Masks);
        if SMALL.load(Ordering::SeqCst) == number {
            break;
        }
    }
}

impl Default for Policy {
    /// [`Policy::for_this_processor`].
    fn default() -> Self {
        Self::for_this_processor()
    }
}

impl Small {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Masks, Self::MasksInCalls, Self::Pieces];

    /// The name in `haul.toml`, commands and records: `masks`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Masks => "masks",
            Self::MasksInCalls => "masks-in-calls",
            Self::Pieces => "pieces",
        }
    }

    /// The value with this [name](Self::name); `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|small| cpu::same(small.name(), name))
    }

    /// The index in [`ALL`](Self::ALL) plus 1.
    fn number(self) -> u8 {
        match self {
            Self::Masks => 1,
            Self::MasksInCalls => 2,
            Self::Pieces => 3,
        }
    }

    /// The value with this [number](Self::number); pieces, which every processor has, if there is
    /// none.
    fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Masks,
            2 => Self::MasksInCalls,
            _ => Self::Pieces,
        }
    }
}

impl Strings {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Any, Self::Alike];

    /// The name in `haul.toml`, commands and records: `any`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Alike => "alike",
        }
    }

    /// The value with this [name](Self::name); `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strings| cpu::same(strings.name(), name))
    }
}

impl Thresholds {
    /// The defaults for this processor: those of its [`Policy`].
    ///
    /// Cost: reads the processor's facts, see [`cpu::facts`].
    #[must_use]
    pub fn defaults() -> Self {
        Policy::for_this_processor().thresholds
    }

    /// The thresholds in force in this process. If none were installed, the first call puts the
    /// defaults in force; it never replaces thresholds that another thread installs meanwhile.
    #[must_use]
    pub fn current() -> Self {
        IN_FORCE.get_or(Self::defaults)
    }
}

/// Ensures that a policy is in force. Threads that call this function at the same time get the
/// same policy. This is a separate function, which keeps the compare-exchanges out of the copies.
#[cold]
#[inline(never)]
pub(crate) fn ensure() {
    let _ = Policy::current();
}

/// The instruction set in force.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn isa() -> Isa {
    match CHOSEN.load(Ordering::Relaxed) {
        0 => Policy::current().isa,
        number => Isa::from_number(number),
    }
}

/// Whether copies may use `rep movsb` at any addresses of target and source.
#[inline]
pub(crate) fn allows_any_string() -> bool {
    STRINGS.load(Ordering::Relaxed) == ANY
}

#[cfg(test)]
mod tests;
