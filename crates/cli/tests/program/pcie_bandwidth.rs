//! `haul pcie bandwidth`: the public figures that it reproduces, and how the estimate differs.

use haul_model::{Kind, Record};

use crate::pcie::{estimate, sum};
use crate::{haul, run};

#[test]
fn bandwidth_reproduces_public_figures() {
    let figures = |model: &str| {
        let mut command = haul(&["pcie", "bandwidth", "--model", model, "--json"]);
        command.args(["--model-nic", "simple,kernel,dpdk", "--link", "gen3x8"]);
        command.args(["--mps", "256", "--mrrs", "512", "--sizes", "64,512"]);
        run(&mut command).expect(0).records()
    };
    let near = |records: &[Record], nic: &str, size: u64, expected: f64| {
        let found = records.iter().find(|record| {
            record.parameters["nic"] == nic && record.parameters["size_bytes"] == size
        });
        let found = found.unwrap();
        assert_eq!((found.experiment.as_str(), found.kind), ("pcie.bandwidth", Kind::Modelled));
        let deviation = found.samples[0] - expected;
        eprintln!("{nic} {size} B: off by {deviation:+.4} Gb/s");
        assert!(deviation.abs() <= 0.01, "{found:?}");
    };
    let published = figures("pcie-bench");
    for (nic, at_64, at_512) in
        [("simple", 12.58, 39.31), ("kernel", 17.63, 43.96), ("dpdk", 20.65, 45.93)]
    {
        near(&published, nic, 64, at_64);
        near(&published, nic, 512, at_512);
    }
    let mended = figures("mended");
    for (nic, at_64) in [("simple", 11.58), ("kernel", 15.72), ("dpdk", 18.07)] {
        near(&mended, nic, 64, at_64);
    }
    let records = estimate(&["--as", "pcie-bench", "--json"]).expect(0).records();
    assert!(records.iter().all(|record| record.subject == "pcie-bench"));
}

/// The public model and the estimate differ, and each output explains why.
#[test]
fn bandwidth_explains_difference_from_estimate() {
    let words = ["pcie", "bandwidth", "--model-nic", "dpdk", "--sizes", "64,1518"];
    let ran = run(&mut haul(&words)).expect(0);
    let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["estimate --nic ixgbe Gb/s", "one transmit descriptor in 32", "--set completions=mps"]
    {
        assert!(text.contains(part), "{part}: {ran:#?}");
    }
    let row = |size: &str| -> Vec<f64> {
        let line = ran.out.lines().find(|line| line.trim_start().starts_with(size)).unwrap();
        line.split_whitespace().skip(1).map(|text| text.parse().unwrap()).collect()
    };
    for size in ["64", "1518"] {
        let mut command = haul(&["pcie", "estimate", "--nic", "ixgbe", "--rate", "1M", "--json"]);
        let records = run(command.args(["--with-fcs", "--sizes", size])).expect(0).records();
        let bytes = size.parse::<f64>().unwrap() - 4.0;
        let estimated = sum(&records, "rate_max") * bytes * 8e-9;
        assert!((row(size)[1] - estimated).abs() < 0.006, "{size}: {estimated} {ran:#?}");
    }
    // Small packets cost less if write-backs are few, large ones if completions are large.
    assert!(row("64")[1] > row("64")[0] && row("1518")[1] < row("1518")[0], "{ran:#?}");
    let other = run(&mut haul(&["pcie", "bandwidth", "--model-nic", "kernel"])).expect(0);
    assert!(!other.out.contains("ixgbe"), "{other:#?}");
}
