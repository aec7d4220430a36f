//! memmove's semantics: the source and the target of every copier may overlap in any way.

use crate::support::effort::{Effort, GRID_SIZE_MAX};
use crate::support::moving::Room;
use crate::support::parallel;
use crate::support::subjects::{Copier, copiers};

/// Distances in bytes, in both directions: all distances at which two ranges of up to
/// [`GRID_SIZE_MAX`] bytes overlap, or all small distances, and the distances around lines, pages
/// and `length`.
fn distances(effort: Effort, length: usize) -> Vec<isize> {
    let (small, around): (isize, &[isize]) = match effort {
        Effort::Full if length <= GRID_SIZE_MAX => {
            (length.cast_signed().max(300), &[512, 1024, 2048, 4096])
        }
        Effort::Full => (300, &[512, 1024, 2048, 4096, 8192, 16384]),
        Effort::Thin => (70, &[96, 128, 256, 300, 4096]),
        Effort::Tiny => (0, &[2, 64]),
    };
    let length = length.cast_signed();
    let mut distances: Vec<isize> = (0..=small).collect();
    for middle in around.iter().copied().chain([length, length / 2]) {
        distances.extend([middle - 1, middle, middle + 1]);
    }
    distances.retain(|&distance| distance >= 0);
    let backward: Vec<isize> = distances.iter().map(|distance| -distance).collect();
    distances.extend(backward);
    distances.sort_unstable();
    distances.dedup();
    distances
}

fn sizes(effort: Effort) -> Vec<usize> {
    match effort {
        Effort::Full => {
            let above = [1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193];
            let groups = [16383, 16384, 16385, 20000, 32768, 65536 + 65];
            (0..=700).chain((732..GRID_SIZE_MAX).step_by(61)).chain(above).chain(groups).collect()
        }
        Effort::Thin => {
            let above = [511, 512, 513, 2047, 2048, 2049, 4096, 16385];
            (0..=300)
                .step_by(3)
                .chain([63, 64, 65, 127, 128, 129, 255, 256, 257])
                .chain(above)
                .collect()
        }
        Effort::Tiny => vec![3, 16, 33, 65, 129, 257, 600],
    }
}

#[test]
fn overlapping_moves_are_right_at_every_distance() {
    let effort = Effort::here();
    let sizes = sizes(effort);
    let size_max = sizes.iter().copied().max().unwrap_or(0);
    let mut tasks = Vec::new();
    for copier in copiers().into_iter().filter(|copier| copier.may_overlap) {
        tasks.extend(sizes.iter().map(|&length| (copier, length)));
    }
    let room_for_distances = if effort == Effort::Tiny { 1024 } else { 32 << 10 };
    let work = |room: &mut Room, (copier, length): &(Copier, usize)| {
        // An alias is tested at fewer distances.
        let effort = if copier.is_alias { effort.min(Effort::Thin) } else { effort };
        for (turn, distance) in distances(effort, *length).into_iter().enumerate() {
            // An odd multiplier covers all alignments as sizes and distances change.
            let low = (turn * 37 + length * 5) % 64;
            room.check(copier, *length, distance, low);
            // The higher of the two ranges ends at the guard page.
            let high = room.buffer.bytes() - length - distance.unsigned_abs();
            room.check(copier, *length, distance, high);
        }
        room.check_untouched(copier);
    };
    parallel::for_each(&tasks, || Room::new(2 * size_max + room_for_distances), work);
}

#[test]
fn overlapping_moves_are_right_at_every_alignment() {
    let effort = Effort::here();
    let (lengths, distances): (&[usize], &[isize]) = match effort {
        Effort::Tiny => (&[257], &[-1, 9]),
        _ => (
            &[40, 64, 65, 128, 200, 256, 257, 258, 300, 384, 385, 511, 640, 1000, 2048, 2111, 4500],
            &[
                -257, -256, -129, -64, -63, -33, -32, -31, -16, -8, -1, 1, 8, 16, 31, 32, 33, 63,
                64, 129, 256, 257,
            ],
        ),
    };
    let offsets = effort.offsets();
    let mut room = Room::new(if effort == Effort::Tiny { 2 << 10 } else { 16 << 10 });
    for copier in copiers().into_iter().filter(|copier| copier.may_overlap) {
        for &length in lengths {
            for &distance in distances {
                for &low in &offsets {
                    room.check(&copier, length, distance, low);
                }
            }
        }
        room.check_untouched(&copier);
    }
}
