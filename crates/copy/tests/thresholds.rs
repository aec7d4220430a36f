//! No threshold makes a copy wrong. This test is a separate process, because thresholds hold for
//! the whole process.
#![allow(
    clippy::cast_sign_loss,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a test's buffers are sized right above the calls that use them"
)]

mod support;

use std::sync::Mutex;

use haul_copy::Thresholds;
use haul_copy::{LOOKUP_MIN, NEVER};
use proptest::prelude::*;

use support::guarded::Guarded;
use support::oracle;
use support::subjects::{Copier, dispatching_copiers, dispatching_fillers};

/// The tests of this process share its thresholds, so they run one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The largest copy, in bytes. A copy of this size consists of several groups of streamed pages.
const SIZE_MAX: usize = match (cfg!(miri), cfg!(debug_assertions)) {
    (true, _) => 6000,
    (_, true) => 1 << 16,
    _ => 1 << 20,
};

/// Bytes around source and target, for alignments and to detect stray writes.
const MARGIN: usize = 256;

fn hostile_or_near(size_max: usize) -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(LOOKUP_MIN - 1),
        Just(LOOKUP_MIN),
        Just(1 << 63),
        Just(NEVER),
        LOOKUP_MIN..=size_max,
    ]
}

fn thresholds() -> impl Strategy<Value = Thresholds> {
    proptest::collection::vec(hostile_or_near(SIZE_MAX), Thresholds::NAMES.len()).prop_map(
        |values| {
            let mut thresholds = Thresholds::REGISTERS_ONLY;
            for (name, value) in Thresholds::NAMES.iter().zip(values) {
                assert!(thresholds.set(name, value));
            }
            thresholds
        },
    )
}

/// Lengths in bytes, small ones as often as large ones.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0..=300_usize, 0..=5000_usize, 0..=SIZE_MAX]
}

fn cases() -> ProptestConfig {
    let cases = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => 3,
        (_, true) => 150,
        _ => 1500,
    };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Moves bytes with the copier inside a guarded buffer and with the oracle inside a vector, and
/// compares both.
fn check_move(copier: &Copier, source: usize, target: usize, length: usize) {
    let bytes = source.max(target) + length + MARGIN;
    let mut room = Guarded::new(bytes);
    let room_bytes = room.bytes();
    oracle::paint(&mut room.as_mut_slice()[..bytes], length as u64);
    let mut expected = room.as_slice().to_vec();
    oracle::memmove(&mut expected, target, source, length);
    let start = room.start();
    // SAFETY: both ranges lie inside the buffer of `bytes`.
    unsafe { (copier.call)(start.add(target), start.add(source), length) };
    let wrong = oracle::first_difference(room.as_slice(), &expected);
    assert_eq!(
        wrong, None,
        "{} of {length} bytes from {source} to {target} of {room_bytes}",
        copier.name
    );
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn copies_are_right_under_any_thresholds(
        thresholds in thresholds(),
        length in length(),
        offsets in (0..MARGIN, 0..MARGIN),
        which in 0..dispatching_copiers().len(),
        up: bool,
    ) {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        thresholds.install();
        let far = MARGIN + length + offsets.1;
        let (source, target) = if up { (offsets.0, far) } else { (far, offsets.0) };
        check_move(&dispatching_copiers()[which], source, target, length);
    }

    #[test]
    fn overlapping_moves_are_right_under_any_thresholds(
        thresholds in thresholds(),
        length in length(),
        low in 0..MARGIN,
        share in 0.0..=1.2_f64,
        near in 0..300_usize,
        is_near: bool,
        which in 0..dispatching_copiers().len() - 1,
        up: bool,
    ) {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        thresholds.install();
        #[expect(clippy::cast_possible_truncation, reason = "a fraction of a length")]
        let distance = if is_near { near } else { (length as f64 * share) as usize };
        let (source, target) = if up { (low, low + distance) } else { (low + distance, low) };
        let copier = dispatching_copiers()[which];
        prop_assert!(copier.may_overlap);
        check_move(&copier, source, target, length);
    }

    #[test]
    fn fills_are_right_under_any_thresholds(
        thresholds in thresholds(),
        length in length(),
        target in 0..MARGIN,
        byte: i32,
        which in 0..dispatching_fillers().len(),
    ) {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        thresholds.install();
        let filler = dispatching_fillers()[which];
        let mut room = Guarded::new(target + length + MARGIN);
        oracle::paint(room.as_mut_slice(), 8);
        let mut expected = room.as_slice().to_vec();
        oracle::memset(&mut expected, target, byte.to_le_bytes()[0], length);
        // SAFETY: the range lies inside the buffer.
        unsafe { (filler.call)(room.start().add(target), byte, length) };
        let wrong = oracle::first_difference(room.as_slice(), &expected);
        prop_assert_eq!(wrong, None, "{} of {} bytes at {}", filler.name, length, target);
    }

    #[test]
    fn install_puts_clamped_thresholds_in_force(thresholds in thresholds()) {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        thresholds.install();
        prop_assert_eq!(Thresholds::current(), thresholds.clamped());
        for name in Thresholds::NAMES {
            prop_assert!(Thresholds::current().get(name) >= Some(LOOKUP_MIN));
        }
    }
}

/// Every method of the dispatch at every size around the smallest size of the method.
#[test]
fn every_method_is_right_around_its_smallest_size() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let registers = Thresholds::REGISTERS_ONLY;
    let mut string = registers;
    assert!(string.set("rep_movsb_min", LOOKUP_MIN) && string.set("rep_stosb_min", LOOKUP_MIN));
    let mut stream = registers;
    assert!(stream.set("stream_copy_min", LOOKUP_MIN) && stream.set("stream_fill_min", LOOKUP_MIN));
    let mut islands = stream;
    assert!(islands.set("rep_movsb_min", 2100) && islands.set("rep_movsb_max", 2200));
    let lengths = if cfg!(miri) { LOOKUP_MIN..=LOOKUP_MIN + 1 } else { LOOKUP_MIN - 2..=2300 };
    for thresholds in [registers, string, stream, islands] {
        thresholds.install();
        for length in lengths.clone() {
            for copier in dispatching_copiers().iter().filter(|one| !(cfg!(miri) && one.is_alias)) {
                check_move(copier, 13, 13 + length + 50, length);
                if copier.may_overlap {
                    check_move(copier, 13, 14, length);
                    check_move(copier, 100, 33, length);
                }
            }
        }
    }
}

/// Copies continue and stay right while another thread changes all thresholds.
#[test]
fn copies_stay_right_while_thresholds_change() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let rounds = if cfg!(miri) { 3 } else { 3000 };
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 1_usize;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let mut changing = Thresholds::REGISTERS_ONLY;
                for name in Thresholds::NAMES {
                    value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    assert!(changing.set(name, value >> 50));
                }
                changing.install();
                std::thread::yield_now();
            }
        });
        for round in 0..rounds {
            check_move(&dispatching_copiers()[round % 4], 9, 9 + (round % 70) * 100, 2048 + round);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
