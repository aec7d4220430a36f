//! A back end in a separate process, killed at any instant under load: packets return in order
//! and once, and the next back end resumes.
//!
//! The back end is this program itself, started again with a role in its environment.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use haul_forward::{Burst, Pool, Port, Role, Vhost, VhostSettings};

use crate::dying::start;
use crate::front::{
    BUFFER_BYTES, DESCRIPTORS, FROM_GUEST, Front, GUEST, IN_ORDER, PACKED, RING, SIZE, TO_GUEST,
    WRITE,
};
use crate::random::Random;
use crate::victim::{FEATURES, LONG, settings};

const ROLE: &str = "HAUL_VHOST_TEST_BACK_END";

/// The number of kills per kind.
const KILLS: usize = 40;

/// The largest number of the guest's outstanding chains: fewer than the rings hold, so that the
/// rings are never full.
const OUT_MAX: u64 = 48;

/// The size of a packet with its header in bytes.
const BYTES: usize = 12 + 60;

/// Does nothing unless this process was started as a back end. A back end returns every packet.
#[test]
fn back_end() {
    let Ok(path) = std::env::var(ROLE) else { return };
    let settings = VhostSettings { role: Role::Client, ..settings(path) };
    let mut port = Vhost::open("vhost0", &settings).unwrap().pop().unwrap();
    let mut pool = Pool::new(512).unwrap();
    let start = Instant::now();
    while start.elapsed() < LONG {
        let mut burst = Burst::new();
        port.rx_burst(&mut pool, &mut burst);
        while !burst.is_empty() && start.elapsed() < LONG {
            port.tx_burst(&mut pool, &mut burst);
        }
        port.service(&mut pool).unwrap();
    }
}

/// A back end; dropping it kills the process.
pub(crate) struct BackEnd(Child);

impl BackEnd {
    pub(crate) fn start(path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed::back_end", "--nocapture"]).env(ROLE, path);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A packed ring whose chains have one descriptor each, with the numbers of available and used
/// chains.
struct Line {
    ring: u64,
    /// Whether chains are made available all at once, the last one first. Before all of these
    /// chains are available, the content of the ring shows no location, so a back end without a
    /// record gets a driver that makes chains available one by one.
    at_once: bool,
    given: u64,
    back: u64,
}

impl Line {
    fn new(ring: u64, at_once: bool) -> Self {
        Self { ring, at_once, given: 0, back: 0 }
    }

    fn at(&self, count: u64) -> u64 {
        self.ring * RING + DESCRIPTORS + 16 * (count % u64::from(SIZE))
    }

    fn is_odd(count: u64) -> bool {
        (count / u64::from(SIZE)).is_multiple_of(2)
    }

    fn id(count: u64) -> u16 {
        (count % u64::from(SIZE)) as u16
    }

    fn buffer(&self, count: u64) -> u64 {
        Front::buffer(self.ring, Self::id(count))
    }

    /// Makes chains available until the limit is outstanding. Calls `fill` with the number of
    /// each chain.
    fn make_available(
        &mut self,
        front: &Front,
        (length, flags): (usize, u16),
        mut fill: impl FnMut(u64),
    ) {
        let first = self.given;
        self.given = self.back + OUT_MAX;
        for count in first..self.given {
            fill(count);
            let mut bytes = (GUEST + self.buffer(count)).to_le_bytes().to_vec();
            bytes.extend((length as u32).to_le_bytes());
            bytes.extend(Self::id(count).to_le_bytes());
            front.put(self.at(count), &bytes);
        }
        let end = self.given - 1;
        for index in first..self.given {
            let count = if self.at_once { first + end - index } else { index };
            let whose = if Self::is_odd(count) { 1 << 7 } else { 1 << 15 };
            front.put(self.at(count) + 14, &(flags | whose).to_le_bytes());
        }
    }

    /// How many chains the next used descriptor completes, and the bytes that were written to the
    /// last of them.
    fn take(&mut self, front: &Front) -> Option<(u64, u32)> {
        let whose: u16 = if Self::is_odd(self.back) { 1 << 7 | 1 << 15 } else { 0 };
        let mut flags = [0; 2];
        front.get(self.at(self.back) + 14, &mut flags);
        if self.back == self.given || u16::from_le_bytes(flags) & (1 << 7 | 1 << 15) != whose {
            return None;
        }
        let mut bytes = [0; 8];
        front.get(self.at(self.back) + 8, &mut bytes);
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let id = u16::from_le_bytes([bytes[4], bytes[5]]);
        // If the order is kept, only the last chain of a batch is published.
        let count = u64::from(id.wrapping_sub(Self::id(self.back)) % SIZE) + 1;
        assert!(self.back + count <= self.given, "{id} was never given");
        self.back += count;
        Some((count, length))
    }
}

#[derive(Default)]
struct Arrived {
    packets: u64,
    /// The number of buffers that were returned empty.
    empty: u64,
    last: u64,
}

struct Guest {
    front: Front,
    there: Line,
    back: Line,
    /// The number of the next packet.
    number: u64,
    is_in_order: bool,
}

impl Guest {
    /// Makes as many chains available as the limit allows.
    fn make_available(&mut self) {
        let Self { front, there, back, number, .. } = self;
        there.make_available(front, (BUFFER_BYTES as usize, WRITE), |_| {});
        let (ring, length) = (back.ring, BYTES);
        back.make_available(front, (length, 0), |count| {
            *number += 1;
            let mut bytes = [0; BYTES];
            bytes[BYTES - 8..].copy_from_slice(&number.to_le_bytes());
            front.put(Front::buffer(ring, Line::id(count)), &bytes);
        });
    }

    /// Takes all used chains.
    fn take(&mut self, came: &mut Arrived) {
        let Self { front, there, back, .. } = self;
        while let Some((count, _)) = back.take(front) {
            assert!(self.is_in_order || count == 1, "{count} at once");
        }
        loop {
            let buffer = there.buffer(there.back);
            let Some((count, length)) = there.take(front) else { return };
            assert_eq!(count, 1, "a buffer was left out");
            if length == 0 {
                came.empty += 1;
                continue;
            }
            assert_eq!(length as usize, BYTES);
            let mut number = [0; 8];
            front.get(buffer + BYTES as u64 - 8, &mut number);
            let number = u64::from_le_bytes(number);
            assert!(number > came.last, "{number} behind {}", came.last);
            (came.last, came.packets) = (number, came.packets + 1);
        }
    }
}

#[test]
fn packets_arrive_once_and_in_order_despite_kills() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm");
    let listener = UnixListener::bind(&path).unwrap();
    let mut random = Random::new(0x5EED_0000_1234_4321);
    for (in_order, has_area) in [(0, false), (0, true), (IN_ORDER, false), (IN_ORDER, true)] {
        let features = FEATURES | PACKED | in_order;
        let (mut area, mut came) = (None, Arrived::default());
        let mut guest = None;
        for kill in 0..KILLS {
            let back_end = BackEnd::start(&path);
            let socket = listener.accept().unwrap().0;
            let guest = guest.get_or_insert_with(|| Guest {
                front: Front::over(socket.try_clone().unwrap()),
                there: Line::new(TO_GUEST, has_area),
                back: Line::new(FROM_GUEST, has_area),
                number: 0,
                is_in_order: in_order != 0,
            });
            guest.front.reconnect(socket);
            start(&mut guest.front, features, has_area, &mut area);
            let (before, goal) = (came.packets, random.below(2000));
            let begin = Instant::now();
            while came.packets <= before + goal {
                guest.make_available();
                guest.take(&mut came);
                assert!(begin.elapsed() < LONG, "kill {kill}: {} packets", came.packets - before);
            }
            // The kill falls into the middle of these chains.
            guest.make_available();
            (0..random.below(5000)).for_each(|_| std::hint::spin_loop());
            drop(back_end);
        }
        let lost = guest.unwrap().number - came.packets;
        // Packets are lost in chains that a back end had read, in chains of a burst that it
        // returned empty, and in flight.
        assert!(lost <= (KILLS as u64 + 1) * 2 * OUT_MAX, "{lost} lost");
        eprintln!("{in_order} {has_area}: lost {lost}, empty {}", came.empty);
        assert!(came.empty <= KILLS as u64 * OUT_MAX, "{} empty", came.empty);
    }
}
