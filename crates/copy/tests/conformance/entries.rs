//! The promises of the public functions in addition to the copied bytes: panics, a length of 0,
//! ranges.

use core::ptr;

use haul_copy::{Hint, copy, copy_within, fill};
use proptest::prelude::*;

use crate::support::oracle;
use crate::support::subjects::{copiers, fillers};

/// C programs pass null with a length of 0, and C2y allows it.
#[test]
fn length_of_zero_accesses_neither_pointer() {
    for copier in copiers().iter().filter(|copier| copier.may_overlap) {
        // SAFETY: no byte is accessed.
        let returned = unsafe { (copier.call)(ptr::null_mut(), ptr::null(), 0) };
        assert!(returned.is_null(), "{}", copier.name);
        let dangling = ptr::without_provenance_mut(usize::MAX);
        // SAFETY: no byte is accessed.
        let returned = unsafe { (copier.call)(dangling, ptr::without_provenance(1), 0) };
        assert_eq!(returned, dangling, "{}", copier.name);
    }
    for filler in fillers().iter().filter(|filler| filler.name != "fill") {
        // SAFETY: no byte is accessed.
        let returned = unsafe { (filler.call)(ptr::null_mut(), 7, 0) };
        assert!(returned.is_null(), "{}", filler.name);
    }
    copy(&mut [], &[]);
    fill(&mut [], 7);
    copy_within(&mut [], 0..0, 0);
}

#[test]
#[should_panic(expected = "cannot copy 3 bytes into a target of 4 bytes")]
fn copy_rejects_unequal_lengths() {
    copy(&mut [0; 4], &[1; 3]);
}

#[test]
#[should_panic(expected = "cannot copy 5 bytes into a target of 4 bytes")]
fn copy_with_hint_rejects_unequal_lengths() {
    Hint::Streamed.copy(&mut [0; 4], &[1; 5]);
}

#[test]
fn copy_within_rejects_ranges_outside_buffer() {
    #[expect(clippy::reversed_empty_ranges, reason = "one of the mistakes to be caught")]
    let mistakes = [(0..5, 0), (4..5, 0), (0..3, 2), (0..0, 5), (3..1, 0), (0..1, usize::MAX)];
    for (source, target) in mistakes {
        let mut buffer = [1, 2, 3, 4];
        let moved = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            copy_within(&mut buffer, source.clone(), target);
        }));
        assert!(moved.is_err(), "{source:?} to {target}");
        assert_eq!(buffer, [1, 2, 3, 4]);
    }
}

#[test]
fn hints_do_not_change_copied_bytes() {
    let lengths: &[usize] = match cfg!(miri) {
        true => &[0, 1, 65, 300, 4096],
        false => &[0, 1, 64, 65, 300, 4095, 4096, 4097, 20_000],
    };
    for &length in lengths {
        for hint in [Hint::Unknown, Hint::ReadSoon, Hint::Streamed, Hint::Handover] {
            let mut source = vec![0; length];
            oracle::paint(&mut source, 3);
            let mut target = vec![0; length];
            hint.copy(&mut target, &source);
            assert!(target == source, "{length} bytes, {hint:?}");
            hint.fill(&mut target, 9);
            assert!(target.iter().all(|&byte| byte == 9), "{length} bytes, {hint:?}");
        }
    }
}

/// The number of cases per property. Miri needs a second for a few cases.
fn cases() -> ProptestConfig {
    let cases = if cfg!(miri) { 5 } else { 2000 };
    // Failures are not saved to a file: a failing case becomes a separate test.
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn copy_within_matches_oracle(
        (size, source, target, length) in (1_usize..3000)
            .prop_flat_map(|size| (Just(size), 0..size, 0..size))
            .prop_flat_map(|(size, source, target)| {
                (Just(size), Just(source), Just(target), 0..=size - source.max(target))
            }),
    ) {
        let mut expected = vec![0; size];
        oracle::paint(&mut expected, 4);
        let mut found = expected.clone();
        oracle::memmove(&mut expected, target, source, length);
        copy_within(&mut found, source..source + length, target);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn fill_matches_oracle(
        (size, target, length) in (1_usize..3000)
            .prop_flat_map(|size| (Just(size), 0..size))
            .prop_flat_map(|(size, target)| (Just(size), Just(target), 0..=size - target)),
        byte: u8,
    ) {
        let mut expected = vec![0; size];
        oracle::paint(&mut expected, 5);
        let mut found = expected.clone();
        oracle::memset(&mut expected, target, byte, length);
        fill(&mut found[target..target + length], byte);
        prop_assert_eq!(found, expected);
    }
}
