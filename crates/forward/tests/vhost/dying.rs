//! Back ends that die, and others that resume in their rings: with an area that the front end kept,
//! or by the content of the ring. The front end reports the first location, as QEMU does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use haul_forward::{DropReason, Link, Port};

use crate::front::{
    FROM_GUEST, Front, GET_INFLIGHT_FD, IN_ORDER, NEXT, PACKED, PROTOCOL, SET_INFLIGHT_FD,
    SET_PROTOCOL_FEATURES, SET_VRING_CALL, SET_VRING_ENABLE, SIZE, TO_GUEST, memory_file,
};
use crate::packed::{Driver, descriptor, packet, room};
use crate::victim::{FEATURES, Victim};

/// VHOST_USER_PROTOCOL_F_MQ, REPLY_ACK and INFLIGHT_SHMFD.
const PROTOCOLS: u64 = 1 | 1 << 3 | 1 << 12;

/// The inflight area that a front end keeps when a back end dies.
pub(crate) struct Area {
    /// The description, as messages contain it.
    pub(crate) body: [u8; 24],
    pub(crate) file: OwnedFd,
}

/// The message's body: bytes, offset, rings, descriptors per ring.
pub(crate) fn area_body(bytes: u64, offset: u64, rings: u16, size: u16) -> [u8; 24] {
    let mut body = [0; 24];
    body[..8].copy_from_slice(&bytes.to_ne_bytes());
    body[8..16].copy_from_slice(&offset.to_ne_bytes());
    body[16..18].copy_from_slice(&rings.to_ne_bytes());
    body[18..20].copy_from_slice(&size.to_ne_bytes());
    body
}

impl Area {
    fn put(&self, at: u64, bytes: &[u8]) {
        assert_eq!(rustix::io::pwrite(&self.file, bytes, at).unwrap(), bytes.len());
    }

    fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        assert_eq!(rustix::io::pread(&self.file, &mut bytes, at).unwrap(), N);
        bytes
    }
}

/// Offset of the region of ring 1, for packed rings of [`SIZE`]: 32 B and 32 for each descriptor.
const REGION: u64 = 32 * (SIZE as u64 + 1) + 32;

/// Requests a new area from the back end.
pub(crate) fn request_area(front: &mut Front) -> Area {
    assert!(front.send(GET_INFLIGHT_FD, &area_body(0, 0, 2, SIZE), &[]));
    let mut body = [0; 24];
    let file = front.answer_with_file(&mut body).expect("a file");
    Area { body, file }
}

/// Sends everything up to the features.
fn begin(front: &mut Front, features: u64) {
    front.step(0, features);
    front.step(1, features);
    front.send(SET_PROTOCOL_FEATURES, &Front::words(&[PROTOCOLS]), &[]);
    front.step(2, features | PROTOCOL);
}

/// Sends the remaining messages.
fn complete(front: &mut Front, features: u64) {
    (3..Front::steps()).for_each(|step| front.step(step, features));
    for ring in 0..2 {
        front.send(SET_VRING_ENABLE, &Front::state(ring, 1), &[]);
    }
}

pub(crate) fn send_area(front: &Front, body: &[u8; 24], file: BorrowedFd<'_>) {
    front.send(SET_INFLIGHT_FD, body, &[file]);
}

/// Sends all messages, with the kept area, or with a new one if `has_area`.
pub(crate) fn start(front: &mut Front, features: u64, has_area: bool, area: &mut Option<Area>) {
    begin(front, features);
    match area {
        Some(kept) => send_area(front, &kept.body, kept.file.as_fd()),
        None if has_area => *area = Some(request_area(front)),
        None => {}
    }
    complete(front, features);
}

/// A guest that survives its back ends.
struct Guest {
    front: Front,
    features: u64,
    has_area: bool,
    area: Option<Area>,
    there: Driver,
    back: Driver,
}

impl Guest {
    fn new(features: u64, has_area: bool) -> Self {
        let front = Front::over(UnixStream::pair().unwrap().0);
        let (there, back) = (Driver::new(TO_GUEST), Driver::new(FROM_GUEST));
        Self { front, features, has_area, area: None, there, back }
    }

    fn connect(&mut self, victim: &mut Victim) {
        self.front.reconnect(UnixStream::connect(victim.path()).unwrap());
        start(&mut self.front, self.features, self.has_area, &mut self.area);
        victim.wait_for_link(Link::Up);
    }
}

/// The next back end serves the buffers and packets that wait when a back end dies, each once and
/// in order, at any location of the ring.
#[test]
fn next_back_end_resumes_where_previous_one_died() {
    for (features, has_area) in [(0, false), (0, true), (IN_ORDER, false), (IN_ORDER, true)] {
        let mut guest = Guest::new(FEATURES | PACKED | features, has_area);
        let (mut sent, mut came, mut room_id, mut filled) = (0_u16, 0, 0_u16, 0_u16);
        for life in 0..60_u16 {
            let mut victim = Victim::new();
            // Some packets wait already. Some of these packets are in chains; only haul marks the
            // later descriptors of a chain.
            for _ in 0..life * 7 % 23 {
                let [whole] = packet(&guest.front, sent as u8);
                let first = descriptor(whole.address, 20, NEXT);
                let rest = descriptor(whole.address + 20, 52, 0);
                let chain = [vec![whole], vec![first, rest]];
                // All packets use the same buffer, which holds the mark of the last one.
                let is_chain = features & IN_ORDER == 0 && sent % 5 == 0;
                guest.back.make_available(&guest.front, sent, &chain[usize::from(is_chain)]);
                sent += 1;
            }
            for _ in 0..life * 5 % 17 {
                if room_id - filled < SIZE - 1 {
                    guest.there.make_available(&guest.front, room_id, &room());
                    room_id += 1;
                }
            }
            guest.connect(&mut victim);
            let has_to = usize::from(sent - came);
            victim.wait("what waited", |victim| {
                victim.poll(0, 0);
                victim.came.len() == has_to
            });
            came = sent;
            let packets = (room_id - filled).min(life % 7);
            victim.poll(packets.into(), 100);
            let counters = victim.counters();
            let name = format!("life {life}, {features:#x}, {has_area}");
            assert_eq!(counters.tx.packets, u64::from(packets), "{name}");
            for _ in 0..packets {
                assert_eq!(guest.there.take(&guest.front), Some((filled, 112)), "{name}");
                filled += 1;
            }
            assert_eq!(guest.there.take(&guest.front), None, "{name}");
            if features & IN_ORDER == 0 {
                let ids: Vec<_> = std::iter::from_fn(|| guest.back.take(&guest.front)).collect();
                assert_eq!(ids.len(), has_to, "{name}");
            } else {
                guest.back.skip_all();
            }
            assert_eq!(counters.resets, 0, "{name}");
            // The back end dies without another message from the front end.
        }
        assert!(sent > 10 * SIZE && filled > SIZE, "{sent} {filled}");
    }
}

/// A back end is killed after the later descriptors of a burst and before the first one: its
/// overwritten chains are returned empty, and the others are served.
#[test]
fn interrupted_burst_is_returned_empty() {
    for has_area in [false, true] {
        let mut guest = Guest::new(FEATURES | PACKED, has_area);
        let mut victim = Victim::new();
        guest.connect(&mut victim);
        drop(victim);
        for id in 0..5 {
            let packet = packet(&guest.front, id as u8);
            guest.back.make_available(&guest.front, id, &packet);
        }
        // The bits of a used descriptor; its id stays.
        for index in 1..4 {
            guest.front.put(guest.back.at(index) + 14, &(1_u16 << 7 | 1 << 15).to_le_bytes());
        }
        if let Some(area) = &guest.area {
            // The used index, the old used index, and their rounds: five chains were about to be
            // published.
            area.put(REGION + 16, &[5, 0, 0, 0, 1, 1]);
        }
        let mut victim = Victim::new();
        guest.connect(&mut victim);
        victim.wait("the fifth", |victim| {
            victim.poll(0, 0);
            !victim.came.is_empty()
        });
        assert_eq!(victim.came, [(4, 60)]);
        assert_eq!(victim.counters().rx.drops_for(DropReason::Reset), 4);
        let ids: Vec<_> = std::iter::from_fn(|| guest.back.take(&guest.front)).collect();
        assert_eq!(ids, (0..5).map(|id| (id, 0)).collect::<Vec<_>>());
        if let Some(area) = &guest.area {
            assert_eq!(area.get(REGION + 16), [5, 0, 5, 0, 1, 1]);
            assert_eq!(area.get::<4>(REGION + 8), [1, 0, SIZE as u8, 0], "version and size");
        }
        assert_eq!(victim.counters().resets, 0);
    }
}

/// An implausible area ends the conversation once: its content is then cleared.
#[test]
fn implausible_area_is_counted_and_reset() {
    for (at, lie) in [
        (0, &[1][..]),
        (8, &[2]),
        (8, &[0xFF, 0xFF]),
        (10, &[SIZE as u8 - 1]),
        (10, &[0, 0x80]),
        (16, &[SIZE as u8]),
        (16, &[0xFF, 0xFF]),
        (18, &[SIZE as u8]),
        (20, &[2]),
        (21, &[0xFF]),
    ] {
        let mut guest = Guest::new(FEATURES | PACKED, true);
        let mut victim = Victim::new();
        guest.connect(&mut victim);
        drop(victim);
        guest.area.as_ref().unwrap().put(REGION + at, lie);
        let mut victim = Victim::new();
        guest.front.reconnect(UnixStream::connect(victim.path()).unwrap());
        start(&mut guest.front, guest.features, true, &mut guest.area);
        assert!(guest.front.is_disconnected(), "{lie:x?} at {at}");
        victim.wait("a reset", |victim| victim.counters().resets == 1);
        assert!(victim.port.obstacle().is_some());
        guest.connect(&mut victim);
        guest.back.make_available(&guest.front, 7, &packet(&guest.front, 7));
        victim.poll(0, 0);
        assert_eq!(victim.came, [(7, 60)], "{lie:x?} at {at}");
    }
}

/// A plausible location that the ring contradicts does no harm: the ring has precedence.
#[test]
fn location_contradicted_by_ring_is_ignored() {
    let mut guest = Guest::new(FEATURES | PACKED, true);
    let mut victim = Victim::new();
    guest.connect(&mut victim);
    for id in 0..10 {
        guest.back.make_available(&guest.front, id, &packet(&guest.front, 1));
    }
    victim.poll(0, 0);
    assert_eq!(victim.came.len(), 10);
    drop(victim);
    guest.area.as_ref().unwrap().put(REGION + 16, &[40, 0, 40, 0, 1, 1]);
    guest.back.make_available(&guest.front, 10, &packet(&guest.front, 2));
    let mut victim = Victim::new();
    guest.connect(&mut victim);
    victim.poll(0, 0);
    assert_eq!(victim.came, [(2, 60)]);
}

#[test]
fn invalid_area_is_refused() {
    let bytes = 2 * REGION;
    let file = memory_file(bytes);
    let pipe = rustix::pipe::pipe().unwrap().0;
    for (name, body, file) in [
        ("too few bytes", area_body(100, 0, 2, SIZE), &file),
        ("beyond the file", area_body(bytes, 4096, 2, SIZE), &file),
        ("the end of all", area_body(u64::MAX - 100, 200, 2, SIZE), &file),
        ("an odd offset", area_body(bytes - 64, 3, 2, SIZE), &file),
        ("no rings", area_body(bytes, 0, 0, SIZE), &file),
        ("fewer rings than there are", area_body(bytes, 0, 1, SIZE), &file),
        ("more rings than bytes", area_body(bytes, 0, 4, SIZE), &file),
        ("no descriptors", area_body(bytes, 0, 2, 0), &file),
        ("fewer than a ring has", area_body(bytes, 0, 2, SIZE - 1), &file),
        ("more than can be", area_body(bytes, 0, 2, 65_535), &file),
        ("no file of memory", area_body(bytes, 0, 2, SIZE), &pipe),
    ] {
        let mut victim = Victim::new();
        let mut front = Front::connect(&victim.path());
        let area = Area { body, file: file.try_clone().unwrap() };
        start(&mut front, FEATURES | PACKED, true, &mut Some(area));
        assert!(front.is_disconnected(), "{name}");
        victim.wait(name, |victim| victim.counters().resets == 1);
        victim.check_service();
    }
    // Invalid requests for an area.
    for (rings, size) in [(0, SIZE), (3, SIZE), (2, 0), (2, 32_769)] {
        let mut victim = Victim::new();
        let mut front = Front::connect(&victim.path());
        begin(&mut front, FEATURES | PACKED);
        front.send(GET_INFLIGHT_FD, &area_body(0, 0, rings, size), &[]);
        assert!(front.is_disconnected(), "{rings} rings of {size}");
        victim.check_service();
    }
}

/// An unsealed area may be truncated: that raises no signal, and the ring continues.
#[test]
fn truncated_area_harms_only_its_front_end() {
    let file = memory_file(2 * REGION);
    let body = area_body(2 * REGION, 0, 2, SIZE);
    let mut guest = Guest::new(FEATURES | PACKED, true);
    guest.area = Some(Area { body, file: file.try_clone().unwrap() });
    let mut victim = Victim::new();
    guest.connect(&mut victim);
    rustix::fs::ftruncate(&file, 0).unwrap();
    for id in 0..10 {
        guest.back.make_available(&guest.front, id, &packet(&guest.front, 1));
    }
    victim.poll(0, 0);
    assert_eq!(victim.came.len(), 10);
    drop(victim);
    // The next back end maps the truncated file.
    let mut victim = Victim::new();
    guest.front.reconnect(UnixStream::connect(victim.path()).unwrap());
    start(&mut guest.front, guest.features, true, &mut guest.area);
    assert!(guest.front.is_disconnected());
    victim.check_service();
}

/// A back end may die between a publication and its call: the next one calls.
#[test]
fn resuming_back_end_calls_driver() {
    for features in [FEATURES, FEATURES | PACKED] {
        let mut guest = Guest::new(features, false);
        let mut victim = Victim::new();
        guest.connect(&mut victim);
        let call = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        guest.front.send(SET_VRING_CALL, &Front::words(&[FROM_GUEST]), &[call.as_fd()]);
        victim.wait("a call", |_| rustix::io::read(&call, &mut [0; 8]).is_ok());
    }
}

/// A ring that a front end has stopped resumes at the location that the front end reports,
/// independent of the record.
#[test]
fn stopped_ring_resumes_at_reported_location() {
    let mut guest = Guest::new(FEATURES | PACKED, true);
    let mut victim = Victim::new();
    guest.connect(&mut victim);
    for id in 0..3 {
        guest.back.make_available(&guest.front, id, &packet(&guest.front, 1));
    }
    victim.poll(0, 0);
    guest.front.restart(FROM_GUEST, SIZE, 0x8003_8003);
    let region: [u8; 6] = guest.area.as_ref().unwrap().get(REGION + 16);
    assert_eq!(region, [3, 0, 3, 0, 1, 1]);
    // The ring begins anew, like a restarted driver's ring.
    guest.front.put(guest.back.at(0), &vec![0; 16 * usize::from(SIZE)]);
    guest.back = Driver::new(FROM_GUEST);
    guest.back.make_available(&guest.front, 9, &packet(&guest.front, 5));
    guest.front.restart(FROM_GUEST, SIZE, 0x8000_8000);
    victim.wait("the first of a new ring", |victim| {
        victim.poll(0, 0);
        victim.came.last() == Some(&(5, 60))
    });
    assert_eq!(victim.came.len(), 4);
}

/// Split rings resume at their used index; the record holds the same value for other back ends.
#[test]
fn split_ring_records_its_progress() {
    let (mut area, mut next) = (None, 0);
    let mut front = Front::over(UnixStream::pair().unwrap().0);
    for _ in 0..3 {
        let mut victim = Victim::new();
        front.reconnect(UnixStream::connect(victim.path()).unwrap());
        start(&mut front, FEATURES, true, &mut area);
        victim.wait_for_link(Link::Up);
        (0..30).for_each(|index| front.send_packet(index, 3));
        victim.wait("packets", |victim| {
            victim.poll(0, 0);
            victim.came.len() == 30
        });
        next += 30;
        assert_eq!(front.used(FROM_GUEST), next);
        // 16 B and 16 for each descriptor, rounded up to a line; version, size, last batch, used
        // index.
        let region = (16 * (u64::from(SIZE) + 1)).next_multiple_of(64);
        let noted: [u8; 8] = area.as_ref().unwrap().get(region + 8);
        assert_eq!(noted, [1, 0, SIZE as u8, 0, 0, 0, next as u8, 0]);
    }
}
