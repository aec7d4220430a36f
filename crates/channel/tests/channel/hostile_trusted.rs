//! A trusted peer that lies. The victim checks the peer's claims about moved bytes.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Instant;

use haul_channel::{Buffer, Channel, Error, Mechanism, Settings, pair};
use rustix::net::SendFlags;

use crate::raw::{
    ABANDONED, CLAIMED, LANE_BYTES, LEASE_FILLED, Liar, OFFERED, PUBLISHED, PUSHED, REFUSED,
    receive, send,
};
use crate::support::{SHORT, impatient, patient, pattern};

const DOUBLE: u64 = 6;
const LEASE: u64 = 7;
const SIZE: usize = 1_000_000;
/// `SIZE` in pieces of 128 KiB.
const PIECES: u64 = 8;

/// The victim receives a message by `double`, and may read the message's bytes. The liar writes
/// no piece; `lie` runs after the target was offered.
fn both_ways(
    settings: &Settings,
    bytes: &[u8],
    lie: impl FnOnce(&Liar) + Send,
) -> Result<Buffer, Error> {
    both_ways_and_after(settings, bytes, lie, |_, _| {})
}

/// Like `both_ways`; `after` gets the result.
fn both_ways_and_after(
    settings: &Settings,
    bytes: &[u8],
    lie: impl FnOnce(&Liar) + Send,
    after: impl FnOnce(&Liar, &Result<Buffer, Error>),
) -> Result<Buffer, Error> {
    let (liar, mut victim) = Liar::meet_trusted(settings);
    liar.table(0, &[(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)]);
    liar.publish(0, [0, DOUBLE, bytes.len() as u64, 1]);
    thread::scope(|scope| {
        let liar = &liar;
        scope.spawn(move || {
            liar.wait_for(OFFERED, 1);
            lie(liar);
        });
        let result = victim.recv();
        if result.is_err() {
            assert!(matches!(victim.recv(), Err(Error::Broken)));
        }
        after(liar, &result);
        result
    })
}

#[test]
fn receiver_reads_all_pieces_if_sender_writes_none() {
    let bytes = pattern(SIZE, 41);
    assert!(both_ways(&patient(), &bytes, |_| {}).unwrap()[..] == bytes);
    assert!(both_ways(&patient(), &bytes, |liar| liar.poke(ABANDONED, 1)).unwrap()[..] == bytes);
}

/// If the counter is overwritten at any time, the result is a named error or a whole message.
#[test]
fn overwritten_counter_hides_no_gap() {
    let bytes = pattern(64 << 20, 43);
    let scribbles =
        [0, u64::MAX, 1, 1 << 48, 1 << 24, (1 << 48) | (1 << 24), (1 << 48) | 0x00ff_ffff, 2 << 48];
    for scribble in scribbles {
        let start = Instant::now();
        match both_ways(&impatient(), &bytes, |liar| liar.poke(CLAIMED, scribble)) {
            Ok(got) => assert!(got[..] == bytes, "{scribble:#x}: torn"),
            Err(Error::Protocol { .. } | Error::Deadline { .. }) => {}
            Err(error) => panic!("{scribble:#x}: {error}"),
        }
        assert!(start.elapsed() < 200 * SHORT);
    }
}

#[test]
fn impossible_count_of_pieces_is_named_error() {
    let bytes = pattern(SIZE, 47);
    let error = both_ways(&patient(), &bytes, |liar| liar.poke(PUSHED, PIECES + 1));
    let error = error.map(|got| got.len());
    // If the victim had already read everything, the lie has no effect.
    assert!(matches!(error, Ok(SIZE) | Err(Error::Protocol { .. })), "{error:?}");
    let (liar, mut victim) = Liar::meet_trusted(&patient());
    liar.poke(PUSHED, u64::MAX);
    liar.table(0, &[(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)]);
    liar.publish(0, [0, DOUBLE, bytes.len() as u64, 1]);
    let error = victim.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

#[test]
fn claimed_piece_that_is_never_written_costs_deadline() {
    let bytes = pattern(64 << 20, 53);
    // The liar claims all but the last pieces, and writes none of them.
    let claim_all = |liar: &Liar| {
        loop {
            let seen = liar.peek(CLAIMED);
            let back = seen >> 24 & 0x00ff_ffff;
            if back > 0 {
                liar.poke(CLAIMED, 1 << 48 | back << 24 | (64 - back));
                break;
            }
        }
    };
    let error = both_ways_and_after(&impatient(), &bytes, claim_all, |liar, result| {
        if result.is_err() {
            assert_eq!(liar.peek(OFFERED + 8), 0, "the offer was withdrawn");
        }
    });
    match error {
        Ok(got) => assert!(
            got[..] == bytes,
            "the liar lost the race for the counter, and the message is torn"
        ),
        Err(error) => {
            assert!(matches!(error, Error::Deadline { .. } | Error::Protocol { .. }), "{error}");
        }
    }
}

/// The address of the target as a sender reads it just before the sender is stopped within a
/// piece; `None` if the sender can claim no piece.
fn reached(liar: &Liar) -> Option<u64> {
    liar.wait_for(OFFERED, 1);
    let (seen, address) = (liar.peek(CLAIMED), liar.peek(OFFERED + 8));
    let (back, front) = (seen >> 24 & 0x00ff_ffff, seen & 0x00ff_ffff);
    (back + front < PIECES && address != 0).then_some(address)
}

/// The victim receives a message with `act`, and may read the message's bytes. Returns the
/// result, and the address to which the liar could have written meanwhile.
fn received<T>(
    bytes: &[u8],
    act: impl FnOnce(&mut Channel) -> Result<T, Error>,
) -> (T, Option<u64>) {
    let (liar, mut victim) = Liar::meet_trusted(&patient());
    liar.table(0, &[(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)]);
    liar.publish(0, [0, DOUBLE, bytes.len() as u64, 1]);
    thread::scope(|scope| {
        let liar = &liar;
        let reached = scope.spawn(move || reached(liar));
        let received = act(&mut victim).unwrap();
        (received, reached.join().unwrap())
    })
}

/// With that access, a sender that was stopped within a piece would later write to memory that is
/// used for another purpose.
#[test]
fn sender_gets_no_access_to_target_of_recv_into() {
    let bytes = pattern(SIZE, 61);
    for _ in 0..20 {
        let mut target = vec![0; SIZE];
        let (account, reached) = received(&bytes, |victim| victim.recv_into(&mut target));
        assert_eq!(reached, None, "the sender may write to a target that the caller gets back");
        assert!(target == bytes);
        assert_eq!((account.mechanism, account.copied_bytes), (Mechanism::Double, SIZE as u64));
        let mut own = Buffer::new(SIZE).unwrap();
        assert_eq!(received(&bytes, |victim| victim.recv_into(&mut own)).1, None);
        assert!(own[..] == bytes);
    }
}

/// If the caller guarantees the target's lifetime, both ends fill the target.
#[test]
fn exposed_target_is_offered_to_sender() {
    let bytes = pattern(SIZE, 67);
    let mut target = vec![0; SIZE];
    let address = target.as_mut_ptr().expose_provenance() as u64;
    let (liar, mut victim) = Liar::meet_trusted(&patient());
    liar.table(0, &[(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)]);
    liar.publish(0, [0, DOUBLE, bytes.len() as u64, 1]);
    // SAFETY: the liar writes nothing, and is dropped before the target.
    unsafe { victim.recv_into_exposed(&mut target) }.unwrap();
    assert_eq!(liar.peek(OFFERED + 8), address);
    assert!(target == bytes);
}

/// A sender without permission to write cannot have written a piece, whatever it reports.
#[test]
fn receiver_ignores_reported_pieces_of_sender_without_offer() {
    let bytes = pattern(SIZE, 71);
    for reported in [1, PIECES - 1, PIECES, u64::MAX] {
        let (liar, mut victim) = Liar::meet_trusted(&patient());
        liar.poke(PUSHED, reported);
        liar.table(0, &[(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)]);
        liar.publish(0, [0, DOUBLE, bytes.len() as u64, 1]);
        let mut target = vec![0; SIZE];
        victim.recv_into(&mut target).unwrap();
        assert!(target == bytes, "{reported}");
    }
}

#[test]
fn tables_with_wrong_sum_or_unmapped_addresses_are_refused() {
    for table in [&[(4096, 10)][..], &[(u64::MAX, SIZE as u64)], &[(0, 1), (0, u64::MAX)]] {
        let (liar, mut victim) = Liar::meet_trusted(&impatient());
        liar.table(0, table);
        liar.publish(0, [0, DOUBLE, SIZE as u64, table.len() as u64]);
        let error = victim.recv().map(|got| got.len()).unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{table:?}: {error}");
    }
    // A table with the right sum that names unmapped memory: the victim waits for the ring, which
    // stays empty.
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    liar.table(0, &[(4096, SIZE as u64)]);
    liar.publish(0, [0, DOUBLE, SIZE as u64, 1]);
    let error = victim.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
}

fn by(mechanism: Mechanism) -> Settings {
    Settings { mechanism: Some(mechanism), ..impatient() }
}

fn packet(kind: u8, number: u64) -> Vec<u8> {
    std::iter::once(kind).chain(number.to_le_bytes()).collect()
}

/// The offered pool does not exist or is too small.
#[test]
fn sender_abandons_offers_outside_of_pool() {
    for (number, offset, file) in [
        (1, 0, None),
        (1, 0, Some(OwnedFd::from(File::open("/dev/zero").unwrap()))),
        (1, 0, Some(OwnedFd::from(File::open("/dev/null").unwrap()))),
        (1, 0, Some(pair().unwrap().0)),
        (1, 0, Some(OwnedFd::from(tempfile::tempfile().unwrap()))),
        (u64::MAX, u64::MAX, None),
    ] {
        let (liar, mut victim) = Liar::meet_trusted(&by(Mechanism::Lease));
        if let Some(file) = &file {
            send(&liar.socket, &packet(2, number), &[file.as_fd()]);
        }
        liar.poke(LANE_BYTES + OFFERED + 8, offset);
        liar.poke(LANE_BYTES + OFFERED + 16, number);
        liar.poke(LANE_BYTES + OFFERED, 1);
        let error = victim.send(&[1; 100_000]).unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{number} {offset}: {error}");
        assert_eq!(liar.peek(ABANDONED + LANE_BYTES), 1, "the victim reported that it cannot");
    }
}

#[test]
fn mechanisms_that_need_trust_are_refused_without() {
    for kind in [4, DOUBLE, LEASE] {
        let (liar, mut victim) = Liar::meet(&impatient());
        liar.publish(0, [0, kind, 100_000, 1]);
        let error = victim.recv().map(|got| got.len()).unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{kind}: {error}");
    }
}

/// The victim receives a message by a lease that the liar fills correctly. Returns the buffer and
/// the pool; an error if the liar had no processor for as long as the victim waits.
fn leased(liar: &Liar, victim: &mut Channel, size: usize) -> Result<(Buffer, File), Error> {
    liar.publish(0, [0, LEASE, size as u64, 0]);
    thread::scope(|scope| {
        let filling = scope.spawn(move || {
            liar.wait_for(OFFERED, 1);
            let pool = File::from(receive(&liar.socket).1.unwrap());
            pool.write_all_at(&vec![7; size], liar.peek(OFFERED + 8)).unwrap();
            liar.poke(LEASE_FILLED, 1);
            pool
        });
        let received = victim.recv();
        let pool = filling.join().unwrap();
        let buffer = received?;
        assert!(buffer.iter().all(|byte| *byte == 7));
        Ok((buffer, pool))
    })
}

/// A sender that fills its lease after the receiver gave up does not change the receiver's memory:
/// neither the target nor other parts of the pool.
#[test]
fn lease_filled_too_late_does_not_change_target() {
    let size = 3 * 4096 + 100;
    for (start, end) in [(0, size), (4096, size), (4096, 8192)] {
        let meet = |_| {
            let (liar, mut victim) = Liar::meet_trusted(&impatient());
            match leased(&liar, &mut victim, size) {
                Ok((buffer, pool)) => Some((liar, victim, buffer, pool)),
                Err(Error::Deadline { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        };
        let (liar, mut victim, mut buffer, pool) = (0..20).find_map(meet).expect("one in time");
        liar.publish(1, [1, LEASE, (end - start) as u64, 0]);
        let error = victim.recv_into(&mut buffer[start..end]).unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
        assert_eq!(liar.peek(OFFERED), 2, "the target was offered");
        let before = buffer[start..end].to_vec();
        pool.write_all_at(&[8; 1 << 20], 0).unwrap();
        assert!(buffer[start..end] == before, "{start} to {end}");
    }
}

#[test]
fn lease_uses_memory_only_as_it_is_filled() {
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    liar.publish(0, [0, LEASE, 256 << 20, 0]);
    let error = victim.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    let pool = File::from(receive(&liar.socket).1.unwrap());
    let status = rustix::fs::fstat(&pool).unwrap();
    assert_eq!((status.st_size, status.st_blocks), (256 << 20, 0));
}

/// Polling does not signal that a full socket has room again, so no call waits for it.
#[test]
fn full_socket_delays_no_message() {
    let fill = |socket: OwnedFd| {
        while rustix::net::send(&socket, &[0], SendFlags::DONTWAIT).is_ok() {}
    };
    let (liar, mut victim, socket) = Liar::meet_trusted_by(&impatient());
    fill(socket);
    liar.publish(0, [0, LEASE, 100_000, 0]);
    assert!(victim.try_recv().unwrap().is_none());
    assert_eq!(liar.peek(REFUSED), 1, "the victim did not ask for the ring");
    let (liar, mut victim, socket) = Liar::meet_trusted_by(&by(Mechanism::Staged));
    fill(socket);
    let mut sending = victim.start_send(&[1; 100_000]).unwrap();
    assert!(sending.advance().unwrap());
    assert_eq!(liar.peek(LANE_BYTES + PUBLISHED), 1, "the message is not in the ring");
}

#[test]
fn lease_that_is_never_filled_costs_deadline() {
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    liar.publish(0, [0, LEASE, 5_000_000, 0]);
    liar.poke(LEASE_FILLED, 2);
    let error = victim.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(matches!(victim.recv(), Err(Error::Broken)));
}
