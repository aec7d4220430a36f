//! Findings on transfers between processes.

use haul_model::{Line, Record};
use haul_report::Tone;

use crate::{only, transfer};

#[test]
fn fastest_mechanism_is_reported_by_size_with_its_reason() {
    let lines = [
        transfer("pipe", 64, 0, 0.3),
        transfer("haul:inline", 64, 0, 0.5),
        transfer("haul:auto", 64, 0, 0.49),
        transfer("pipe", 1 << 20, 0, 2.0),
        transfer("haul:double", 1 << 20, 0, 9.5),
        transfer("haul:ring", 1 << 20, 0, 8.0),
        transfer("haul:auto", 1 << 20, 0, 8.0),
        // Not a transfer between two private memories, so it is not compared.
        transfer("memcpy", 1 << 20, 0, 12.0),
        transfer("haul:sealed", 1 << 20, 0, 50.0),
        transfer("haul:lease", 1 << 20, 0, 11.0),
        transfer("pipe", 64, 1, 0.3),
        transfer("haul:inline", 64, 1, 0.2),
    ];
    let findings = haul_report::findings(&lines);
    let free = only(&findings, "to warm memory: ");
    assert_eq!(
        free.text,
        "From process to process to warm memory: haul:inline is the fastest at 64 B, 0.500 \
         GB/s, for the message travels within its own descriptor; haul:double is the fastest at \
         1 MiB, 9.50 GB/s, for each byte is copied once, by both processes at a time."
    );
    assert_eq!(free.tone, Tone::Better);
    let busy = only(&findings, "one of two processors busy: ");
    assert!(busy.text.contains("pipe is the fastest at 64 B"), "{}", busy.text);
    assert_eq!(busy.tone, Tone::Fact);
    let choice = only(&findings, "own choice to warm memory is");
    assert!(choice.text.contains("within 5% of its best mechanism at 64 B."), "{}", choice.text);
}

#[test]
fn results_of_2014_are_shown_beside_hauls() {
    let of = |subject: &str, rate: f64, cpu: f64| {
        let mut of_cpu = Record::new("run-1", "channel.transfer", subject, "cpu", "s/GB")
            .with("size_bytes", 1000 << 20)
            .with("target", "warm")
            .with("busy_core", 0);
        of_cpu.machine = "m".into();
        of_cpu.samples = vec![cpu];
        [transfer(subject, 1000 << 20, 0, rate), Line::from(of_cpu)]
    };
    let lines = [
        of("2014:memcpy", 4.0, 0.18),
        of("2014:vmsplice", 1.0, 0.8),
        of("memcpy", 10.0, 0.08),
        of("2014:mymemcpy", 5.0, 0.2),
        of("haul:auto", 9.0, 0.17),
    ]
    .concat();
    let findings = haul_report::findings(&lines);
    assert_eq!(
        only(&findings, "three results").text,
        "The three results of the 2014 memcpy against vmsplice experiment, with 1000 MiB: shared \
         memory and two copies 4.00 GB/s at 0.180 s/GB, vmsplice both ways 1.00 GB/s at 0.800 s/GB, \
         and mymemcpy takes 2.5 times memcpy’s processor time. haul’s choice: 9.00 GB/s at 0.170 s/GB."
    );
}
