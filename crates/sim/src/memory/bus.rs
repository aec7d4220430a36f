//! The pipelined bus. Arbitration, request, snoop and response follow each other on the address
//! lines, and a new transaction begins as soon as the address lines are free. Data has separate
//! lines.

use crate::configuration::{BusSettings, Cycle};

/// When the phases of a transaction end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// The transaction holds the address lines from this cycle on.
    pub granted: Cycle,
    /// Every agent has latched the request.
    pub requested: Cycle,
    /// Every cache has been searched.
    pub snooped: Cycle,
    /// The requester knows the outcome.
    pub responded: Cycle,
}

/// When data is on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The first beat begins.
    pub begins: Cycle,
    /// The last beat ends.
    pub ends: Cycle,
    /// Cycles that the data waited for the lines.
    pub waited: Cycle,
}

/// The bus. Transactions get the bus in the order in which they request it. A later request does
/// not fill a gap on the data lines, even if its data is ready earlier.
pub struct Bus {
    settings: BusSettings,
    address_free_clock: u64,
    data_free_clock: u64,
}

impl Bus {
    /// An idle bus.
    #[must_use]
    pub fn new(settings: &BusSettings) -> Self {
        Self { settings: settings.clone(), address_free_clock: 0, data_free_clock: 0 }
    }

    /// Sends a transaction with `addresses` addresses, requested at `now`.
    pub fn transact(&mut self, now: Cycle, addresses: u32) -> Phases {
        let bus = &self.settings;
        // Arbitration overlaps with the previous transaction.
        let ready = bus.clock_at(now) + u64::from(bus.arbitration_clocks);
        let granted = ready.max(self.address_free_clock);
        let requested = granted + u64::from(bus.request_clocks * addresses);
        let snooped = requested + u64::from(bus.snoop_clocks);
        let responded = snooped + u64::from(bus.response_clocks);
        self.address_free_clock = requested;
        Phases {
            granted: bus.after(granted),
            requested: bus.after(requested),
            snooped: bus.after(snooped),
            responded: bus.after(responded),
        }
    }

    /// Transfers data whose first byte is available at `first` and whose last at `last`. The
    /// transfer begins late enough to have no gap.
    pub fn transfer(&mut self, first: Cycle, last: Cycle, bytes: u64) -> Transfer {
        let bus = &self.settings;
        let beats = bytes.div_ceil(bus.bytes);
        let at_once = bus.clock_at(first).max(bus.clock_at(last).saturating_sub(beats));
        let begins = at_once.max(self.data_free_clock);
        self.data_free_clock = begins + beats;
        let waited = bus.after(begins) - bus.after(at_once);
        Transfer { begins: bus.after(begins), ends: bus.after(begins + beats), waited }
    }

    /// Cycles that the transfer of `bytes` takes.
    #[must_use]
    pub fn transfer_cycles(&self, bytes: u64) -> Cycle {
        self.settings.after(bytes.div_ceil(self.settings.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_transfer_takes_ten_nanoseconds() {
        let mut bus = Bus::new(&BusSettings::default());
        assert_eq!(bus.transfer(0, 0, 64), Transfer { begins: 0, ends: 30, waited: 0 });
        assert_eq!(
            bus.transfer(0, 0, 64),
            Transfer { begins: 30, ends: 60, waited: 30 },
            "one after another"
        );
        assert_eq!(
            bus.transfer(100, 160, 64),
            Transfer { begins: 132, ends: 162, waited: 0 },
            "no gap inside"
        );
    }

    #[test]
    fn transactions_overlap_except_on_address_lines() {
        let mut bus = Bus::new(&BusSettings::default());
        let first = bus.transact(0, 1);
        let clocks = |n: u64| BusSettings::default().after(n);
        assert_eq!(first.granted, clocks(2));
        assert_eq!(first.requested, clocks(4));
        assert_eq!(first.snooped, clocks(12));
        assert_eq!(first.responded, clocks(14));
        let second = bus.transact(0, 2);
        assert_eq!((second.granted, second.requested), (clocks(4), clocks(8)));
    }
}
