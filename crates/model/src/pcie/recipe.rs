//! The terms according to the recipe "PCIe Traffic in DPDK Apps" of VTune's cookbook.
//!
//! The recipe's equations were pictures and are lost. The equations here follow from the eleven
//! steps of the recipe's workflow and from its text about each optimization. The recipe ignores
//! headers and burst modes.

use super::nic::{Nic, Thresholds};
use super::transaction::{Direction, Transaction};
use super::workload::{Histogram, Workload};

/// The size of a tail pointer in bytes. Source: the recipe's outbound writes go to registers, which
/// have 32 bits in these NICs.
const TAIL_BYTES: f64 = 4.0;

/// The recipe's terms, for both readings of its average batch. The two readings differ only in
/// the doorbells.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The terms with packets over non-empty polls as the average. This reading is right for
    /// doorbells, because a doorbell is written once for each burst.
    pub by_polls: Vec<Transaction>,
    /// The terms with the mean batch weighted by packets, as the recipe's symbols suggest.
    pub by_packets: Vec<Transaction>,
    /// The average of `by_polls`.
    pub average_by_polls: f64,
    /// The average of `by_packets`.
    pub average_by_packets: f64,
}

/// The recipe's estimate for a workload.
#[must_use]
pub fn recipe(nic: &Nic, thresholds: Thresholds, workload: &Workload) -> Recipe {
    let (by_polls, by_packets) = (workload.tx.mean_of_polls(), workload.tx.mean_of_packets());
    let terms = |average: fn(&Histogram) -> f64| terms(nic, thresholds, workload, average);
    Recipe {
        by_polls: terms(Histogram::mean_of_polls),
        by_packets: terms(Histogram::mean_of_packets),
        average_by_polls: by_polls,
        average_by_packets: by_packets,
    }
}

fn terms(
    nic: &Nic,
    thresholds: Thresholds,
    workload: &Workload,
    average: fn(&Histogram) -> f64,
) -> Vec<Transaction> {
    use Direction::{InboundRead, InboundWrite, OutboundWrite};
    let rate = workload.rate.packets_per_s();
    let size = workload.packets.mean_bytes();
    let rx = f64::from(nic.rx_descriptor_bytes);
    let tx = f64::from(nic.tx_descriptor_bytes());
    // "This threshold becomes effective only when it is greater than the batch size."
    let per_rx_doorbell = f64::from(thresholds.rx_free).max(average(&workload.rx));
    let reported = rate / f64::from(thresholds.tx_rs.max(1));
    let mut terms = Vec::new();
    if workload.traffic.receives() {
        terms.extend([
            term("rx descriptor fetch", InboundRead, rate, rx),
            term("rx packet", InboundWrite, rate, size),
            term("rx write-back", InboundWrite, rate, rx),
            term("rx doorbell", OutboundWrite, rate / per_rx_doorbell, TAIL_BYTES),
        ]);
    }
    if workload.traffic.sends() {
        terms.extend([
            term("tx doorbell", OutboundWrite, rate / average(&workload.tx), TAIL_BYTES),
            term("tx descriptor fetch", InboundRead, rate, tx),
            term("tx packet", InboundRead, rate, size),
            term("tx write-back", InboundWrite, reported, tx),
        ]);
    }
    terms
}

fn term(
    what: &'static str,
    direction: Direction,
    count_per_s: f64,
    payload_bytes: f64,
) -> Transaction {
    Transaction {
        what,
        direction,
        count_per_s,
        payload_bytes,
        header_bytes: 0.0,
        request_bytes: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcie::Sums;

    fn estimated(histogram: &str, rx_free: u32) -> Recipe {
        let nic: &Nic = "ice".parse().unwrap();
        let workload = Workload::forwarding(
            "10M".parse().unwrap(),
            "64".parse().unwrap(),
            histogram.parse().unwrap(),
        );
        recipe(nic, Thresholds { rx_free, tx_rs: 32 }, &workload)
    }

    /// The closed forms, with the deviation of the sums from them.
    #[test]
    fn recipe_sums_match_closed_forms() {
        let recipe = estimated("0:5,4:10", 32);
        let sums = Sums::of(&recipe.by_polls);
        for (direction, expected) in [
            (Direction::InboundRead, 1e7 * (64.0 + 32.0 + 16.0)),
            (Direction::InboundWrite, 1e7 * (64.0 + 32.0 + 16.0 / 32.0)),
            (Direction::OutboundRead, 0.0),
            (Direction::OutboundWrite, 1e7 * 4.0 * (1.0 / 32.0 + 1.0 / 4.0)),
        ] {
            let found = sums.payload_bytes_per_s(direction);
            eprintln!("{}: {found} B/s, off by {}", direction.name(), found - expected);
            assert!((found - expected).abs() <= expected * 1e-12);
        }
        assert_eq!(recipe.by_polls, recipe.by_packets, "one batch size: one reading");
    }

    #[test]
    fn threshold_below_batch_has_no_effect() {
        let sums = Sums::of(&estimated("32:1", 8).by_polls);
        let doorbells = sums.payload_bytes_per_s(Direction::OutboundWrite);
        assert_eq!(doorbells, 1e7 * 4.0 * (2.0 / 32.0));
    }

    /// A peak of 8 besides that of 4 lowers the curve of outbound writes.
    #[test]
    fn second_peak_lowers_doorbells_and_separates_readings() {
        let (before, after) = (estimated("0:5,4:10", 32), estimated("4:10,8:10", 32));
        assert_eq!((after.average_by_polls, after.average_by_packets), (6.0, 20.0 / 3.0));
        let written =
            |terms: &[Transaction]| Sums::of(terms).payload_bytes_per_s(Direction::OutboundWrite);
        assert!(written(&after.by_polls) < written(&before.by_polls));
        assert!(written(&after.by_packets) < written(&after.by_polls));
    }
}
