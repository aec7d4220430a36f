//! What an empty poll costs: without the probe, with a callback of DPDK's that does nothing, and
//! with the probe, in turns within one run of testpmd. The second is what DPDK itself takes to
//! call.
//!
//! testpmd counts its own polls (`record-burst-stats`), in each of the three. `HAUL_ROUNDS` asks
//! for more rounds, each of half a second a state, as `bench/definitions/burst-probe` does.

use std::time::{Duration, Instant};

use haul::telemetry::Telemetry;

use crate::ask;
use crate::testpmd::{Testpmd, is_here, own_statistics};

/// What is attached.
const STATES: [(&str, Option<&str>); 3] = [
    ("detached", None),
    ("nothing", Some("/haul/burst/attach,nothing")),
    ("probe", Some("/haul/burst/attach")),
];

/// Nanoseconds of an empty poll of a ring.
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
    let taken = poll_ns(testpmd, flow);
    ask(telemetry, "/haul/burst/detach");
    taken
}

fn quantile(values: &[f64], share: f64) -> f64 {
    haul_model::statistics::quantile(values, share).expect("there are rounds")
}

#[test]
fn an_empty_poll_costs_little_more_than_dpdks_own_call() {
    if !is_here("an_empty_poll_costs_little_more_than_dpdks_own_call") {
        return;
    }
    let asked = std::env::var("HAUL_ROUNDS").ok().and_then(|text| text.parse::<usize>().ok());
    let (rounds, flow) = match asked {
        Some(rounds) => (rounds, Duration::from_millis(500)),
        None => (5, Duration::from_millis(60)),
    };
    let mut testpmd = Testpmd::start(&["-l0-1", "--vdev=net_ring0"], &[]);
    let mut telemetry = testpmd.telemetry();
    testpmd.say("set record-burst-stats on");
    let mut taken = [const { Vec::new() }; STATES.len()];
    for round in 0..rounds {
        for turn in 0..STATES.len() {
            // Each comes first, second and last as often.
            let place = (round + turn) % STATES.len();
            let (_, attach) = STATES[place];
            taken[place].push(state_ns(&mut testpmd, &mut telemetry, attach, flow));
        }
    }
    let pairs = |a: usize, b: usize| -> Vec<f64> {
        taken[b].iter().zip(&taken[a]).map(|(more, less)| more - less).collect()
    };
    let differences = [("call", pairs(0, 1)), ("counting", pairs(1, 2)), ("all", pairs(0, 2))];
    for (name, values) in STATES
        .iter()
        .map(|(name, _)| *name)
        .zip(&taken)
        .chain(differences.iter().map(|(name, values)| (*name, values)))
    {
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| quantile(values, share));
        eprintln!("{name:>9} {median:6.2} ns ({low:.2} to {high:.2})");
    }
    // A lock, a look at the clock for each burst or counters that threads share would be more.
    let [_, nothing, probe] = [0, 1, 2].map(|place| quantile(&taken[place], 0.5));
    assert!(probe < 3.0 * nothing, "{probe:.1} ns beside {nothing:.1}");
}
