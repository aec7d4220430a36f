//! Measures the time of a port's calls, which is the share of the ring and its copy in a packet's
//! cycles.
//!
//! Reading the clock costs some cycles per burst. Calls are therefore metered in a separate window,
//! after the rate was measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use haul::forward::{Agreement, Burst, Counters, Error, Link, Offloads, Pool, Port};
use haul_measure::clock::Clock;

use super::protocol::Metered;

/// The meter of a port, for code outside the port's worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_on: AtomicBool,
    /// Cycles and packets of calls that received packets, and of calls that sent packets.
    counts: [[AtomicU64; 2]; 2],
}

impl Meter {
    /// Starts or stops counting.
    pub(super) fn turn(&self, is_on: bool) {
        self.0.is_on.store(is_on, Ordering::Relaxed);
    }

    /// The counts of calls that received packets, and of calls that sent packets.
    pub(super) fn counts(&self) -> [Metered; 2] {
        self.0.counts.each_ref().map(|[cycles, packets]| Metered {
            cycles: cycles.load(Ordering::Relaxed),
            packets: packets.load(Ordering::Relaxed),
        })
    }

    /// Only the worker calls this function.
    fn add(&self, direction: usize, cycles: u64, packets: usize) {
        for (sum, more) in self.0.counts[direction].iter().zip([cycles, packets as u64]) {
            sum.store(sum.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }
}

/// A port whose calls are metered.
pub(super) struct MeteredPort {
    inner: Box<dyn Port>,
    meter: Meter,
    clock: Clock,
}

impl MeteredPort {
    pub(super) fn new(inner: Box<dyn Port>, meter: Meter) -> Self {
        Self { inner, meter, clock: Clock::get() }
    }

    #[inline]
    fn call(&mut self, direction: usize, call: impl FnOnce(&mut dyn Port) -> usize) -> usize {
        if !self.meter.0.is_on.load(Ordering::Relaxed) {
            return call(&mut *self.inner);
        }
        let before = self.clock.now();
        let moved = call(&mut *self.inner);
        if moved > 0 {
            self.meter.add(direction, self.clock.now().saturating_sub(before), moved);
        }
        moved
    }
}

impl Port for MeteredPort {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn queue(&self) -> u16 {
        self.inner.queue()
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        self.call(0, |port| port.rx_burst(pool, burst))
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        self.call(1, |port| port.tx_burst(pool, burst))
    }

    fn service(&mut self, pool: &mut Pool) -> Result<(), Error> {
        self.inner.service(pool)
    }

    fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }

    fn link(&self) -> Link {
        self.inner.link()
    }

    fn quiesce(&mut self) {
        self.inner.quiesce();
    }

    fn agreement(&self) -> Option<Agreement> {
        self.inner.agreement()
    }

    fn obstacle(&self) -> Option<String> {
        self.inner.obstacle()
    }

    fn drain(&mut self, pool: &mut Pool) -> bool {
        self.inner.drain(pool)
    }

    fn stop(&mut self, pool: &mut Pool) {
        self.inner.stop(pool);
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }

    fn counters_mut(&mut self) -> &mut Counters {
        self.inner.counters_mut()
    }
}

#[cfg(test)]
mod tests {
    use haul::forward::Null;

    use super::*;

    #[test]
    fn meter_counts_calls_that_move_packets_while_it_is_on() {
        let (mut pool, mut burst) = (Pool::new(64).unwrap(), Burst::new());
        let meter = Meter::default();
        let mut port = MeteredPort::new(Box::new(Null::source("null", 64)), meter.clone());
        for (is_on, sent) in [(false, 0), (true, 32), (false, 32), (true, 64)] {
            meter.turn(is_on);
            assert_eq!(port.rx_burst(&mut pool, &mut burst), 32);
            assert_eq!(port.tx_burst(&mut pool, &mut burst), 32);
            // A call that sends no packet does not count.
            assert_eq!(port.tx_burst(&mut pool, &mut burst), 0);
            let [came, went] = meter.counts();
            assert_eq!((came.packets, went.packets), (sent, sent));
            assert_eq!(came.cycles > 0 && went.cycles > 0, sent > 0);
        }
        assert_eq!(port.counters().rx.packets, 4 * 32);
    }
}
