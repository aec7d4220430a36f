//! Work that a kernel leaves to a device: checksums, and merged packets like those that TCP sends
//! through a veth pair and that GRO makes.

use std::os::fd::AsRawFd;

use haul_forward::{AfPacket, Burst, Link, Pool, Port};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::network::with_pair;
use crate::support::wait;

/// A socket that sends frames, each behind a header that describes the work left.
struct Raw(OwnedFd);

/// `struct virtio_net_hdr`: the kind of merge (1 for TCP over IPv4, 5 for UDP), bytes of each part,
/// where the checksum begins, and the offset of the checksum from there.
fn work_left(merged: u8, part: u16, start: u16, at: u16) -> Vec<u8> {
    let words = [start + at + 2, part, start, at];
    [&[1, merged][..], &words.map(u16::to_ne_bytes).concat()].concat()
}

impl Raw {
    fn open(interface: &str) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None);
        let socket = socket.unwrap();
        let one = 1_i32;
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR);
        let length = size_of::<i32>() as libc::socklen_t;
        let value = (&raw const one).cast();
        // SAFETY: the value has the given length, and is only read.
        let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) };
        assert_eq!(set, 0);
        let index = rustix::net::netdevice::name_to_index(&socket, interface).unwrap();
        // SAFETY: all zeros are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let address = (&raw const address).cast();
        // SAFETY: the address has the given length, and is only read.
        assert_eq!(unsafe { libc::bind(socket.as_raw_fd(), address, length) }, 0);
        Self(socket)
    }

    fn send(&self, left: &[u8], frame: &[u8]) -> bool {
        rustix::net::send(&self.0, &[left, frame].concat(), SendFlags::empty()).is_ok()
    }
}

/// Offset of the TCP or UDP header in these frames.
const TRANSPORT: usize = 14 + 20;

/// An IPv4 frame with the checksum that a kernel leaves to a device: that of the pseudo-header.
pub(crate) fn frame(is_tcp: bool, payload: usize) -> Vec<u8> {
    let (protocol, header) = if is_tcp { (6, 20) } else { (17, 8) };
    let length = header + payload as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((20 + length).to_be_bytes());
    frame.extend([0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let own = !folded(&frame[14..]);
    frame[24..26].copy_from_slice(&own.to_be_bytes());
    let pseudo = [&frame[26..34], &[0, protocol], &length.to_be_bytes()].concat();
    let pseudo = folded(&pseudo).to_be_bytes();
    frame.extend([0x10, 0, 0, 80]);
    if is_tcp {
        frame.extend([0, 0, 1, 0, 0, 0, 0, 1, 0x50, 0x18, 1, 0, pseudo[0], pseudo[1], 0, 0]);
    } else {
        frame.extend(length.to_be_bytes());
        frame.extend(pseudo);
    }
    frame.extend((0..payload).map(|at| (at * 7) as u8));
    frame
}

/// The sum of RFC 1071.
fn folded(bytes: &[u8]) -> u16 {
    let pair = |it: &[u8]| u32::from(it[0]) << 8 | u32::from(*it.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(pair).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Asserts that a receiver accepts a frame: both checksums and the lengths are valid.
fn check(name: &str, frame: &[u8]) {
    let length = frame.len() - 14;
    assert_eq!(frame[16..18], (length as u16).to_be_bytes(), "{name}");
    assert_eq!(folded(&frame[14..TRANSPORT]), 0xffff, "{name}: the header's checksum");
    let length = ((length - 20) as u16).to_be_bytes();
    let pseudo = [&frame[26..34], &[0, frame[23]], &length, &frame[TRANSPORT..]].concat();
    assert_eq!(folded(&pseudo), 0xffff, "{name}: the checksum");
}

/// Receives at least `count` packets, in bursts of at most `limit`.
fn received(port: &mut AfPacket, pool: &mut Pool, count: usize, limit: usize) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut burst = Burst::with_limit(limit);
    wait("the packets", || {
        let came = port.rx_burst(pool, &mut burst);
        assert!(came <= limit);
        while let Some(packet) = burst.pop() {
            let mut bytes = vec![0; pool.length(&packet)];
            assert!(pool.read(&packet, 0, &mut bytes));
            found.push(bytes);
            pool.free(packet);
        }
        found.len() >= count
    });
    found
}

#[test]
fn merged_packets_are_split_again() {
    with_pair("merged packets", || {
        let mut port = AfPacket::open("port", "haul0").unwrap();
        let mut pool = Pool::new(8).unwrap();
        wait("a link", || {
            port.service(&mut pool).unwrap();
            port.link() == Link::Up
        });
        let raw = Raw::open("haul1");
        // The merged packets are longer than a slot of the ring, as long as possible, or short
        // enough for a slot.
        for (is_tcp, payload, part, limit) in [
            (true, 5000, 1448, 32),
            (true, 65_000, 1448, 7),
            (true, 1000, 400, 1),
            (true, 1448, 1448, 32),
            (false, 4000, 1000, 3),
        ] {
            let (merged, header, at) = if is_tcp { (1, 20, 16) } else { (5, 8, 6) };
            let name = format!("{payload} B in parts of {part}, {limit} at once");
            let whole = frame(is_tcp, payload);
            if !raw.send(&work_left(merged, part, TRANSPORT as u16, at), &whole) {
                // A kernel before 6.2 does not support UDP.
                assert!(!is_tcp, "{name}");
                continue;
            }
            let count = payload.div_ceil(part.into());
            let found = received(&mut port, &mut pool, count, limit);
            assert_eq!(found.len(), count, "{name}");
            let headers = TRANSPORT + header;
            let mut given: Vec<u8> = Vec::new();
            for part in &found {
                check(&name, part);
                assert_eq!(part[..12], whole[..12]);
                given.extend(&part[headers..]);
            }
            assert_eq!(given, whole[headers..], "{name}");
        }
        assert_eq!(port.counters().rx.drops_sum(), 0, "{:?}", port.counters().rx.drops);
        port.stop(&mut pool);
        assert_eq!(pool.available(), pool.size());
    });
}

#[test]
fn offloaded_checksums_are_completed() {
    with_pair("checksums", || {
        let mut port = AfPacket::open("port", "haul0").unwrap();
        let mut pool = Pool::new(8).unwrap();
        wait("a link", || {
            port.service(&mut pool).unwrap();
            port.link() == Link::Up
        });
        let raw = Raw::open("haul1");
        for (is_tcp, payload) in [(true, 0), (true, 1400), (false, 1), (false, 1472)] {
            let whole = frame(is_tcp, payload);
            let at = if is_tcp { 16 } else { 6 };
            assert!(raw.send(&work_left(0, 0, TRANSPORT as u16, at), &whole));
            let found = received(&mut port, &mut pool, 1, 32);
            check(&format!("{is_tcp}, {payload} B"), &found[0]);
            let header = if is_tcp { 20 } else { 8 };
            assert_eq!(found[0][TRANSPORT + header..], whole[TRANSPORT + header..]);
        }
        // A frame that needs no checksum arrives unchanged, whether its checksum is valid or not.
        let whole = frame(true, 100);
        assert!(raw.send(&[0; 10], &whole));
        assert_eq!(received(&mut port, &mut pool, 1, 32), [whole]);
    });
}

/// Without a buffer, the rest of a merged packet waits.
#[test]
fn merged_packet_waits_for_buffers() {
    with_pair("a merged packet without buffers", || {
        let mut port = AfPacket::open("port", "haul0").unwrap();
        let mut pool = Pool::new(3).unwrap();
        wait("a link", || {
            port.service(&mut pool).unwrap();
            port.link() == Link::Up
        });
        let whole = frame(true, 7000);
        assert!(Raw::open("haul1").send(&work_left(1, 1000, TRANSPORT as u16, 16), &whole));
        let mut burst = Burst::new();
        wait("as many as there are buffers", || {
            port.rx_burst(&mut pool, &mut burst);
            burst.len() == 3
        });
        assert_eq!(port.rx_burst(&mut pool, &mut burst), 0);
        pool.free_burst(&mut burst);
        assert_eq!(received(&mut port, &mut pool, 4, 32).len(), 4);
        assert_eq!((port.counters().rx.packets, port.counters().rx.drops_sum()), (7, 0));
    });
}
