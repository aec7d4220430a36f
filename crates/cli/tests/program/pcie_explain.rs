//! `haul pcie explain`: the parts of a workload's bytes, what would let the link carry more, and
//! why two estimates differ.

use haul_model::{Kind, Line, Record};

use crate::pcie::{estimate, number};
use crate::{Ran, haul, run};

fn explain(words: &[&str]) -> Ran {
    let mut command = haul(&["pcie", "explain"]);
    run(command.args(words))
}

/// The option that an advice's change names: `--link`, or `--set` for a setting; `None` if the
/// change needs no option.
fn options(change: &str) -> Option<[String; 2]> {
    let words: Vec<&str> = change.split(' ').collect();
    let option = |name: &str, value: &str| Some([name.to_owned(), value.to_owned()]);
    match words[..] {
        ["link", _, "->", link] => option("--link", link),
        ["RCB", _, "->", bytes, "B"] => option("--set", &format!("rcb={bytes}")),
        ["MPS", _, "->", bytes, "B"] => option("--mps", bytes),
        ["MRRS", _, "->", bytes, "B"] => option("--mrrs", bytes),
        ["option", name] => option("--set", &format!("option={name}")),
        ["mode", _, "->", mode] => option("--mode", mode),
        _ => None,
    }
}

#[test]
fn advice_is_ranked_by_its_estimated_rate() {
    let rate_max = |words: &[&str]| -> (f64, String) {
        let mut command = haul(&["pcie", "estimate", "--json"]);
        let records = run(command.args(words)).expect(0).records();
        let full = records.iter().find(|record| record.metric == "rate_max").unwrap();
        (full.samples[0], full.parameters["binds"].as_str().unwrap().to_owned())
    };
    for words in [
        &["--nic", "ice", "--rate", "10M", "--sizes", "64", "--histogram", "0:5,4:10"][..],
        &["--nic", "ixgbe", "--rate", "5M", "--sizes", "1500"],
        &[
            "--nic",
            "i40e",
            "--rate",
            "30Gbit/s",
            "--sizes",
            "512",
            "--set",
            "traffic=tx",
            "--mps",
            "128",
        ],
        &["--nic", "ena", "--rate", "1M", "--sizes", "200", "--histogram", "1:1"],
        &["--nic", "mlx5", "--rate", "50M", "--sizes", "64", "--link", "gen4x8"],
    ] {
        let records = explain(&[words, &["--json"]].concat()).expect(0).records();
        assert!(records.iter().all(|r| r.experiment == "pcie.explain" && r.kind == Kind::Modelled));
        let advice: Vec<&Record> = records.iter().filter(|r| r.metric == "advice").collect();
        let (now, binds) = rate_max(words);
        let full: Vec<&Record> = records.iter().filter(|r| r.metric == "rate_max").collect();
        assert_eq!((full.len(), full[0].samples[0]), (1, now), "{words:?}");
        assert_eq!(full[0].parameters["binds"], binds.as_str());
        let links = advice.iter().filter(|a| a.parameters["change"].to_string().contains("link"));
        assert!(links.count() >= 2, "{words:?}: {advice:#?}");
        assert!(advice.iter().all(|a| a.samples[0] > now), "{words:?}: {advice:#?}");
        assert!(advice.windows(2).all(|pair| pair[0].samples[0] >= pair[1].samples[0]));
        for a in advice {
            let change = a.parameters["change"].as_str().unwrap();
            let Some([name, value]) = options(change) else { continue };
            // Replaces the given value of the option. A setting stays beside the others.
            let place = words.iter().position(|word| *word == name && name != "--set");
            let mut then = words.to_vec();
            place.map(|place| then.drain(place..place + 2).count());
            then.extend([name.as_str(), value.as_str()]);
            let (rate, way) = rate_max(&then);
            assert_eq!((a.samples[0], &a.parameters["binds"]), (rate, &way.into()), "{change}");
            assert_eq!(number(a, "rate_max_ratio"), rate / now, "{change}");
        }
    }
}

#[test]
fn explain_says_whether_rate_fits_and_what_would_carry_it() {
    let words = ["--nic", "ice", "--rate", "10M", "--sizes", "64", "--histogram", "0:5,4:10"];
    let explained = |words: &[&str]| {
        let ran = explain(words).expect(0);
        ran.out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let out = explained(&words);
    for part in ["busier to the host", "packets/s asked for fit: gen3x8 is full to the host at"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let places = ["link gen3x8 -> gen4x8: full", "option rx-16-byte: full"]
        .map(|part| out.find(part).unwrap_or_else(|| panic!("{part}: {out}")));
    assert!(
        places[0] < places[1],
        "a link of twice the width allows more than shorter descriptors: {out}"
    );
    // If the link is full to the host, fewer bytes to the device do not help.
    for absent in ["batch 4", "RCB", "rx free threshold", "MRRS", "MPS 256"] {
        assert!(!out.contains(absent), "{absent}: {out}");
    }
    let out = explained(&["--nic", "ice", "--rate", "100M", "--sizes", "64"]);
    for part in
        ["asked for do not fit", "still too few", "which carries the rate", "the smallest link"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    // With large packets, completions fill the link to the device.
    let out = explained(&["--nic", "i40e", "--rate", "1M", "--sizes", "1500"]);
    assert!(out.contains("RCB 64 -> 128 B: full to the"), "{out}");
    assert!(out.contains("A port of i40e has at most 40 Gb/s") || out.contains("3.2"), "{out}");
    let out = explained(&["--nic", "ixgbe", "--rate", "1M", "--sizes", "64"]);
    assert!(out.contains("A port of ixgbe has at most 10 Gb/s"), "{out}");
    let out =
        explained(&["--nic", "ixgbe", "--rate", "1M", "--sizes", "64", "--set", "traffic=rx"]);
    assert!(out.contains("full to the host"), "{out}");
    let records = explain(&[&words[..], &["--json"]].concat()).expect(0).records();
    let order: Vec<f64> = records
        .iter()
        .filter(|record| record.metric == "transaction")
        .map(|record| number(record, "order"))
        .collect();
    assert_eq!(order, (1..=8).map(f64::from).collect::<Vec<_>>());
    explain(&["--nic", "ice"]).expect(2).says(&["--rate"]);
}

#[test]
fn explain_names_terms_behind_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, words: &[&str]| {
        let path = folder.path().join(name);
        let ran = estimate(&[words, &["--json"]].concat()).expect(0);
        std::fs::write(&path, ran.out.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let first = save("a.jsonl", &[]);
    let second = save("b.jsonl", &["--set", "tx_histogram=8:1"]);
    let ran = explain(&[&first, &second]).expect(0);
    for part in
        ["outbound write: -35.0 MB/s in total, 100% of it by tx doorbell", "1.25 M per second"]
    {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    let records = explain(&[&first, &second, "--json"]).expect(0).records();
    assert_eq!(records[0].metric, "difference");
    assert!(records.iter().any(|r| r.parameters["cause"] == "count" && r.samples[0] == -3.5e7));
    let ran = explain(&[&first, &first]).expect(0);
    assert!(ran.out.contains("do not differ"), "{ran:#?}");

    let words = ["--nic", "ice", "--driver", "dpdk-22.11", "--rate", "10M", "--sizes", "64"];
    let ran = explain(&[&words[..], &["--histogram", "8:1", "--baseline", &first]].concat());
    assert!(ran.expect(0).out.contains("tx doorbell"), "explains");
    // Two files with only sums, as counters give them, are compared through their data.
    let text = std::fs::read_to_string(&first).unwrap();
    let sums: Vec<&str> = text.lines().filter(|line| !line.contains("\"transaction\"")).collect();
    let counters = folder.path().join("sums.jsonl");
    std::fs::write(&counters, sums.join("\n")).unwrap();
    let counters = counters.to_str().unwrap();
    let ran = explain(&[&words[..], &["--histogram", "4:1", "--baseline", counters]].concat());
    assert!(ran.expect(0).out.contains("do not differ"));
    let both = folder.path().join("both.jsonl");
    std::fs::write(&both, format!("{text}{}", text.replace("\"haul\"", "\"other\""))).unwrap();
    explain(&[both.to_str().unwrap(), &first]).expect(1).says(&["several estimates"]);
    std::fs::write(&both, text.lines().next().unwrap()).unwrap();
    explain(&[both.to_str().unwrap(), &first]).expect(1).says(&["no PCIe traffic"]);
    explain(&[&first]).expect(2);
    for [option, value] in [["--nic", "ice"], ["--histogram", "4:1"], ["--link", "gen3x8"]] {
        explain(&[&first, &second, option, value]).expect(2).says(&[option]);
    }
}

#[test]
fn explain_compares_medians_of_samples() {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, samples: &[f64]| {
        let mut record = Record::new("r", "pcie.burst", "haul", "inbound_read", "bytes/s");
        record.samples = samples.to_vec();
        let path = folder.path().join(name);
        std::fs::write(&path, Line::from(record).to_json()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let two_samples = save("two.jsonl", &[100.0, 300.0]);
    let one_sample = save("one.jsonl", &[200.0]);
    let ran = explain(&[&two_samples, &one_sample]).expect(0);
    assert!(ran.out.contains("do not differ"), "{ran:#?}");
}
