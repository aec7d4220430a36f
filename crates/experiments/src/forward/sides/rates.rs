//! Rates and cycles, from the counters of a side.

use crate::forward::flow::Flow;
use crate::forward::protocol::Counted;
use crate::forward::testpmd::Stats;

/// Packets per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::forward) struct Rates {
    /// Packets from the ring, per second.
    pub(in crate::forward) rx: f64,
    /// Packets into the ring, per second.
    pub(in crate::forward) tx: f64,
    /// Packets that returned to the physical side, per second.
    pub(in crate::forward) returned: f64,
}

/// Cycles per packet on one side, if they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::forward) struct Cycles {
    /// Cycles in those rounds of the side's thread that moved packets.
    pub(in crate::forward) all: Option<f64>,
    /// Cycles in calls at the ring, in both directions.
    pub(in crate::forward) ring: Option<f64>,
    /// The processor time of all threads of the program in a second.
    pub(in crate::forward) processors: Option<f64>,
    /// Whether the program counted an impossible number of cycles, which the records omit.
    pub(in crate::forward) is_refused: bool,
}

pub(super) fn rates_between(before: &Counted, now: &Counted) -> Rates {
    let seconds = now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9;
    let rate = |of: fn(&Counted) -> u64| {
        let packets = of(now).saturating_sub(of(before)) as f64;
        if seconds > 0.0 { packets / seconds } else { 0.0 }
    };
    Rates {
        rx: rate(|it| it.rx_packets),
        tx: rate(|it| it.tx_packets),
        returned: rate(|it| it.returned),
    }
}

pub(super) fn cycles_between(before: &Counted, now: &Counted) -> Cycles {
    let per = |cycles: u64, packets: u64| (packets > 0).then(|| cycles as f64 / packets as f64);
    let packets = [now.rx_packets - before.rx_packets, now.tx_packets - before.tx_packets];
    let of = |direction: usize| {
        let (now, before) = (now.metered[direction], before.metered[direction]);
        per(now.cycles - before.cycles, now.packets - before.packets)
    };
    let ring = [of(0), of(1)].into_iter().flatten().reduce(|there, back| there + back);
    let all = per(now.busy_cycles - before.busy_cycles, packets[0].max(packets[1]));
    let time = now.time_ns.saturating_sub(before.time_ns);
    let cpu = now.cpu_ns.saturating_sub(before.cpu_ns);
    let processors = (time > 0).then(|| cpu as f64 / time as f64);
    Cycles { all, ring, processors, is_refused: false }
}

pub(super) fn rates_of((ring, physical): (Stats, Option<Stats>), flow: Flow) -> Rates {
    let returned = match (flow, physical) {
        (Flow::Pvp, Some(physical)) => physical.tx_pps,
        _ => ring.rx_pps,
    };
    Rates { rx: ring.rx_pps as f64, tx: ring.tx_pps as f64, returned: returned as f64 }
}

pub(super) fn counted_of((ring, physical): (Stats, Option<Stats>)) -> Counted {
    Counted {
        made: physical.map_or(0, |physical| physical.rx_packets),
        rx_packets: ring.rx_packets,
        tx_packets: ring.tx_packets,
        returned: physical.map_or(0, |physical| physical.tx_packets),
        ..Counted::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::protocol::Metered;

    #[test]
    fn rates_use_time_between_counts() {
        let before = Counted { time_ns: 1_000, rx_packets: 10, ..Counted::default() };
        let now = Counted {
            time_ns: 500_001_000,
            rx_packets: 1_010,
            tx_packets: 500,
            ..Counted::default()
        };
        let expected = Rates { rx: 2000.0, tx: 1000.0, returned: 0.0 };
        assert_eq!(rates_between(&before, &now), expected);
        assert_eq!(rates_between(&now, &now), Rates::default());
    }

    #[test]
    fn cycles_per_packet_add_both_directions_and_time_all_threads() {
        let of = |cycles, packets| Metered { cycles, packets };
        let before = Counted { busy_cycles: 50, rx_packets: 7, cpu_ns: 500, ..Counted::default() };
        let now = Counted {
            time_ns: 2000,
            cpu_ns: 3500,
            busy_cycles: 1_050,
            rx_packets: 17,
            tx_packets: 10,
            metered: [of(300, 10), of(800, 20)],
            ..Counted::default()
        };
        let (all, ring, processors) = (Some(100.0), Some(70.0), Some(1.5));
        let expected = Cycles { all, ring, processors, is_refused: false };
        assert_eq!(cycles_between(&before, &now), expected);
        assert_eq!(cycles_between(&now, &now), Cycles::default());
    }

    #[test]
    fn physical_port_gives_returned_rate() {
        let ring = Stats { rx_pps: 3, tx_pps: 4, ..Stats::default() };
        let physical = Stats { rx_pps: 9, tx_pps: 2, ..Stats::default() };
        assert_eq!(rates_of((ring, Some(physical)), Flow::Pvp).returned, 2.0);
        assert_eq!(rates_of((ring, None), Flow::Dequeue).returned, 3.0);
    }
}
