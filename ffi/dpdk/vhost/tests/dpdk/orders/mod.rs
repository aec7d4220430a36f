//! Front ends that send messages in random orders, while packets are on their way. The device must
//! neither lose a packet nor stop, and must answer as it does without the library.
//!
//! - [`model`]: which messages let packets pass.

mod model;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::front::{
    FROM_GUEST, Front, GET_FEATURES, GET_VRING_BASE, GUEST, MEMORY_BYTES, MERGEABLE, PROCESS,
    PROTOCOL, SET_FEATURES, SET_MEM_TABLE, SET_OWNER, SET_PROTOCOL_FEATURES, SET_VRING_ADDR,
    SET_VRING_BASE, SET_VRING_CALL, SET_VRING_ENABLE, SET_VRING_KICK, SET_VRING_NUM, SIZE,
    TO_GUEST, VERSION_1, WANTS_ANSWER, memory_file,
};
use crate::testpmd::{Preload, Testpmd, is_here};
use model::Model;

/// The number of orders of one run, unless `HAUL_VHOST_ORDERS` says otherwise.
const ORDERS: u64 = 60;

/// The number of an order's messages behind those that start the device.
const STEPS: u64 = 24;

/// A time limit that is longer than any step needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const SET_LOG_BASE: u32 = 6;
const GET_PROTOCOL_FEATURES: u32 = 15;
const GET_QUEUE_NUM: u32 = 17;
const SEND_RARP: u32 = 19;

/// VHOST_USER_PROTOCOL_F_MQ, LOG_SHMFD, RARP and REPLY_ACK.
const PROTOCOLS: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3;

/// VHOST_F_LOG_ALL.
const LOG_ALL: u64 = 1 << 26;

/// The number of buffers that wait for packets to the guest: more than packets are on their way.
const ROOM: u16 = 32;

/// The length of a packet's header; an Ethernet type follows the two addresses behind it.
const HEADER_BYTES: u64 = 12;

/// The size of the memory's first region, if there are two: the boundary lies between the buffers
/// of the two rings.
const FIRST_BYTES: u64 = 0x4_0000;

/// Answers, each with its request.
type Answers = Vec<(u32, u64)>;

#[test]
fn random_orders_of_messages_lose_no_packet() {
    if !is_here("random_orders_of_messages_lose_no_packet") {
        return;
    }
    let asked = std::env::var("HAUL_VHOST_ORDERS").ok();
    let orders = asked.map_or(ORDERS, |text| text.parse().expect("a number of orders"));
    let [without, with] = [Preload::NONE, Preload::TELL].map(|preload| {
        let testpmd = Testpmd::start(&preload);
        let answers: Vec<Answers> = (0..orders).map(|seed| run(&testpmd, seed)).collect();
        let served = crate::served(&testpmd.quit());
        (answers, served.iter().map(|(here, _)| here).sum::<u64>())
    });
    for (seed, answers) in with.0.iter().enumerate() {
        assert_eq!(*answers, without.0[seed], "order {seed}, with and without the library");
    }
    assert!(with.1 > orders && without.1 == 0, "served {} and {}", with.1, without.1);
}

/// Runs an order to its end, and returns the answers.
fn run(testpmd: &Testpmd, seed: u64) -> Answers {
    let mergeable = if seed.is_multiple_of(3) { 0 } else { MERGEABLE };
    let mut order = Order {
        seed,
        state: (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        features: VERSION_1 | PROTOCOL | mergeable,
        front: Front::connect(testpmd.socket()),
        log: memory_file(4096),
        answers: Vec::new(),
        model: Model::default(),
        is_changing: false,
        sent: 0,
        received: 0,
        under_way: 0,
    };
    order.start();
    (0..STEPS).for_each(|_| order.step());
    order.end();
    order.answers
}

/// A front end with its guest.
struct Order {
    seed: u64,
    state: u64,
    features: u64,
    front: Front,
    log: OwnedFd,
    answers: Answers,
    model: Model,
    /// Whether the device may still be acting upon the last message, which it has acknowledged.
    is_changing: bool,
    /// The number of packets from the guest, and of packets to the guest that have arrived.
    sent: u16,
    received: u16,
    /// The number of packets that were sent and have not arrived yet.
    under_way: u16,
}

impl Order {
    fn below(&mut self, end: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) % end
    }

    /// Sends a message, and returns its answer.
    #[track_caller]
    fn ask(&mut self, code: u32, body: &[u8], files: &[&OwnedFd]) -> u64 {
        let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        let has_own = [GET_FEATURES, GET_PROTOCOL_FEATURES, GET_QUEUE_NUM, GET_VRING_BASE];
        let flags = if has_own.contains(&code) { 1 } else { WANTS_ANSWER };
        let is_sent = self.front.send_raw(code, flags, body.len() as u32, body, &files);
        let answer = self.front.answer().filter(|_| is_sent);
        let answer = answer.unwrap_or_else(|| {
            panic!("order {}: no answer to {code} behind {:?}", self.seed, self.answers)
        });
        self.answers.push((code, answer));
        answer
    }

    #[track_caller]
    fn must(&mut self, is_refused: bool, code: u32, body: &[u8], files: &[&OwnedFd]) {
        let answer = self.ask(code, body, files);
        let Self { seed, answers, .. } = self;
        assert_eq!(answer, u64::from(is_refused), "order {seed}: {answers:?}");
    }

    /// Starts the device: the messages about memory and rings in a random order, those that depend
    /// on others a second time.
    fn start(&mut self) {
        assert!(self.front.send(SET_OWNER, &[], &[]));
        self.ask(GET_FEATURES, &[], &[]);
        self.ask(GET_PROTOCOL_FEATURES, &[], &[]);
        assert!(self.front.send(SET_PROTOCOL_FEATURES, &Front::words(&[PROTOCOLS]), &[]));
        self.set_features(self.features, false);
        for ring in [0, 1] {
            self.set_ring(ring, 0);
        }
        let mut left: Vec<u64> = (0..11).collect();
        while !left.is_empty() {
            let place = self.below(left.len() as u64) as usize;
            match left.swap_remove(place) {
                10 => self.share(),
                message => self.set_ring((message % 2) as u32, message / 2),
            }
        }
        self.repair();
        self.exchange();
    }

    fn set_features(&mut self, features: u64, is_refused: bool) {
        self.must(is_refused, SET_FEATURES, &Front::words(&[features]), &[]);
    }

    /// Shares the memory, as one region or as two, so that the table may change.
    fn share(&mut self) {
        let (whole, first) = ([(0, MEMORY_BYTES)], FIRST_BYTES);
        let halves = [(0, first), (first, MEMORY_BYTES - first)];
        let parts: &[_] = if self.below(2) == 0 { &whole } else { &halves };
        let regions: Vec<_> =
            parts.iter().map(|(at, bytes)| [GUEST + at, *bytes, PROCESS + at, *at]).collect();
        let files: Vec<_> = regions.iter().map(|_| self.memory()).collect();
        let files: Vec<_> = files.iter().collect();
        self.must(false, SET_MEM_TABLE, &Front::table(&regions), &files);
        self.model.set_table();
    }

    fn memory(&self) -> OwnedFd {
        self.front.memory.try_clone().expect("a descriptor")
    }

    /// Sends one of a ring's messages.
    fn set_ring(&mut self, ring: u32, message: u64) {
        let index = Front::words(&[ring.into()]);
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an event");
        match message {
            0 => {
                self.must(false, SET_VRING_NUM, &Front::state(ring, SIZE.into()), &[]);
                let base = self.progress(ring).into();
                self.must(false, SET_VRING_BASE, &Front::state(ring, base), &[]);
            }
            1 => {
                let is_refused = !self.model.set_addresses(ring);
                self.must(is_refused, SET_VRING_ADDR, &Front::addresses(ring.into()), &[]);
            }
            2 => {
                self.must(false, SET_VRING_CALL, &index, &[&event]);
                self.model.set_call(ring);
            }
            3 => {
                self.must(false, SET_VRING_KICK, &index, &[&event]);
                self.model.set_kick(ring);
            }
            _ => self.enable(ring, true),
        }
        self.is_changing = true;
    }

    fn enable(&mut self, ring: u32, enables: bool) {
        self.must(false, SET_VRING_ENABLE, &Front::state(ring, enables.into()), &[]);
        self.model.enable(ring, enables);
        self.is_changing = true;
    }

    /// The number of chains that the device has used.
    fn progress(&self, ring: u32) -> u16 {
        if u64::from(ring) == TO_GUEST { self.received } else { self.sent }
    }

    /// Stops a ring, whose packets have all arrived, and checks its progress.
    fn stop(&mut self, ring: u32) {
        self.complete();
        let found = self.ask(GET_VRING_BASE, &Front::state(ring, 0), &[]) >> 32;
        let Self { seed, answers, .. } = &self;
        assert_eq!(found, u64::from(self.progress(ring)), "order {seed}: {answers:?}");
        self.model.stop(ring);
        self.is_changing = true;
    }

    /// Starts each ring, as a front end does.
    fn repair(&mut self) {
        self.complete();
        for ring in [0, 1] {
            (0..5).for_each(|message| self.set_ring(ring, message));
        }
        let Self { seed, answers, model, .. } = self;
        assert!(model.passes_packets(), "order {seed}: {model:?}: {answers:?}");
    }

    /// Sends packets, and does not wait for them.
    fn send(&mut self) {
        if self.is_changing {
            // The switch uses a ring only some time after the acknowledgement, and drops packets
            // meanwhile. It handles the next message after that.
            self.ask(GET_FEATURES, &[], &[]);
            self.is_changing = false;
        }
        let count = (1 + self.below(8) as u16).min(ROOM / 2 - self.under_way);
        let end = self.received.wrapping_add(self.under_way).wrapping_add(ROOM);
        while self.front.available(TO_GUEST) != end {
            self.front.add_buffer(self.front.available(TO_GUEST) % SIZE);
        }
        for _ in 0..count {
            self.front.send_packet(self.sent % SIZE, self.sent as u8);
            self.sent = self.sent.wrapping_add(1);
        }
        self.under_way += count;
    }

    /// Waits for all packets, and checks them.
    #[track_caller]
    fn complete(&mut self) {
        let first = self.sent.wrapping_sub(self.under_way);
        let end = self.received.wrapping_add(self.under_way);
        self.wait(end);
        for index in 0..self.under_way {
            let place = self.received.wrapping_add(index) % SIZE;
            let mut packet = [0; 60];
            self.front.get(Front::buffer(TO_GUEST, place) + HEADER_BYTES, &mut packet);
            assert_eq!(packet, [first.wrapping_add(index) as u8; 60], "order {}", self.seed);
        }
        (self.received, self.under_way) = (end, 0);
    }

    /// Waits until the device has used all packets, and buffers up to this one.
    #[track_caller]
    fn wait(&self, received: u16) {
        let started = Instant::now();
        loop {
            let used = [TO_GUEST, FROM_GUEST].map(|ring| self.front.used(ring));
            if used == [received, self.sent] {
                return;
            }
            let late = started.elapsed() > PATIENCE;
            let (seed, sent) = (self.seed, self.sent);
            assert!(!late, "order {seed}: {used:?} of {received}, {sent}: {:?}", self.answers);
            std::thread::yield_now();
        }
    }

    fn exchange(&mut self) {
        self.send();
        self.complete();
    }

    /// Sends a random message. Packets are under way during those that may not cost any.
    fn step(&mut self) {
        let passes = self.model.passes_packets();
        if passes && self.below(2) == 0 {
            self.send();
        }
        let (features, ring) = (self.features, self.below(2) as u32);
        match self.below(16) {
            0 if passes => self.exchange(),
            1 => self.set_features(features, false),
            2 if self.model.runs() => self.set_features(features ^ MERGEABLE, true),
            3 | 4 => self.share(),
            5 => self.must(true, SET_MEM_TABLE, &Front::table(&[[0; 4]]), &[]),
            6 => self.set_ring(ring, 1),
            7 => {
                let size = Front::words(&[4096, 0]);
                let log = self.log.try_clone().expect("a descriptor");
                assert!(self.front.send(SET_LOG_BASE, &size, &[log.as_fd()]));
                assert!(self.front.answer_without_body());
                self.set_features(features | LOG_ALL, false);
            }
            8 => {
                let code = [GET_FEATURES, GET_PROTOCOL_FEATURES, GET_QUEUE_NUM];
                let code = code[self.below(3) as usize];
                self.ask(code, &[], &[]);
            }
            9 if passes => self.announce(),
            _ => self.disturb(ring),
        }
        if !self.model.passes_packets() && self.below(4) == 0 {
            self.repair();
        }
    }

    /// Sends a message that may cost the packets that are under way.
    fn disturb(&mut self, ring: u32) {
        self.complete();
        match self.below(7) {
            5 => self.enable(ring, false),
            6 => self.stop(ring),
            message => self.set_ring(ring, message),
        }
    }

    /// Asks for an announcement, which arrives as one more packet.
    fn announce(&mut self) {
        self.exchange();
        let place = self.received % SIZE;
        self.must(false, SEND_RARP, &[2, 0, 0, 0, 0, 1, 0, 0], &[]);
        self.received = self.received.wrapping_add(1);
        self.wait(self.received);
        let mut kind = [0; 2];
        self.front.get(Front::buffer(TO_GUEST, place) + HEADER_BYTES + 12, &mut kind);
        assert_eq!(kind, [0x80, 0x35], "order {}", self.seed);
    }

    /// Checks that the device still forwards. Every second order stops the device, the others
    /// disconnect.
    fn end(&mut self) {
        self.set_features(self.features, false);
        self.share();
        self.repair();
        self.exchange();
        if self.seed.is_multiple_of(2) {
            (0..2).for_each(|ring| self.stop(ring));
        }
    }
}
