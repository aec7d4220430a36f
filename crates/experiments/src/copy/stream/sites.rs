//! One code location for each call site, and the timed loop.
//!
//! A branch predictor knows a branch by its address. So haul's inline code exists once for each
//! site, and so does the instruction that calls a function by its pointer.
//!
//! The loop reaches a location by conditional branches on the bits of the site's number and a
//! direct call, as a program reaches its sites by branches of its own. With one indirect call
//! instead, the predictor knows the order of the sites from the branches of the copies alone: then
//! a function that does nothing takes up to 1.4 of the C library's time (Zen 4), because it has no
//! branches; with the tree of branches it takes at most 0.84 (Zen 3).
//!
//! Where code lies changes its speed: if nothing but the order of the program's functions differs,
//! a called function takes 0.94 to 0.96 of the C library's time, and inlined code 0.94 to 0.99
//! (Emerald Rapids, 14 programs, six orders). So the sites change their locations every few rounds,
//! for all subjects together. The called function then takes 0.930 to 0.935; the inlined code still
//! depends on where the loop lies.

use std::hint::black_box;

use haul_copy::kernel::{CopyFn, FillFn};

use crate::copy::operations::FILL_BYTE;

/// The number of sites with a code location of their own. The last one is shared by the sites with
/// the fewest calls.
pub const SITES: usize = 64;

/// The bits of a location below the site's number: whether the target is read, and the function.
const VARIANT_BITS: u32 = 3;
const IS_READ: u32 = 1;
const IS_MOVE: u32 = 2;
const IS_FILL: u32 = 4;

/// A function of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Called {
    /// memcpy.
    Memcpy = 0,
    /// memmove, or a memcpy whose source and target overlap.
    Memmove = 1,
    /// memset.
    Memset = 2,
}

/// A call, as the loop reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    target: u32,
    /// The offset of the source. For memset it is the byte.
    source: u32,
    size: u32,
    location: u32,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    /// A call from the site with this number, with a reader of the target's first 8 bytes or
    /// without one.
    ///
    /// # Panics
    /// There is no such site.
    #[must_use]
    pub fn new(
        (site, called, is_read): (usize, Called, bool),
        target: u32,
        source: u32,
        size: u32,
    ) -> Self {
        assert!(site < SITES, "site {site} of {SITES}");
        let variant = match called {
            Called::Memcpy => 0,
            Called::Memmove => IS_MOVE,
            Called::Memset => IS_FILL,
        };
        let read = if is_read { IS_READ } else { 0 };
        Self { target, source, size, location: (site as u32) << VARIANT_BITS | variant | read }
    }

    /// The value for memset's source.
    #[must_use]
    pub fn byte(is_zero: bool) -> u32 {
        if is_zero { 0 } else { FILL_BYTE.into() }
    }

    /// The function, the offsets of target and source, and the size.
    #[must_use]
    pub fn parts(self) -> (Called, usize, usize, usize) {
        let called = match self.location & (IS_MOVE | IS_FILL) {
            0 => Called::Memcpy,
            IS_MOVE => Called::Memmove,
            _ => Called::Memset,
        };
        (called, self.target as usize, self.source as usize, self.size as usize)
    }
}

/// The functions of a subject that is called by pointers.
#[derive(Clone, Copy, Debug)]
pub struct Pointers {
    /// memcpy.
    pub copy: CopyFn,
    /// memmove.
    pub copy_within: CopyFn,
    /// memset.
    pub fill: FillFn,
}

/// How the calls of a subject are made.
#[derive(Clone, Copy, Debug)]
pub enum Calls {
    /// haul's functions, inlined at each site.
    Inline,
    /// By pointers, with a call instruction at each site.
    Pointers(Pointers),
}

impl Calls {
    /// The value of the record parameter `call`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Pointers(_) => "c",
        }
    }

    /// Performs the calls in their order, `passes` times. The site `s` has the location
    /// `s ^ shift`.
    ///
    /// # Panics
    /// `shift` is not below [`SITES`].
    ///
    /// # Safety
    /// The caller must have exclusive access to the memory after `base`. Source and target of every
    /// call must lie in it, with 8 bytes after each target.
    pub unsafe fn run(&self, entries: &[Entry], shift: usize, base: *mut u8, passes: u64) {
        assert!(shift < SITES, "shift {shift} of {SITES}");
        let shift = (shift as u32) << VARIANT_BITS;
        match self {
            // SAFETY: the caller keeps the contract of this function, which is also the callee's.
            Self::Inline => unsafe { run(&Inline, entries, shift, base, passes) },
            // SAFETY: as above.
            Self::Pointers(pointers) => unsafe { run(pointers, entries, shift, base, passes) },
        }
    }
}

/// The part that differs between subjects.
trait Caller {
    /// Performs one call.
    ///
    /// # Safety
    /// As for the function: `size` bytes must be writable at `target`, and except for memset
    /// readable at `source`.
    unsafe fn call<const CALLED: u8>(&self, target: *mut u8, source: Source, size: usize);
}

/// The source, or the byte of a memset.
#[derive(Clone, Copy)]
struct Source {
    base: *const u8,
    value: u32,
}

impl Source {
    #[inline(always)]
    fn pointer(self) -> *const u8 {
        self.base.wrapping_add(self.value as usize)
    }
}

struct Inline;

const MEMCPY: u8 = Called::Memcpy as u8;
const MEMMOVE: u8 = Called::Memmove as u8;

impl Caller for Inline {
    #[inline(always)]
    unsafe fn call<const CALLED: u8>(&self, target: *mut u8, source: Source, size: usize) {
        match CALLED {
            // SAFETY: the caller keeps the contract of `call`.
            MEMCPY => unsafe { haul_copy::memcpy(target, source.pointer(), size) },
            // SAFETY: as above.
            MEMMOVE => unsafe { haul_copy::memmove(target, source.pointer(), size) },
            // SAFETY: as above.
            _ => unsafe { haul_copy::memset(target, source.value as u8, size) },
        };
    }
}

impl Caller for Pointers {
    #[inline(always)]
    unsafe fn call<const CALLED: u8>(&self, target: *mut u8, source: Source, size: usize) {
        match CALLED {
            // SAFETY: the caller keeps the contract of `call`.
            MEMCPY => unsafe { (self.copy)(target, source.pointer(), size) },
            // SAFETY: as above.
            MEMMOVE => unsafe { (self.copy_within)(target, source.pointer(), size) },
            // SAFETY: as above.
            _ => unsafe { (self.fill)(target, source.value as i32, size) },
        };
    }
}

/// The code location. The site's number is part of the result, because the compiler would merge
/// equal functions otherwise.
#[inline(never)]
unsafe fn location<C: Caller, const SITE: usize, const CALLED: u8, const IS_READ: bool>(
    caller: &C,
    base: *mut u8,
    entry: &Entry,
) -> u64 {
    let target = base.wrapping_add(entry.target as usize);
    let source = Source { base, value: entry.source };
    // SAFETY: the caller of `run` promises that source and target lie in the memory after `base`.
    unsafe { caller.call::<CALLED>(target, source, entry.size as usize) };
    if !IS_READ {
        return SITE as u64;
    }
    // SAFETY: the caller of `run` promises 8 readable bytes from the target on. The load may be
    // unaligned.
    let read = unsafe { target.cast::<u64>().read_unaligned() };
    read.wrapping_add(SITE as u64)
}

/// Calls the code location of an entry, by direct calls only. The tree of conditional branches on
/// the bits of the site's number stands for the program's own branches before the call. `shift`
/// inverts some of the bits, so that each site has another location.
#[inline(always)]
unsafe fn dispatch<C: Caller>(caller: &C, base: *mut u8, entry: &Entry, shift: u32) -> u64 {
    let chosen = entry.location ^ shift;
    macro_rules! leaf {
        ($site:expr, $called:literal, $is_read:literal) => {
            // SAFETY: the caller of `run` keeps its contract for every entry.
            unsafe { location::<C, { $site }, $called, $is_read>(caller, base, entry) }
        };
    }
    macro_rules! tree {
        ($site:expr;) => {
            if chosen & IS_FILL != 0 {
                if chosen & IS_READ != 0 { leaf!($site, 2, true) } else { leaf!($site, 2, false) }
            } else if chosen & IS_MOVE != 0 {
                if chosen & IS_READ != 0 { leaf!($site, 1, true) } else { leaf!($site, 1, false) }
            } else if chosen & IS_READ != 0 {
                leaf!($site, 0, true)
            } else {
                leaf!($site, 0, false)
            }
        };
        ($site:expr; $bit:literal $($rest:literal)*) => {
            if chosen & ($bit << VARIANT_BITS) != 0 {
                tree!($site + $bit; $($rest)*)
            } else {
                tree!($site; $($rest)*)
            }
        };
    }
    tree!(0; 32 16 8 4 2 1)
}

/// The timed loop.
#[inline(never)]
unsafe fn run<C: Caller>(caller: &C, entries: &[Entry], shift: u32, base: *mut u8, passes: u64) {
    // The compiler must not know the functions, because it would call them without a pointer.
    let caller = black_box(caller);
    let mut sum = 0u64;
    for _ in 0..passes {
        for entry in entries {
            // SAFETY: the caller keeps the contract of this function for every entry.
            sum = sum.wrapping_add(unsafe { dispatch(caller, base, entry, shift) });
        }
    }
    // The sum is used, so that the compiler keeps every load.
    black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn copy_nothing(target: *mut u8, _: *const u8, _: usize) -> *mut u8 {
        target
    }

    unsafe extern "C" fn fill_nothing(target: *mut u8, _: i32, _: usize) -> *mut u8 {
        target
    }

    /// Without a read, a location returns its site's number.
    #[test]
    fn shift_gives_each_site_another_location() {
        let nothing =
            Pointers { copy: copy_nothing, copy_within: copy_nothing, fill: fill_nothing };
        let mut bytes = [0; 8];
        for called in [Called::Memcpy, Called::Memmove, Called::Memset] {
            for (site, shift) in [(0, 0), (5, 0), (5, 9), (63, 63), (17, 32)] {
                let entry = Entry::new((site, called, false), 0, 0, 0);
                let shifted = (shift as u32) << VARIANT_BITS;
                // SAFETY: the functions access nothing.
                let location = unsafe { dispatch(&nothing, bytes.as_mut_ptr(), &entry, shifted) };
                assert_eq!(location, (site ^ shift) as u64, "{called:?}");
            }
        }
    }
}
