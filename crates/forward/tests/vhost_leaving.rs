//! Guests that go, a thousand times: at every step of the handshake, in the middle of a message,
//! and under load. Nothing stays behind, and the ports beside go on. A program of its own, as it
//! counts what its process has.

#[path = "vhost/front.rs"]
#[allow(dead_code, reason = "shared with the program `vhost`")]
mod front;
#[path = "vhost/victim.rs"]
#[allow(dead_code, reason = "shared with the program `vhost`")]
mod victim;

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use haul_forward::{Burst, Link, Pool, Port, Role, Vhost, VhostSettings};

use front::{FROM_GUEST, Front, GET_FEATURES, SIZE};
use victim::{FEATURES, LONG, Victim};

/// How often a guest comes and goes, and after how many times everything has been allocated that
/// ever will be.
const TIMES: usize = 1000;
const WARM: usize = 200;

/// By how much memory may differ that an allocator keeps.
const SLACK_KIB: usize = 8 << 10;

/// What a port may take for two packets, on a loaded machine: no conversation waits as short.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// One test at a time: each counts what the process has.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    files: usize,
    /// Of guests' memory.
    mappings: usize,
    threads: usize,
}

fn held() -> Held {
    let count = |folder: &str| fs::read_dir(folder).unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = maps.lines().filter(|line| line.contains("memfd:guest")).count();
    Held { files: count("/proc/self/fd"), mappings, threads: count("/proc/self/task") }
}

fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Numbers that look drawn.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

/// How a guest goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As a process that ends.
    Closes,
    /// It stops to send, and then closes.
    SaysBye,
    /// It does not read what it asked for, so that the other side's socket is reset.
    Unread,
    /// After half of a message.
    Halfway,
}

const WAYS: [Way; 4] = [Way::Closes, Way::SaysBye, Way::Unread, Way::Halfway];

/// A guest from when it is there: so many steps of the handshake, packets if that was all of them,
/// and then it goes.
fn live(mut front: Front, steps: usize, way: Way, random: &mut Random) {
    (0..steps).for_each(|step| front.step(step, FEATURES));
    if steps == Front::steps() {
        for index in 0..random.below(40) as u16 {
            front.give_buffer(index);
            front.send_packet(index, index as u8);
        }
        // Half of them go after the first packet was served, the others at any time.
        let sent = random.below(2) == 0 && {
            front.send_packet(50, 1);
            true
        };
        let start = Instant::now();
        while sent && front.used(FROM_GUEST) == 0 {
            assert!(start.elapsed() < LONG, "a packet that nobody takes");
            thread::yield_now();
        }
    }
    match way {
        Way::Closes => {}
        Way::SaysBye => _ = front.socket.shutdown(Shutdown::Write),
        Way::Unread => _ = front.say(GET_FEATURES, &[], &[]),
        Way::Halfway => _ = front.socket.write_all(&[1, 0, 0, 0, 1, 0, 0]),
    }
}

/// So many guests, one after the other: first each step in each way, then any. `arrive` gives the
/// next one's connection.
fn attack(times: usize, arrive: impl Fn() -> Front) {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let steps = Front::steps() + 1;
    for number in 0..times {
        let (step, way) = match number < steps * WAYS.len() {
            true => (number % steps, WAYS[number / steps]),
            false => match random.below(2) {
                0 => (random.below(steps), WAYS[random.below(WAYS.len())]),
                _ => (Front::steps(), WAYS[random.below(WAYS.len())]),
            },
        };
        live(arrive(), step, way, &mut random);
    }
}

/// An honest guest on a port of its own, driven by the same thread as the port that is attacked.
struct Neighbour {
    victim: Victim,
    front: Front,
    packets: u64,
    last: Instant,
    longest: Duration,
}

impl Neighbour {
    fn new() -> Self {
        let mut victim = Victim::new();
        let front = victim.front();
        Self { victim, front, packets: 0, last: Instant::now(), longest: Duration::ZERO }
    }

    /// A packet each way: both have to go through at once.
    fn exchange(&mut self) {
        let index = (self.packets % u64::from(SIZE)) as u16;
        self.front.give_buffer(index);
        self.front.send_packet(index, 7);
        let Victim { port, pool, .. } = &mut self.victim;
        let mut burst = Burst::new();
        assert_eq!(port.rx_burst(pool, &mut burst), 1, "after {} packets", self.packets);
        assert_eq!(port.tx_burst(pool, &mut burst), 1, "after {} packets", self.packets);
        port.service(pool).unwrap();
        self.packets += 1;
        self.longest = self.longest.max(self.last.elapsed());
        self.last = Instant::now();
    }
}

/// Polls the victim and its neighbour by turns, until the attack is over.
fn poll_both(
    victim: &mut Victim,
    neighbour: &mut Neighbour,
    attack: impl FnOnce() + Send + 'static,
) {
    neighbour.last = Instant::now();
    let attacker = thread::spawn(attack);
    let mut turn = 0;
    while !attacker.is_finished() {
        turn += 1;
        victim.poll(turn % 4, 1 + turn * 97 % 5000);
        neighbour.exchange();
    }
    attacker.join().unwrap();
    while victim.port.link() != Link::Down {
        neighbour.exchange();
    }
}

#[test]
fn a_thousand_guests_that_go_leave_nothing_behind_and_hold_nobody_up() {
    let _turn = turn();
    let mut victim = Victim::new();
    let mut neighbour = Neighbour::new();
    // One more neighbour, whose guest has stopped in the middle of a message.
    let silent = Victim::new();
    let mut stuck = Front::connect(&silent.path());
    stuck.say_bytes(&[2, 0, 0, 0, 1]);
    let path = victim.path();
    let rush = |victim: &mut Victim, neighbour: &mut Neighbour, times| {
        let path = path.clone();
        poll_both(victim, neighbour, move || attack(times, || Front::connect(&path)));
    };
    rush(&mut victim, &mut neighbour, WARM);
    let (before, kib) = (held(), resident_kib());
    rush(&mut victim, &mut neighbour, TIMES);
    victim.check_service();
    victim.wait("all that guests had to go", |_| held() == before);
    assert!(resident_kib() <= kib + SLACK_KIB, "{} KiB, {kib} before", resident_kib());
    // Only half a message is a mistake.
    let resets = victim.counters().resets;
    assert!(resets > 0 && resets < (TIMES + WARM) as u64, "{resets} resets");
    assert!(!victim.came.is_empty() && victim.counters().tx.packets > 0, "no load at all");
    assert!(neighbour.packets > TIMES as u64, "{} packets", neighbour.packets);
    assert!(neighbour.longest < PAUSE_MAX, "{:?}", neighbour.longest);
    let counters = neighbour.victim.port.counters();
    assert_eq!((counters.rx.packets, counters.tx.packets), (neighbour.packets, neighbour.packets));
    assert_eq!((counters.resets, counters.tx.drops_sum()), (0, 0));
}

/// The same where the port connects and the guest's side listens.
#[test]
fn guests_that_listen_and_go_are_met_again() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm");
    let listener = UnixListener::bind(&path).unwrap();
    let (mut port, mut pool) = (client(&path), Pool::new(512).unwrap());
    let attacker = thread::spawn(move || {
        attack(WARM, || Front::over(listener.accept().unwrap().0));
        listener
    });
    let mut packets = 0;
    let mut step = |port: &mut Vhost| {
        let mut burst = Burst::new();
        packets += port.rx_burst(&mut pool, &mut burst);
        pool.free_burst(&mut burst);
        port.service(&mut pool).unwrap();
    };
    while !attacker.is_finished() {
        step(&mut port);
    }
    // And then one that stays.
    let listener = attacker.join().unwrap();
    let mut front = Front::over(listener.accept().unwrap().0);
    front.start(FEATURES);
    front.send_packet(0, 1);
    let start = Instant::now();
    while front.used(FROM_GUEST) == 0 {
        assert!(start.elapsed() < LONG, "the last one is not served");
        step(&mut port);
    }
    assert!(packets > 1, "{packets} packets");
    assert_eq!(pool.available(), pool.size());
}

fn client(path: &Path) -> Vhost {
    let settings = VhostSettings { role: Role::Client, ..VhostSettings::new(path) };
    Vhost::open("vhost0", &settings).unwrap().pop().unwrap()
}
