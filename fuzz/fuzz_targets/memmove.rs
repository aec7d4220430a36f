//! memmove with any overlap, through the dispatch with any thresholds and through every kernel
//! that this processor can run. The result is compared with a loop over bytes.
#![no_main]

use haul_copy::kernel;
use haul_fuzz::{AnyThresholds, Arenas, Ranges};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

#[derive(Arbitrary, Debug)]
struct Input {
    seed: u8,
    thresholds: AnyThresholds,
    calls: Vec<(u8, Ranges)>,
}

fuzz_target!(|input: Input| {
    input.thresholds.install();
    let mut arenas = Arenas::new(input.seed);
    let kernels: Vec<_> = kernel::copies()
        .iter()
        .filter_map(|kernel| Some((kernel.name(), kernel.function()?)))
        .collect();
    for (choice, ranges) in input.calls.iter().take(16) {
        let (target, source, length) = ranges.anywhere();
        let pointer = arenas.ours.as_mut_ptr();
        let mut name = "memmove";
        // SAFETY: `anywhere` keeps both ranges inside the arena.
        unsafe {
            let (to, from) = (pointer.add(target), pointer.add(source).cast_const());
            match kernels.get(*choice as usize % (kernels.len() + 4)) {
                Some((kernel, function)) => {
                    name = kernel;
                    assert_eq!(function(to, from, length), to, "{name}");
                }
                None if choice % 2 == 0 => haul_copy::memmove(to, from, length),
                None => {
                    assert_eq!(haul_copy::c::memmove(to.cast(), from.cast(), length), to.cast())
                }
            }
        }
        arenas.expect_copy(target, source, length);
        arenas.assert_equal(name);
    }
});
