//! haul's guest: it sends packets of known content and checks each that returns.

use std::path::Path;
use std::time::{Duration, Instant};

use haul_forward::{Burst, Link, Pool, Port, Virtio, VirtioSettings};

/// A time limit that is longer than any step needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Packets that are on their way at the same time: fewer than a ring has buffers, so that the
/// switch drops none.
const UNDER_WAY: u64 = 32;

/// The layout of a guest's rings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) is_mergeable: bool,
    pub(crate) is_packed: bool,
    pub(crate) is_in_order: bool,
}

const fn layout(is_mergeable: bool, is_packed: bool, is_in_order: bool) -> Layout {
    Layout { is_mergeable, is_packed, is_in_order }
}

pub(crate) const LAYOUTS: [Layout; 6] = [
    layout(true, false, false),
    layout(false, false, false),
    layout(true, false, true),
    layout(true, true, false),
    layout(false, true, false),
    layout(true, true, true),
];

pub(crate) struct Guest {
    port: Virtio,
    pool: Pool,
    /// Packets that were sent in all: each has other bytes.
    sent: u64,
}

impl Guest {
    /// Connects, and waits for the link.
    pub(crate) fn connect(socket: &Path, layout: Layout) -> Self {
        let settings = VirtioSettings {
            size: 256,
            is_mergeable: layout.is_mergeable,
            is_packed: layout.is_packed,
            is_in_order: layout.is_in_order,
            ..VirtioSettings::new(socket)
        };
        let port = Virtio::open("guest", &settings).expect("a guest").remove(0);
        let pool = Pool::new(2048).expect("a pool");
        let mut guest = Self { port, pool, sent: 0 };
        guest.wait_for_link();
        guest
    }

    fn wait_for_link(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.port.service(&mut self.pool).expect("a service");
            if self.port.link() == Link::Up {
                return;
            }
            assert!(Instant::now() < end, "no link: {:?}", self.port.obstacle());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for a link again, and discards packets that were under way.
    pub(crate) fn reconnect(&mut self, round: u32) {
        std::thread::sleep(Duration::from_millis(300));
        self.wait_for_link();
        let end = Instant::now() + Duration::from_millis(100);
        let mut burst = Burst::new();
        while Instant::now() < end {
            self.port.service(&mut self.pool).unwrap_or_else(|error| panic!("{round}: {error}"));
            self.port.rx_burst(&mut self.pool, &mut burst);
            self.pool.free_burst(&mut burst);
        }
    }

    /// Sends packets of these sizes in turn, and checks that all return unchanged and in order.
    /// Returns their bytes.
    pub(crate) fn exchange(&mut self, packets: u64, sizes: &[usize]) -> u64 {
        let (mut sent, mut back, mut bytes) = (0, 0, 0);
        let (mut waiting, mut received) = (Burst::new(), Burst::new());
        let (first, end) = (self.sent, Instant::now() + PATIENCE);
        let size_of = |index: u64| sizes[index as usize % sizes.len()];
        while back < packets {
            assert!(Instant::now() < end, "{back} of {packets} packets returned, {sent} were sent");
            self.port.service(&mut self.pool).expect("a service");
            while sent < packets && sent - back < UNDER_WAY && waiting.room() > 0 {
                let content = content(first + sent, size_of(sent));
                let packet = self.pool.take(content.len()).expect("a buffer");
                assert!(self.pool.write(&packet, 0, &content));
                bytes += content.len() as u64;
                waiting.push(packet);
                sent += 1;
            }
            self.port.tx_burst(&mut self.pool, &mut waiting);
            self.port.rx_burst(&mut self.pool, &mut received);
            while let Some(packet) = received.pop() {
                let expected = content(first + back, size_of(back));
                let mut found = vec![0; self.pool.length(&packet)];
                assert!(self.pool.read(&packet, 0, &mut found));
                assert!(found == expected, "packet {back} of {} bytes", expected.len());
                self.pool.free(packet);
                back += 1;
            }
        }
        self.sent += packets;
        bytes
    }

    /// Sends packets, and receives none.
    pub(crate) fn send_only(&mut self, packets: u64) {
        let mut burst = Burst::with_limit(packets as usize);
        for index in 0..packets {
            let content = content(index, 64);
            let Some(packet) = self.pool.take(content.len()) else { break };
            assert!(self.pool.write(&packet, 0, &content));
            burst.push(packet);
        }
        self.port.tx_burst(&mut self.pool, &mut burst);
        self.pool.free_burst(&mut burst);
    }
}

/// The bytes of a packet: an Ethernet header, to all for every seventh packet and to a group for
/// every eleventh, and bytes that differ for each packet.
fn content(index: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5];
    if index.is_multiple_of(7) {
        bytes[..6].fill(0xFF);
    } else if index.is_multiple_of(11) {
        bytes[0] = 1;
    }
    let mut state = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}
