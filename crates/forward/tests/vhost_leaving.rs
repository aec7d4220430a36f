//! A thousand guests that disconnect: at every step of the handshake, in the middle of a message,
//! and under load. They leave no resource behind, and neighbouring ports continue. This is a
//! separate program, because it counts the resources of its process.

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

fn engine() -> Option<haul_engine::Queue> {
    None
}

/// How often a guest connects and disconnects, and after how many of these times the port has
/// allocated everything that it ever needs.
const TIMES: usize = 1000;
const WARM: usize = 200;

/// Tolerance for memory that an allocator keeps.
const SLACK_KIB: usize = 8 << 10;

/// One test at a time: each counts the resources of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resources of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    files: usize,
    /// The number of mappings of guests' memory.
    mappings: usize,
    threads: usize,
}

/// A port's time limit for two packets, on a loaded machine: shorter than the ten seconds that a
/// conversation waits for a front end.
const PAUSE_MAX: Duration = Duration::from_secs(8);

impl Held {
    /// Whether `self` exceeds `limit` in no resource. Each sample may contain resources that exist
    /// only for a moment, so that a later sample may be below an earlier one.
    fn is_within(self, limit: Self) -> bool {
        self.files <= limit.files
            && self.mappings <= limit.mappings
            && self.threads <= limit.threads
    }
}

fn held() -> Held {
    let count = |folder: &str| fs::read_dir(folder).unwrap().count();
    // The threads of ports, and none that runs another test.
    let is_of_port = |task: &fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.starts_with("haul")
    };
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten().filter(is_of_port).count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = maps.lines().filter(|line| line.contains("memfd:guest")).count();
    Held { files: count("/proc/self/fd"), mappings, threads }
}

/// The resources at rest, sampled for half a second: a thread that closes a socket, and the socket,
/// exist only for a moment.
fn held_at_rest() -> Held {
    let start = Instant::now();
    let mut least = held();
    while start.elapsed() < Duration::from_millis(500) {
        thread::sleep(Duration::from_millis(2));
        let now = held();
        least.files = least.files.min(now.files);
        least.mappings = least.mappings.min(now.mappings);
        least.threads = least.threads.min(now.threads);
    }
    least
}

fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

/// How a guest disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disconnect {
    /// The guest closes its socket, like a process that ends.
    Closes,
    /// The guest shuts its sending side down, and then closes.
    ShutsDown,
    /// The guest leaves an answer unread, so that the other side's socket is reset.
    Unread,
    /// The guest disconnects after half of a message.
    HalfMessage,
}

const DISCONNECTS: [Disconnect; 4] =
    [Disconnect::Closes, Disconnect::ShutsDown, Disconnect::Unread, Disconnect::HalfMessage];

/// The life of a connected guest: `steps` messages of the handshake, packets if the handshake is
/// complete, and the disconnect.
fn live(mut front: Front, steps: usize, disconnect: Disconnect, random: &mut Random) {
    (0..steps).for_each(|step| front.step(step, FEATURES));
    if steps == Front::steps() {
        for index in 0..random.below(40) as u16 {
            front.add_buffer(index);
            front.send_packet(index, index as u8);
        }
        // Half of the guests disconnect after the first packet was served, the others at any time.
        let sent = random.below(2) == 0 && {
            front.send_packet(50, 1);
            true
        };
        let start = Instant::now();
        while sent && front.used(FROM_GUEST) == 0 {
            assert!(start.elapsed() < LONG, "a packet that is never read");
            thread::yield_now();
        }
    }
    match disconnect {
        Disconnect::Closes => {}
        Disconnect::ShutsDown => _ = front.socket.shutdown(Shutdown::Write),
        Disconnect::Unread => _ = front.send(GET_FEATURES, &[], &[]),
        Disconnect::HalfMessage => _ = front.socket.write_all(&[1, 0, 0, 0, 1, 0, 0]),
    }
}

/// Runs `times` guests in sequence: first each step with each kind of disconnect, then random
/// steps and kinds. `arrive` returns the connection of the next guest.
fn attack(times: usize, arrive: impl Fn() -> Front) {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let steps = Front::steps() + 1;
    for number in 0..times {
        let (step, disconnect) = match number < steps * DISCONNECTS.len() {
            true => (number % steps, DISCONNECTS[number / steps]),
            false => match random.below(2) {
                0 => (random.below(steps), DISCONNECTS[random.below(DISCONNECTS.len())]),
                _ => (Front::steps(), DISCONNECTS[random.below(DISCONNECTS.len())]),
            },
        };
        live(arrive(), step, disconnect, &mut random);
    }
}

/// An honest guest on another port, which the thread of the attacked port drives as well.
struct Neighbour {
    victim: Victim,
    front: Front,
    packets: u64,
    last: Instant,
    /// The pauses of [`PAUSE_MAX`] or longer.
    long: Vec<Duration>,
}

impl Neighbour {
    fn new() -> Self {
        let mut victim = Victim::new();
        let front = victim.front();
        Self { victim, front, packets: 0, last: Instant::now(), long: Vec::new() }
    }

    /// Exchanges a packet in each direction: both must pass at once.
    fn exchange(&mut self) {
        let index = (self.packets % u64::from(SIZE)) as u16;
        self.front.add_buffer(index);
        self.front.send_packet(index, 7);
        let Victim { port, pool, .. } = &mut self.victim;
        let mut burst = Burst::new();
        assert_eq!(port.rx_burst(pool, &mut burst), 1, "after {} packets", self.packets);
        assert_eq!(port.tx_burst(pool, &mut burst), 1, "after {} packets", self.packets);
        port.service(pool).unwrap();
        self.packets += 1;
        let pause = self.last.elapsed();
        self.long.extend((pause >= PAUSE_MAX).then_some(pause));
        self.last = Instant::now();
    }
}

/// Polls the victim and its neighbour in turn until the attack is over.
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
fn thousand_leaving_guests_leak_nothing_and_block_no_port() {
    let _turn = turn();
    let mut victim = Victim::new();
    let mut neighbour = Neighbour::new();
    // Another neighbour, whose guest has stopped in the middle of a message.
    let silent = Victim::new();
    let mut stuck = Front::connect(&silent.path());
    stuck.send_bytes(&[2, 0, 0, 0, 1]);
    let path = victim.path();
    let rush = |victim: &mut Victim, neighbour: &mut Neighbour, times| {
        let path = path.clone();
        poll_both(victim, neighbour, move || attack(times, || Front::connect(&path)));
    };
    rush(&mut victim, &mut neighbour, WARM);
    let (before, kib) = (held_at_rest(), resident_kib());
    rush(&mut victim, &mut neighbour, TIMES);
    victim.check_service();
    victim.wait("all that guests had to go", |_| held().is_within(before));
    assert!(resident_kib() <= kib + SLACK_KIB, "{} KiB, {kib} before", resident_kib());
    // Only half a message is a fault.
    let resets = victim.counters().resets;
    assert!(resets > 0 && resets < (TIMES + WARM) as u64, "{resets} resets");
    assert!(!victim.came.is_empty() && victim.counters().tx.packets > 0, "no load at all");
    assert!(neighbour.packets > TIMES as u64, "{} packets", neighbour.packets);
    // A port that waited for guests would do so at hundreds of half messages. The thread may have
    // no processor for as long, but not so often.
    assert!(neighbour.long.len() <= 2, "{:?}", neighbour.long);
    let counters = neighbour.victim.port.counters();
    assert_eq!((counters.rx.packets, counters.tx.packets), (neighbour.packets, neighbour.packets));
    assert_eq!((counters.resets, counters.tx.drops_sum()), (0, 0));
}

/// An attack in which the port connects and the guests listen.
#[test]
fn port_reconnects_to_listening_guests() {
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
    // Then a guest that stays connected.
    let listener = attacker.join().unwrap();
    let mut front = Front::over(listener.accept().unwrap().0);
    front.start(FEATURES);
    front.send_packet(0, 1);
    let start = Instant::now();
    while front.used(FROM_GUEST) == 0 {
        assert!(start.elapsed() < LONG, "the last guest is not served");
        step(&mut port);
    }
    assert!(packets > 1, "{packets} packets");
    assert_eq!(pool.available(), pool.size());
}

fn client(path: &Path) -> Vhost {
    let settings = VhostSettings { role: Role::Client, ..VhostSettings::new(path) };
    Vhost::open("vhost0", &settings).unwrap().pop().unwrap()
}
