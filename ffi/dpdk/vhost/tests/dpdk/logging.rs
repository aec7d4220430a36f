//! A front end that logs writes, as QEMU does during a migration: each page that changes must be in
//! the log. The library leaves the device to DPDK meanwhile, and serves it again afterwards.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::front::{
    FROM_GUEST, Front, GET_FEATURES, GUEST, MEMORY_BYTES, MERGEABLE, RING, SET_FEATURES,
    SET_VRING_ADDR, SIZE, TO_GUEST, USED, VERSION_1, memory_file,
};
use crate::testpmd::{Preload, Testpmd, is_here};

const SET_LOG_BASE: u32 = 6;

/// VHOST_F_LOG_ALL, and VHOST_VRING_F_LOG.
const LOG_ALL: u64 = 1 << 26;
const LOGS_RING: u8 = 1;

/// A bit of the log stands for this many bytes (VHOST_LOG_PAGE).
const PAGE_BYTES: u64 = 4096;
const LOG_BYTES: u64 = 4096;

/// Packets of each phase: more than a ring has buffers.
const PACKETS: u16 = 3 * SIZE;

/// A time limit that is longer than any step needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A front end with its guest, and how many packets the guest has sent and received.
struct Logging {
    front: Front,
    log: OwnedFd,
    sent: u16,
    received: u16,
}

#[test]
fn every_page_that_changes_is_logged() {
    if !is_here("every_page_that_changes_is_logged") {
        return;
    }
    for (preload, is_loaded) in [(Preload::TELL, true), (Preload::NONE, false)] {
        let testpmd = Testpmd::start(&preload);
        let mut front = Front::connect(testpmd.socket());
        front.start(VERSION_1 | MERGEABLE);
        let mut guest = Logging { front, log: memory_file(LOG_BYTES), sent: 0, received: 0 };
        guest.wait_until_forwarded();
        for _ in 0..3 {
            guest.exchange();
            guest.log_writes(true);
            let before = guest.pages();
            guest.exchange();
            guest.check_log(&before);
            guest.log_writes(false);
            guest.exchange();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(guest.logged(), [0; LOG_BYTES as usize], "a write was logged");
        }
        drop(guest);
        let text = testpmd.quit();
        let served = crate::served(&text);
        // Both directions of a phase. DPDK moves the logged phases. It may also move much of the
        // phases behind them: it answers the last message before it reports to the library that the
        // message was handled, and the thread that does both may lose its processor in between.
        let phase = u64::from(2 * PACKETS);
        let is_as_expected = match served[..] {
            [(here, there)] => is_loaded && here >= 3 * phase && there >= 3 * phase,
            _ => !is_loaded && served.is_empty(),
        };
        assert!(is_as_expected, "{served:?}: {text}");
    }
}

impl Logging {
    /// Sends a packet of its own content, for which there is a buffer.
    fn send(&mut self) {
        self.front.add_buffer(self.sent % SIZE);
        self.front.send_packet(self.sent % SIZE, self.sent as u8);
        self.sent = self.sent.wrapping_add(1);
    }

    /// Waits until all packets have returned.
    #[track_caller]
    fn receive(&mut self, end: u16) {
        let started = Instant::now();
        while self.front.used(TO_GUEST) != end || self.front.used(FROM_GUEST) != self.sent {
            let used = [TO_GUEST, FROM_GUEST].map(|ring| self.front.used(ring));
            assert!(started.elapsed() < PATIENCE, "{used:?} of {end}, {}", self.sent);
            std::thread::yield_now();
        }
        self.received = end;
    }

    /// Sends packets until one has returned: the switch drops packets while it starts.
    fn wait_until_forwarded(&mut self) {
        let started = Instant::now();
        while self.front.used(TO_GUEST) == 0 {
            assert!(started.elapsed() < PATIENCE, "no packet returns");
            self.send();
            std::thread::sleep(Duration::from_millis(200));
        }
        // The buffers of packets that were dropped wait for later ones, in the same order.
        self.receive(self.front.used(TO_GUEST));
    }

    /// Sends packets and waits until they have returned, some at a time.
    #[track_caller]
    fn exchange(&mut self) {
        for _ in 0..PACKETS / 16 {
            (0..16).for_each(|_| self.send());
            self.receive(self.received.wrapping_add(16));
        }
    }

    /// Begins to log writes, or ends it, with the messages of QEMU in their order.
    fn log_writes(&mut self, logs: bool) {
        if logs {
            let place = Front::words(&[LOG_BYTES, 0]);
            assert!(self.front.send(SET_LOG_BASE, &place, &[self.log.as_fd()]));
            assert!(self.front.answer_without_body());
        }
        let features = VERSION_1 | MERGEABLE | if logs { LOG_ALL } else { 0 };
        assert!(self.front.send(SET_FEATURES, &Front::words(&[features]), &[]));
        for ring in [TO_GUEST, FROM_GUEST] {
            let mut addresses = Front::addresses(ring);
            addresses[4] = if logs { LOGS_RING } else { 0 };
            let logged_at = addresses.len() - 8;
            addresses[logged_at..].copy_from_slice(&used_at(ring).to_ne_bytes());
            assert!(self.front.send(SET_VRING_ADDR, &addresses, &[]));
        }
        // The switch handles this message behind all others.
        assert!(self.front.send(GET_FEATURES, &[], &[]));
        assert!(self.front.answer().is_some());
        self.front_log(&[0; LOG_BYTES as usize]);
    }

    fn front_log(&self, bytes: &[u8]) {
        assert_eq!(rustix::io::pwrite(&self.log, bytes, 0).expect("a log"), bytes.len());
    }

    fn logged(&self) -> [u8; LOG_BYTES as usize] {
        let mut log = [0; LOG_BYTES as usize];
        assert_eq!(rustix::io::pread(&self.log, &mut log, 0).expect("a log"), log.len());
        log
    }

    /// The guest's memory.
    fn pages(&self) -> Vec<u8> {
        let mut memory = vec![0; MEMORY_BYTES as usize];
        self.front.get(0, &mut memory);
        memory
    }

    /// Checks that the log has each page that only the device writes and that has changed.
    fn check_log(&self, before: &[u8]) {
        let (after, log) = (self.pages(), self.logged());
        let buffers = Front::buffer(TO_GUEST, 0)..Front::buffer(FROM_GUEST, 0);
        let used = [TO_GUEST, FROM_GUEST].map(|ring| used_at(ring) - GUEST);
        let mut changed = 0;
        for at in (0..MEMORY_BYTES).step_by(PAGE_BYTES as usize) {
            let range = at as usize..(at + PAGE_BYTES) as usize;
            let is_devices = buffers.contains(&at) || used.contains(&at);
            if !is_devices || before[range.clone()] == after[range] {
                continue;
            }
            changed += 1;
            let page = (GUEST + at) / PAGE_BYTES;
            let bit = log[page as usize / 8] >> (page % 8) & 1;
            assert_eq!(bit, 1, "the page at {at:#x} has changed and is not in the log");
        }
        // All buffers, two in a page, and both rings.
        assert_eq!(changed, u64::from(SIZE) / 2 + 2);
    }
}

/// The address at which a ring has its used chains.
fn used_at(ring: u64) -> u64 {
    GUEST + ring * RING + USED
}
