//! memcpy of any size at any alignment, with or without overlap, and with any thresholds. The
//! result is compared with a loop over bytes.
#![no_main]

use haul_copy::Hint;
use haul_fuzz::{AnyThresholds, Arenas, Ranges};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

#[derive(Arbitrary, Debug)]
struct Input {
    seed: u8,
    thresholds: AnyThresholds,
    calls: Vec<(u8, bool, Ranges)>,
}

fuzz_target!(|input: Input| {
    input.thresholds.install();
    let mut arenas = Arenas::new(input.seed);
    for (choice, is_apart, ranges) in input.calls.iter().take(16) {
        // haul's memcpy has the semantics of memmove.
        let (target, source, length) = if *is_apart { ranges.apart() } else { ranges.anywhere() };
        let pointer = arenas.ours.as_mut_ptr();
        // SAFETY: `apart` and `anywhere` keep both ranges inside the arena.
        unsafe {
            let (to, from) = (pointer.add(target), pointer.add(source).cast_const());
            match choice % 6 {
                0 => haul_copy::memcpy(to, from, length),
                1 => assert_eq!(haul_copy::c::memcpy(to.cast(), from.cast(), length), to.cast()),
                2 => Hint::ReadSoon.copy_raw(to, from, length),
                3 => Hint::Streamed.copy_raw(to, from, length),
                4 => Hint::Handover.copy_raw(to, from, length),
                _ => Hint::Unknown.copy_raw(to, from, length),
            }
        }
        arenas.expect_copy(target, source, length);
        arenas.assert_equal("memcpy");
    }
});
