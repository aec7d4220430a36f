//! A guest that reads the packets of its ring, with split or packed rings.

use haul_forward::Burst;

use crate::front::{BUFFER_BYTES, Front, GUEST, PACKED, RING, SIZE, TO_GUEST, USED, WRITE};
use crate::packed::{Driver, descriptor};
use crate::victim::{FEATURES, Victim};

/// The features of both layouts.
pub(crate) const LAYOUTS: [u64; 2] = [FEATURES, FEATURES | PACKED];

const HEADER_BYTES: usize = 12;

pub(crate) struct Guest {
    pub(crate) front: Front,
    /// A packed ring's driver.
    driver: Option<Driver>,
    given: u16,
    taken: u16,
}

impl Guest {
    /// A guest whose buffers are available.
    pub(crate) fn new(victim: &mut Victim, features: u64) -> Self {
        let driver = (features & PACKED != 0).then(|| Driver::new(TO_GUEST));
        let front = victim.front_with(features);
        let mut guest = Self { front, driver, given: 0, taken: 0 };
        guest.make_available(SIZE);
        guest
    }

    pub(crate) fn make_available(&mut self, buffers: u16) {
        for _ in 0..buffers {
            let id = self.given % SIZE;
            self.given += 1;
            match &mut self.driver {
                None => self.front.add_buffer(id),
                Some(driver) => {
                    let address = GUEST + Front::buffer(TO_GUEST, id);
                    let buffer = descriptor(address, BUFFER_BYTES as u32, WRITE);
                    driver.make_available(&self.front, id, &[buffer]);
                }
            }
        }
    }

    /// The bytes of the next used buffer, with their header.
    fn take_buffer(&mut self) -> Option<Vec<u8>> {
        let (id, length) = match &mut self.driver {
            Some(driver) => driver.take(&self.front)?,
            None if self.front.used(TO_GUEST) == self.taken => return None,
            None => {
                let (mut entry, at) = ([0; 8], u64::from(self.taken % SIZE));
                self.front.get(TO_GUEST * RING + USED + 4 + 8 * at, &mut entry);
                let [id, length] =
                    [0, 4].map(|at| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap()));
                (id as u16, length)
            }
        };
        assert_eq!(id, self.taken % SIZE, "chains are used in order");
        self.taken += 1;
        let mut bytes = vec![0; length as usize];
        self.front.get(Front::buffer(TO_GUEST, id), &mut bytes);
        Some(bytes)
    }

    /// The packets that have arrived, each as the byte of which it consists and its length.
    pub(crate) fn take(&mut self) -> Vec<(u8, usize)> {
        let mut packets = Vec::new();
        while let Some(mut bytes) = self.take_buffer() {
            for _ in 1..u16::from_le_bytes([bytes[10], bytes[11]]) {
                bytes.extend(self.take_buffer().expect("a packet arrives whole"));
            }
            let content = &bytes[HEADER_BYTES..];
            assert!(content.iter().all(|byte| *byte == content[0]), "a torn packet");
            packets.push((content[0], content.len()));
        }
        packets
    }
}

/// A burst of packets, each as the byte of which it consists and its length.
pub(crate) fn burst(victim: &mut Victim, packets: &[(u8, usize)]) -> Burst {
    let mut burst = Burst::new();
    for (byte, length) in packets {
        let packet = victim.pool.take(*length).unwrap();
        assert!(victim.pool.write(&packet, 0, &vec![*byte; *length]));
        burst.push(packet);
    }
    burst
}

/// Sends a burst, and does not wait for its arrival.
pub(crate) fn send(victim: &mut Victim, packets: &[(u8, usize)]) {
    let mut burst = burst(victim, packets);
    victim.send(&mut burst);
    assert!(burst.is_empty());
}
