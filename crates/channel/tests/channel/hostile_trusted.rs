//! A peer that is trusted, and lies all the same: what it claims to have moved is proven.

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
use crate::support::{SHORT, impatient, pattern};

const DOUBLE: u64 = 6;
const LEASE: u64 = 7;
const VMSPLICE: u64 = 8;
const SIZE: usize = 1_000_000;
/// `SIZE` in pieces of 128 KiB.
const PIECES: u64 = 8;

/// The victim receives a message that the liar lets it read, and pushes none of; `lie` runs as soon
/// as the target was offered.
fn both_ways(bytes: &[u8], lie: impl FnOnce(&Liar) + Send) -> Result<Buffer, Error> {
    both_ways_and_after(bytes, lie, |_, _| {})
}

/// The same, and `after` sees what became of it.
fn both_ways_and_after(
    bytes: &[u8],
    lie: impl FnOnce(&Liar) + Send,
    after: impl FnOnce(&Liar, &Result<Buffer, Error>),
) -> Result<Buffer, Error> {
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
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
fn a_receiver_reads_what_nobody_pushes() {
    let bytes = pattern(SIZE, 41);
    assert!(both_ways(&bytes, |_| {}).unwrap()[..] == bytes);
    assert!(both_ways(&bytes, |liar| liar.poke(ABANDONED, 1)).unwrap()[..] == bytes);
}

/// Scribbled at any time, the counter ends in a named error or in the whole message.
#[test]
fn a_scribbled_counter_hides_no_gap() {
    let bytes = pattern(64 << 20, 43);
    let scribbles =
        [0, u64::MAX, 1, 1 << 48, 1 << 24, (1 << 48) | (1 << 24), (1 << 48) | 0x00ff_ffff, 2 << 48];
    for scribble in scribbles {
        let start = Instant::now();
        match both_ways(&bytes, |liar| liar.poke(CLAIMED, scribble)) {
            Ok(got) => assert!(got[..] == bytes, "{scribble:#x}: torn"),
            Err(Error::Protocol { .. } | Error::Deadline { .. }) => {}
            Err(error) => panic!("{scribble:#x}: {error}"),
        }
        assert!(start.elapsed() < 200 * SHORT);
    }
}

#[test]
fn a_count_of_pieces_that_cannot_be_is_named() {
    let bytes = pattern(SIZE, 47);
    let error = both_ways(&bytes, |liar| liar.poke(PUSHED, PIECES + 1)).map(|got| got.len());
    // Where the victim had read everything before, there was nothing to lie about any more.
    assert!(matches!(error, Ok(SIZE) | Err(Error::Protocol { .. })), "{error:?}");
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    liar.poke(PUSHED, u64::MAX);
    liar.table(0, &[(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)]);
    liar.publish(0, [0, DOUBLE, bytes.len() as u64, 1]);
    let error = victim.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

#[test]
fn a_piece_that_is_claimed_and_never_written_costs_the_deadline() {
    let bytes = pattern(64 << 20, 53);
    // All but the last pieces are the liar's; it has written none of them.
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
    let error = both_ways_and_after(&bytes, claim_all, |liar, result| {
        if result.is_err() {
            assert_eq!(liar.peek(OFFERED + 8), 0, "the offer was withdrawn");
        }
    });
    match error {
        Ok(got) => assert!(got[..] == bytes, "it lost the race for the counter, and nothing else"),
        Err(error) => {
            assert!(matches!(error, Error::Deadline { .. } | Error::Protocol { .. }), "{error}");
        }
    }
}

/// What a sender that was stopped in the middle of a piece has of the target: where it is, and the
/// claim to write to it, whatever became of the call meanwhile.
fn reached(liar: &Liar) -> Option<u64> {
    liar.wait_for(OFFERED, 1);
    let (seen, address) = (liar.peek(CLAIMED), liar.peek(OFFERED + 8));
    let (back, front) = (seen >> 24 & 0x00ff_ffff, seen & 0x00ff_ffff);
    (back + front < PIECES && address != 0).then_some(address)
}

/// The victim receives, by `act`, a message that the liar lets it read; what of the target the liar
/// could have written to meanwhile.
fn received<T>(
    bytes: &[u8],
    act: impl FnOnce(&mut Channel) -> Result<T, Error>,
) -> (T, Option<u64>) {
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    liar.table(0, &[(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)]);
    liar.publish(0, [0, DOUBLE, bytes.len() as u64, 1]);
    thread::scope(|scope| {
        let liar = &liar;
        let reached = scope.spawn(move || reached(liar));
        let received = act(&mut victim).unwrap();
        (received, reached.join().unwrap())
    })
}

/// Else one that was stopped there would write to what is somebody else's by then.
#[test]
fn memory_of_the_callers_is_never_within_a_senders_reach() {
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

/// What is to be gained by it: one who vouches for the target has it filled by both ends.
#[test]
fn an_exposed_target_is_offered_to_the_sender() {
    let bytes = pattern(SIZE, 67);
    let mut target = vec![0; SIZE];
    let address = target.as_mut_ptr().expose_provenance() as u64;
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    liar.table(0, &[(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)]);
    liar.publish(0, [0, DOUBLE, bytes.len() as u64, 1]);
    // SAFETY: the liar writes nothing, and is gone before the target.
    unsafe { victim.recv_into_exposed(&mut target) }.unwrap();
    assert_eq!(liar.peek(OFFERED + 8), address);
    assert!(target == bytes);
}

/// Nor does what it says that it wrote count, where it was let write nowhere.
#[test]
fn what_a_sender_says_that_it_wrote_unasked_is_not_believed() {
    let bytes = pattern(SIZE, 71);
    for reported in [1, PIECES - 1, PIECES, u64::MAX] {
        let (liar, mut victim) = Liar::meet_trusted(&impatient());
        liar.poke(PUSHED, reported);
        liar.table(0, &[(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)]);
        liar.publish(0, [0, DOUBLE, bytes.len() as u64, 1]);
        let mut target = vec![0; SIZE];
        victim.recv_into(&mut target).unwrap();
        assert!(target == bytes, "{reported}");
    }
}

#[test]
fn tables_that_do_not_add_up_or_lead_nowhere_are_refused() {
    for table in [&[(4096, 10)][..], &[(u64::MAX, SIZE as u64)], &[(0, 1), (0, u64::MAX)]] {
        let (liar, mut victim) = Liar::meet_trusted(&impatient());
        liar.table(0, table);
        liar.publish(0, [0, DOUBLE, SIZE as u64, table.len() as u64]);
        let error = victim.recv().map(|got| got.len()).unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{table:?}: {error}");
    }
    // A table that adds up, of memory that is not there: the ring is to bring it, and never does.
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

/// What the victim says that is to copy into a pool which is not there, or not so large.
#[test]
fn offers_that_lead_outside_are_not_taken() {
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
fn pipes_that_are_none_are_refused() {
    let files: [Option<OwnedFd>; 5] = [
        None,
        Some(File::open("/dev/zero").unwrap().into()),
        Some(File::open("/dev/null").unwrap().into()),
        Some(pair().unwrap().0),
        Some(rustix::pipe::pipe().unwrap().1),
    ];
    for file in files {
        let (liar, mut victim) = Liar::meet_trusted(&impatient());
        if let Some(file) = &file {
            send(&liar.socket, &packet(3, 0), &[file.as_fd()]);
        }
        liar.publish(0, [0, VMSPLICE, 100_000, u64::from(file.is_some())]);
        let error = victim.recv().map(|got| got.len()).unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{error}");
    }
    // One that nothing ever comes out of, and one that ends too early.
    for is_closed in [false, true] {
        let (liar, mut victim) = Liar::meet_trusted(&impatient());
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, &[7; 1000]).unwrap();
        send(&liar.socket, &packet(3, 0), &[reader.as_fd()]);
        liar.publish(0, [0, VMSPLICE, 100_000, 1]);
        let open = (!is_closed).then_some(writer);
        let error = victim.recv().map(|got| got.len()).unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{is_closed}: {error}");
        drop(open);
    }
}

/// As a kernel does that copies what goes into a pipe: pages of its own instead of the sender's.
#[test]
fn a_pipe_of_plain_copies_is_as_good() {
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let bytes = pattern(50_000, 59);
    assert_eq!(rustix::io::write(&writer, &bytes), Ok(bytes.len()));
    send(&liar.socket, &packet(3, 0), &[reader.as_fd()]);
    liar.publish(0, [0, VMSPLICE, bytes.len() as u64, 1]);
    assert!(victim.recv().unwrap()[..] == bytes);
}

#[test]
fn what_needs_trust_is_not_had_without() {
    for kind in [4, DOUBLE, LEASE, VMSPLICE] {
        let (liar, mut victim) = Liar::meet(&impatient());
        liar.publish(0, [0, kind, 100_000, 1]);
        let error = victim.recv().map(|got| got.len()).unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{kind}: {error}");
    }
}

/// The victim gets a message by a lease that the liar fills as it should. Also the pool.
fn leased(liar: &Liar, victim: &mut Channel, size: usize) -> (Buffer, File) {
    liar.publish(0, [0, LEASE, size as u64, 0]);
    thread::scope(|scope| {
        let filling = scope.spawn(move || {
            liar.wait_for(OFFERED, 1);
            let pool = File::from(receive(&liar.socket).1.unwrap());
            pool.write_all_at(&vec![7; size], liar.peek(OFFERED + 8)).unwrap();
            liar.poke(LEASE_FILLED, 1);
            pool
        });
        let buffer = victim.recv().unwrap();
        assert!(buffer.iter().all(|byte| *byte == 7));
        (buffer, filling.join().unwrap())
    })
}

/// A sender that fills its lease after the receiver gave up reaches nothing of the receiver's:
/// neither what it was to fill nor, by now, anything else of the pool.
#[test]
fn a_lease_that_is_filled_too_late_reaches_nothing() {
    let size = 3 * 4096 + 100;
    for (start, end) in [(0, size), (4096, size), (4096, 8192)] {
        let (liar, mut victim) = Liar::meet_trusted(&impatient());
        let (mut buffer, pool) = leased(&liar, &mut victim, size);
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
fn a_lease_takes_memory_as_it_is_filled() {
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    liar.publish(0, [0, LEASE, 256 << 20, 0]);
    let error = victim.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    let pool = File::from(receive(&liar.socket).1.unwrap());
    let status = rustix::fs::fstat(&pool).unwrap();
    assert_eq!((status.st_size, status.st_blocks), (256 << 20, 0));
}

/// Nothing tells by polling that a full socket has room again, so nothing waits for it.
#[test]
fn a_socket_that_nobody_reads_holds_no_message_up() {
    let fill = |socket: OwnedFd| {
        while rustix::net::send(&socket, &[0], SendFlags::DONTWAIT).is_ok() {}
    };
    let (liar, mut victim, socket) = Liar::meet_trusted_by(&impatient());
    fill(socket);
    liar.publish(0, [0, LEASE, 100_000, 0]);
    assert!(victim.try_recv().unwrap().is_none());
    assert_eq!(liar.peek(REFUSED), 1, "the ring is to bring it");
    for mechanism in [Mechanism::Staged, Mechanism::Vmsplice] {
        let (liar, mut victim, socket) = Liar::meet_trusted_by(&by(mechanism));
        fill(socket);
        let mut sending = victim.start_send(&[1; 100_000]).unwrap();
        assert!(sending.advance().unwrap());
        assert_eq!(liar.peek(LANE_BYTES + PUBLISHED), 1, "{mechanism}: it is in the ring");
    }
}

#[test]
fn a_lease_that_is_never_filled_costs_the_deadline_and_no_memory() {
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    liar.publish(0, [0, LEASE, 5_000_000, 0]);
    liar.poke(LEASE_FILLED, 2);
    let error = victim.recv().map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(matches!(victim.recv(), Err(Error::Broken)));
}
