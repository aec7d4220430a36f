//! A front end that may send anything: vhost-user messages in any order, with any memory, rings
//! and descriptors. The words of rings and descriptors change between two polls. In every case,
//! the port sends each packet or reports why it drops it, every buffer returns to the pool, and
//! the port serves the next front end.
#![no_main]

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use haul::forward::{Pool, Port, Vhost, VhostSettings};
use haul_fuzz::victim::Victim;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// The address of the memory in the guest and in the front end's process, and the size of the
/// memory.
const GUEST: u64 = 0x10_0000;
const PROCESS: u64 = 0x7F00_0000_0000;
const BYTES: u64 = 1 << 18;
/// The distance between two rings in bytes, and the offsets of the areas in a ring.
const RING: u64 = 0x4000;
const AREAS: [u64; 3] = [0, 0x1000, 0x2000];

/// VIRTIO_NET_F_CSUM, GUEST_CSUM, GUEST_TSO4, GUEST_TSO6, HOST_TSO4 and HOST_TSO6.
const OFFLOADS: u64 = 3 | 3 << 7 | 3 << 11;

#[derive(Arbitrary, Debug)]
struct Life {
    is_mergeable: bool,
    has_events: bool,
    is_packed: bool,
    is_in_order: bool,
    /// Whether the guest may leave checksums and segments to the port. Any bytes are its headers.
    has_offloads: bool,
    /// An in-flight area from an earlier session, in the same memory, with any values.
    area: Option<Area>,
    size: u8,
    acts: Vec<Act>,
}

#[derive(Arbitrary, Debug)]
struct Area {
    offset: u16,
    bytes: u32,
    rings: u8,
    /// Regions for the rings, valid except for these positions.
    positions: Option<[u64; 2]>,
}

#[derive(Arbitrary, Debug)]
enum Act {
    /// A message with any content.
    Message { code: u8, flags: u8, body: Vec<u8>, files: u8 },
    /// Writes any bytes to the memory.
    Write { at: u32, bytes: Vec<u8> },
    /// Writes a descriptor, which may be valid.
    Descriptor { ring: bool, index: u8, at: u32, length: u16, flags: u8, next: u8, is_wild: bool },
    /// Writes a descriptor of a packed ring, which may be valid.
    Entry { ring: bool, index: u8, at: u32, length: u16, id: u8, flags: u8, is_wild: bool },
    /// Makes a chain available, and also chains that were not written.
    Offer { ring: bool, head: u8, count: u8 },
    /// Polls the port, with packets for the guest.
    Poll { packets: u8, length: u16 },
    /// Truncates the file.
    Cut { at: u32 },
}

struct Front {
    socket: UnixStream,
    memory: OwnedFd,
    available: [u16; 2],
}

impl Front {
    fn send(&self, code: u32, flags: u32, body: &[u8], files: usize) {
        let mut bytes = Vec::new();
        let header = [code, flags, body.len() as u32];
        header.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files = vec![self.memory.as_fd(); files];
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&files));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // The port may have closed the socket.
        let _ = rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, flags);
    }

    fn start(&mut self, life: &Life) {
        let mut features = 1_u64 << 32 | 1 << 28;
        features |= u64::from(life.is_mergeable) << 15 | u64::from(life.has_events) << 29;
        features |= u64::from(life.is_packed) << 34 | u64::from(life.is_in_order) << 35;
        features |= u64::from(life.has_offloads) * OFFLOADS;
        self.send(2, 1, &features.to_ne_bytes(), 0);
        if let Some(area) = &life.area {
            self.send_area(area, life.is_packed);
        }
        let mut table = state(1, 0);
        [GUEST, BYTES, PROCESS, 0].iter().for_each(|word| table.extend(word.to_ne_bytes()));
        self.send(5, 1, &table, 1);
        for ring in 0..2_u32 {
            // A packed ring may have any size, and its wrap counter begins with 1.
            let size = u32::from(life.size) % 128 + 1;
            let size = if life.is_packed { size } else { 1 << (size % 8) };
            self.send(8, 1, &state(ring, size), 0);
            let base = if life.is_packed { 0x8000_8000 } else { 0 };
            self.send(10, 1, &state(ring, base), 0);
            let mut addresses = state(ring, 0);
            let start = PROCESS + u64::from(ring) * RING;
            for at in [AREAS[0], AREAS[2], AREAS[1]] {
                addresses.extend((start + at).to_ne_bytes());
            }
            addresses.extend(0_u64.to_ne_bytes());
            self.send(9, 1, &addresses, 0);
            self.send(12, 1, &(u64::from(ring) | 0x100).to_ne_bytes(), 0);
        }
    }

    /// Sends an in-flight area for rings of 128.
    fn send_area(&self, area: &Area, is_packed: bool) {
        let (offset, stride) = (u64::from(area.offset), if is_packed { 4160 } else { 2112 });
        for (ring, position) in area.positions.into_iter().flatten().enumerate() {
            let at = offset + ring as u64 * stride;
            self.write(at + 8, &(1 | 128_u64 << 16).to_ne_bytes());
            self.write(at + 16, &position.to_ne_bytes());
        }
        self.send(16, 1, &(1_u64 << 12).to_ne_bytes(), 0);
        let mut body = u64::from(area.bytes).to_ne_bytes().to_vec();
        body.extend(offset.to_ne_bytes());
        body.extend(u16::from(area.rings % 4).to_ne_bytes());
        body.extend(128_u16.to_ne_bytes());
        body.extend([0; 4]);
        self.send(32, 1, &body, 1);
    }

    /// Waits for an answer, which the port sends after it has read all earlier messages.
    fn wait_for_answer(&mut self) {
        self.send(1, 1, &[], 0);
        let mut reply = [0; 20];
        let _ = self.socket.read_exact(&mut reply);
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let _ = rustix::io::pwrite(&self.memory, &bytes[..bytes.len().min(4096)], at % BYTES);
    }
}

fn state(ring: u32, value: u32) -> Vec<u8> {
    [ring, value].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn assert_complete(victim: &Victim<Vhost>) {
    let counters = victim.port.counters();
    assert_eq!(counters.tx.packets + counters.tx.drops_sum(), victim.sent);
    assert_eq!(counters.rx.packets, victim.received);
    assert_eq!(victim.pool.available(), victim.pool.size());
}

fn act(front: &mut Front, victim: &mut Victim<Vhost>, act: &Act) {
    match act {
        Act::Message { code, flags, body, files } => {
            let flags = 1 | (u32::from(*flags) & 12);
            front.send((code % 48).into(), flags, &body[..body.len().min(300)], (files % 4).into());
        }
        Act::Write { at, bytes } => front.write((*at).into(), bytes),
        Act::Descriptor { ring, index, at, length, flags, next, is_wild } => {
            let base = if *is_wild { u64::MAX << 20 } else { GUEST };
            let mut bytes = (base + u64::from(*at) % (BYTES + 4096)).to_le_bytes().to_vec();
            bytes.extend(u32::from(*length).to_le_bytes());
            bytes.extend(u16::from(flags % 8).to_le_bytes());
            bytes.extend(u16::from(*next).to_le_bytes());
            front.write(u64::from(*ring) * RING + 16 * u64::from(*index), &bytes);
        }
        Act::Entry { ring, index, at, length, id, flags, is_wild } => {
            let base = if *is_wild { u64::MAX << 20 } else { GUEST };
            let mut bytes = (base + u64::from(*at) % (BYTES + 4096)).to_le_bytes().to_vec();
            bytes.extend(u32::from(*length).to_le_bytes());
            bytes.extend(u16::from(*id).to_le_bytes());
            // The lowest bits of the byte mark a descriptor as available or used.
            let marks = u16::from(flags & 1) << 7 | u16::from(flags & 2) << 14;
            bytes.extend((marks | u16::from(flags >> 2 & 7)).to_le_bytes());
            front.write(u64::from(*ring) * RING + 16 * u64::from(index % 128), &bytes);
        }
        Act::Offer { ring, head, count } => {
            let (ring, next) = (u64::from(*ring), &mut front.available[usize::from(*ring)]);
            let at = ring * RING + AREAS[1];
            let entry = at + 4 + 2 * (u64::from(*next) % 128);
            *next = next.wrapping_add((*count).into());
            let index = *next;
            front.write(entry, &u16::from(*head).to_le_bytes());
            front.write(at + 2, &index.to_le_bytes());
        }
        Act::Poll { packets, length } => victim.poll(*packets, *length),
        Act::Cut { at } => {
            let _ = rustix::fs::ftruncate(&front.memory, u64::from(*at) % BYTES);
        }
    }
}

fn path() -> PathBuf {
    std::env::temp_dir().join(format!("haul-fuzz-vhost-{}", std::process::id()))
}

fuzz_target!(|life: Life| {
    let settings = VhostSettings { has_offloads: life.has_offloads, ..VhostSettings::new(path()) };
    let port = Vhost::open("vhost0", &settings).unwrap().pop().unwrap();
    let mut victim = Victim::new(port, Pool::new(64).unwrap());
    let memory = memfd_create(c"guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memory, BYTES).unwrap();
    let socket = UnixStream::connect(path()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut front = Front { socket, memory, available: [0; 2] };
    front.start(&life);
    front.wait_for_answer();
    for each in life.acts.iter().take(64) {
        act(&mut front, &mut victim, each);
    }
    victim.poll(8, 100);
    assert_complete(&victim);
});
