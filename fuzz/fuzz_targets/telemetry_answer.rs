//! Any bytes as a greeting and as an answer from DPDK's telemetry: the result is a value or a
//! message. The sums in an answer from the burst probe are consistent.
#![no_main]

use std::sync::{Arc, Mutex};

use haul::telemetry::{Error, read_answer, read_greeting};
use haul_experiments::pcie::probe::{self, Queue};
use haul_experiments::pcie::source::ethdev::{Ask, Program};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// A program that gives the same answer to every command.
struct Constant(Value);

impl Ask for Constant {
    fn ask(&mut self, _command: &str) -> Result<Value, Error> {
        Ok(self.0.clone())
    }
}

fuzz_target!(|packet: &[u8]| {
    match read_greeting(packet) {
        Ok(greeting) => assert!(greeting.version.len() <= 128),
        Err(problem) => assert!((1..200).contains(&problem.len()), "{problem}"),
    }
    let answer = match read_answer(packet, "/haul/burst/histogram,0,0") {
        Ok(answer) => answer,
        Err(problem) => {
            assert!((1..200).contains(&problem.len()), "{problem}");
            return;
        }
    };
    let program: Program = Arc::new(Mutex::new(Box::new(Constant(answer))));
    let queue = Queue { port: 0, queue: 0, receives: true };
    if let Ok(Some(bursts)) = probe::bursts(&program, queue) {
        assert!(bursts.empty() <= bursts.polls());
        let nothing = bursts.since(&bursts).expect("equal counters do not decrease");
        assert_eq!((nothing.polls(), nothing.packets()), (0, 0));
        assert!(bursts.mean_bytes().is_none_or(f64::is_finite));
        assert!(bursts.gap_ns().is_none_or(f64::is_finite));
    }
    let _ = (probe::queues(&program), probe::port(&program, 0), probe::attach(&program));
});
