//! A peer that lies. Each lie ends in a named error, in time, and no false value is accepted.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use haul_channel::{Error, Mechanism, Settings, pair};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::raw::{CONSUMED, DRAINED, FILLED, LANE_BYTES, Liar, PUBLISHED, greeting, offered, send};
use crate::support::{SHORT, impatient, patient, pattern};

const CHUNK_BYTES: u64 = 256 << 10;
/// Number of the ring's pages per direction.
const RING_PAGES: u64 = 7 * CHUNK_BYTES / 4096;
/// The region's size: 2 pages of words, 2 x 16 slots, 2 x 7 chunks.
const REGION_BYTES: u64 = 8192 + 32 * 8320 + 14 * CHUNK_BYTES;

fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(c"liar", flags).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

#[track_caller]
fn refused(file: impl Into<OwnedFd>) {
    let file = file.into();
    let result = offered(&patient(), move |socket, nonce| {
        send(socket, &greeting(2, CHUNK_BYTES, 1, nonce), &[file.as_fd()]);
    });
    let error = result.map(drop).unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error}");
}

#[test]
fn memory_that_could_kill_receiver_is_refused() {
    let size = SealFlags::SHRINK | SealFlags::GROW;
    refused(memory(REGION_BYTES, SealFlags::empty()));
    refused(memory(REGION_BYTES, size));
    refused(memory(REGION_BYTES, SealFlags::SEAL | SealFlags::GROW));
    refused(memory(REGION_BYTES, SealFlags::SEAL | SealFlags::SHRINK));
    for bytes in [0, 4096, REGION_BYTES - 1, REGION_BYTES + 1, REGION_BYTES + 4096] {
        refused(memory(bytes, size | SealFlags::SEAL));
    }
}

#[test]
fn descriptors_of_other_kinds_are_refused() {
    refused(File::open("/dev/zero").unwrap());
    refused(File::open("/").unwrap());
    refused(pair().unwrap().0);
    let file = tempfile::tempfile().unwrap();
    file.set_len(REGION_BYTES).unwrap();
    refused(file);
    refused(rustix::pipe::pipe().unwrap().0);
}

#[test]
fn greeting_without_descriptor_or_with_several_is_refused() {
    for count in [0, 2, 4] {
        let result = offered(&patient(), move |socket, nonce| {
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            let files: Vec<_> = (0..count).map(|_| memory(REGION_BYTES, seals)).collect();
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            send(socket, &greeting(2, CHUNK_BYTES, 1, nonce), &files);
        });
        let error = result.map(drop).unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{count}: {error}");
    }
}

#[test]
fn malformed_greetings_are_refused() {
    let good = |nonce| greeting(2, CHUNK_BYTES, 1, nonce);
    let cases: [fn(&mut Vec<u8>); 8] = [
        |bytes| bytes.truncate(63),
        |bytes| bytes.push(0),
        Vec::clear,
        |bytes| bytes[0] ^= 1,
        |bytes| bytes[8] = 1,
        |bytes| bytes[12] = 3,
        |bytes| bytes[16] = 1,
        |bytes| bytes[40] ^= 1,
    ];
    for (index, spoil) in cases.into_iter().enumerate() {
        let result = offered(&patient(), move |socket, nonce| {
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            let file = memory(REGION_BYTES, seals);
            let mut bytes = good(nonce);
            spoil(&mut bytes);
            send(socket, &bytes, &[file.as_fd()]);
        });
        let error = result.map(drop).unwrap_err();
        let is_named = matches!(error, Error::Handshake { .. } | Error::PeerGone { .. });
        assert!(is_named, "case {index}: {error}");
    }
}

#[test]
fn peer_that_never_answers_costs_deadline() {
    let start = Instant::now();
    let (own, other) = pair().unwrap();
    let error = haul_channel::Channel::connect_over(other, &impatient()).map(drop).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(start.elapsed() >= SHORT && start.elapsed() < 40 * SHORT);
    drop(own);
}

#[test]
fn sockets_of_other_kinds_are_refused() {
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    for socket in [OwnedFd::from(stream), File::open("/dev/null").unwrap().into()] {
        let error = haul_channel::Channel::connect_over(socket, &patient()).map(drop).unwrap_err();
        assert!(matches!(error, Error::Handshake { .. }), "{error}");
    }
}

#[track_caller]
fn receiving_fails(lie: impl FnOnce(&Liar)) -> Error {
    let (liar, mut victim) = Liar::meet(&impatient());
    lie(&liar);
    let error = victim.recv().map(|got| got.len()).unwrap_err();
    let again = victim.recv().map(|got| got.len());
    assert!(again.is_err(), "after {error}: {again:?}");
    error
}

/// Like `receiving_fails`, but into the victim's own memory, for which an inline message uses the
/// fast path.
#[track_caller]
fn receiving_into_memory_fails(lie: impl FnOnce(&Liar)) -> Error {
    let (liar, mut victim) = Liar::meet(&impatient());
    let mut target = vec![0; 2 << 20];
    liar.publish(0, [0, 1, 5, 0]);
    assert_eq!(victim.recv_into(&mut target).unwrap().size_bytes, 5);
    let (liar, mut victim) = Liar::meet(&impatient());
    lie(&liar);
    let error = victim.recv_into(&mut target).unwrap_err();
    let again = victim.recv_into(&mut target);
    assert!(again.is_err(), "after {error}: {again:?}");
    error
}

#[test]
fn false_counts_lengths_and_kinds_are_named_errors() {
    let inline = Mechanism::Inline as u64 + 1;
    assert_eq!(inline, 1, "the numbers below are those of the protocol");
    type Lie = fn(&Liar);
    let lies: [(&str, Lie); 13] = [
        ("more messages than slots", |liar| liar.poke(PUBLISHED, 17)),
        ("messages taken back", |liar| liar.poke(PUBLISHED, u64::MAX)),
        ("a message skipped", |liar| liar.publish(0, [1, 1, 10, 0])),
        ("no such kind", |liar| liar.publish(0, [0, 99, 10, 0])),
        ("kind zero", |liar| liar.publish(0, [0, 0, 10, 0])),
        ("an inline message beyond its slot", |liar| liar.publish(0, [0, 1, 8193, 0])),
        ("a large message of nothing", |liar| liar.publish(0, [0, 2, 0, 0])),
        ("an invalid pace", |liar| liar.publish(0, [0, 2, 10, 4])),
        ("pulled without trust", |liar| liar.publish(0, [0, 4, 10, 1])),
        ("memory that never came", |liar| liar.publish(0, [0, 3, 10, 0])),
        ("sealed memory that never came", |liar| liar.publish(0, [0, 5, 10, 0])),
        ("more than the ring has", |liar| {
            liar.poke(FILLED, RING_PAGES + 1);
            liar.publish(0, [0, 2, 1 << 20, 0]);
        }),
        ("pages of the ring taken back", |liar| {
            liar.poke(FILLED, u64::MAX);
            liar.publish(0, [0, 2, 1 << 20, 0]);
        }),
    ];
    for (what, lie) in lies {
        for error in [receiving_fails(lie), receiving_into_memory_fails(lie)] {
            let is_named = matches!(error, Error::Protocol { .. } | Error::Memory { .. });
            assert!(is_named, "{what}: {error}");
        }
    }
}

#[test]
fn message_with_wrong_checksum_is_not_handed_out() {
    for (plain, weighted) in [(0, 0), (u64::MAX, 1), (1, 0)] {
        let lie = |liar: &Liar| {
            liar.sum(0, [2, plain, weighted]);
            liar.table(0, &[(0x1234, 0)]);
            liar.publish(0, [0, 1, 8, 0]);
        };
        for error in [receiving_fails(lie), receiving_into_memory_fails(lie)] {
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            assert!(error.to_string().contains("changed in transit"), "{error}");
        }
    }
    // The message arrives, but its checksum, which is due, is never published.
    let error = receiving_fails(|liar| {
        liar.sum(0, [1, 0, 0]);
        liar.publish(0, [0, 1, 8, 0]);
    });
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    let error = receiving_fails(|liar| {
        liar.sum(0, [2, 1, 2]);
        liar.poke(FILLED, 2);
        liar.publish(0, [0, 2, 5000, 0]);
    });
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn false_lengths_take_no_memory() {
    for length in [1 << 40, 1 << 63, u64::MAX] {
        let error = receiving_fails(|liar| liar.publish(0, [0, 2, length, 0]));
        assert!(matches!(error, Error::TooLong { .. }), "{length}: {error}");
    }
    // Within the limit a false length costs only addresses, and the call ends at the deadline.
    let error = receiving_fails(|liar| liar.publish(0, [0, 2, 60 << 30, 0]));
    assert!(matches!(error, Error::Deadline { .. } | Error::System { .. }), "{error}");
}

#[test]
fn incomplete_message_costs_deadline() {
    let start = Instant::now();
    let error = receiving_fails(|liar| {
        // Two pieces of 16 pages each, and a part of a third piece.
        liar.poke(FILLED, 33);
        liar.publish(0, [0, 2, 8 << 20, 0]);
    });
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(start.elapsed() < 40 * SHORT);
}

#[test]
fn memory_of_message_is_checked() {
    let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let good = size | SealFlags::WRITE;
    // The last case is right except that its pages are not allocated, so an access could fail.
    let cases = [(4096, size), (4095, good), (8192, good), (0, good), (4096, good)];
    for kind in [3, 5] {
        for (bytes, seals) in cases {
            let error = receiving_fails(|liar| {
                let mut packet = [1; 9];
                packet[1..].copy_from_slice(&0_u64.to_le_bytes());
                send(&liar.socket, &packet, &[memory(bytes, seals).as_fd()]);
                liar.publish(0, [0, kind, 4096, 0]);
            });
            assert!(matches!(error, Error::Memory { .. }), "{kind} {bytes} {seals:?}: {error}");
        }
    }
}

#[test]
fn flood_of_packets_holds_limited_descriptors() {
    let (liar, mut victim) = Liar::meet(&impatient());
    let file = memory(4096, SealFlags::empty());
    for number in 0..40_u64 {
        let mut packet = [1; 9];
        packet[1..].copy_from_slice(&number.to_le_bytes());
        send(&liar.socket, &packet, &[file.as_fd()]);
        send(&liar.socket, &[7; 128], &[]);
        send(&liar.socket, &[], &[]);
        assert!(victim.try_recv().unwrap_or(None).is_none());
    }
    let held = std::fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        let link = entry.as_ref().ok().and_then(|entry| std::fs::read_link(entry.path()).ok());
        link.is_some_and(|link| link.to_string_lossy().contains("memfd:liar"))
    });
    // This test holds one descriptor; other tests of this process hold a few.
    assert!(held.count() <= 40, "descriptors pile up");
}

#[test]
fn false_counts_of_receiver_are_named_errors() {
    let bytes = pattern(4 << 20, 1);
    for (word, value) in
        [(DRAINED, RING_PAGES + 1), (DRAINED, u64::MAX), (DRAINED, 5), (DRAINED, 0)]
    {
        let (liar, mut victim) = Liar::meet(&impatient());
        liar.poke(LANE_BYTES + word, value);
        let error = victim.send(&bytes).unwrap_err();
        let is_named = match value {
            // Less than a piece is not enough room.
            0 | 5 => matches!(error, Error::Deadline { .. }),
            _ => matches!(error, Error::Protocol { .. }),
        };
        assert!(is_named, "{word} {value}: {error}");
        assert!(matches!(victim.send(b"x"), Err(Error::Broken)));
    }
    for value in [17, u64::MAX] {
        let (liar, mut victim) = Liar::meet(&impatient());
        liar.poke(LANE_BYTES + CONSUMED, value);
        let mut sent = 0;
        let error = loop {
            match victim.send(b"x") {
                Ok(_) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(sent, 16);
        assert!(matches!(error, Error::Protocol { .. }), "{value}: {error}");
    }
}

/// An emptied chunk of the previous message does not count as a beginning of this message.
#[test]
fn receiver_that_stops_between_messages_costs_wait() {
    let settings =
        Settings { wait: Some(4 * SHORT), mechanism: Some(Mechanism::Ring), ..impatient() };
    let (liar, mut victim) = Liar::meet(&settings);
    victim.send(&[1; 60_000]).unwrap();
    std::thread::scope(|scope| {
        let liar = &liar;
        scope.spawn(move || {
            liar.wait_for(LANE_BYTES + PUBLISHED, 2);
            liar.poke(LANE_BYTES + DRAINED, 1);
        });
        let error = victim.send(&pattern(4 << 20, 1)).unwrap_err();
        assert!(matches!(error, Error::Deadline { limit, .. } if limit == 4 * SHORT), "{error}");
    });
}

#[test]
fn receiver_that_never_consumes_costs_wait_and_keeps_channel_usable() {
    let (_liar, mut victim) = Liar::meet(&impatient());
    for _ in 0..16 {
        victim.send(b"x").unwrap();
    }
    for _ in 0..2 {
        let error = victim.send(b"x").unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
    }
}

/// Headers and words of random bits, some of them nearly right.
#[test]
fn random_words_cause_no_crash_and_no_hang() {
    let settings = Settings { wait: Some(Duration::from_millis(10)), ..impatient() };
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..50 {
        let (liar, mut victim) = Liar::meet(&settings);
        for message in 0..4 {
            let near = |random: u64, right: u64| match random % 4 {
                0 => random >> ((random >> 32) % 64),
                1 => right.wrapping_add(random >> 60),
                _ => right,
            };
            let kind = 1 + random() % 6;
            let length = random() % 100_000;
            let header = [
                near(random(), message),
                near(random(), kind),
                near(random(), length),
                near(random(), 1),
            ];
            liar.poke(FILLED, near(random(), random() % 40));
            liar.publish(message, header);
            liar.poke(128 * (random() % 9), near(random(), message));
            liar.poke(LANE_BYTES + 128 * (random() % 9), random() >> 62);
        }
        let start = Instant::now();
        while let Ok(got) = victim.recv() {
            assert!(got.len() < 1 << 30, "round {round}");
        }
        let _ = victim.send(&[1; 100_000]);
        assert!(start.elapsed().as_secs() < 20, "round {round}");
    }
}
