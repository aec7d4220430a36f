//! `haul pcie explain`: what bytes go to, what would save some, and why two estimates differ.

use haul_model::{Kind, Record};

use crate::pcie::{estimate, number};
use crate::{Ran, haul, run};

fn explain(words: &[&str]) -> Ran {
    let mut command = haul(&["pcie", "explain"]);
    run(command.args(words))
}

#[test]
fn an_explanation_orders_terms_and_shows_what_gains() {
    let words = ["--nic", "ice", "--rate", "10M", "--size", "64", "--histogram", "0:5,4:10"];
    let ran = explain(&words).expect(0);
    for part in ["busier to the host", "option rx-16-byte: saves 430 MB/s", "batch 4 -> 16"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    assert!(ran.out.contains("1.88 M writes to the device"), "{ran:#?}");
    assert!(!ran.out.contains("rx free threshold"), "vector mode has no such: {ran:#?}");
    let records = explain(&[&words[..], &["--json"]].concat()).expect(0).records();
    assert!(records.iter().all(|r| r.experiment == "pcie.explain" && r.kind == Kind::Modelled));
    let order: Vec<f64> = records
        .iter()
        .filter(|record| record.metric == "transaction")
        .map(|record| number(record, "order"))
        .collect();
    assert_eq!(order, (1..=8).map(f64::from).collect::<Vec<_>>());
    let saved: Vec<&Record> = records.iter().filter(|record| record.metric == "saved").collect();
    assert!(!saved.is_empty() && saved.iter().all(|record| record.samples[0] >= 0.0));

    // Each advice, taken, saves what it says.
    let all = |more: &[&str]| -> f64 {
        let terms = estimate(&[more, &["--json"]].concat()).expect(0).records();
        let of = terms.iter().filter(|record| record.metric == "transaction");
        of.map(|r| {
            number(r, "count_per_s") * (number(r, "payload_bytes") + number(r, "header_bytes"))
        })
        .sum()
    };
    let short = saved.iter().find(|r| r.parameters["change"] == "option rx-16-byte").unwrap();
    let gained = all(&[]) - all(&["--option", "rx-16-byte"]);
    assert!((short.samples[0] - gained).abs() < 1.0, "{gained} {short:?}");
    explain(&["--nic", "ice"]).expect(2).says(&["--rate"]);
}

#[test]
fn a_difference_between_two_is_explained_by_its_terms() {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, words: &[&str]| {
        let path = folder.path().join(name);
        let ran = estimate(&[words, &["--json"]].concat()).expect(0);
        std::fs::write(&path, ran.out.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let first = save("a.jsonl", &[]);
    let second = save("b.jsonl", &["--tx-histogram", "8:1"]);
    let ran = explain(&[&first, &second]).expect(0);
    for part in ["outbound write: -35.0 MB/s in all, 100% of it by tx doorbell", "1.25 M a second"]
    {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    let records = explain(&[&first, &second, "--json"]).expect(0).records();
    assert_eq!(records[0].metric, "difference");
    assert!(records.iter().any(|r| r.parameters["cause"] == "count" && r.samples[0] == -3.5e7));
    let ran = explain(&[&first, &first]).expect(0);
    assert!(ran.out.contains("do not differ"), "{ran:#?}");

    let words = ["--nic", "ice", "--driver", "dpdk-22.11", "--rate", "10M", "--size", "64"];
    let ran = explain(&[&words[..], &["--histogram", "8:1", "--against", &first]].concat());
    assert!(ran.expect(0).out.contains("tx doorbell"), "explains");
    // Sums alone, as counters give them: compared as data.
    let text = std::fs::read_to_string(&first).unwrap();
    let sums: Vec<&str> = text.lines().filter(|line| !line.contains("\"transaction\"")).collect();
    let counters = folder.path().join("sums.jsonl");
    std::fs::write(&counters, sums.join("\n")).unwrap();
    let counters = counters.to_str().unwrap();
    let ran = explain(&[&words[..], &["--histogram", "4:1", "--against", counters]].concat());
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
