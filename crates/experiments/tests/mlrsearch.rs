//! The search for the highest load without loss, compared with the reference implementation of
//! MLRsearch.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use haul_experiments::forward::search::{Goal, Range, Trial, search};
use haul_measure::random::Random;

/// Both searches stop when their bounds are this close, relative to the upper one.
const WIDTH: f64 = 0.005;

#[test]
fn search_agrees_with_reference_implementation() {
    let python = std::env::var("HAUL_MLRSEARCH_PYTHON").unwrap_or_else(|_| "python3".into());
    let present = Command::new(&python).args(["-c", "import MLRsearch"]).output();
    if !present.is_ok_and(|output| output.status.success()) {
        eprintln!(
            "SKIPPED: the search beside its reference: no Python package MLRsearch: pip install \
             MLRsearch, or name a python that has it in HAUL_MLRSEARCH_PYTHON"
        );
        return;
    }
    for (limit, noise, exceed_ratio, loss_ratio) in [
        (1.0e4, 0.0, 0.5, 0.0),
        (1.234e6, 0.0, 0.5, 0.0),
        (11.9e6, 0.1, 0.5, 0.0),
        (11.9e6, 0.0, 0.0, 0.0),
        (5.0e6, 0.9, 0.0, 0.005),
        (5.0e6, 0.3, 0.5, 0.005),
    ] {
        let reference = reference(&python, [limit, noise, exceed_ratio, loss_ratio]);
        let own = own(limit, noise, exceed_ratio, loss_ratio);
        let apart = (own / reference - 1.0).abs();
        eprintln!("limit {limit}: {own} and {reference}, {:.2}% apart", 100.0 * apart);
        // Each search draws its own random losses.
        let close = if noise > 0.0 { 4.0 * WIDTH } else { 2.0 * WIDTH };
        assert!(apart <= close, "limit {limit}, noise {noise}: {own}, {reference}");
    }
}

fn reference(python: &str, arguments: [f64; 4]) -> f64 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/mlrsearch.py");
    let mut command = Command::new(python);
    command.arg(script).args(arguments.map(|argument| argument.to_string()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn own(limit: f64, noise: f64, exceed_ratio: f64, loss_ratio: f64) -> f64 {
    let goal = Goal {
        loss_ratio,
        exceed_ratio,
        trial_short: Duration::from_millis(100),
        trial: Duration::from_secs(1),
        sum: Duration::from_secs(5),
        width: WIDTH,
    };
    let mut random = Random::new(7);
    let found = search(&goal, Range { least: 1e3, most: 30e6 }, |load, time| {
        let lost = (1.0 - limit / load).max(0.0);
        let unlucky = if random.unit() < noise { 1e-4 } else { 0.0 };
        Some(Trial { time, loss_ratio: lost.max(unlucky) })
    });
    found.lower.unwrap()
}
