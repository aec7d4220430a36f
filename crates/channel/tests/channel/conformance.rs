//! Properties that hold for every mechanism.

use std::io::IoSlice;
use std::thread;

use haul_channel::{Buffer, Building, Channel, Error, Mechanism, Settings};
use haul_model::Bytes;

use crate::support::{BY_COPY, by, ends, pattern};

/// Sizes around every boundary: the inline slot, a page, the smallest and the largest chunk, the
/// ring, and the size from which on a message uses all of the ring.
const SIZES: [usize; 24] = [
    1, 63, 64, 4032, 4096, 8191, 8192, 8193, 16383, 16384, 16385, 65535, 65537, 262_143, 262_144,
    262_145, 1_048_575, 1_048_576, 1_048_577, 3_000_001, 4_194_303, 4_194_304, 8_388_608,
    8_388_609,
];

fn round_trip(sender: &mut Channel, receiver: &mut Channel, bytes: &[u8], mechanism: Mechanism) {
    thread::scope(|scope| {
        let sending = scope.spawn(|| sender.send(bytes).unwrap());
        let got = receiver.recv().unwrap();
        assert!(got[..] == *bytes, "{mechanism}: {} B changed on the way", bytes.len());
        let sent = sending.join().unwrap();
        assert_eq!((sent.mechanism, got.account().mechanism), (mechanism, mechanism));
        assert_eq!(sent.fell_back_from, None);
        assert_eq!(sent.size_bytes, bytes.len() as u64);
        let copies = sent.copied_bytes + got.account().copied_bytes;
        assert_eq!(copies, u64::from(mechanism.copies()) * bytes.len() as u64);
    });
}

#[test]
fn message_of_every_size_arrives() {
    for mechanism in BY_COPY {
        let (mut one, mut other) = ends(&by(mechanism));
        for (seed, size) in SIZES.into_iter().enumerate() {
            round_trip(&mut one, &mut other, &pattern(size, seed as u64), mechanism);
            // A message in the other direction.
            round_trip(&mut other, &mut one, &pattern(size, !(seed as u64)), mechanism);
        }
    }
}

/// Messages go by every mechanism, in one slice and in several, and with a fallback to the ring.
#[test]
fn receiver_compares_checksum_of_kept_bytes() {
    for mechanism in BY_COPY {
        let (mut one, mut other) = ends(&Settings { integrity: true, ..by(mechanism) });
        for (seed, size) in [1, 100, 8193, 70_001, 1_048_577, 9_000_001].into_iter().enumerate() {
            let bytes = pattern(size, seed as u64);
            let parts = [&bytes[..size / 3], &bytes[size / 3..size / 2], &bytes[size / 2..]];
            thread::scope(|scope| {
                let parts = parts.map(IoSlice::new);
                let one = &mut one;
                let source = &bytes;
                scope.spawn(move || {
                    one.send(source).unwrap();
                    one.send_vectored(&parts).unwrap();
                });
                let got = other.recv().unwrap();
                assert!(got[..] == bytes && got.account().is_checked, "{mechanism}, {size}");
                // Here a lease falls back to the ring.
                let mut target = vec![0; size];
                let account = other.recv_into(&mut target).unwrap();
                assert!(target == bytes && account.is_checked, "{mechanism}, {size}");
            });
        }
    }
    let (mut one, mut other) = ends(&Settings { integrity: true, ..by(Mechanism::Inline) });
    for is_viewed in [true, false] {
        let mut building = Building::new(2_000_001).unwrap();
        building.fill(7);
        one.send_built(building).unwrap();
        let mut target = vec![0; 2_000_001];
        let account = match is_viewed {
            true => other.recv().unwrap().account().clone(),
            false => other.recv_into(&mut target).unwrap(),
        };
        assert!(account.is_checked);
    }
    one.send(&[]).unwrap();
    assert!(other.recv().unwrap().account().is_checked);
}

/// A lease gets only pages that the target does not share: a concurrent write to a shared page
/// could be lost.
#[test]
fn lease_does_not_offer_part_of_page() {
    let (mut one, mut other) = ends(&by(Mechanism::Lease));
    let mut round = |target: Option<(&mut Buffer, usize)>, size: usize| {
        let bytes = pattern(size, size as u64);
        thread::scope(|scope| {
            let (source, one) = (&bytes, &mut one);
            scope.spawn(move || one.send(source).unwrap());
            let Some((buffer, start)) = target else { return Ok(other.recv().unwrap()) };
            let account = other.recv_into(&mut buffer[start..]).unwrap();
            assert!(buffer[start..start + size] == bytes);
            Err(account)
        })
    };
    let size = 3 * 4096 + 100;
    let mut buffer = round(None, size).unwrap();
    for (start, length) in [(0, 4096), (0, size), (4096, size - 4096), (4096, 8192)] {
        let account = round(Some((&mut buffer, start)), length).unwrap_err();
        assert_eq!(account.mechanism, Mechanism::Lease, "{start} {length}");
    }
    for (start, length) in [(0, 100), (1, 4096), (0, size - 1), (8192, 4097)] {
        let account = round(Some((&mut buffer, start)), length).unwrap_err();
        assert_eq!(account.fell_back_from, Some(Mechanism::Lease), "{start} {length}");
    }
}

#[test]
fn small_messages_are_inline() {
    let (mut one, mut other) = ends(&Settings::default());
    for size in (0..200).chain([4095, 4096]) {
        round_trip(&mut one, &mut other, &pattern(size, size as u64), Mechanism::Inline);
    }
    // The mechanism for this size depends on the processor's vendor.
    let mechanism = one.send(&[1; 8192]).unwrap().mechanism;
    assert!([Mechanism::Inline, Mechanism::Ring].contains(&mechanism), "{mechanism}");
    assert_eq!(&other.recv().unwrap()[..], [1; 8192]);
    for size in [4097, 8191, 8192] {
        round_trip(&mut one, &mut other, &pattern(size, size as u64), mechanism);
    }
    let account = one.send(&[1; 8193]).unwrap();
    assert_eq!(account.mechanism, Mechanism::Ring);
}

#[test]
fn large_message_arrives() {
    let bytes = pattern(64 << 20, 7);
    for mechanism in BY_COPY {
        let (mut one, mut other) = ends(&by(mechanism));
        round_trip(&mut one, &mut other, &bytes, mechanism);
    }
}

#[test]
fn source_and_target_may_have_any_alignment() {
    let bytes = pattern(700_000, 3);
    for mechanism in BY_COPY {
        let (mut one, mut other) = ends(&by(mechanism));
        for (from, to) in [(0, 1), (1, 0), (7, 64), (63, 4095), (4095, 3)] {
            let source = &bytes[from..from + 600_001];
            thread::scope(|scope| {
                let sending = scope.spawn(|| one.send(source).unwrap());
                let mut target = vec![0xee; 700_000];
                let account = other.recv_into(&mut target[to..]).unwrap();
                assert_eq!(account.size_bytes, 600_001);
                assert!(target[to..to + 600_001] == *source, "{mechanism} {from} {to}");
                let outside = target[..to].iter().chain(&target[to + 600_001..]);
                assert!(outside.into_iter().all(|byte| *byte == 0xee), "{mechanism} {from} {to}");
                sending.join().unwrap();
            });
        }
    }
}

#[test]
fn several_slices_are_one_message() {
    let bytes = pattern(1_500_000, 5);
    let cuts = [0, 0, 1, 17, 4096, 4096, 70_000, 300_001, 1_499_999, 1_500_000];
    let parts: Vec<IoSlice<'_>> =
        cuts.windows(2).map(|cut| IoSlice::new(&bytes[cut[0]..cut[1]])).collect();
    for mechanism in BY_COPY {
        let (mut one, mut other) = ends(&by(mechanism));
        thread::scope(|scope| {
            let sending = scope.spawn(|| one.send_vectored(&parts).unwrap());
            assert!(other.recv().unwrap()[..] == bytes, "{mechanism}");
            sending.join().unwrap();
        });
    }
    let (mut one, mut other) = ends(&Settings::default());
    one.send_vectored(&parts[..4]).unwrap();
    assert_eq!(other.recv().unwrap()[..], bytes[..4096]);
    one.send_vectored(&[]).unwrap();
    assert!(other.recv().unwrap().is_empty());
}

#[test]
fn pull_by_name_refuses_more_slices_than_its_table_holds_and_choice_avoids_it() {
    let bytes = pattern(100_000, 9);
    let parts: Vec<IoSlice<'_>> = bytes.chunks(100).map(IoSlice::new).collect();
    let (mut one, mut other) = ends(&by(Mechanism::Pull));
    assert!(matches!(one.send_vectored(&parts), Err(Error::Unavailable { .. })));
    let (mut free, mut target) = ends(&Settings { mechanism: None, ..by(Mechanism::Ring) });
    thread::scope(|scope| {
        scope.spawn(|| free.send_vectored(&parts).unwrap());
        assert!(target.recv().unwrap()[..] == bytes);
    });
    // A refusal before the message begins does not end the channel.
    round_trip(&mut one, &mut other, &bytes, Mechanism::Pull);
}

#[test]
fn receiver_never_sees_overwrite_after_completion() {
    for mechanism in BY_COPY {
        let (mut one, mut other) = ends(&by(mechanism));
        let size = 900_000;
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut bytes = vec![0; size];
                for round in 0..60_u8 {
                    bytes.fill(round);
                    one.send(&bytes).unwrap();
                    // The bytes are changed at once, so that a late read of them would show.
                    bytes.fill(0xff);
                }
            });
            for round in 0..60_u8 {
                let got = other.recv().unwrap();
                assert!(got.iter().all(|byte| *byte == round), "{mechanism}, round {round}");
            }
        });
    }
}

#[test]
fn received_message_is_private() {
    for mechanism in BY_COPY.into_iter().chain([Mechanism::Sealed]) {
        let (mut one, mut other) = ends(&by(mechanism));
        let bytes = pattern(50_000, 11);
        thread::scope(|scope| {
            let source = &bytes;
            let sending = scope.spawn(move || match mechanism {
                Mechanism::Sealed => {
                    let mut building = Building::new(source.len()).unwrap();
                    building.copy_from_slice(source);
                    one.send_built(building).unwrap()
                }
                _ => one.send(source).unwrap(),
            });
            let mut got = other.recv().unwrap();
            assert!(got[..] == bytes[..]);
            got.fill(1);
            sending.join().unwrap();
            assert!(got.iter().all(|byte| *byte == 1));
            assert!(bytes == pattern(50_000, 11), "{mechanism}: the sender's bytes changed");
        });
    }
}

#[test]
fn sealed_memory_arrives_without_a_copy() {
    let (mut one, mut other) = ends(&Settings::default());
    for size in [1, 4096, 5000, 3 << 20] {
        let bytes = pattern(size, 13);
        let mut building = Building::new(size).unwrap();
        building.copy_from_slice(&bytes);
        let sent = one.send_built(building).unwrap();
        let got = other.recv().unwrap();
        assert!(got[..] == bytes);
        assert_eq!((sent.mechanism, sent.copied_bytes), (Mechanism::Sealed, 0));
        assert_eq!(got.account().copied_bytes, 0);
        let mut building = Building::new(size).unwrap();
        building.copy_from_slice(&bytes);
        one.send_built(building).unwrap();
        let mut target = vec![0; size + 1];
        assert_eq!(other.recv_into(&mut target).unwrap().size_bytes, size as u64);
        assert!(target[..size] == bytes);
    }
}

/// With any announced range, every byte is either the sent byte or the written byte, and belongs
/// to the receiver alone.
#[test]
fn announced_range_is_copied_once_without_change() {
    const HUGE: usize = 2 << 20;
    let (mut one, mut other) = ends(&Settings::default());
    for size in [1, 5000, 100_000, 3 * HUGE + 5000] {
        let bytes = pattern(size, 17);
        let ranges = [0..size, 0..0, size / 3..size / 2, size..size, 1..size, 0..size.min(HUGE)];
        for announced in ranges {
            // The range is in the received buffer, or in pages of the caller's own buffer.
            for is_placed in [false, true] {
                let mut building = Building::new(size).unwrap();
                building.copy_from_slice(&bytes);
                one.send_built(building).unwrap();
                let mut got = match is_placed {
                    false => other.recv().unwrap(),
                    true => {
                        let mut target = Buffer::new(size).unwrap();
                        other.recv_into(&mut target).unwrap();
                        target
                    }
                };
                let before = got.account().copied_bytes;
                got[announced.start.min(size - 1)] ^= 1;
                got.will_write(announced.clone());
                let copied = got.account().copied_bytes - before;
                got[announced.start.min(size - 1)] ^= 1;
                assert!(got[..] == bytes, "{announced:?} of {size}");
                let room = announced.len() as u64 + 2 * 4096 + HUGE as u64;
                assert!(copied <= room, "{copied} B for {announced:?} of {size}");
                got.will_write(announced.clone());
                let again = got.account().copied_bytes - before - copied;
                assert!(again < 64 << 10, "{again} B once more for {announced:?} of {size}");
                got[announced.clone()].fill(1);
                assert!(got[announced.clone()].iter().all(|byte| *byte == 1));
                assert!(got[..announced.start] == bytes[..announced.start]);
                assert!(got[announced.end..] == bytes[announced.end..]);
            }
        }
    }
}

#[test]
fn writes_to_announced_range_fault_at_most_once_per_huge_page() {
    let size = 16 << 20;
    let (mut one, mut other) = ends(&Settings::default());
    let mut building = Building::new(size).unwrap();
    building.fill(3);
    one.send_built(building).unwrap();
    let mut got = other.recv().unwrap();
    got.will_write(0..size / 2);
    assert_eq!(got.account().copied_bytes, size as u64 / 2);
    let before = page_faults();
    for byte in got[..size / 2].iter_mut().step_by(4096) {
        *byte += 1;
    }
    let faults = page_faults() - before;
    assert!(faults < 64, "{faults} faults for 2048 pages");
    assert!(got[..size / 2].iter().step_by(4096).all(|byte| *byte == 4));
    assert!(got[size / 2..].iter().all(|byte| *byte == 3));
}

/// If other pages replace a part of a huge page, the remainder is not a huge page and is not reused
/// as one.
#[test]
fn received_into_announced_buffer_leaves_only_whole_huge_pages() {
    let size = 8 << 20;
    let (mut one, mut other) = ends(&Settings::default());
    let built = |length: usize, byte: u8| {
        let mut building = Building::new(length).unwrap();
        building.fill(byte);
        building
    };
    for cut in [(3 << 20) + 5000, 1 << 20, 4096 * 700] {
        one.send_built(built(size, 1)).unwrap();
        let mut first = other.recv().unwrap();
        first.will_write(0..size);
        one.send_built(built(cut, 2)).unwrap();
        other.recv_into(&mut first[..cut]).unwrap();
        assert!(first[..cut].iter().all(|byte| *byte == 2));
        assert!(first[cut..].iter().all(|byte| *byte == 1));
        drop(first);
        for byte in 3..6 {
            one.send_built(built(size, byte)).unwrap();
            let mut next = other.recv().unwrap();
            next.will_write(0..size);
            assert!(next.iter().all(|found| *found == byte));
            next.fill(0);
        }
    }
}

/// Page faults of this thread.
fn page_faults() -> i64 {
    // SAFETY: a plain structure of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is writable and of this type.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(result, 0);
    usage.ru_minflt
}

#[test]
#[should_panic(expected = "not inside a buffer")]
fn will_write_panics_beyond_end_of_buffer() {
    Buffer::new(100).unwrap().will_write(50..101);
}

#[test]
fn target_in_pool_is_filled_in_place() {
    let (mut one, mut other) = ends(&by(Mechanism::Lease));
    let bytes = pattern(700 * 4096, 37);
    thread::scope(|scope| {
        let source = &bytes;
        scope.spawn(move || {
            one.send(&pattern(5_000_000, 1)).unwrap();
            for _ in 0..3 {
                one.send(source).unwrap();
            }
        });
        let mut pooled = other.recv().unwrap();
        let length = bytes.len();
        for start in [0, 4096] {
            pooled.fill(0xee);
            let account = other.recv_into(&mut pooled[start..]).unwrap();
            assert_eq!((account.mechanism, account.fell_back_from), (Mechanism::Lease, None));
            assert!(pooled[start..start + length] == bytes);
            let outside = pooled[..start].iter().chain(&pooled[start + length..]);
            assert!(outside.into_iter().all(|byte| *byte == 0xee), "{start}");
        }
        // The sender cannot write to another target.
        let mut target = vec![0; length];
        let account = other.recv_into(&mut target).unwrap();
        assert_eq!(account.fell_back_from, Some(Mechanism::Lease));
        assert!(target == bytes);
    });
}

/// A message that is already in separate pages replaces the target's pages.
#[test]
fn recv_into_replaces_pages_of_buffer() {
    let (mut one, mut other) = ends(&Settings { mechanism: None, ..by(Mechanism::Ring) });
    let bytes = pattern(3_000_000, 39);
    let mut target = Buffer::new(4_000_000).unwrap();
    for start in [0, 8192, 100] {
        let mut building = Building::new(bytes.len()).unwrap();
        building.copy_from_slice(&bytes);
        one.send_built(building).unwrap();
        target.fill(0xee);
        let account = other.recv_into(&mut target[start..]).unwrap();
        let copied = if start == 100 { bytes.len() as u64 } else { bytes.len() as u64 % 4096 };
        assert_eq!(account.copied_bytes, copied, "{start}");
        assert!(target[start..start + bytes.len()] == bytes);
        let outside = target[..start].iter().chain(&target[start + bytes.len()..]);
        assert!(outside.into_iter().all(|byte| *byte == 0xee), "{start}");
    }
}

/// A message that the receiver will mostly write to is cheaper to copy at once.
#[test]
fn message_with_large_dirty_fraction_is_copied() {
    for (dirty_fraction, mechanism) in [(0.1, Mechanism::Sealed), (0.5, Mechanism::Staged)] {
        let settings = Settings { dirty_fraction, ..Settings::default() };
        let (mut one, mut other) = ends(&settings);
        let mut building = Building::new(100_000).unwrap();
        building.copy_from_slice(&pattern(100_000, 3));
        let sent = one.send_built(building).unwrap();
        let got = other.recv().unwrap();
        assert!(got[..] == pattern(100_000, 3));
        assert_eq!((sent.mechanism, got.account().mechanism), (mechanism, mechanism));
    }
}

#[test]
fn messages_of_all_sizes_keep_their_order() {
    let settings = Settings { mechanism: None, ..by(Mechanism::Ring) };
    let (mut one, mut other) = ends(&settings);
    let sizes: Vec<usize> = (0..400).map(|n: usize| (n * 7919) % 90_001).collect();
    thread::scope(|scope| {
        let sizes = &sizes;
        scope.spawn(move || {
            for (seed, size) in sizes.iter().enumerate() {
                one.send(&pattern(*size, seed as u64)).unwrap();
            }
        });
        for (seed, size) in sizes.iter().enumerate() {
            assert!(other.recv().unwrap()[..] == pattern(*size, seed as u64), "message {seed}");
        }
        assert!(
            matches!(other.recv(), Err(Error::Closed)),
            "the sender closed after a whole message"
        );
    });
}

#[test]
fn four_threads_use_both_directions_at_once() {
    let (one, other) = ends(&by(Mechanism::Ring));
    let bytes = pattern(5_000_000, 17);
    thread::scope(|scope| {
        for channel in [one, other] {
            let (mut sender, mut receiver) = channel.split();
            let bytes = &bytes;
            scope.spawn(move || {
                for _ in 0..4 {
                    sender.send(bytes).unwrap();
                }
            });
            scope.spawn(move || {
                (0..4).for_each(|_| assert!(receiver.recv().unwrap()[..] == *bytes))
            });
        }
    });
}

#[test]
fn too_small_target_leaves_message_in_channel() {
    for size in [10, 100_000] {
        let (mut one, mut other) = ends(&by(Mechanism::Ring));
        let bytes = pattern(size, 19);
        thread::scope(|scope| {
            let source = &bytes;
            scope.spawn(move || one.send(source).unwrap());
            let mut small = vec![0; size - 1];
            let error = other.recv_into(&mut small).unwrap_err();
            let needed = Bytes(size as u64);
            assert!(matches!(error, Error::TooSmall { needed: n, .. } if n == needed), "{error}");
            assert!(small.iter().all(|byte| *byte == 0), "nothing was written");
            assert!(other.recv().unwrap()[..] == bytes);
        });
    }
}
