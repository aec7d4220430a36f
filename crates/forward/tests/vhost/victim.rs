//! The port, driven and checked: for any front end, each packet is sent or dropped with a reason,
//! and every buffer is returned.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use haul_forward::{Burst, Counters, Link, Pool, Port, Vhost, VhostSettings};
use tempfile::TempDir;

use crate::front::{Front, INDIRECT, MERGEABLE, VERSION_1};

/// Time limit, on a loaded machine, for work that takes milliseconds.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Asserts that a call waits for no timeout of a conversation, the shortest of which is 2 s. An
/// attempt returns the time of the call. This thread may lose its processor, but not each time.
#[track_caller]
pub(crate) fn assert_no_wait(mut attempt: impl FnMut() -> Duration) {
    let mut times = Vec::new();
    while times.len() < 5 {
        times.push(attempt());
        if times.last() < Some(&Duration::from_secs(1)) {
            return;
        }
    }
    panic!("each attempt took long: {times:?}");
}

pub(crate) const FEATURES: u64 = MERGEABLE | INDIRECT | VERSION_1;

/// A port at this path, with this program's engine for every burst.
pub(crate) fn settings(path: impl Into<PathBuf>) -> VhostSettings {
    VhostSettings { engine: crate::engine(), engine_bytes_min: 0, ..VhostSettings::new(path) }
}

pub(crate) struct Victim {
    pub(crate) port: Vhost,
    pub(crate) pool: Pool,
    folder: TempDir,
    given: u64,
    /// The last byte of each packet that arrived, and its length.
    pub(crate) came: Vec<(u8, usize)>,
}

impl Victim {
    pub(crate) fn new() -> Self {
        Self::with(|settings| settings)
    }

    /// The port, with other settings.
    pub(crate) fn with(change: impl FnOnce(VhostSettings) -> VhostSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = change(settings(folder.path().join("vm")));
        let port = Vhost::open("vhost0", &settings).unwrap().pop().unwrap();
        Self { port, pool: Pool::new(512).unwrap(), folder, given: 0, came: Vec::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("vm")
    }

    /// Polls the port, with `packets` packets for the guest.
    pub(crate) fn poll(&mut self, packets: usize, length: usize) {
        let mut burst = Burst::new();
        self.port.rx_burst(&mut self.pool, &mut burst);
        while let Some(packet) = burst.pop() {
            let length = self.pool.length(&packet);
            let mut last = [0];
            assert!(self.pool.read(&packet, length - 1, &mut last));
            self.came.push((last[0], length));
            self.pool.free(packet);
        }
        for _ in 0..packets {
            burst.push(self.pool.take(length).unwrap());
        }
        self.send(&mut burst);
        self.wait("packets on their way", |victim| victim.port.drain(&mut victim.pool));
        self.port.service(&mut self.pool).unwrap();
    }

    /// Sends the packets for which there is room.
    pub(crate) fn send(&mut self, burst: &mut Burst) {
        self.given += burst.len() as u64;
        self.port.tx_burst(&mut self.pool, burst);
        self.given -= burst.len() as u64;
        self.pool.free_burst(burst);
    }

    /// Checks every sum of the counters, and returns the counters.
    pub(crate) fn counters(&mut self) -> Counters {
        self.port.service(&mut self.pool).unwrap();
        let counters = self.port.counters().clone();
        let tx = &counters.tx;
        assert_eq!(tx.packets + tx.drops_sum(), self.given, "{:?}", tx.drops);
        assert_eq!(counters.rx.packets, self.came.len() as u64);
        assert_eq!(self.pool.available(), self.pool.size(), "buffers that were not returned");
        counters
    }

    pub(crate) fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
            std::thread::yield_now();
        }
    }

    pub(crate) fn wait_for_link(&mut self, link: Link) {
        self.wait("a link", |victim| victim.port.link() == link);
    }

    /// An honest front end that has sent all its messages.
    pub(crate) fn front(&mut self) -> Front {
        self.front_with(FEATURES)
    }

    /// An honest front end that has negotiated these features and sent all its messages.
    pub(crate) fn front_with(&mut self, features: u64) -> Front {
        self.wait_for_link(Link::Down);
        let mut front = Front::connect(&self.path());
        front.start(features);
        self.wait_for_link(Link::Up);
        front
    }

    /// Checks that an honest front end is served, in both directions.
    pub(crate) fn check_service(&mut self) {
        let mut front = self.front();
        let (before, came) = (self.counters().tx.packets, self.came.len());
        front.add_buffer(3);
        front.send_packet(5, 0xE7);
        self.wait("a packet from the guest", |victim| {
            victim.poll(0, 0);
            victim.came.len() > came
        });
        assert_eq!(self.came.last(), Some(&(0xE7, 60)));
        self.poll(1, 100);
        assert_eq!(self.counters().tx.packets, before + 1);
        assert_eq!((front.used(0), front.used(1)), (1, 1));
        drop(front);
        self.wait_for_link(Link::Down);
    }
}
