//! The stages at which packets were lost: every packet that was made and did not return is
//! counted at one stage.

use super::protocol::Counted;

/// The stages in the order in which a packet passes them.
pub const STAGES: [&str; 6] =
    ["generator", "switch_in", "vhost_full", "guest", "switch_out", "unaccounted"];

/// Packets lost, by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Made, and lost before the switch received them, because the switch had no buffer.
    pub generator: u64,
    /// Dropped by the switch before the ring, but not because the ring was full.
    pub switch_in: u64,
    /// Dropped by the switch because the guest's ring had no room.
    pub vhost_full: u64,
    /// Given to the guest and not returned.
    pub guest: u64,
    /// Dropped by the switch after they returned from the guest and before the sink.
    pub switch_out: u64,
    /// Packets that are missing according to their numbers, although no stage counted them.
    pub unaccounted: i64,
}

impl Ledger {
    /// The ledger of a switch that has stopped with no packet in transit. Each stage has its own
    /// counter; the numbers in the packets give the sum.
    #[must_use]
    pub fn of(switch: &Counted) -> Self {
        let dropped = |is_meant: &dyn Fn(&str) -> bool| -> u64 {
            let drops = switch.drops.iter().filter(|(name, _)| is_meant(name));
            drops.map(|(_, count)| count).sum()
        };
        // Packets that a guest's kernel sends on its own initiative come from the guest, but
        // never entered it.
        let foreign = dropped(&|name| name == FOREIGN);
        let ledger = Self {
            generator: dropped(&|name| name.starts_with("source.rx.")),
            switch_in: dropped(&|name| name.starts_with("vhost.tx.") && name != FULL),
            vhost_full: dropped(&|name| name == FULL),
            guest: switch.tx_packets.saturating_sub(switch.rx_packets.saturating_sub(foreign)),
            switch_out: dropped(&|name| {
                name.starts_with("vhost.rx.") || name.starts_with("source.tx.") && name != FOREIGN
            }),
            unaccounted: 0,
        };
        let unaccounted = switch.missing.cast_signed() - ledger.explained().cast_signed();
        Self { unaccounted, ..ledger }
    }

    fn explained(&self) -> u64 {
        self.generator + self.switch_in + self.vhost_full + self.guest + self.switch_out
    }

    /// Each stage with its packets, in the order of [`STAGES`].
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let counts = [self.generator, self.switch_in, self.vhost_full, self.guest, self.switch_out];
        let counts = counts.map(|count| count as f64).into_iter();
        STAGES.into_iter().zip(counts.chain([self.unaccounted as f64]))
    }
}

/// The counter of drops because the guest is too slow.
const FULL: &str = "vhost.tx.full";

/// The counter of packets without a number.
const FOREIGN: &str = "source.tx.foreign";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_closes_if_every_packet_is_explained() {
        let drops = [
            ("source.rx.no_buffer", 5),
            (FULL, 100),
            ("vhost.tx.no_link", 7),
            ("vhost.rx.bad_descriptor", 2),
            (FOREIGN, 1),
            ("source.tx.full", 1),
        ];
        let mut switch = Counted {
            tx_packets: 1000,
            rx_packets: 961,
            missing: 155,
            drops: drops.map(|(name, count)| (name.to_owned(), count)).into(),
            ..Counted::default()
        };
        let ledger = Ledger::of(&switch);
        let expected = Ledger {
            generator: 5,
            switch_in: 7,
            vhost_full: 100,
            guest: 40,
            switch_out: 3,
            unaccounted: 0,
        };
        assert_eq!(ledger, expected);
        assert_eq!(ledger.rows().count(), STAGES.len());
        assert_eq!(ledger.rows().map(|(_, count)| count).sum::<f64>(), 155.0);
        switch.missing = 150;
        assert_eq!(Ledger::of(&switch).unaccounted, -5);
    }
}
