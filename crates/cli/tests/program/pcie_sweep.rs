//! `haul pcie sweep`: the charts from a modelled core, and batches of this machine.

use haul_model::{Kind, Record};

use crate::{Ran, haul, run};

fn sweep(words: &[&str]) -> Ran {
    let mut command = haul(&["pcie", "sweep", "--nic", "ice", "--for", "10ms"]);
    run(command.args(words))
}

/// The cookbook's charts, from a modelled core. The charts are the same on any machine.
#[test]
fn sweep_finds_break_and_estimate_matches_counts() {
    let words = ["--core", "120:55", "--rates", "4M..14M:2M"];
    let ran = sweep(&words).expect(0);
    let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["breaks between 10.00 and 12.00 M", "0 or 4 packets, 4.00", "polls of 8"] {
        assert!(text.contains(part), "{part}: {ran:#?}");
    }
    let ran = sweep(&[&words[..], &["--json"]].concat()).expect(0);
    let records = ran.records();
    assert!(records.iter().all(|r| r.experiment == "pcie.sweep" && r.kind == Kind::Modelled));
    let of = |metric: &str, basis: &str| -> Vec<f64> {
        let is = |record: &&Record| record.metric == metric && record.text("basis") == Some(basis);
        records.iter().filter(is).map(|record| record.samples[0]).collect()
    };
    for metric in ["inbound_read", "inbound_write", "outbound_read", "outbound_write"] {
        let (counted, estimated) = (of(metric, "counted"), of(metric, "estimated"));
        assert_eq!((counted.len(), estimated.len()), (6, 6), "{metric}");
        for (counted, estimated) in counted.iter().zip(&estimated) {
            let off = (counted - estimated).abs();
            assert!(off <= counted * 5e-3, "{metric}: {counted} {estimated}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, page) = (folder.path().join("sweep.jsonl"), folder.path().join("page.html"));
    std::fs::write(&file, &ran.out).unwrap();
    let words = ["report", file.to_str().unwrap(), "--out-file", page.to_str().unwrap()];
    run(&mut haul(&words)).expect(0);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("the curve breaks") && html.contains("class=\"cell\""));
}

#[test]
fn sweep_measures_batches_and_refuses_impossible_ranges() {
    let words = ["--rates", "100k..200k:100k", "--group", "1", "--json"];
    let records = sweep(&words).expect(0).records();
    let mut rates = records.iter().filter(|record| record.metric == "rate");
    assert!(rates.all(|record| record.kind == Kind::Measured));
    for (option, value, part) in [
        ("--rates", "2M..1M:1M", "FIRST..LAST:STEP"),
        ("--rates", "1M", "FIRST..LAST:STEP"),
        ("--rates", "1M..16M", "FIRST..LAST:STEP"),
        ("--rates", "1k..16M:1k", "at most 1000"),
        ("--rates", "1..2:1", "a longer --for"),
        ("--core", "0:5", "120:55"),
        ("--core", "120", "120:55"),
        ("--for", "0s", "from 1ms to 1m"),
        ("--for", "61", "from 1ms to 1m"),
        ("--packet-size", "13", "14 to 2048"),
        ("--group", "0", "1 to 256"),
        ("--group", "4294967295", "1 to 256"),
        ("--burst", "257", "from 1 to 256"),
        ("--set", "rx_free=20000", "16384"),
        ("--nic", "e810", "mlx5"),
    ] {
        let mut command = haul(&["pcie", "sweep"]);
        if option != "--nic" {
            command.args(["--nic", "ice", "--mode", "scalar"]);
        }
        run(command.args([option, value])).expect(2).says(&[part]);
    }
    run(&mut haul(&["pcie", "sweep"])).expect(2).says(&["--nic"]);
}
