//! Everything about copying that is a matter of the processor, as one value.
//!
//! A [`Policy`] has a default for each microarchitecture, by measurement (`rows`), and one by
//! features for a processor that nobody has measured. `haul copy tune` measures a better one for
//! the machine at hand and
//! `haul.toml` keeps it. No value can make a copy wrong: every choice is between complete copies,
//! and what this processor cannot run is not taken.

mod rows;

use core::sync::atomic::{AtomicU8, Ordering};

use crate::cpu::{self, Facts, Isa};
use crate::thresholds::{IN_FORCE, Thresholds};

/// How up to 127 bytes are copied, and up to 255 filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Small {
    /// By masked loads and stores of AVX-512, with one branch on the size.
    Masks,
    /// By pieces of 1 to 16 bytes that overlap; up to 64 bytes they are code in the caller.
    Pieces,
}

/// Which copies may go by `rep movsb`, where [`Thresholds`] say that their size does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strings {
    /// All.
    Any,
    /// Those whose target and source have the same place in a cache line. On Zen 4 `rep movsb`
    /// falls from 80 to 30 GB/s elsewhere, and to 2.7 where the target is 1 to 63 bytes above the
    /// source in their pages.
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
    /// How small copies and fills go.
    pub small: Small,
    /// The instruction set of blocks and loops.
    pub isa: Isa,
    /// Which copies may go by `rep movsb`.
    pub strings: Strings,
    /// The sizes at which the way to copy changes.
    pub thresholds: Thresholds,
}

/// What of a policy this processor lacks: it is ignored, and the default stands in for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// The small shape.
    pub small: Option<Small>,
    /// The instruction set.
    pub isa: Option<Isa>,
}

impl Lacking {
    /// Whether nothing is lacking.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The instruction set in force as its number, and [`MASKS`] with it; 0 before the first copy above
/// 64 bytes.
pub(crate) static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Added to the number of an instruction set: small copies go by masks.
pub(crate) const MASKS: u8 = 0x80;

/// 1 where small copies go by masks, before the first copy above 64 bytes 0: for code that becomes
/// part of its callers by `haul.h`. What they can name has to be read through a table of addresses,
/// and [`CHOSEN`] should not be.
#[unsafe(export_name = "haul_small_by_masks")]
pub(crate) static SMALL_BY_MASKS: AtomicU8 = AtomicU8::new(0);

/// Which copies may go by `rep movsb`: [`ANY`], [`ALIKE`], or 0 before anything was chosen.
static STRINGS: AtomicU8 = AtomicU8::new(0);
const ANY: u8 = 1;
const ALIKE: u8 = 2;

impl Policy {
    /// The names of what is chosen by name, as `haul.toml` and the command line spell them. The
    /// other names are those of [`Thresholds::NAMES`].
    pub const CHOICES: &'static [&'static str; 3] = &["small", "isa", "strings"];

    /// The default for the processor that this runs on.
    ///
    /// Cost: asks the processor, see [`cpu::facts`].
    #[must_use]
    pub fn for_this_processor() -> Self {
        Self::for_processor(cpu::facts()).within(Isa::is_available)
    }

    /// The same with the widest instruction set up to its own that is there: facts name the widest
    /// of all, and a hypervisor may hide one below it.
    fn within(self, is_there: impl Fn(Isa) -> bool) -> Self {
        let fits = |isa: &Isa| *isa <= self.isa && is_there(*isa);
        Self { isa: Isa::ALL.into_iter().rfind(fits).unwrap_or(Isa::Scalar), ..self }
    }

    /// The default for a processor that says `facts` of itself.
    #[must_use]
    pub fn for_processor(facts: Facts) -> Self {
        rows::policy(&facts)
    }

    /// The microarchitecture whose row [`for_processor`](Self::for_processor) takes, and what the
    /// row stands on; `None` where nobody has measured or reasoned about this one, and its features
    /// decide.
    #[must_use]
    pub fn row(facts: Facts) -> Option<(&'static str, &'static str)> {
        rows::row(&facts).map(|row| (row.name, row.source))
    }

    /// The policy in force in this process. The first call puts the default in force where nothing
    /// was installed, and never replaces what is installed meanwhile.
    #[must_use]
    pub fn current() -> Self {
        let thresholds = Thresholds::current();
        if CHOSEN.load(Ordering::Relaxed) == 0 || STRINGS.load(Ordering::Relaxed) == 0 {
            Self::for_this_processor().install_choices_where_unset();
        }
        let chosen = CHOSEN.load(Ordering::Relaxed);
        Self {
            small: if chosen & MASKS == 0 { Small::Pieces } else { Small::Masks },
            isa: Isa::from_number(chosen & !MASKS),
            strings: if moves_any_string() { Strings::Any } else { Strings::Alike },
            thresholds,
        }
    }

    /// Puts this in force, [clamped](Self::clamped), for all threads of this process, and returns
    /// what of it this processor [lacks](Self::lacking). Copies that are under way stay correct. Of
    /// two policies that are installed at the same time, each choice and each threshold is that of
    /// one.
    pub fn install(self) -> Lacking {
        let clamped = self.clamped();
        // Thresholds first: whoever sees the choice should see them. Should it not, by a reordering
        // of relaxed accesses, it takes a way that is slower once.
        clamped.thresholds.install();
        STRINGS.store(clamped.strings_number(), Ordering::Relaxed);
        CHOSEN.store(clamped.chosen_number(), Ordering::SeqCst);
        tell_callers();
        self.lacking()
    }

    /// What of this the processor that this runs on lacks.
    #[must_use]
    pub fn lacking(&self) -> Lacking {
        let lacks_masks = self.small == Small::Masks && !cpu::has_masks();
        Lacking {
            small: lacks_masks.then_some(self.small),
            isa: (!self.isa.is_available()).then_some(self.isa),
        }
    }

    /// The same with the default in place of what this processor [lacks](Self::lacking), and the
    /// thresholds [clamped](Thresholds::clamped).
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

    /// What is chosen under one of the names in [`CHOICES`](Self::CHOICES), as its name; `None` for
    /// another.
    #[must_use]
    pub fn choice(&self, name: &str) -> Option<&'static str> {
        Self::index(name).map(|index| match index {
            0 => self.small.name(),
            1 => self.isa.name(),
            _ => self.strings.name(),
        })
    }

    /// Chooses by names; `false`, and nothing is changed, where one of the two is none.
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

    /// What may be chosen under one of the names in [`CHOICES`](Self::CHOICES); nothing under
    /// another.
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

    /// The place of a name in [`CHOICES`](Self::CHOICES).
    fn index(name: &str) -> Option<usize> {
        Self::CHOICES.iter().position(|known| cpu::same(known, name))
    }

    fn chosen_number(&self) -> u8 {
        let masks = if self.small == Small::Masks { MASKS } else { 0 };
        self.isa as u8 | masks
    }

    fn strings_number(&self) -> u8 {
        if self.strings == Strings::Any { ANY } else { ALIKE }
    }

    fn install_choices_where_unset(self) {
        for (place, number) in [(&STRINGS, self.strings_number()), (&CHOSEN, self.chosen_number())]
        {
            // What somebody has installed meanwhile stays.
            let _ = place.compare_exchange(0, number, Ordering::SeqCst, Ordering::Relaxed);
        }
        tell_callers();
    }
}

/// Either value is right at any time: it only says which of two copies is taken. Whoever finds that
/// another thread has chosen meanwhile says it again, so that the last choice is what is told.
fn tell_callers() {
    loop {
        let chosen = CHOSEN.load(Ordering::SeqCst);
        let by_masks = chosen & MASKS != 0;
        SMALL_BY_MASKS.store(u8::from(by_masks), Ordering::SeqCst);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        crate::arch::x86_64::masked::put_in_force(by_masks);
        if CHOSEN.load(Ordering::SeqCst) == chosen {
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
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Masks, Self::Pieces];

    /// The name in `haul.toml`, commands and records: `masks`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Masks => "masks",
            Self::Pieces => "pieces",
        }
    }

    /// The one of that [name](Self::name); `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|small| cpu::same(small.name(), name))
    }
}

impl Strings {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Any, Self::Alike];

    /// The name in `haul.toml`, commands and records: `any`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Alike => "alike",
        }
    }

    /// The one of that [name](Self::name); `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strings| cpu::same(strings.name(), name))
    }
}

impl Thresholds {
    /// The defaults for the processor that this runs on: those of its [`Policy`].
    ///
    /// Cost: asks the processor, see [`cpu::facts`].
    #[must_use]
    pub fn defaults() -> Self {
        Policy::for_this_processor().thresholds
    }

    /// The thresholds in force in this process. The first call puts the defaults in force where
    /// nothing was installed, and never replaces what is installed meanwhile.
    #[must_use]
    pub fn current() -> Self {
        IN_FORCE.get_or(Self::defaults)
    }
}

/// Sees to it that a policy is in force. Threads that come here at the same time find the same. A
/// function of its own: what it exchanges words by is no part of a copy.
#[cold]
#[inline(never)]
pub(crate) fn ensure() {
    let _ = Policy::current();
}

/// The instruction set in force.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn isa() -> Isa {
    match CHOSEN.load(Ordering::Relaxed) & !MASKS {
        0 => Policy::current().isa,
        number => Isa::from_number(number),
    }
}

/// Whether copies go by `rep movsb` wherever target and source lie.
#[inline]
pub(crate) fn moves_any_string() -> bool {
    STRINGS.load(Ordering::Relaxed) == ANY
}

#[cfg(test)]
mod tests;
