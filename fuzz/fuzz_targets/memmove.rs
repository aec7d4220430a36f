//! memmove with any overlap, by dispatch under any thresholds and by every kernel that runs here,
//! against byte by byte.
#![no_main]

use haul_copy::kernel;
use haul_fuzz::{AnyThresholds, Arenas, Place};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

#[derive(Arbitrary, Debug)]
struct Input {
    seed: u8,
    thresholds: AnyThresholds,
    calls: Vec<(u8, Place)>,
}

fuzz_target!(|input: Input| {
    input.thresholds.install();
    let mut arenas = Arenas::new(input.seed);
    let kernels: Vec<_> = kernel::copies()
        .iter()
        .filter_map(|kernel| Some((kernel.name(), kernel.function()?)))
        .collect();
    for (way, place) in input.calls.iter().take(16) {
        let (target, source, length) = place.anywhere();
        let pointer = arenas.ours.as_mut_ptr();
        let mut name = "memmove";
        // SAFETY: `anywhere` keeps both ranges inside the arena.
        unsafe {
            let (to, from) = (pointer.add(target), pointer.add(source).cast_const());
            match kernels.get(*way as usize % (kernels.len() + 4)) {
                Some((kernel, function)) => {
                    name = kernel;
                    assert_eq!(function(to, from, length), to, "{name}");
                }
                None if way % 2 == 0 => haul_copy::memmove(to, from, length),
                None => {
                    assert_eq!(haul_copy::c::memmove(to.cast(), from.cast(), length), to.cast())
                }
            }
        }
        arenas.expect_copy(target, source, length);
        arenas.assert_equal(name);
    }
});
