//! Fills: every size at every alignment and every byte, next to guard pages.

use crate::support::effort::Effort;
use crate::support::filling::{changing_bytes, check};
use crate::support::guarded::Guarded;
use crate::support::oracle::first_touched;
use crate::support::parallel;
use crate::support::subjects::{Filler, fillers};

#[test]
fn fills_are_right_at_every_size_and_alignment() {
    let effort = Effort::here();
    let (sizes, offsets) = (effort.grid_sizes(), effort.offsets());
    let mut tasks = Vec::new();
    for filler in fillers() {
        for at_end in [false, true] {
            tasks.extend(offsets.iter().map(|&offset| (filler, (at_end, offset))));
        }
    }
    let work = |room: &mut Guarded, (filler, place): &(Filler, (bool, usize))| {
        check(filler, room, *place, &sizes, changing_bytes());
    };
    let size_max = sizes.last().copied().unwrap_or(0);
    parallel::for_each(&tasks, || Guarded::new(size_max + 64), work);
}

#[test]
fn large_fills_are_right_beside_guard_pages() {
    let effort = Effort::here();
    let sizes = effort.sizes_above_grid();
    let size_max = sizes.iter().copied().max().unwrap_or(0);
    let offsets: &[usize] = if effort == Effort::Tiny { &[5] } else { &[0, 1, 16, 32, 63] };
    let mut tasks = Vec::new();
    for filler in fillers() {
        for at_end in [false, true] {
            tasks.extend(offsets.iter().map(|&offset| (filler, (at_end, offset))));
        }
    }
    let work = |room: &mut Guarded, (filler, place): &(Filler, (bool, usize))| {
        check(filler, room, *place, &sizes, changing_bytes());
    };
    parallel::for_each(&tasks, || Guarded::new(size_max + 64), work);
}

#[test]
fn fills_are_right_for_every_byte_value() {
    let lengths: &[usize] = match Effort::here() {
        Effort::Tiny => &[9, 100],
        _ => &[1, 2, 3, 4, 7, 8, 15, 16, 17, 33, 64, 65, 129, 256, 257, 700, 2048, 5000, 20_000],
    };
    let step = if Effort::here() == Effort::Tiny { 51 } else { 1 };
    let mut room = Guarded::new(lengths.iter().max().map_or(0, |most| most + 64));
    for filler in fillers() {
        for &length in lengths {
            for byte in (1..=255).step_by(step) {
                check(&filler, &mut room, (false, 3), &[length], core::iter::once(byte));
            }
            // Zero over other bytes. `check` cannot test a fill with zero, because zero is its
            // value for untouched bytes.
            let target = &mut room.as_mut_slice()[3..3 + length];
            target.fill(0xff);
            // SAFETY: the slice has that length.
            unsafe { (filler.call)(target.as_mut_ptr(), 0, length) };
            assert_eq!(first_touched(room.as_slice()), None, "{} of {length} zeros", filler.name);
        }
    }
}
