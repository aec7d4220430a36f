//! The AVX-512 kernels against the oracle, native or emulated.

use haul_copy::Isa;
use haul_copy::kernel;

use crate::emulator::emulated;
use crate::has_avx512;
use crate::support::copying::{At, Room};
use crate::support::effort::Effort;
use crate::support::filling::{changing_bytes, check};
use crate::support::guarded::Guarded;
use crate::support::subjects::{Copier, Filler};
use crate::support::{moving, parallel};

/// Every size up to this one is tested, in bytes. A trap takes microseconds, so this size is
/// smaller than in other tests. Without optimization, a kernel is mostly calls and spills, so
/// fewer sizes are tested.
const SIZE_MAX: usize = 600;

fn sizes() -> Vec<usize> {
    if Effort::here() != Effort::Full {
        let near = [64, 65, 128, 129, 256, 257, 512, 513];
        let is_wanted = |size: &usize| size.is_multiple_of(7) || near.contains(size);
        return (0..=SIZE_MAX).filter(is_wanted).chain([16513]).collect();
    }
    let above =
        [639, 640, 641, 767, 768, 769, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097];
    let groups = [16383, 16384, 16385 + 63, 32768 + 129];
    (0..=SIZE_MAX).chain(above).chain(groups).collect()
}

/// Offsets from a multiple of 64.
fn offsets() -> &'static [usize] {
    if Effort::here() == Effort::Full { &[0, 1, 33, 63] } else { &[0, 33] }
}

fn is_avx512(isa: Isa) -> bool {
    matches!(isa, Isa::Avx512 | Isa::Avx512vl)
}

/// The kernels that need AVX-512.
pub(crate) fn copiers() -> Vec<Copier> {
    let kernels = kernel::copies().iter().filter(|kernel| is_avx512(kernel.isa()));
    let of = |kernel: &kernel::CopyKernel| Copier {
        name: kernel.name(),
        // SAFETY: `has_avx512` returned true: the processor has AVX-512, or the emulator is
        // installed.
        call: unsafe { kernel.function_unchecked() },
        may_overlap: true,
        is_alias: false,
    };
    kernels.map(of).collect()
}

fn fillers() -> Vec<Filler> {
    let kernels = kernel::fills().iter().filter(|kernel| is_avx512(kernel.isa()));
    let of = |kernel: &kernel::FillKernel| Filler {
        name: kernel.name(),
        // SAFETY: `has_avx512` returned true: the processor has AVX-512, or the emulator is
        // installed.
        call: unsafe { kernel.function_unchecked() },
    };
    kernels.map(of).collect()
}

/// Runs `action`. If AVX-512 is emulated, this function asserts that the emulator ran.
fn run(action: impl FnOnce()) {
    if !has_avx512() {
        return;
    }
    let before = emulated();
    action();
    let count = emulated() - before;
    if !Isa::Avx512.is_available() {
        assert!(count > 1000, "only {count} instructions were emulated");
        eprintln!("{count} instructions were emulated");
    }
}

#[test]
fn avx512_copies_are_right_beside_guard_pages() {
    run(|| {
        let sizes = sizes();
        let mut tasks = Vec::new();
        for copier in copiers() {
            for &from in offsets() {
                tasks.extend(offsets().iter().map(|&to| (copier, from, to)));
            }
        }
        let work = |room: &mut Room, &(copier, from, to): &(Copier, usize, usize)| {
            room.check(&copier, At::Start(from), At::Start(to), &sizes);
            room.check(&copier, At::End(from), At::End(to), &sizes);
            if (from, to) == (0, 0) {
                room.check(&copier, At::End(0), At::Start(0), &sizes);
                room.check(&copier, At::Start(0), At::End(0), &sizes);
            }
        };
        parallel::for_each(&tasks, || Room::new(40 << 10), work);
    });
}

#[test]
fn avx512_fills_are_right_beside_guard_pages() {
    run(|| {
        let sizes = sizes();
        let mut room = Guarded::new((40 << 10) + 64);
        for filler in fillers() {
            for &offset in offsets() {
                for at_end in [false, true] {
                    check(&filler, &mut room, (at_end, offset), &sizes, changing_bytes());
                }
            }
        }
    });
}

#[test]
fn avx512_moves_are_right_for_overlapping_ranges() {
    run(|| {
        let mut lengths: Vec<_> =
            (0..=SIZE_MAX).step_by(if Effort::here() == Effort::Full { 23 } else { 90 }).collect();
        lengths
            .extend([64, 65, 128, 129, 256, 257, 258, 384, 511, 512, 513, 768, 1025, 2048, 4097]);
        let distances =
            [1, 2, 8, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 300, 520];
        let mut tasks = Vec::new();
        for copier in copiers() {
            tasks.extend(lengths.iter().map(|&length| (copier, length)));
        }
        let work = |room: &mut moving::Room, &(copier, length): &(Copier, usize)| {
            for (turn, distance) in distances.into_iter().enumerate() {
                let low = (turn * 37 + length * 5) % 64;
                room.check(&copier, length, distance, low);
                room.check(&copier, length, -distance, low);
            }
            room.check_untouched(&copier);
        };
        parallel::for_each(&tasks, || moving::Room::new(16 << 10), work);
    });
}
