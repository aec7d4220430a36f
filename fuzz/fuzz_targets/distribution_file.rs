//! Any bytes as a distribution file: the result is an error, or probabilities from which values
//! can be sampled.
#![no_main]

use haul_measure::distribution::{Distribution, file};
use haul_measure::random::Random;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(probabilities) = file::parse(bytes) else { return };
    let Ok(distribution) = Distribution::from_probabilities("fuzz", &probabilities) else { return };
    let sum: f64 = distribution.shares().iter().map(|(_, share)| share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "shares sum to {sum}");
    let mut random = Random::new(1);
    for _ in 0..64 {
        let size = distribution.sample(&mut random);
        assert!(distribution.shares().iter().any(|&(each, _)| each == size), "{size} never occurs");
    }
});
