//! The cost of an empty poll without the probe, with a callback that does nothing, and with the
//! probe, interleaved within one run of testpmd. The callback that does nothing shows the time
//! that DPDK itself needs for the call.
//!
//! testpmd counts its polls in all three states (`record-burst-stats`). `HAUL_ROUNDS` sets more
//! rounds, each of half a second per state; `bench/definitions/burst-probe` uses it.

use std::time::{Duration, Instant};

use haul::telemetry::Telemetry;

use crate::ask;
use crate::testpmd::{Testpmd, is_here, own_statistics};

/// The callback in each state.
const STATES: [(&str, Option<&str>); 3] = [
    ("detached", None),
    ("nothing", Some("/haul/burst/attach,nothing")),
    ("probe", Some("/haul/burst/attach")),
];

/// The number of nanoseconds per empty poll of a ring.
fn poll_ns(testpmd: &mut Testpmd, flow: Duration) -> f64 {
    testpmd.say("start");
    let begun = Instant::now();
    std::thread::sleep(flow);
    let seconds = begun.elapsed().as_secs_f64();
    let (bursts, _) = own_statistics(&testpmd.say("stop"), "RX");
    seconds * 1e9 / bursts as f64
}

fn state_ns(
    testpmd: &mut Testpmd,
    telemetry: &mut Telemetry,
    attach: Option<&str>,
    flow: Duration,
) -> f64 {
    if let Some(attach) = attach {
        ask(telemetry, attach);
    }
    let measured = poll_ns(testpmd, flow);
    ask(telemetry, "/haul/burst/detach");
    measured
}

fn quantile(values: &[f64], share: f64) -> f64 {
    haul_model::statistics::quantile(values, share).expect("there are rounds")
}

/// The figures of all rounds for each state, in the order of [`STATES`].
type Measured = [Vec<f64>; STATES.len()];

fn measure(
    testpmd: &mut Testpmd,
    telemetry: &mut Telemetry,
    rounds: usize,
    flow: Duration,
) -> Measured {
    let mut measured = [const { Vec::new() }; STATES.len()];
    for round in 0..rounds {
        for turn in 0..STATES.len() {
            // Each state is first, second and last equally often.
            let place = (round + turn) % STATES.len();
            let (_, attach) = STATES[place];
            measured[place].push(state_ns(testpmd, telemetry, attach, flow));
        }
    }
    measured
}

fn print(measured: &Measured) {
    let differences_of = |a: usize, b: usize| -> Vec<f64> {
        measured[b].iter().zip(&measured[a]).map(|(more, less)| more - less).collect()
    };
    let differences = [
        ("call", differences_of(0, 1)),
        ("counting", differences_of(1, 2)),
        ("all", differences_of(0, 2)),
    ];
    for (name, values) in STATES
        .iter()
        .map(|(name, _)| *name)
        .zip(measured)
        .chain(differences.iter().map(|(name, values)| (*name, values)))
    {
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| quantile(values, share));
        eprintln!("{name:>9} {median:6.2} ns ({low:.2} to {high:.2})");
    }
}

#[test]
fn probe_costs_little_more_than_empty_callback() {
    if !is_here("probe_costs_little_more_than_empty_callback") {
        return;
    }
    let requested = std::env::var("HAUL_ROUNDS").ok().and_then(|text| text.parse::<usize>().ok());
    let (rounds, flow, tries) = match requested {
        Some(rounds) => (rounds, Duration::from_millis(500), 1),
        None => (5, Duration::from_millis(60), 4),
    };
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_ring0"], &[]);
    let mut telemetry = testpmd.telemetry();
    testpmd.say("set record-burst-stats on");
    let mut best = Vec::new();
    let costs_little = (0..tries).any(|_| {
        let measured = measure(&mut testpmd, &mut telemetry, rounds, flow);
        print(&measured);
        // The best round of each state counts, because other programs can only make a round slower.
        let [_, nothing, probe] = [0, 1, 2].map(|place| quantile(&measured[place], 0.0));
        best.push((nothing, probe));
        probe < 3.0 * nothing
    });
    // A lock, a read of the clock per burst, or counters that threads share would cost more.
    assert!(costs_little, "ns with the callback that does nothing and with the probe: {best:.1?}");
}
