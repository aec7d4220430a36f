//! Any text as haul.toml: the result is an error, or a tuning that does not change when it is
//! written and read again.
#![no_main]

use haul_machine::tuning::Tuning;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<Tuning>() {
        Ok(tuning) => {
            let thresholds = tuning.thresholds();
            assert_eq!(thresholds, thresholds.clamped(), "a tuning's thresholds are clamped");
            let written = tuning.to_string();
            let read: Tuning = written.parse().expect("what haul wrote, haul reads");
            assert_eq!(read, tuning, "{written}");
        }
        // A message must be readable: not empty, and of limited length.
        Err(error) => assert!((1..4096).contains(&error.to_string().len()), "{error}"),
    }
});
