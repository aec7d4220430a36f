//! `haul doctor` and `haul copy list`.

use crate::{haul, run};

#[test]
fn doctor_marks_features_and_remedies() {
    let ran = run(&mut haul(&["doctor"])).expect(0);
    let marked: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| {
            ["ok ", "missing ", "unknown ", "noise "].iter().any(|mark| line.starts_with(mark))
        })
        .collect();
    assert!(marked.len() >= 19, "{ran:#?}");
    let missing = marked.iter().filter(|line| !line.starts_with("ok ")).count();
    assert_eq!(ran.out.matches("-> ").count(), missing, "each with one remedy: {ran:#?}");
    assert!(ran.out.contains("instruction sets") && ran.out.contains("tuning file"));
    let (_, noise) = ran.out.split_once("What disturbs a measurement:").expect("a part of its own");
    for name in ["load", "steal time", "frequency governor", "turbo", "threads of a core"] {
        assert!(
            noise.lines().any(|line| line.get(8..).is_some_and(|it| it.starts_with(name))),
            "{name}: {ran:#?}"
        );
    }
    assert_eq!(ran.err, "");
}

#[test]
fn doctor_prints_one_machine() {
    let ran = run(&mut haul(&["doctor", "--json"])).expect(0);
    assert_eq!(ran.lines().len(), 1);
    let machine = ran.machine();
    assert!(machine.processors >= 1 && machine.memory_bytes > 0);
    assert!(machine.id.ends_with("cpu"), "{}", machine.id);
    for fact in ["kernel", "libc", "hypervisor", "cross_memory_attach", "huge_pages", "dpdk"] {
        assert!(machine.facts.contains_key(fact), "{fact}: {:?}", machine.facts);
    }
}

#[test]
fn doctor_output_does_not_name_the_host() {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let ran = run(&mut haul(&["doctor", "--json"])).expect(0);
    // A short host name may be part of any word.
    if host.len() >= 5 && host != "localhost" {
        assert!(!ran.out.contains(&host), "{ran:#?}");
    }
}

#[test]
fn list_shows_kernels_and_thresholds() {
    let ran = run(&mut haul(&["copy", "list"])).expect(0);
    for part in ["scalar", "stream_copy_min", "processor", "HAUL_TUNING turns tuning off"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    let machine = run(&mut haul(&["copy", "list", "--json"])).expect(0).machine();
    assert!(machine.facts["kernel_copy_scalar"].contains("runs here"));
    assert!(machine.facts.contains_key("threshold_stream_copy_min"));
}
