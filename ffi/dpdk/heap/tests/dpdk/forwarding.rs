//! testpmd with the drop-in forwards packets between devices of each kind.

use std::time::Duration;

use crate::SERVES;
use crate::machine::Machine;
use crate::program::{Dialogue, Preload, command};

/// How long testpmd forwards packets in each try.
const TIMES: [Duration; 4] = [
    Duration::from_millis(200),
    Duration::from_secs(2),
    Duration::from_secs(6),
    Duration::from_secs(20),
];

/// Packets that testpmd received on all ports, from its closing statistics.
fn packets(text: &str) -> u64 {
    let all = text.rsplit("Accumulated forward statistics for all ports").next().unwrap_or("");
    let count = all.split("RX-packets:").nth(1).and_then(|rest| rest.split_whitespace().next());
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Runs testpmd, which forwards packets for this time. Returns its output.
fn forward(machine: &Machine, devices: &[&str], time: Duration) -> String {
    // Output is buffered by lines, so that it arrives while testpmd waits for a key.
    let mut testpmd = command("stdbuf", Preload::Yes);
    testpmd.args(["-oL", "dpdk-testpmd"]).args(machine.options("0-1")).args(devices);
    testpmd.args(["--", "--tx-first", "--total-num-mbufs=8192"]);
    let mut talk = Dialogue::start_with_errors(testpmd);
    let mut text = talk.lines_to("Press enter to exit");
    std::thread::sleep(time);
    // A key ends testpmd.
    talk.say("");
    let outcome = talk.finish();
    text += &outcome.text;
    assert!(outcome.is_success && text.contains(SERVES), "{devices:?}:\n{text}");
    text
}

fn assert_forwards(what: &str, devices: &[&str]) {
    let Some(machine) = Machine::take(what) else {
        return;
    };
    // On a busy machine, testpmd's thread may wait for a processor.
    let mut text = String::new();
    let forwards = TIMES.iter().any(|time| {
        text = forward(&machine, devices, *time);
        packets(&text) > 1000
    });
    assert!(forwards, "{what}: few packets:\n{text}");
}

#[test]
fn testpmd_forwards_between_null_devices() {
    assert_forwards("testpmd with net_null", &["--vdev=net_null0", "--vdev=net_null1"]);
}

#[test]
fn testpmd_forwards_between_rings() {
    assert_forwards("testpmd with net_ring", &["--vdev=net_ring0", "--vdev=net_ring1"]);
}

#[test]
fn testpmd_forwards_from_a_file() {
    let input = capture();
    let output = format!("{}/out.pcap", env!("CARGO_TARGET_TMPDIR"));
    let device = format!("--vdev=net_pcap0,rx_pcap={input},tx_pcap={output},infinite_rx=1");
    assert_forwards("testpmd with net_pcap", &[&device, "--vdev=net_null1"]);
}

/// A capture file (pcap 2.4, Ethernet) of 64 packets of 64 bytes.
fn capture() -> String {
    let path = format!("{}/in.pcap", env!("CARGO_TARGET_TMPDIR"));
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, 1_u32] {
        bytes.extend(word.to_le_bytes());
    }
    for second in 0..64_u32 {
        for word in [second, 0, 64, 64] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(0..64_u8);
    }
    std::fs::write(&path, bytes).expect("cargo's folder for tests is writable");
    path
}
