//! Any text as a plan of the simulator's tasks, as a file of settings, as one setting and as what a
//! plan varies: an error that a person can read, or a machine that can be built.
#![no_main]

use std::path::Path;

use haul_experiments::sim::sweep::{Plan, Range};
use haul_experiments::sim::{Setting, Task, settings};
use haul_sim::MemorySystem;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Plan::parse(Path::new("plan.jsonl"), text) {
        Ok(plan) => {
            let (found, missing) = plan.collect();
            assert!(found.is_empty() && missing.len() == plan.len(), "nothing was done");
        }
        Err(error) => readable(text, &error),
    }
    match settings::parse("machine.toml", text) {
        Ok(machine) => drop(MemorySystem::new(&machine).expect("it was validated")),
        Err(error) => readable(text, &error),
    }
    let mut task = Task::default();
    for line in text.lines() {
        if let Ok(setting) = line.parse::<Setting>()
            && let Err(error) = task.set(&setting)
        {
            readable(text, &error);
        }
        if let Ok(range) = line.parse::<Range>() {
            assert!(!range.values.is_empty(), "{range:?}");
        }
    }
    if let Err(error) = task.check() {
        readable(text, &error);
    }
});

/// A message says something, and not much more than what it speaks of.
fn readable(text: &str, error: &haul_experiments::Error) {
    let length = error.to_string().len();
    assert!((1..4096 + 16 * text.len()).contains(&length), "{error}");
}
