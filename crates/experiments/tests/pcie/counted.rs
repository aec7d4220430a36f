//! Tests the modelled NIC's counter at every rate, for every NIC, mode and option. Compares the
//! counter with the estimate for the batches that occurred. A rule that depends on the order of
//! the batches is replayed over the batches.

use haul::forward::{Burst, Link, Nic as NicPort, NicSettings, Pool, Port, Time};
use haul_model::pcie::{
    Count, Direction, Estimate, Histogram, Mode, NICS, Nic, Packets, Rate, RxDoorbell, Setup,
    Transaction, Version, Workload, estimate,
};

/// Packets of each case: fewer if the code is not optimised. The number is a multiple of the
/// numbers that devices write at once, so that no device holds packets at the end.
const PACKETS: u64 = if cfg!(debug_assertions) { 9_600 } else { 10_000_000 };
/// The step between rates, in millions per second, from 1 to 16. The step is larger for a
/// driver's option, which does not change the order of the batches, and if the code is not
/// optimised.
const STEP: usize = if cfg!(debug_assertions) { STEP_FAR } else { 1 };
const STEP_FAR: usize = 5;
/// Packets that a poll requests: as many as vector functions take at once.
const BURST: usize = 32;
/// Bytes of each packet.
const SIZE: u32 = 64;

struct Case {
    name: String,
    setup: Setup,
    step: usize,
}

/// Every NIC in every mode by its usual rules, the vector modes also by the rules of DPDK 22.11,
/// and each option.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |nic: &Nic, mode: Mode, version: Version, option: Option<&str>| {
        let found = option.map_or(*nic, |option| nic.with(option).unwrap());
        let usual = Setup::of(found, "gen3x8".parse().unwrap());
        let option = option.map(|option| format!(" {option}")).unwrap_or_default();
        let name = format!("{} {} {version}{option}", nic.name, mode.name());
        let step = if option.is_empty() { STEP } else { STEP_FAR };
        cases.push(Case { name, setup: Setup { mode, version, ..usual }, step });
    };
    for nic in &NICS {
        for (mode, rule, _) in nic.modes {
            add(nic, *mode, Version::LAST, None);
            if rule.batch(Version::FIRST) != rule.batch(Version::LAST) {
                add(nic, *mode, Version::FIRST, None);
            }
        }
        for choice in nic.choices {
            add(nic, nic.usual_mode(), Version::LAST, Some(choice.name));
        }
    }
    cases
}

/// The rules that depend on the order of batches, replayed over the polls and bursts as they occur.
struct Played {
    rule: RxDoorbell,
    batch: u32,
    free: u32,
    /// The number of sent packets after which a completion is reported; 0 if it is not reported.
    sent_least: u32,
    held: u32,
    sent: u32,
    rx_doorbells: u64,
    tx_completions: u64,
}

impl Played {
    fn of(setup: &Setup) -> Self {
        let (rule, _) = setup.nic.doorbells(setup.mode);
        Self {
            rule,
            batch: rule.batch(setup.version).unwrap_or_default(),
            free: setup.thresholds.rx_free,
            sent_least: setup.nic.completion_doorbells.map_or(0, |rule| rule.tx_descriptors),
            held: 0,
            sent: 0,
            rx_doorbells: 0,
            tx_completions: 0,
        }
    }

    /// A poll, which may be empty. Vector functions decide about the doorbell before they check
    /// for packets.
    fn poll(&mut self, packets: u32) {
        let (before, after) = (self.held, self.held + packets);
        let rings = match self.rule {
            RxDoorbell::Memory => return,
            RxDoorbell::Batch(_) => u32::from(before > self.batch) * self.batch,
            RxDoorbell::Fours(held) => u32::from(before >= held) * (before / 4 * 4),
            RxDoorbell::Above => u32::from(after > self.free) * after,
            RxDoorbell::AtLeast => u32::from(packets > 0 && after >= self.free) * after,
            RxDoorbell::Poll => after,
            RxDoorbell::Threshold => after / self.free * self.free,
        };
        self.rx_doorbells += match self.rule {
            RxDoorbell::Threshold => u64::from(rings / self.free),
            _ => u64::from(rings > 0),
        };
        self.held = after - rings;
    }

    fn send(&mut self, packets: u32) {
        if self.sent_least > 0 && self.sent >= self.sent_least {
            self.tx_completions += 1;
            self.sent = 0;
        }
        self.sent += packets;
    }
}

/// The result of a run.
struct Ran {
    counts: Vec<Count>,
    played: Played,
    batches: Histogram,
}

/// Forwards all packets on a core that takes 120 ns per poll and 55 ns per packet.
fn run(setup: &Setup, rate: f64, pool: &mut Pool) -> Ran {
    let settings = NicSettings {
        size_bytes: SIZE,
        rate: Some(rate),
        group: 4,
        packets: Some(PACKETS),
        time: Time::core(120.0, 55.0),
        ..NicSettings::new(*setup)
    };
    let mut nic = NicPort::open("nic", settings).unwrap();
    let (mut burst, mut played) = (Burst::with_limit(BURST), Played::of(setup));
    while nic.link() == Link::Up {
        let found = nic.rx_burst(pool, &mut burst) as u32;
        played.poll(found);
        if found > 0 {
            nic.tx_burst(pool, &mut burst);
            played.send(found);
        }
    }
    let (rx, tx) = (&nic.counters().rx, &nic.counters().tx);
    assert_eq!((rx.packets, tx.packets, rx.drops_sum()), (PACKETS, PACKETS, 0));
    let batches = Histogram::of_counts(&rx.batches).unwrap();
    let counts = nic.counts().iter().copied().collect();
    nic.stop(pool);
    Ran { counts, played, batches }
}

/// The terms, for a time of as many seconds as there are packets.
fn estimated(setup: &Setup, batches: &Histogram) -> Vec<Transaction> {
    let rate = Rate::new(PACKETS as f64).unwrap();
    let workload = Workload::forwarding(rate, Packets::of_one(SIZE).unwrap(), batches.clone());
    let Setup { nic, version, mode, thresholds, link, .. } = setup;
    let what = Estimate {
        nic: *nic,
        version: *version,
        mode: *mode,
        thresholds: *thresholds,
        workload: &workload,
        link,
    };
    estimate(&what).unwrap()
}

/// Data, headers and count of one term, estimated and counted: the largest difference in
/// transactions, and whether all three are equal to the count and to the byte.
fn compare(term: &Transaction, count: &Count) -> (f64, bool) {
    let off = term.count_per_s - count.count as f64;
    let pairs = [
        (term.count_per_s, count.count),
        (term.count_per_s * term.payload_bytes, count.payload_bytes),
        (term.count_per_s * term.header_bytes, count.header_bytes),
        (term.count_per_s * term.request_bytes, count.request_bytes),
    ];
    // The estimate is a sum of binary fractions, and is exact to the tenth digit. The rounded
    // values are therefore equal.
    let is_equal = pairs.iter().all(|(estimated, counted)| estimated.round() == *counted as f64);
    (off, is_equal)
}

/// One case at one rate: the number of equal terms, and the largest relative difference between a
/// mean over orders and the order that occurred.
fn check(case: &Case, rate: f64, pool: &mut Pool) -> (usize, f64) {
    let ran = run(&case.setup, rate, pool);
    let terms = estimated(&case.setup, &ran.batches);
    assert_eq!(terms.len(), ran.counts.len(), "{}: {terms:#?} {:#?}", case.name, ran.counts);
    let (mut equal, mut most) = (0, 0.0_f64);
    for term in &terms {
        let name = format!("{}, {rate}/s: {}", case.name, term.what);
        let found = ran.counts.iter().find(|count| count.what == term.what);
        let count = found.unwrap_or_else(|| panic!("{name} was not counted"));
        assert_eq!(term.direction, count.direction, "{name}");
        let played = match term.what {
            "rx doorbell" => Some(ran.played.rx_doorbells),
            "tx completion doorbell" => Some(ran.played.tx_completions),
            _ => None,
        };
        let (off, is_equal) = compare(term, count);
        match played {
            Some(played) => {
                assert_eq!(count.count, played, "{name}");
                assert_eq!(term.direction, Direction::OutboundWrite, "{name}");
                most = most.max((off / count.count as f64).abs());
            }
            None => assert!(is_equal, "{name}: off by {off}: {term:?} {count:?}"),
        }
        equal += 1;
    }
    (equal, most)
}

#[test]
fn estimate_equals_counter_for_every_nic_mode_and_option() {
    let (mut pool, mut all, mut runs) = (Pool::new(4096).unwrap(), 0, 0);
    for case in cases() {
        let (mut terms, mut most, mut at) = (0, 0.0_f64, 0_u32);
        for millions in (1..=16_u32).step_by(case.step) {
            let (equal, off) = check(&case, f64::from(millions) * 1e6, &mut pool);
            if off > most {
                (most, at) = (off, millions);
            }
            (terms, runs) = (terms + equal, runs + 1);
        }
        let mean = match at {
            0 => "none of them a mean over orders".to_owned(),
            _ => format!("means over orders off by {:.4}% at most, at {at} M/s", most * 100.0),
        };
        eprintln!("{}: {terms} terms equal; {mean}", case.name);
        // With a modelled core, batches occur in the same order again and again.
        let room = if cfg!(debug_assertions) { 0.25 } else { 0.1 };
        assert!(most <= room, "{}: {most}", case.name);
        all += terms;
    }
    eprintln!("{runs} runs of {PACKETS} packets, {all} terms: all equal");
    assert!(runs >= 100);
}
