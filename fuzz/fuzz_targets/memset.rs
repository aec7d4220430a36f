//! memset of any size and alignment, with every hint, through the dispatch with any thresholds
//! and through every kernel that this processor can run. The result is compared with a loop over
//! bytes.
#![no_main]

use haul_copy::{Hint, kernel};
use haul_fuzz::{AnyThresholds, Arenas, Ranges};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

#[derive(Arbitrary, Debug)]
struct Input {
    seed: u8,
    thresholds: AnyThresholds,
    calls: Vec<(u8, i32, Ranges)>,
}

fuzz_target!(|input: Input| {
    input.thresholds.install();
    let mut arenas = Arenas::new(input.seed);
    let kernels: Vec<_> = kernel::fills()
        .iter()
        .filter_map(|kernel| Some((kernel.name(), kernel.function()?)))
        .collect();
    for (choice, value, ranges) in input.calls.iter().take(16) {
        let (target, _, length) = ranges.anywhere();
        let [byte, ..] = value.to_le_bytes();
        let mut name = "memset";
        // SAFETY: `anywhere` keeps the range inside the arena.
        unsafe {
            let to = arenas.ours.as_mut_ptr().add(target);
            match kernels.get(*choice as usize % (kernels.len() + 4)) {
                Some((kernel, function)) => {
                    name = kernel;
                    assert_eq!(function(to, *value, length), to, "{name}");
                }
                None => match choice % 4 {
                    0 => haul_copy::memset(to, byte, length),
                    1 => assert_eq!(haul_copy::c::memset(to.cast(), *value, length), to.cast()),
                    2 => Hint::ReadSoon.fill_raw(to, byte, length),
                    _ => Hint::Streamed.fill_raw(to, byte, length),
                },
            }
        }
        arenas.expect_fill(target, byte, length);
        arenas.assert_equal(name);
    }
});
