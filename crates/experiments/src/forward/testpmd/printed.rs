//! The parser of testpmd's output: counters, cycles, version and features.

use std::time::Duration;

use haul_measure::clock::{Clock, ClockKind};

/// The largest allowed ratio of the counted time to the time that has passed: the two times come
/// from different clocks.
const SHARE_MAX: f64 = 1.05;

/// testpmd's answer for the cycles per packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::forward) enum Metering {
    /// No packet arrived.
    None,
    /// Cycles per packet.
    Cycles(f64),
    /// testpmd counted more cycles than have passed. The result must not be shown.
    Refused,
}

/// A port's counters and rates, as `show port stats` prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::forward) struct Stats {
    pub(in crate::forward) rx_packets: u64,
    pub(in crate::forward) tx_packets: u64,
    pub(in crate::forward) rx_pps: u64,
    pub(in crate::forward) tx_pps: u64,
}

/// The counters of one port.
pub(super) fn parse_stats(text: &str, port: u32) -> Option<Stats> {
    let heading = format!("NIC statistics for port {port} ");
    let own = text.split(&heading).nth(1)?;
    let own = own.split("NIC statistics for port").next()?;
    let number = |key: &str| -> Option<u64> {
        let rest = own.split(key).nth(1)?.trim_start();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    Some(Stats {
        rx_packets: number("RX-packets:")?,
        tx_packets: number("TX-packets:")?,
        rx_pps: number("Rx-pps:")?,
        tx_pps: number("Tx-pps:")?,
    })
}

/// The cycles of this window, if they are possible.
pub(super) fn credible(found: Option<(f64, f64)>, time: Duration) -> Metering {
    let Some((of_packet, all)) = found else { return Metering::None };
    if all > time.as_secs_f64() * hertz() * SHARE_MAX {
        return Metering::Refused;
    }
    Metering::Cycles(of_packet)
}

/// Cycles per second. If the rate is not known, a higher rate than that of any processor.
pub(super) fn hertz() -> f64 {
    let clock = Clock::get();
    match clock.kind() {
        ClockKind::Counter => 1e9 / clock.ns_between(0, 1_000_000) * 1e6,
        ClockKind::System => 10e9,
    }
}

/// `69.66` and 8,359,200 from `CPU cycles/packet=69.66 (total cycles=8359200 / total ...`.
pub(super) fn parse_cycles(text: &str) -> Option<(f64, f64)> {
    let number = |key: &str| {
        let rest = text.split(key).nth(1)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    // Later releases print "busy" for the "total" of 22.11.
    let all = number("(total cycles=").or_else(|| number("(busy cycles="))?;
    Some((number("CPU cycles/packet=")?, all))
}

pub(super) fn parse_version(text: &str) -> Option<String> {
    let rest = text.split("RTE Version: 'DPDK ").nth(1)?;
    rest.split('\'').next().map(str::to_owned)
}

/// A switch prints the features that it received, and a guest prints the features that it sends.
/// The last line counts.
pub(super) fn parse_features(text: &str) -> Option<u64> {
    let marks = ["negotiated Virtio features: 0x", "features after negotiate = "];
    let rests = marks.iter().filter_map(|mark| text.rsplit_once(mark));
    let hex = rests.map(|(_, rest)| rest.split(|c: char| !c.is_ascii_hexdigit()).next());
    hex.flatten().find_map(|digits| u64::from_str_radix(digits, 16).ok())
}

pub(super) fn parse_path(text: &str, direction: &str) -> Option<String> {
    let mark = format!(" {direction} path on port");
    let before = text.rsplit_once(&mark)?.0;
    before.rsplit_once("using ").map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "show port stats all\r\n\r\n  \
        ######################## NIC statistics for port 0  ########################\r\n  \
        RX-packets: 1359200    RX-missed: 0          RX-bytes:  86988800\r\n\
        \r\nPort 0: link state change event\r\n  \
        TX-packets: 1360704    TX-errors: 0          TX-bytes:  87085056\r\n\r\n  \
        Throughput (since last show)\r\n  \
        Rx-pps:       784872          Rx-bps:    401854896\r\n  \
        Tx-pps:       785095          Tx-bps:    401968880\r\n  \
        ######################## NIC statistics for port 1  ########################\r\n  \
        RX-packets: 37942208   RX-missed: 0          RX-bytes:  0\r\n  \
        TX-packets: 1359200    TX-errors: 0          TX-bytes:  0\r\n  \
        Rx-pps:            0          Rx-bps:            0\r\n  \
        Tx-pps:            1          Tx-bps:            0\r\ntestpmd> ";

    #[test]
    fn counters_are_parsed_with_other_lines_between() {
        let own = Stats {
            rx_packets: 1_359_200,
            tx_packets: 1_360_704,
            rx_pps: 784_872,
            tx_pps: 785_095,
        };
        assert_eq!(parse_stats(STATS, 0), Some(own));
        let null = Stats { rx_packets: 37_942_208, tx_packets: 1_359_200, rx_pps: 0, tx_pps: 1 };
        assert_eq!(parse_stats(STATS, 1), Some(null));
        for text in ["", "RX-packets: 1", &STATS[..300], &STATS.replace("-pps:", "-pps: -")] {
            assert_eq!(parse_stats(text, 1), None, "{text}");
        }
    }

    #[test]
    fn cycles_are_parsed_if_printed() {
        let text = "  +++++ Accumulated forward statistics for all ports+++++\r\n\r\n  \
            CPU cycles/packet=69.66 (total cycles=8359200 / total RX packets=120000) at 2100 MHz \
            Clock\r\ntestpmd> ";
        assert_eq!(parse_cycles(text), Some((69.66, 8_359_200.0)));
        let of_25_11 = "  CPU cycles/packet=23.49 (busy cycles=1197844564 / total rxonly \
            packets=50985984) at 2300 MHz Clock\r\n";
        assert_eq!(parse_cycles(of_25_11), Some((23.49, 1_197_844_564.0)));
        assert_eq!(parse_cycles("testpmd> "), None);
        let time = Duration::from_millis(100);
        assert_eq!(credible(None, time), Metering::None);
        for (share, expected) in [
            (0.5, Metering::Cycles(69.66)),
            (1.0, Metering::Cycles(69.66)),
            (1.2, Metering::Refused),
            // The cycles of a machine that has run for a day.
            (864_000.0, Metering::Refused),
        ] {
            assert_eq!(credible(Some((69.66, 0.1 * share * hertz())), time), expected, "{share}");
        }
    }

    #[test]
    fn version_features_and_paths_are_parsed() {
        let text = "EAL: RTE Version: 'DPDK 22.11.11'\r\n\
            virtio_ethdev_negotiate_features(): host_features before negotiate = 1100101a3\r\n\
            virtio_ethdev_negotiate_features(): features after negotiate = 110010020\r\n\
            set_rxtx_funcs(): virtio: using standard Tx path on port 0\r\n\
            set_rxtx_funcs(): virtio: using mergeable buffer Rx path on port 0\r\n";
        assert_eq!(parse_version(text).as_deref(), Some("22.11.11"));
        assert_eq!(parse_features(text), Some(0x1_1001_0020));
        assert_eq!(parse_path(text, "Rx").as_deref(), Some("mergeable buffer"));
        assert_eq!(parse_path(text, "Tx").as_deref(), Some("standard"));
        let switch = "VHOST_CONFIG: (/s) negotiated Virtio features: 0x150008000\r\n";
        assert_eq!(parse_features(switch), Some(0x1_5000_8000));
        assert_eq!(
            (parse_version(switch), parse_features(""), parse_path(switch, "Rx")),
            (None, None, None)
        );
    }
}
