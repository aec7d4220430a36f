//! Writes the size distributions that haul ships into `bench/definitions/distributions/`.
//!
//! `service` is fitted to the figures published for the calls of a large fleet
//! (google/fleetbench, 2022): the shares of calls per size class are the published ones, and a
//! bisection finds one exponent for each of the two tails so that the bytes are the published
//! ones too. Within a class, sizes that types and allocators commonly have (1, 2, 4, 8, 16, 24,
//! 32, ...) count twice: haul's assumption. `packets` is the simple Internet mix of 7:4:1 that
//! packet generators use (RFC 6985 describes such mixes), as sizes of Ethernet frames. `messages`
//! and `storage` are haul's definitions.

use std::fmt::Write as _;
use std::path::Path;

/// The share of calls and the sizes in bytes of each class of `service`, as published.
const SMALL: f64 = 0.635;
const MEDIUM: f64 = 0.886 - SMALL;
const LARGE_SHARE: f64 = 0.006;
const MEAN_BYTES: f64 = 135.0;
const LARGE_BYTES_SHARE: f64 = 0.66;

fn main() -> std::io::Result<()> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/definitions/distributions");
    for (name, probabilities) in [
        ("service", service()),
        ("packets", packets()),
        ("messages", messages()),
        ("storage", storage()),
    ] {
        std::fs::write(folder.join(name).with_extension("csv"), line(&probabilities))?;
    }
    Ok(())
}

fn service() -> Vec<f64> {
    let common = |size: usize| {
        if size.is_power_of_two() || size.is_multiple_of(8) { 2.0 } else { 1.0 }
    };
    let mut probabilities = vec![0.0; (64 << 10) + 1];
    spread(&mut probabilities, SMALL, (0..=16).map(|size| (size, common(size))));
    spread(&mut probabilities, MEDIUM, (17..=64).map(|size| (size, common(size) / size as f64)));
    let bytes_so_far: f64 = probabilities.iter().enumerate().map(|(size, p)| size as f64 * p).sum();
    // Every size up to 256 B, then multiples of 8, and beyond 2 KiB multiples of 256: the file
    // stays readable, and no copy kernel behaves differently for such neighbouring sizes.
    let body: Vec<usize> = (65..=256).chain((264..=2048).step_by(8)).collect();
    let body_bytes = MEAN_BYTES * (1.0 - LARGE_BYTES_SHARE) - bytes_so_far;
    fit(&mut probabilities, 1.0 - SMALL - MEDIUM - LARGE_SHARE, body_bytes, &body);
    let tail: Vec<usize> = (2304..=64 << 10).step_by(256).collect();
    fit(&mut probabilities, LARGE_SHARE, MEAN_BYTES * LARGE_BYTES_SHARE, &tail);
    probabilities
}

fn packets() -> Vec<f64> {
    let mut probabilities = vec![0.0; 1519];
    spread(&mut probabilities, 1.0, [(64, 7.0), (594, 4.0), (1518, 1.0)].into_iter());
    probabilities
}

fn messages() -> Vec<f64> {
    let mut probabilities = vec![0.0; 16 << 10];
    for octave in 5..14 {
        spread(
            &mut probabilities,
            1.0 / 9.0,
            (1usize << octave..2 << octave).map(|size| (size, 1.0 / size as f64)),
        );
    }
    probabilities
}

fn storage() -> Vec<f64> {
    let mut probabilities = vec![0.0; (128 << 10) + 1];
    let shares = [
        (512, 0.04),
        (1024, 0.02),
        (2048, 0.02),
        (4096, 0.6),
        (8192, 0.1),
        (16384, 0.08),
        (32768, 0.05),
        (65536, 0.05),
        (131_072, 0.04),
    ];
    spread(&mut probabilities, 1.0, shares.into_iter());
    probabilities
}

/// Gives `share` to the sizes in proportion to their weights.
fn spread(
    probabilities: &mut [f64],
    share: f64,
    weights: impl Iterator<Item = (usize, f64)> + Clone,
) {
    let sum: f64 = weights.clone().map(|(_, weight)| weight).sum();
    for (size, weight) in weights {
        probabilities[size] += share * weight / sum;
    }
}

/// Distributes `share` over the sizes by a power law. The exponent is chosen so that these sizes
/// contribute `bytes` to the mean of all calls.
fn fit(probabilities: &mut [f64], share: f64, bytes: f64, sizes: &[usize]) {
    let weights =
        |exponent: f64| sizes.iter().map(move |&size| (size, (size as f64).powf(-exponent)));
    let carried = |exponent: f64| {
        let sum: f64 = weights(exponent).map(|(_, weight)| weight).sum();
        share * weights(exponent).map(|(size, weight)| size as f64 * weight).sum::<f64>() / sum
    };
    let (mut low, mut high) = (-5.0, 20.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if carried(middle) > bytes { low = middle } else { high = middle }
    }
    assert!(
        (carried(low) / bytes - 1.0).abs() < 1e-6,
        "no power law over the sizes carries {bytes} B"
    );
    spread(probabilities, share, weights(low));
}

fn line(probabilities: &[f64]) -> String {
    let mut text = String::new();
    for (index, &p) in probabilities.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let digits = if p == 0.0 { 0 } else { 5 };
        let number = format!("{p:.digits$e}").replace("e0", "");
        write!(text, "{comma}{number}").expect("strings take everything");
    }
    text + "\n"
}
