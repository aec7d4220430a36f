//! The counters of Open vSwitch's port to the guest.

use std::path::Path;
use std::time::{Duration, Instant};

use super::files::{Files, TIMEOUT_S};

/// The shortest time between two updates of the counters in Open vSwitch's database. Open vSwitch
/// updates them at once if this setting changes (`run_stats_update` of vswitchd/bridge.c), so
/// each request sets another value.
const INTERVAL_MS: u32 = 5000;

/// The longest time until the database has counters of the port's packets: twice the time after
/// which Open vSwitch updates them. What it wrote before the guest came has none.
const TIMEOUT: Duration = Duration::from_secs(12);

/// The time between two requests for counters that are missing.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The counters of a port, from the switch's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::forward) struct Statistics {
    /// Packets and bytes from the guest.
    pub(in crate::forward) rx_packets: u64,
    pub(in crate::forward) rx_bytes: u64,
    /// Packets and bytes to the guest.
    pub(in crate::forward) tx_packets: u64,
    pub(in crate::forward) tx_bytes: u64,
}

impl Statistics {
    /// Asks Open vSwitch by its tool `ovs-vsctl`, again while it has no counters of packets.
    /// `asked` counts the requests.
    ///
    /// # Errors
    /// The tool fails, or a counter is still missing after [`TIMEOUT`].
    pub(super) fn ask(
        configure: &Path,
        files: &Files,
        port: &str,
        asked: &mut u32,
    ) -> Result<Self, String> {
        repeat(|| {
            *asked += 1;
            request(configure, files, port, *asked)
        })
    }

    /// How many packets these counters differ by from the packets that the guest received and
    /// sent, each of this size.
    pub(in crate::forward) fn difference(&self, guest: [u64; 2], size_bytes: u64) -> u64 {
        let bytes = guest.map(|packets| packets * size_bytes);
        let packets = self.tx_packets.abs_diff(guest[0]) + self.rx_packets.abs_diff(guest[1]);
        let bytes = self.tx_bytes.abs_diff(bytes[0]) + self.rx_bytes.abs_diff(bytes[1]);
        packets.max(bytes.div_ceil(size_bytes.max(1)))
    }
}

/// The counters of the first map that has them.
fn repeat(mut request: impl FnMut() -> Result<String, String>) -> Result<Statistics, String> {
    let started = Instant::now();
    loop {
        let text = request()?;
        if let Some(own) = parse(&text) {
            return Ok(own);
        }
        if started.elapsed() > TIMEOUT {
            return Err(format!("its port has no counters of packets: {}", text.trim()));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The map of the port's counters in the database. The update that this asks for may come after the
/// map was read.
fn request(configure: &Path, files: &Files, port: &str, number: u32) -> Result<String, String> {
    let interval = INTERVAL_MS + number;
    let common = [format!("--timeout={TIMEOUT_S}"), format!("--db={}", files.database())];
    let changed = format!("other_config:stats-update-interval={interval}");
    let [timeout, database] = &common;
    files.run(configure, &[timeout, database, "set", "Open_vSwitch", ".", &changed])?;
    files.run(configure, &[timeout, database, "get", "Interface", port, "statistics"])
}

/// The counters in a map such as `{rx_bytes=64, rx_packets=1, tx_bytes=0, tx_packets=0}`.
fn parse(text: &str) -> Option<Statistics> {
    let map = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let value = |name: &str| {
        let mut pairs = map.split(", ").filter_map(|pair| pair.split_once('='));
        pairs.find(|(own, _)| *own == name)?.1.parse().ok()
    };
    Some(Statistics {
        rx_packets: value("rx_packets")?,
        rx_bytes: value("rx_bytes")?,
        tx_packets: value("tx_packets")?,
        tx_bytes: value("tx_bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_counters_are_asked_for_again() {
        let before = "{ovs_rx_qos_drops=0, ovs_tx_retries=0}\n";
        let after = "{rx_bytes=640, rx_packets=10, tx_bytes=128, tx_packets=2}\n";
        let mut maps = [before, before, after].into_iter();
        let found = repeat(|| Ok(maps.next().unwrap().to_owned()));
        let expected = Statistics { rx_packets: 10, rx_bytes: 640, tx_packets: 2, tx_bytes: 128 };
        assert_eq!((found, maps.next()), (Ok(expected), None));
        assert_eq!(repeat(|| Err("refused".to_owned())), Err("refused".to_owned()));
    }

    #[test]
    fn counters_are_found_by_name_alone() {
        let text =
            "{ovs_rx_qos_drops=9, rx_bytes=640, rx_packets=10, tx_bytes=128, tx_packets=2}\n";
        let found = parse(text).unwrap();
        let expected = Statistics { rx_packets: 10, rx_bytes: 640, tx_packets: 2, tx_bytes: 128 };
        assert_eq!(found, expected);
        assert_eq!(parse("{}"), None);
        assert_eq!(parse("{rx_packets=10, tx_packets=2}"), None);
        assert_eq!(parse("rx_packets=10"), None);
    }

    #[test]
    fn difference_counts_packets_and_bytes() {
        let own = Statistics { rx_packets: 10, rx_bytes: 640, tx_packets: 2, tx_bytes: 128 };
        assert_eq!(own.difference([2, 10], 64), 0);
        assert_eq!(own.difference([3, 8], 64), 3);
        // Each packet four bytes longer than it is.
        assert_eq!(Statistics { rx_bytes: 680, ..own }.difference([2, 10], 64), 1);
    }
}
