//! Work that a guest leaves to its device: another guest that takes it gets the packets as they
//! are, and for all others it is done. A guest that lies loses its packets only.

use std::path::Path;
use std::time::{Duration, Instant};

use haul_forward::{
    Counters, DropReason, Mode, Pcap, PcapSettings, Pool, Port, Retry, Running, Settings, Snapshot,
    Vhost, VhostSettings,
};

use crate::front::{BUFFER_BYTES, Descriptor, FROM_GUEST, Front, GUEST, NEXT, TO_GUEST};
use crate::random::Random;
use crate::victim::{FEATURES, LONG, Victim};

/// VIRTIO_NET_F_CSUM, HOST_TSO4 and HOST_ECN; GUEST_CSUM, GUEST_TSO4 and GUEST_ECN.
const LEAVES: u64 = 1 | 1 << 11 | 1 << 13;
const TAKES: u64 = 1 << 1 | 1 << 7 | 1 << 9;
const CHECKSUMS_ALONE: u64 = 1 << 1;

/// The sizes of the header in front of a packet, and of a packet's own headers.
const FRONT_BYTES: usize = 12;
const HEADER_BYTES: usize = 54;
/// Where the checksummed part begins in a packet of TCP over IPv4, and the checksum in it.
const START: u16 = 34;
const OFFSET: u16 = 16;
/// Where a test keeps packets in the guest's memory, behind the buffers.
const PACKETS: u64 = 0x8_0000;

/// The fields of the header in front of a packet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    flags: u8,
    segmentation: u8,
    header_bytes: u16,
    segment_bytes: u16,
    start: u16,
    offset: u16,
}

const CHECKSUM: Asked = Asked {
    flags: 1,
    segmentation: 0,
    header_bytes: 0,
    segment_bytes: 0,
    start: START,
    offset: OFFSET,
};
const SEGMENTS: Asked =
    Asked { segmentation: 1, header_bytes: 54, segment_bytes: 1448, ..CHECKSUM };

/// A packet of TCP over IPv4 with this payload, which lacks its checksum, behind its header.
fn packet(asked: Asked, payload: usize) -> Vec<u8> {
    let mut bytes = vec![asked.flags, asked.segmentation];
    for word in [asked.header_bytes, asked.segment_bytes, asked.start, asked.offset, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([2; 12]);
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend((40 + payload as u16).to_be_bytes());
    bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let header = !sum(&bytes[FRONT_BYTES + 14..]);
    bytes[FRONT_BYTES + 24..FRONT_BYTES + 26].copy_from_slice(&header.to_be_bytes());
    bytes.extend([0, 9, 0, 80, 0, 0, 0, 7, 0, 0, 0, 1, 0x50, 0x18, 1, 0]);
    bytes.extend(pseudo(&bytes[FRONT_BYTES..], 20 + payload).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend((0..payload).map(|index| (index * 7 % 251) as u8));
    bytes
}

/// The sum of the pseudo header of a frame whose part behind the IP header has this many bytes.
fn pseudo(frame: &[u8], bytes: usize) -> u16 {
    sum(&[&frame[26..34], &[0, 6], &(bytes as u16).to_be_bytes()].concat())
}

/// The sum of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for (index, byte) in bytes.iter().enumerate() {
        sum += u32::from(*byte) << (8 * (1 - index % 2));
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// Whether the checksums of IP and TCP are right.
fn is_right(frame: &[u8]) -> bool {
    let transport = u32::from(sum(&frame[34..])) + u32::from(pseudo(frame, frame.len() - 34));
    sum(&frame[14..34]) == 0xFFFF && (transport & 0xFFFF) + (transport >> 16) == 0xFFFF
}

/// Checks that these frames are the parts of a packet, and complete.
fn check_parts(frames: &[Vec<u8>], whole: &[u8], segment_bytes: usize) {
    let payload = whole.len() - FRONT_BYTES - HEADER_BYTES;
    assert_eq!(frames.len(), payload.div_ceil(segment_bytes).max(1));
    let mut joined: Vec<u8> = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        assert!(is_right(frame), "part {index}");
        let length = u16::from_be_bytes([frame[16], frame[17]]);
        assert_eq!(usize::from(length), frame.len() - 14, "part {index}");
        let sequence = u32::from_be_bytes([frame[38], frame[39], frame[40], frame[41]]);
        assert_eq!(sequence as usize, 7 + joined.len(), "part {index}");
        joined.extend(&frame[HEADER_BYTES..]);
    }
    assert!(joined == whole[FRONT_BYTES + HEADER_BYTES..], "other bytes");
}

fn port(path: &Path) -> Box<dyn Port> {
    let settings = VhostSettings { has_offloads: true, ..VhostSettings::new(path) };
    Box::new(Vhost::open(&path.display().to_string(), &settings).unwrap().remove(0))
}

fn worker(ports: [Box<dyn Port>; 2]) -> Running {
    let settings = Settings {
        mode: Mode::Io,
        retry: Retry::UntilSent,
        yields: true,
        linger: Duration::from_millis(200),
        ..Settings::default()
    };
    Running::start("worker", ports, Pool::new(512).unwrap(), settings).unwrap()
}

/// Sends a packet with its header, in one descriptor or in three.
fn send(front: &mut Front, bytes: &[u8], is_chain: bool) {
    let index = front.available(FROM_GUEST) % 16 * 3;
    let at = PACKETS + u64::from(index % 4) * 0x1_1000;
    front.put(at, bytes);
    let ends = if is_chain { vec![0, 5, 60, bytes.len()] } else { vec![0, bytes.len()] };
    for (number, part) in ends.windows(2).enumerate() {
        let next = index + number as u16 + 1;
        let flags = if part[1] < bytes.len() { NEXT } else { 0 };
        let address = GUEST + at + part[0] as u64;
        let descriptor = Descriptor { address, length: (part[1] - part[0]) as u32, flags, next };
        front.set(FROM_GUEST, index + number as u16, descriptor);
    }
    front.make_available(FROM_GUEST, index);
}

/// Makes all buffers of a guest available.
fn add_buffers(front: &mut Front) {
    (0..64).for_each(|index| front.add_buffer(index));
}

/// Receives the next packet with its header, of any number of buffers; the buffers are then
/// available again.
fn receive(front: &mut Front, taken: &mut u16) -> Vec<u8> {
    let started = Instant::now();
    while front.used(TO_GUEST) == *taken {
        assert!(started.elapsed() < LONG, "no packet arrives");
        std::thread::yield_now();
    }
    let mut bytes = Vec::new();
    let mut left = 1_u16;
    while left > 0 {
        let (index, written) = front.used_entry(TO_GUEST, *taken);
        let mut buffer = vec![0; written as usize];
        front.get(Front::buffer(TO_GUEST, index), &mut buffer);
        if bytes.is_empty() {
            left = u16::from_le_bytes([buffer[10], buffer[11]]);
        }
        bytes.extend(buffer);
        front.add_buffer(index);
        *taken = taken.wrapping_add(1);
        left -= 1;
    }
    assert!(bytes.len() > FRONT_BYTES + 14 && bytes.len() < 33 * BUFFER_BYTES as usize);
    bytes
}

/// The drops of a port for a reason, in both directions.
fn drops(snapshot: &Snapshot, index: usize, reason: DropReason) -> u64 {
    let counters: &Counters = &snapshot.ports[index].2;
    counters.rx.drops_for(reason) + counters.tx.drops_for(reason)
}

/// Two guests, of which the second takes work by these features, and a worker between them.
fn pair(takes: u64) -> (tempfile::TempDir, Running, Front, Front) {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    let running = worker([port(&paths[0]), port(&paths[1])]);
    let mut sender = Front::connect(&paths[0]);
    sender.start(FEATURES | LEAVES);
    let mut receiver = Front::connect(&paths[1]);
    add_buffers(&mut receiver);
    receiver.start(FEATURES | takes);
    // The worker drops packets to a guest without a link.
    let started = Instant::now();
    while receiver.used(TO_GUEST) == 0 {
        assert!(started.elapsed() < LONG, "no packet arrives");
        send(&mut sender, &[[0; 12].as_slice(), &[7; 60]].concat(), false);
        std::thread::sleep(Duration::from_millis(5));
    }
    send(&mut sender, &[[0; 12].as_slice(), &[8; 60]].concat(), false);
    (folder, running, sender, receiver)
}

/// Skips the packets that [`pair`] has sent, up to the last one.
fn start_of(receiver: &mut Front) -> u16 {
    let mut taken = 0;
    while receive(receiver, &mut taken)[FRONT_BYTES..] != [8; 60] {}
    taken
}

#[test]
fn checksum_is_left_to_guest_that_takes_it_and_computed_for_others() {
    for takes in [TAKES, CHECKSUMS_ALONE, 0] {
        let (_folder, running, mut sender, mut receiver) = pair(takes);
        let mut taken = start_of(&mut receiver);
        for (is_chain, payload) in [(false, 0), (true, 0), (false, 1001), (true, 8000)] {
            let sent = packet(CHECKSUM, payload);
            send(&mut sender, &sent, is_chain);
            let came = receive(&mut receiver, &mut taken);
            let name = format!("{takes:#x} {is_chain} {payload}");
            if takes == 0 {
                assert_eq!(came[..10], [0; 10], "{name}");
                assert!(is_right(&came[FRONT_BYTES..]), "{name}");
                assert!(came[FRONT_BYTES + HEADER_BYTES..] == sent[FRONT_BYTES + HEADER_BYTES..]);
            } else {
                assert_eq!(came[..10], sent[..10], "{name}");
                assert!(came[FRONT_BYTES..] == sent[FRONT_BYTES..], "{name}");
            }
        }
        drop((sender, receiver));
        running.stop().unwrap();
    }
}

#[test]
fn long_packet_stays_whole_for_guest_that_takes_it_and_is_divided_for_others() {
    for takes in [TAKES, CHECKSUMS_ALONE, 0] {
        let (_folder, running, mut sender, mut receiver) = pair(takes);
        let mut taken = start_of(&mut receiver);
        for (is_chain, payload) in [(false, 3000), (true, 3000), (false, 0), (false, 62_000)] {
            let sent = packet(SEGMENTS, payload);
            send(&mut sender, &sent, is_chain);
            if takes == TAKES {
                let came = receive(&mut receiver, &mut taken);
                assert_eq!(came[..10], sent[..10], "{is_chain} {payload}");
                assert!(came[FRONT_BYTES..] == sent[FRONT_BYTES..], "{is_chain} {payload}");
                continue;
            }
            let count = payload.div_ceil(1448).max(1);
            let parts: Vec<Vec<u8>> = (0..count)
                .map(|_| receive(&mut receiver, &mut taken).split_off(FRONT_BYTES))
                .collect();
            check_parts(&parts, &sent, 1448);
        }
        drop((sender, receiver));
        running.stop().unwrap();
    }
}

#[test]
fn work_is_done_for_a_port_of_another_kind() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("a"), folder.path().join("out.pcap"));
    let settings = PcapSettings { output: Some(file.clone()), ..PcapSettings::default() };
    let capture: Box<dyn Port> = Box::new(Pcap::open("pcap", &settings).unwrap());
    let running = worker([port(&path), capture]);
    let mut sender = Front::connect(&path);
    sender.start(FEATURES | LEAVES);
    let (short, long) = (packet(CHECKSUM, 999), packet(SEGMENTS, 40_000));
    send(&mut sender, &long, true);
    send(&mut sender, &short, false);
    let started = Instant::now();
    while sender.used(FROM_GUEST) != 2 {
        assert!(started.elapsed() < LONG, "the packets are not taken");
        std::thread::yield_now();
    }
    running.stop().unwrap();
    let written = std::fs::read(file).unwrap();
    let (mut at, mut frames) = (24, Vec::new());
    while at < written.len() {
        let length = u32::from_le_bytes(written[at + 8..at + 12].try_into().unwrap()) as usize;
        frames.push(written[at + 16..at + 16 + length].to_vec());
        at += 16 + length;
    }
    let last = frames.pop().unwrap();
    assert!(is_right(&last) && last[HEADER_BYTES..] == short[FRONT_BYTES + HEADER_BYTES..]);
    check_parts(&frames, &long, 1448);
}

/// Headers that lie, each of which costs its packet.
fn lies() -> Vec<(&'static str, Asked)> {
    let checksum = |start, offset| Asked { start, offset, ..CHECKSUM };
    vec![
        ("a checksum in the Ethernet header", checksum(0, OFFSET)),
        ("a checksum behind the packet", checksum(START, 65_000)),
        ("a checksum half inside", checksum(1053, 0)),
        ("a start behind the packet", checksum(u16::MAX, u16::MAX)),
        ("segments of no byte", Asked { segment_bytes: 0, ..SEGMENTS }),
        ("headers longer than the packet", Asked { header_bytes: 1055, ..SEGMENTS }),
        ("segments without a checksum", Asked { flags: 0, ..SEGMENTS }),
        ("segments whose checksum lies outside", Asked { start: 60_000, ..SEGMENTS }),
        ("a feature that was offered but not taken", Asked { segmentation: 4, ..SEGMENTS }),
        ("segments of UDP, which were not offered", Asked { segmentation: 3, ..SEGMENTS }),
        ("newer segments of UDP", Asked { segmentation: 5, ..SEGMENTS }),
        ("an unknown kind", Asked { segmentation: 0x6E, ..SEGMENTS }),
        ("a mark of congestion alone", Asked { segmentation: 0x80, ..SEGMENTS }),
    ]
}

#[test]
fn packet_whose_header_lies_is_dropped_and_next_one_arrives() {
    let mut victim = Victim::with(|settings| VhostSettings { has_offloads: true, ..settings });
    let mut front = victim.front_with(FEATURES | LEAVES);
    for (number, (name, asked)) in lies().into_iter().enumerate() {
        for is_chain in [false, true] {
            send(&mut front, &packet(asked, 1000), is_chain);
            let came = victim.came.len();
            send(&mut front, &packet(CHECKSUM, 1000), is_chain);
            victim.poll(0, 0);
            let bad = victim.counters().rx.drops_for(DropReason::BadDescriptor);
            let lies = 2 * number as u64 + 1 + u64::from(is_chain);
            assert_eq!(bad, lies, "{name}, {is_chain}");
            assert_eq!(victim.came.len(), came + 1, "{name}, {is_chain}");
        }
    }
    // Long packets that are not to be divided, and packets longer than any.
    send(&mut front, &packet(CHECKSUM, 9216), false);
    front.set(FROM_GUEST, 60, Descriptor { address: GUEST, length: 0x1_1000, flags: 0, next: 0 });
    front.put(0, &packet(SEGMENTS, 0)[..FRONT_BYTES]);
    front.make_available(FROM_GUEST, 60);
    victim.poll(0, 0);
    assert_eq!(victim.counters().rx.drops_for(DropReason::TooLong), 2);
}

#[test]
fn header_of_guest_without_the_features_means_nothing() {
    let mut victim = Victim::with(|settings| VhostSettings { has_offloads: true, ..settings });
    let mut front = victim.front_with(FEATURES);
    for (count, (name, asked)) in lies().into_iter().enumerate() {
        send(&mut front, &packet(asked, 1000), count % 2 == 0);
        victim.poll(0, 0);
        assert_eq!(victim.came.len(), count + 1, "{name}");
        assert_eq!(victim.came.last().map(|(_, length)| *length), Some(1054), "{name}");
    }
    victim.counters();
}

#[test]
fn random_headers_cost_only_packets() {
    for takes in [TAKES, 0] {
        let (_folder, running, mut sender, mut receiver) = pair(takes);
        let mut taken = start_of(&mut receiver);
        let mut random = Random::new(0x0FF1_0AD5_0FF1_0AD5);
        for _ in 0..2000 {
            let mut word = |usual: u16| match random.below(3) {
                0 => random.next() as u16,
                1 => random.below(200) as u16,
                _ => usual,
            };
            let asked = Asked {
                flags: word(1) as u8,
                segmentation: word(1) as u8,
                header_bytes: word(54),
                segment_bytes: word(1448),
                start: word(START),
                offset: word(OFFSET),
            };
            let mut bytes = packet(asked, random.below(5000) as usize);
            // Any byte of the headers may be wrong.
            if random.below(2) == 0 {
                let at = random.below((FRONT_BYTES + HEADER_BYTES) as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            send(&mut sender, &bytes, random.below(2) == 0);
            let started = Instant::now();
            while sender.used(FROM_GUEST) != sender.available(FROM_GUEST) {
                assert!(started.elapsed() < LONG, "the packet is not taken");
                while receiver.used(TO_GUEST) != taken {
                    receive(&mut receiver, &mut taken);
                }
                std::thread::yield_now();
            }
        }
        // The next packet passes behind all of these.
        let mark = packet(CHECKSUM, 321);
        send(&mut sender, &mark, false);
        while receive(&mut receiver, &mut taken).len() != mark.len() {}
        drop((sender, receiver));
        let snapshot = running.stop().unwrap();
        assert!(drops(&snapshot, 0, DropReason::BadDescriptor) > 100);
        let reset = drops(&snapshot, 0, DropReason::Reset) + drops(&snapshot, 1, DropReason::Reset);
        assert_eq!(reset, 0);
    }
}
