//! Where packets were lost: every one that was made and did not come back is charged to a stage.

use super::protocol::Counted;

/// The stages in the order in which a packet comes through them.
pub const STAGES: [&str; 6] =
    ["generator", "switch_in", "vhost_full", "guest", "switch_out", "unaccounted"];

/// Packets lost, by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Made, and lost before the switch had them: it had no buffer.
    pub generator: u64,
    /// Dropped by the switch before the ring, but for want of room.
    pub switch_in: u64,
    /// Dropped by the switch because the guest's ring had no room.
    pub vhost_full: u64,
    /// Given to the guest and not given back.
    pub guest: u64,
    /// Dropped by the switch on the way back.
    pub switch_out: u64,
    /// What the stages do not explain of what is missing by the packets' own numbers.
    pub unaccounted: i64,
}

impl Ledger {
    /// Of a switch that has stopped with nothing under way. Each stage is counted where it is; the
    /// packets' own numbers say what the sum has to be.
    #[must_use]
    pub fn of(switch: &Counted) -> Self {
        let dropped = |is_meant: &dyn Fn(&str) -> bool| -> u64 {
            let drops = switch.drops.iter().filter(|(name, _)| is_meant(name));
            drops.map(|(_, count)| count).sum()
        };
        // What a guest's kernel sends of its own came from it, and is none of those that went in.
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

/// The drop that a guest which is too slow causes.
const FULL: &str = "vhost.tx.full";

/// The drop of a packet without a number.
const FOREIGN: &str = "source.tx.foreign";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_closes_where_every_packet_is_explained() {
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
