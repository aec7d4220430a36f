//! Copies between separate buffers: sizes at every combination of alignments, next to guard
//! pages.

use crate::support::copying::{At, Room};
use crate::support::effort::Effort;
use crate::support::parallel;
use crate::support::subjects::{Copier, copiers, report_missing_kernels};

#[test]
fn copies_are_right_at_every_size_and_alignment() {
    report_missing_kernels();
    let effort = Effort::here();
    let sizes = effort.grid_sizes();
    let mut tasks = Vec::new();
    for copier in copiers() {
        let offsets = if copier.is_alias { effort.min(Effort::Thin) } else { effort }.offsets();
        for at in [At::Start, At::End] {
            for &from in &offsets {
                tasks.push((copier, at, from, offsets.clone()));
            }
        }
    }
    type Task = (Copier, fn(usize) -> At, usize, Vec<usize>);
    let work = |room: &mut Room, (copier, at, from, offsets): &Task| {
        for &to in offsets {
            room.check(copier, at(*from), at(to), &sizes);
        }
    };
    let size_max = sizes.last().copied().unwrap_or(0);
    parallel::for_each(&tasks, || Room::new(size_max), work);
}

/// The grid places source and target next to guard pages on the same side; this test also places
/// them on opposite sides.
#[test]
fn copies_are_right_between_opposite_guard_pages() {
    let effort = Effort::here();
    let mut sizes = effort.grid_sizes();
    if effort != Effort::Tiny {
        sizes.extend(effort.sizes_above_grid());
    }
    let size_max = sizes.iter().copied().max().unwrap_or(0);
    let mut tasks = Vec::new();
    for copier in copiers() {
        for ends in [
            (At::Start(0), At::Start(0)),
            (At::Start(0), At::End(0)),
            (At::End(0), At::Start(0)),
            (At::End(0), At::End(0)),
        ] {
            tasks.push((copier, ends));
        }
    }
    let work = |room: &mut Room, (copier, (from, to)): &(Copier, (At, At))| {
        room.check(copier, *from, *to, &sizes);
    };
    parallel::for_each(&tasks, || Room::new(size_max), work);
}

#[test]
fn large_copies_are_right_beside_guard_pages() {
    let effort = Effort::here();
    let sizes = effort.sizes_above_grid();
    let size_max = sizes.iter().copied().max().unwrap_or(0);
    let offsets = match effort {
        Effort::Full => vec![0, 1, 16, 31, 32, 63],
        Effort::Thin => vec![0, 37],
        Effort::Tiny => vec![37],
    };
    let mut tasks = Vec::new();
    for copier in copiers() {
        for &from in &offsets {
            tasks.extend(offsets.iter().map(|&to| (copier, from, to)));
        }
    }
    let work = |room: &mut Room, &(copier, from, to): &(Copier, usize, usize)| {
        room.check(&copier, At::Start(from), At::Start(to), &sizes);
        room.check(&copier, At::End(from), At::End(to), &sizes);
    };
    parallel::for_each(&tasks, || Room::new(size_max), work);
}
