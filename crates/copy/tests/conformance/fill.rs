//! Fills: every size at every alignment, every byte, close to guard pages.

use crate::support::effort::{Effort, GRID_SIZE_MAX};
use crate::support::guarded::Guarded;
use crate::support::oracle::{UNTOUCHED, first_other, first_touched};
use crate::support::parallel;
use crate::support::subjects::{Filler, fillers};

/// Bytes on either side of the target that are looked at after each call, the rest at the end.
const LOOKED_AT: usize = 128;

/// Fills each of the ascending sizes with the next byte of `bytes`, `offset` bytes away from the
/// guard page before or after the buffer, and checks what a fill may and may not do.
fn check(
    filler: &Filler,
    room: &mut Guarded,
    (at_end, offset): (bool, usize),
    sizes: &[usize],
    bytes: impl Iterator<Item = i32>,
) {
    let index = |length| if at_end { room.bytes() - offset - length } else { offset };
    for (&length, byte) in sizes.iter().zip(bytes) {
        let first = index(length);
        let target = room.start().wrapping_add(first);
        // SAFETY: the buffer holds `length` bytes there.
        let returned = unsafe { (filler.call)(target, byte, length) };
        let what = || {
            let side = if at_end { "before the end" } else { "after the start" };
            format!("{} of {length} bytes {offset} {side} with {byte:#x}", filler.name)
        };
        assert_eq!(returned, target, "{}: the returned pointer", what());
        let (before, rest) = room.as_slice().split_at(first);
        let (filled, after) = rest.split_at(length);
        assert_eq!(
            first_other(filled, byte as u8),
            None,
            "{}: a byte of the target is wrong",
            what()
        );
        let before = &before[first.saturating_sub(LOOKED_AT)..];
        assert_eq!(first_touched(before), None, "{}: wrote before the target", what());
        let after = &after[..after.len().min(LOOKED_AT)];
        assert_eq!(first_touched(after), None, "{}: wrote past the target's end", what());
    }
    let size_max = sizes.last().copied().unwrap_or(0);
    let first = index(size_max);
    room.as_mut_slice()[first..first + size_max].fill(UNTOUCHED);
    let touched = first_touched(room.as_slice());
    assert_eq!(touched, None, "{} wrote far outside its target", filler.name);
}

/// Bytes that differ from one call to the next and never are [`UNTOUCHED`]; C's memset takes an int
/// and uses its lowest eight bits.
fn changing_bytes() -> impl Iterator<Item = i32> {
    (0..).map(|turn: i32| {
        let byte = turn.wrapping_mul(89) % 255 + 1;
        if turn % 3 == 0 { byte | turn << 8 } else { byte }
    })
}

#[test]
fn every_size_at_every_alignment_close_to_guard_pages() {
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
    parallel::for_each(&tasks, || Guarded::new(GRID_SIZE_MAX + 64), work);
}

#[test]
fn sizes_above_the_grid() {
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
fn every_byte() {
    let lengths: &[usize] = match Effort::here() {
        Effort::Tiny => &[9, 100],
        _ => &[1, 2, 3, 4, 7, 8, 15, 16, 17, 33, 64, 65, 129, 256, 257, 700, 2048, 5000, 20_000],
    };
    let step = if Effort::here() == Effort::Tiny { 51 } else { 1 };
    let mut room = Guarded::new(20_000 + 64);
    for filler in fillers() {
        for &length in lengths {
            for byte in (1..=255).step_by(step) {
                check(&filler, &mut room, (false, 3), &[length], core::iter::once(byte));
            }
            // Zero over something else, which is what `check` takes for untouched.
            let target = &mut room.as_mut_slice()[3..3 + length];
            target.fill(0xff);
            // SAFETY: the slice has that length.
            unsafe { (filler.call)(target.as_mut_ptr(), 0, length) };
            assert_eq!(first_touched(room.as_slice()), None, "{} of {length} zeros", filler.name);
        }
    }
}
