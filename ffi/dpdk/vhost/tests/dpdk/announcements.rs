//! A front end that asks for announcements of its guest's address, as QEMU does after a migration:
//! DPDK makes the packet, which the library must not keep from it.

use std::time::{Duration, Instant};

use crate::front::{FROM_GUEST, Front, MERGEABLE, SIZE, TO_GUEST, VERSION_1};
use crate::testpmd::{Preload, Testpmd, is_here};

/// VHOST_USER_SEND_RARP, and its body: the guest's address in eight bytes.
const SEND_RARP: u32 = 19;
const ADDRESS: [u8; 8] = [2, 0, 0, 0, 0, 1, 0, 0];

/// The Ethernet type of reverse ARP, and its place behind the packet's header and two addresses.
const KIND: [u8; 2] = [0x80, 0x35];
const KIND_AT: u64 = 12 + 12;

/// The byte of packets of which some get lost, because the switch drops packets while it starts.
const EARLY: u8 = 0xEE;

/// A time limit that is longer than any step needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The packets that the guest has sent and received.
struct Packets {
    front: Front,
    sent: u16,
    received: u16,
}

#[test]
fn announcements_arrive_between_packets() {
    if !is_here("announcements_arrive_between_packets") {
        return;
    }
    for (preload, is_loaded) in [(Preload::TELL, true), (Preload::NONE, false)] {
        let testpmd = Testpmd::start(&preload);
        let mut front = Front::connect(testpmd.socket());
        front.start(VERSION_1 | MERGEABLE);
        (0..SIZE).for_each(|index| front.add_buffer(index));
        let mut packets = Packets { front, sent: 0, received: 0 };
        packets.wait_until_served();
        for mark in 0..100 {
            packets.announce();
            packets.send(mark);
            packets.wait_for([mark; 2]);
        }
        drop(packets);
        let served = crate::served(&testpmd.quit());
        assert_eq!(served.iter().any(|(here, _)| *here > 0), is_loaded, "{served:?}");
    }
}

impl Packets {
    /// Sends a packet that consists of this byte.
    fn send(&mut self, mark: u8) {
        self.front.send_packet(self.sent % SIZE, mark);
        self.sent = self.sent.wrapping_add(1);
    }

    /// Sends early packets until one has returned.
    fn wait_until_served(&mut self) {
        let started = Instant::now();
        while self.front.used(TO_GUEST) == 0 {
            assert!(started.elapsed() < PATIENCE, "no packet returns");
            if self.sent.wrapping_sub(self.front.used(FROM_GUEST)) < SIZE {
                self.send(EARLY);
            }
            let end = Instant::now() + Duration::from_millis(200);
            while self.front.used(TO_GUEST) == 0 && Instant::now() < end {
                std::thread::yield_now();
            }
        }
    }

    /// Waits for one more packet, and returns its Ethernet type.
    fn receive(&mut self) -> [u8; 2] {
        let started = Instant::now();
        while self.front.used(TO_GUEST) == self.received {
            assert!(started.elapsed() < PATIENCE, "only {} packets arrived", self.received);
            std::thread::yield_now();
        }
        let place = self.received % SIZE;
        let mut kind = [0; 2];
        self.front.get(Front::buffer(TO_GUEST, place) + KIND_AT, &mut kind);
        self.front.add_buffer(place);
        self.received = self.received.wrapping_add(1);
        kind
    }

    /// Waits for the packet of this Ethernet type. Only early packets may arrive before it.
    fn wait_for(&mut self, kind: [u8; 2]) {
        let mut found = self.receive();
        while found == [EARLY; 2] {
            found = self.receive();
        }
        assert_eq!(found, kind);
    }

    fn announce(&mut self) {
        assert!(self.front.send(SEND_RARP, &ADDRESS, &[]));
        self.wait_for(KIND);
    }
}
