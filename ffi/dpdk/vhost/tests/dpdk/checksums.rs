//! Packets that lack a checksum, as a Linux guest sends them, and packets whose headers lie: what
//! the program sees of each, and what the guest gets back, must be the same with the library and
//! without.

use std::time::{Duration, Instant};

use crate::front::{
    BUFFER_BYTES, Descriptor, FROM_GUEST, Front, GUEST, INDIRECT, IS_INDIRECT, MERGEABLE, NEXT,
    SIZE, TO_GUEST, VERSION_1, WRITE, bytes_of,
};
use crate::testpmd::{Preload, Testpmd, is_here};

/// VIRTIO_NET_F_CSUM: the guest may leave checksums to the device.
const CHECKSUMS: u64 = 1;

/// `flags` of a header: the packet lacks a checksum; its checksum is correct.
const LACKS: u8 = 1;
const CORRECT: u8 = 2;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ICMP: u8 = 1;

/// Offset of the tables of indirect descriptors.
const TABLE: u64 = 0x6000;

/// A time limit that is longer than any step needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A packet with its header, and how the library must treat it.
struct Case {
    header: [u8; 12],
    packet: Vec<u8>,
    /// Whether the library moves it from the guest.
    is_served: bool,
}

/// A packet of these headers, and the length of those in front of the transport's.
fn packet(tags: &[[u8; 4]], version: u8, transport: u8, options: usize) -> (u16, Vec<u8>) {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    bytes.extend(tags.concat());
    let kind: [u8; 2] = if version == 6 { [0x86, 0xDD] } else { [8, 0] };
    bytes.extend(kind);
    let length = 100_u16;
    if version == 6 {
        bytes.extend([0x60, 0, 0, 0]);
        bytes.extend(length.to_be_bytes());
        bytes.extend([transport, 64]);
        bytes.extend([0xFD; 32]);
    } else {
        let header_bytes = 20 + options;
        bytes.extend([0x40 | (header_bytes / 4) as u8, 0]);
        bytes.extend((header_bytes as u16 + length).to_be_bytes());
        bytes.extend([0, 1, 0, 0, 64, transport, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(vec![1; options]);
    }
    let start = bytes.len() as u16;
    let mut rest: Vec<u8> = (0..length).map(|byte| (byte * 7) as u8).collect();
    // The length of TCP's header, in words of four bytes.
    rest[12] = 0x50;
    rest[4..6].copy_from_slice(&length.to_be_bytes());
    bytes.extend(rest);
    (start, bytes)
}

fn header(flags: u8, segmentation: u8, start: u16, offset: u16) -> [u8; 12] {
    let mut header = [0; 12];
    (header[0], header[1]) = (flags, segmentation);
    header[6..8].copy_from_slice(&start.to_le_bytes());
    header[8..10].copy_from_slice(&offset.to_le_bytes());
    header
}

/// All packets: honest ones of each kind, then lies.
fn cases() -> Vec<Case> {
    let tag = [0x81, 0, 0, 5];
    let mut cases = Vec::new();
    let mut add = |header: [u8; 12], packet: &[u8], is_served: bool| {
        cases.push(Case { header, packet: packet.to_vec(), is_served });
    };
    for tags in [&[][..], &[tag], &[[0x88, 0xA8, 0, 6], tag]] {
        for (version, options) in [(4, 0), (4, 8), (6, 0)] {
            for (transport, offset) in [(TCP, 16), (UDP, 6), (SCTP, 8), (ICMP, 2)] {
                let (start, packet) = packet(tags, version, transport, options);
                add(header(LACKS, 0, start, offset), &packet, true);
            }
        }
    }
    let (start, packet) = packet(&[], 4, TCP, 0);
    let end = packet.len() as u16;
    // A checksum of another transport, another start, and values outside of the packet.
    for (start, offset) in
        [(start, 6), (start, 8), (0, 16), (start + 4, 16), (start + 20, 16), (start + 21, 16)]
    {
        add(header(LACKS, 0, start, offset), &packet, true);
    }
    for (start, offset) in
        [(end - 1, 0), (end - 2, 0), (60, end - 61), (60, end - 60), (60, 5000), (60, 65_500)]
    {
        add(header(LACKS, 0, start, offset), &packet, true);
    }
    add(header(LACKS, 0, start, u16::MAX), &packet, true);
    // Shortened packets.
    for length in [14, 20, 33, 34, 50, 53, 54] {
        add(header(LACKS, 0, start, 16), &packet[..length], true);
    }
    let mut fragment = packet.clone();
    fragment[20] = 0x20;
    add(header(LACKS, 0, start, 16), &fragment, true);
    let mut short_header = packet.clone();
    short_header[14] = 0x41;
    add(header(LACKS, 0, start, 16), &short_header, true);
    // Headers that ask for nothing, or for more.
    add([0; 12], &packet, true);
    add(header(CORRECT, 0, 0, 0), &packet, false);
    add(header(LACKS | CORRECT, 0, start, 16), &packet, false);
    add(header(LACKS, 77, start, 16), &packet, false);
    cases
}

/// The place of a case's packet in the memory, and how its bytes are divided into descriptors.
fn send(front: &mut Front, number: usize, case: &Case) {
    let bytes = [&case.header[..], &case.packet].concat();
    let at = Front::buffer(FROM_GUEST, 0);
    front.put(at, &bytes);
    let length = bytes.len() as u32;
    let part = |from: u32, to: u32, flags, next| {
        let address = GUEST + at + u64::from(from);
        Descriptor { address, length: to - from, flags, next }
    };
    match number % 3 {
        0 => front.set(FROM_GUEST, 0, part(0, length, 0, 0)),
        // The header alone, as older drivers send it.
        1 => {
            front.set(FROM_GUEST, 0, part(0, 12, NEXT, 1));
            front.set(FROM_GUEST, 1, part(12, length, 0, 0));
        }
        // Three pieces in a table, the first two with the header.
        _ => {
            let parts = [part(0, 7, NEXT, 1), part(7, 24, NEXT, 2), part(24, length, 0, 0)];
            parts.iter().enumerate().for_each(|(index, part)| {
                front.put(TABLE + 16 * index as u64, &bytes_of(*part));
            });
            let (address, length) = (GUEST + TABLE, 48);
            let table = Descriptor { address, length, flags: IS_INDIRECT, next: 0 };
            front.set(FROM_GUEST, 0, table);
        }
    }
    front.make_available(FROM_GUEST, 0);
}

/// Makes a buffer of three descriptors available, and clears it.
pub(crate) fn add_buffer(front: &mut Front) {
    let at = Front::buffer(TO_GUEST, 0);
    front.put(at, &[0; BUFFER_BYTES as usize]);
    for (index, (from, to)) in [(0, 12), (12, 60), (60, BUFFER_BYTES)].into_iter().enumerate() {
        let flags = if index < 2 { NEXT | WRITE } else { WRITE };
        let (address, length) = (GUEST + at + from, (to - from) as u32);
        let next = index as u16 + 1;
        front.set(TO_GUEST, index as u16, Descriptor { address, length, flags, next });
    }
    front.make_available(TO_GUEST, 0);
}

/// What returned of each packet with its header, and what testpmd printed about the packets.
struct Outcome {
    returned: Vec<Vec<u8>>,
    printed: Vec<String>,
    served: (u64, u64),
}

/// `None` if the switch took more than one packet before it returned the first: their number would
/// be unknown.
fn run(preload: &Preload, options: &str, own: &[&str], features: u64) -> Option<Outcome> {
    let mut testpmd = Testpmd::start_with(preload, options, own);
    testpmd.say("set verbose 3");
    let mut front = Front::connect(testpmd.socket());
    front.start(features);
    let mut returned = Vec::new();
    if wait_until_served(&mut front) != 1 {
        return None;
    }
    for (number, case) in cases().iter().enumerate() {
        let end = front.used(TO_GUEST).wrapping_add(1);
        add_buffer(&mut front);
        send(&mut front, number, case);
        let started = Instant::now();
        while front.used(TO_GUEST) != end {
            assert!(started.elapsed() < PATIENCE, "packet {number} does not return");
            std::thread::yield_now();
        }
        let mut bytes = vec![0; BUFFER_BYTES as usize];
        front.get(Front::buffer(TO_GUEST, 0), &mut bytes);
        bytes.truncate(12 + case.packet.len());
        returned.push(bytes);
    }
    drop(front);
    let text = testpmd.quit();
    let served = crate::served(&text).first().copied().unwrap_or_default();
    let printed = text.lines().filter_map(property).map(String::from).collect();
    Some(Outcome { returned, printed, served })
}

/// Sends one packet again and again until it returns: the switch drops packets while it starts.
/// Returns the number of packets sent.
fn wait_until_served(front: &mut Front) -> u16 {
    let started = Instant::now();
    front.add_buffer(5);
    let mut sent = 0;
    while front.used(TO_GUEST) == 0 {
        assert!(started.elapsed() < PATIENCE, "no packet returns");
        if front.used(FROM_GUEST) == sent {
            front.send_packet(sent % SIZE, 1);
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(front.used(TO_GUEST), 1, "a second packet");
    sent
}

/// What testpmd prints about a packet's type and flags, of a line of its output.
fn property(line: &str) -> Option<&str> {
    let from = line.find("hw ptype:").or_else(|| line.find("ol_flags:"))?;
    let text = &line[from..];
    Some(text.find(" - sw ptype").map_or(text, |end| &text[..end]))
}

#[test]
fn packets_without_checksum_equal_those_without_library() {
    if !is_here("packets_without_checksum_equal_those_without_library") {
        return;
    }
    let features = VERSION_1 | MERGEABLE | INDIRECT | CHECKSUMS;
    // RTE_ETH_RX_OFFLOAD_UDP_CKSUM and _TCP_CKSUM: the driver leaves the flags as librte_vhost sets
    // them.
    let received: &[&str] = &["--rx-offloads=0xc"];
    for (options, own, features) in [
        ("", received, features),
        (",legacy-ol-flags=1", &[][..], features),
        ("", received, features & !CHECKSUMS),
    ] {
        let [without, with] = [Preload::NONE, Preload::TELL].map(|preload| {
            let mut tries = (0..10).filter_map(|_| run(&preload, options, own, features));
            tries.next().expect("one packet of ten returns before the next")
        });
        let what = format!("{options} {features:x}");
        let cases = cases();
        for (number, case) in cases.iter().enumerate() {
            let (here, there) = (&with.returned[number], &without.returned[number]);
            let Case { header, packet, .. } = case;
            assert_eq!(here, there, "{what}: packet {number}: {header:?} {packet:02x?}");
        }
        assert_eq!(with.printed, without.printed, "{what}");
        let kinds = ["RX_L4_CKSUM_NONE", "TX_TCP_CKSUM", "L3_IPV6 L4_UDP"]
            .map(|kind| with.printed.iter().any(|line| line.contains(kind)));
        let is_legacy = !options.is_empty();
        let has_checksums = features & CHECKSUMS != 0;
        let is_compliant = has_checksums && !is_legacy;
        assert_eq!(kinds, [is_compliant, is_legacy, is_compliant], "{what}: {:?}", with.printed);
        // Without the feature, DPDK ignores headers.
        let is_handed = |case: &&Case| !case.is_served || !has_checksums && case.header[0] != 0;
        let handed = cases.iter().filter(is_handed).count();
        let all = 2 * (cases.len() + 1);
        assert_eq!(with.served, ((all - handed) as u64, handed as u64), "{what}");
    }
}
