//! The examples run, and say what they are there to show.

use std::process::Command;

fn says(program: &str, parts: &[&str]) {
    let output = Command::new(program).env("HAUL_TUNING", "off").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}{errors}");
    for part in parts {
        assert!(said.contains(part), "{program} does not say {part:?}: {said}{errors}");
    }
}

#[test]
fn copies_and_fills() {
    says(env!("CARGO_BIN_EXE_example-copy"), &["copied and filled"]);
}

#[test]
fn a_heap_is_shared() {
    let text = "reads: from one process to the other, without a copy";
    says(env!("CARGO_BIN_EXE_example-shared-heap"), &[text]);
}

#[test]
fn bytes_reach_another_process() {
    let received = "received 67108864 B from process";
    says(env!("CARGO_BIN_EXE_example-channel"), &[received, "sent 67108864 B by "]);
}

#[test]
fn an_event_loop_never_waits_in_a_call() {
    says(env!("CARGO_BIN_EXE_example-event-loop"), &["received 20 messages", "sent 20 messages"]);
}
