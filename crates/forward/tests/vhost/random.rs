//! Thousands of random rings and messages: they affect only packets and counts.

use std::os::fd::AsFd;

use haul_forward::{Link, Port};

use crate::front::{BUFFER_BYTES, Descriptor, Front, GUEST, MEMORY_BYTES, SIZE};
use crate::victim::{FEATURES, Victim};

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}

/// A descriptor that is valid, invalid, or partly valid.
pub(crate) fn descriptor(random: &mut Random) -> Descriptor {
    let address = match random.below(8) {
        0 => random.next(),
        1 => GUEST + MEMORY_BYTES - random.below(3000),
        2 => GUEST + 0x6000 + 16 * random.below(16),
        _ => GUEST + 0x2_0000 + BUFFER_BYTES * random.below(100),
    };
    let length = match random.below(8) {
        0 => random.next() as u32,
        1 => 16 * random.below(8) as u32,
        2 => random.below(20) as u32,
        _ => BUFFER_BYTES as u32,
    };
    let flags = match random.below(4) {
        0 => random.below(8) as u16,
        1 => 1 | (random.below(2) as u16 * 2),
        _ => random.below(2) as u16 * 2,
    };
    Descriptor { address, length, flags, next: random.below(u64::from(SIZE) + 2) as u16 }
}

#[test]
fn random_rings_cost_only_packets() {
    let mut victim = Victim::new();
    let mut random = Random::new(0xDEAD_BEEF_CAFE_F00D);
    for _ in 0..200 {
        let mut front = victim.front();
        for _ in 0..100 {
            for ring in [0, 1] {
                for _ in 0..1 + random.below(4) {
                    let index = random.below(SIZE.into()) as u16;
                    front.set(ring, index, descriptor(&mut random));
                    front.put(
                        0x6000 + 16 * random.below(16),
                        &crate::front::bytes_of(descriptor(&mut random)),
                    );
                    front.make_available(ring, random.below(u64::from(SIZE) + 1) as u16);
                }
            }
            victim.poll(random.below(8) as usize, 14 + random.below(9000) as usize);
        }
        if random.below(4) == 0 {
            front.set_available(random.below(2), random.next() as u16);
            victim.poll(1, 64);
        }
        victim.counters();
    }
    victim.check_service();
}

#[test]
fn random_messages_end_only_conversations() {
    let mut victim = Victim::new();
    let mut random = Random::new(0x0123_4567_89AB_CDEF);
    for _ in 0..300 {
        let mut front = Front::connect(&victim.path());
        let honest = random.below(Front::steps() as u64 + 1) as usize;
        (0..honest).for_each(|step| front.step(step, FEATURES));
        for _ in 0..random.below(5) {
            let mut body = vec![0; random.below(80) as usize];
            body.iter_mut().for_each(|byte| {
                *byte = if random.below(3) == 0 { random.next() as u8 } else { 0 };
            });
            let files: Vec<_> = (0..random.below(3)).map(|_| front.memory.as_fd()).collect();
            let (code, length) = (random.below(45) as u32, body.len() as u32);
            if !front.send_raw(code, 1 | (random.below(2) as u32 * 8), length, &body, &files) {
                break;
            }
            victim.poll(1, 64);
        }
    }
    victim.wait_for_link(Link::Down);
    victim.port.service(&mut victim.pool).unwrap();
    victim.check_service();
}
