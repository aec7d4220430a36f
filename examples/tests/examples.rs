//! Each example runs and prints its result.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

fn assert_prints(program: &str, parts: &[&str]) {
    assert_prints_for(program, None, parts);
}

fn assert_prints_for(program: &str, argument: Option<&OsStr>, parts: &[&str]) {
    let mut command = Command::new(program);
    let output = command.args(argument).env("HAUL_TUNING", "off").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {printed}{errors}");
    for part in parts {
        assert!(printed.contains(part), "{program} does not print {part:?}: {printed}{errors}");
    }
}

#[test]
fn copy_example_copies_and_fills() {
    assert_prints(env!("CARGO_BIN_EXE_example-copy"), &["copied and filled"]);
}

#[test]
fn shared_heap_example_reads_block_of_other_process() {
    let text = "reads: from one process to the other, without a copy";
    assert_prints(env!("CARGO_BIN_EXE_example-shared-heap"), &[text]);
}

#[test]
fn channel_example_sends_bytes_to_other_process() {
    let received = "received 67108864 B from process";
    assert_prints(env!("CARGO_BIN_EXE_example-channel"), &[received, "sent 67108864 B by "]);
}

#[test]
fn event_loop_example_sends_every_message() {
    let parts = ["received 20 messages", "sent 20 messages"];
    assert_prints(env!("CARGO_BIN_EXE_example-event-loop"), &parts);
}

#[test]
fn message_in_heap_example_receives_every_message() {
    let part = "received 4 messages into 4 blocks of the heap";
    assert_prints(env!("CARGO_BIN_EXE_example-message-in-heap"), &[part]);
}

#[test]
fn engine_example_copies_beside_its_own_work() {
    let part = "copied 16777216 B while the program computed 82025 primes";
    assert_prints(env!("CARGO_BIN_EXE_example-engine-overlap"), &[part]);
}

#[test]
fn forward_example_counts_generated_packets() {
    let parts = ["EtherType 0x0800: 1000 packets", "1000 packets in 64000 B from gen0"];
    assert_prints(env!("CARGO_BIN_EXE_example-forward"), &parts);
}

#[test]
fn forward_example_counts_packets_of_capture() {
    let capture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example.pcap");
    std::fs::write(&capture, pcap(&[0x0806, 0x0800, 0x0806])).unwrap();
    let parts = ["0x0800: 1 packets", "0x0806: 2 packets", "3 packets in 180 B from pcap0"];
    let program = env!("CARGO_BIN_EXE_example-forward");
    assert_prints_for(program, Some(capture.as_os_str()), &parts);
}

/// A pcap file of one Ethernet frame of 60 B for each EtherType.
fn pcap(kinds: &[u16]) -> Vec<u8> {
    const FRAME_BYTES: u32 = 60;
    // Magic number, version 2.4, time zone and accuracy, longest frame, link type Ethernet.
    let header = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1];
    let mut file: Vec<u8> = header.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    for kind in kinds {
        // Seconds, microseconds, bytes kept, bytes on the wire.
        let words = [0, 0, FRAME_BYTES, FRAME_BYTES];
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let mut frame = [0; FRAME_BYTES as usize];
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        file.extend(frame);
    }
    file
}
