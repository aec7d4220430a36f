//! Any text as a plan for the simulator's tasks, as a file of settings, as one setting and as a
//! range in a plan: the result is a readable error, or a machine that can be built.
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
            assert!(found.is_empty() && missing.len() == plan.len(), "no task was done");
        }
        Err(error) => assert_readable(text, &error),
    }
    match settings::parse("machine.toml", text) {
        Ok(machine) => drop(MemorySystem::new(&machine).expect("it was validated")),
        Err(error) => assert_readable(text, &error),
    }
    let mut task = Task::default();
    for line in text.lines() {
        if let Ok(setting) = line.parse::<Setting>()
            && let Err(error) = task.set(&setting)
        {
            assert_readable(text, &error);
        }
        if let Ok(range) = line.parse::<Range>() {
            assert!(!range.values.is_empty(), "{range:?}");
        }
    }
    if let Err(error) = task.check() {
        assert_readable(text, &error);
    }
});

/// Asserts that an error message is not empty and not much longer than the text.
fn assert_readable(text: &str, error: &haul_experiments::Error) {
    let length = error.to_string().len();
    assert!((1..4096 + 16 * text.len()).contains(&length), "{error}");
}
