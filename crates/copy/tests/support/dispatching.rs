//! The dispatch under the policies of other processors.
//!
//! The library ignores choices that the processor lacks, and a test cannot change the processor's
//! features. The test therefore overwrites the choice in force, a byte that it finds by name in
//! this program's own symbol table.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use haul_copy::Small;
use haul_copy::{Isa, Policy, Thresholds};
use object::{Object, ObjectSymbol};

use super::copying::{At, Room};
use super::effort::Effort;
use super::filling::{changing_bytes, check};
use super::guarded::Guarded;
use super::moving;
use super::subjects::{dispatching_copiers, dispatching_fillers};

/// The parts of the mangled name, each after its length: the instruction set, and the shape of
/// small copies.
const CHOSEN: [&str; 3] = ["9haul_copy", "6policy", "6CHOSEN"];
const SMALL: [&str; 3] = ["9haul_copy", "6policy", "5SMALL17"];
/// The byte that is read by code inlined into C. Its exported name has no parts.
const SMALL_BY_MASKS: [&str; 3] = ["haul_small_by_masks"; 3];
/// The statics that the code reads in every call, and their values if small copies and fills use
/// masks.
const PAGE_BITS: [([&str; 3], u32); 2] = [
    (["9haul_copy", "6masked", "6COPIES"], 4096 - 16),
    (["9haul_copy", "6masked", "5FILLS"], 4096 - 64),
];
const CALLERS_COPIES: [&str; 3] = ["9haul_copy", "6masked", "14CALLERS_COPIES"];
const CALLERS_FILLS: [&str; 3] = ["9haul_copy", "6masked", "13CALLERS_FILLS"];

/// A static of this program that is private to the crate under test.
///
/// # Safety
/// The static must be a `T`.
unsafe fn find_private<T>(parts: [&str; 3]) -> &'static T {
    let bytes = std::fs::read("/proc/self/exe").expect("this program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let address_of = |is_wanted: &dyn Fn(&str) -> bool| {
        let found: Vec<u64> = file
            .symbols()
            .filter(|symbol| symbol.name().is_ok_and(is_wanted))
            .map(|symbol| symbol.address())
            .collect();
        let [address] = found[..] else { panic!("{parts:?}: found {} times", found.len()) };
        address
    };
    let known = address_of(&|name| name == "haul_memcpy");
    let wanted = address_of(&|name| parts.iter().all(|part| name.contains(part)));
    // The loader moved both symbols by the same distance.
    let place = (haul_copy::c::memcpy as *const ()).addr() as u64 + wanted - known;
    // SAFETY: the address is that of a static of this program, and the caller promises its type.
    unsafe { &*core::ptr::with_exposed_provenance(place as usize) }
}

/// Puts `isa` and `small` in force, even if the processor supports neither.
pub(crate) fn choose(isa: Isa, small: Small) {
    haul_copy::fill(&mut [0; 300], 1);
    let here = Policy::current();
    let number = |small| match small {
        Small::Masks => 1,
        Small::MasksInCalls => 2,
        _ => 3,
    };
    let (by_masks, in_callers) = (small != Small::Pieces, small == Small::Masks);
    let bytes = [
        (CHOSEN, here.isa as u8, isa as u8),
        (SMALL, number(here.small), number(small)),
        (SMALL_BY_MASKS, u8::from(here.small == Small::Masks), u8::from(in_callers)),
        (CALLERS_COPIES, u8::from(here.small == Small::Masks), u8::from(in_callers)),
        (CALLERS_FILLS, u8::from(here.small != Small::Pieces), u8::from(by_masks)),
    ];
    for (name, before, after) in bytes {
        // SAFETY: the static is one byte: an atomic of this type, or an atomic boolean, which
        // becomes 0 or 1.
        let byte: &AtomicU8 = unsafe { find_private(name) };
        assert_eq!(byte.load(Ordering::Relaxed), before, "{name:?} is not the expected byte");
        byte.store(after, Ordering::Relaxed);
    }
    for (name, with_masks) in PAGE_BITS {
        // SAFETY: the static is declared with this type.
        let bits: &AtomicU32 = unsafe { find_private(name) };
        assert!([0, with_masks].contains(&bits.load(Ordering::Relaxed)), "{name:?}");
        bits.store(if by_masks { with_masks } else { 0 }, Ordering::Relaxed);
    }
    assert_eq!((Policy::current().isa, Policy::current().small), (isa, small));
}

/// Sizes up to twice the largest block, then sizes around the limits at which the method changes.
fn sizes() -> Vec<usize> {
    let above = [640, 1023, 1025, 2047, 2048, 2049, 2200, 4095, 4096, 4097, 16384 + 129, 33000];
    let step = if Effort::here() == Effort::Full { 1 } else { 9 };
    (0..=530).step_by(step).chain(above).collect()
}

/// Checks every entry against the oracle with each method: registers, streaming stores and string
/// instructions.
pub(crate) fn check_every_entry() {
    let mut stream = Thresholds::REGISTERS_ONLY;
    assert!(stream.set("stream_copy_min", 2100) && stream.set("stream_fill_min", 2100));
    let mut string = Thresholds::REGISTERS_ONLY;
    assert!(string.set("rep_movsb_min", 2100) && string.set("rep_stosb_min", 2100));
    let (mut room, mut moving_room) = (Room::new(33000), moving::Room::new(80_000));
    let mut fill_room = Guarded::new(33000 + 64);
    for thresholds in [Thresholds::REGISTERS_ONLY, stream, string] {
        thresholds.install();
        for copier in dispatching_copiers().into_iter().filter(|copier| !copier.is_alias) {
            room.check(&copier, At::Start(0), At::Start(13), &sizes());
            room.check(&copier, At::End(0), At::End(0), &sizes());
            for &length in sizes().iter().filter(|_| copier.may_overlap) {
                moving_room.check(&copier, length, 33, 5);
                moving_room.check(&copier, length, -65, 5);
            }
        }
        for filler in dispatching_fillers() {
            check(&filler, &mut fill_room, (false, 3), &sizes(), changing_bytes());
            check(&filler, &mut fill_room, (true, 0), &sizes(), changing_bytes());
        }
    }
}
