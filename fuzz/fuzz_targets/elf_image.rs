//! Any bytes as an ELF file of the simulated machine: the result is an error or an image. An
//! image runs for a while on the simulated server and on the interpreter alone. The simulator
//! must not panic.
#![no_main]

use haul_sim::{Configuration, Image, Interpreter, Job, Traffic, run};
use libfuzzer_sys::fuzz_target;

/// How many instructions a program may execute: far more than a fuzzer's input contains.
const INSTRUCTIONS_MAX: u64 = 2000;

fuzz_target!(|bytes: &[u8]| {
    let image = match Image::from_elf(bytes) {
        Ok(image) => image,
        Err(error) => {
            assert!((1..4096).contains(&error.to_string().len()), "{error}");
            return;
        }
    };
    let arguments = vec![1, 64, 1];
    if let Ok(mut machine) = Interpreter::new(&image, &arguments, Traffic::default()) {
        let _ = machine.run(&image, INSTRUCTIONS_MAX);
        assert!(machine.executed <= INSTRUCTIONS_MAX, "{}", machine.executed);
    }
    let job = Job { arguments, instructions_max: INSTRUCTIONS_MAX, ..Job::default() };
    if let Err(error) = run(&Configuration::default(), &image, &job) {
        assert!((1..4096).contains(&error.to_string().len()), "{error}");
    }
});
