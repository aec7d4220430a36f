//! Any bytes as a capture file. A port reads it, and this target reads it header by header. The
//! result is packets inside the file, or an error with its position. If a port writes the packets
//! to a new file, the new file is a capture with the same number of packets.
#![no_main]

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use haul::forward::{Burst, Link, Pcap, PcapSettings, Pool, Port};
use haul_model::capture::{Header, Headers};
use libfuzzer_sys::fuzz_target;

/// More bursts than any capture has: a burst has up to 32 packets, and each packet needs at least
/// 16 bytes of the file.
const ROUNDS_MAX: usize = 4096;

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(Pool::new(64).unwrap());
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("haul-fuzz-{}-{name}", std::process::id()))
}

/// Reads every packet header in the bytes. Returns the number of complete packets.
fn headers(mut bytes: &[u8]) -> u64 {
    let (mut headers, mut packets) = (Headers::new(), 0);
    while let Some((head, rest)) = bytes.split_at_checked(headers.wanted()) {
        let plain = headers.read_plain(head);
        let wanted = headers.wanted();
        let Ok(header) = headers.read(head) else { break };
        let skip = match header {
            Header::Longer => {
                assert!(headers.wanted() > wanted && headers.wanted() <= 4108);
                continue;
            }
            Header::Packet(packet) => {
                assert!(packet.original >= packet.kept && u64::from(packet.kept) <= packet.skip);
                assert!(plain.is_none_or(|plain| plain == packet), "{plain:?}, {packet:?}");
                packets += u64::from(packet.kept as usize <= rest.len());
                packet.skip
            }
            Header::Other { skip } => skip,
            Header::End => 0,
        };
        let Some(after) = usize::try_from(skip).ok().and_then(|skip| rest.get(skip..)) else {
            break;
        };
        bytes = after;
    }
    packets
}

/// Copies all packets of a file to another. Returns the number of packets, and whether the file
/// was read to its end.
fn replay(pool: &mut Pool, input: &Path, output: &Path) -> Option<(u64, bool)> {
    let settings = PcapSettings {
        input: Some(input.into()),
        passes: Some(1),
        output: Some(output.into()),
        ..PcapSettings::default()
    };
    let mut port = match Pcap::open("pcap0", &settings) {
        Ok(port) => port,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let mut burst = Burst::new();
    let mut is_whole = true;
    for _ in 0..ROUNDS_MAX {
        let received = port.rx_burst(pool, &mut burst);
        port.tx_burst(pool, &mut burst);
        pool.free_burst(&mut burst);
        is_whole &= port.service(pool).is_ok();
        if port.link() == Link::Finished || !is_whole {
            break;
        }
        assert!(received > 0 || port.link() == Link::Up, "the capture does not end");
    }
    let (counters, notes) = (port.counters().clone(), port.notes());
    assert!(notes.iter().all(|note| !note.is_empty()));
    port.stop(pool);
    assert_eq!(pool.available(), pool.size());
    assert_eq!(counters.tx.packets + counters.tx.drops_sum(), counters.rx.packets);
    Some((counters.tx.packets, is_whole))
}

fuzz_target!(|bytes: &[u8]| {
    let packets = headers(bytes);
    let [first, second, third] = ["in.pcap", "out.pcap", "again.pcapng"].map(path);
    fs::write(&first, bytes).expect("a temporary file");
    // One pool for all files, because creating a pool takes longer than reading a file.
    POOL.with_borrow_mut(|pool| {
        if let Some((sent, is_whole)) = replay(pool, &first, &second) {
            assert!(sent <= packets || !is_whole, "{sent} of {packets}");
            if sent > 0 {
                let again = replay(pool, &second, &third).expect("haul reads what it writes");
                assert_eq!(again, (sent, true));
            }
        }
    });
    [first, second, third].iter().for_each(|file| drop(fs::remove_file(file)));
});
