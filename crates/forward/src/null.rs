//! A port that generates packets without content and discards all packets: the cost of a flow
//! without its physical side.

use super::contract::Port;
use super::counters::Counters;
use super::offloads::Offloads;
use super::pool::{Burst, Pool};

/// Discards every packet. Generates packets of one size; their bytes are the previous content of
/// their buffers.
#[derive(Debug)]
pub struct Null {
    name: String,
    /// The size of each generated packet in bytes; 0 for none.
    size_bytes: usize,
    batch: usize,
    counters: Counters,
}

/// The number of packets per batch, as in DPDK's null device.
const BATCH: usize = 32;

impl Null {
    /// A port that generates no packets.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::source(name, 0)
    }

    /// A port that generates packets of this size in every call, until [`Port::quiesce`].
    #[must_use]
    pub fn source(name: &str, size_bytes: usize) -> Self {
        Self { name: name.into(), size_bytes, batch: BATCH, counters: Counters::default() }
    }
}

impl Port for Null {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let mut taken = 0;
        while self.size_bytes > 0 && taken < self.batch && burst.room() > 0 {
            let Some(packet) = pool.take(self.size_bytes) else { break };
            burst.push(packet);
            taken += 1;
        }
        self.counters.rx.batch(taken, (taken * self.size_bytes) as u64);
        taken
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let mut bytes = 0;
        let sent = burst.len();
        while let Some(packet) = burst.pop() {
            bytes += pool.length(&packet) as u64;
            pool.free(packet);
        }
        self.counters.tx.batch(sent, bytes);
        sent
    }

    /// The receiver discards the packets, so that no work on them is needed.
    fn offloads(&self) -> Offloads {
        Offloads::ALL
    }

    fn quiesce(&mut self) {
        self.size_bytes = 0;
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_source_generates_until_quiesced() {
        let (mut pool, mut burst) = (Pool::new(64).unwrap(), Burst::new());
        let mut null = Null::source("null", 64);
        assert_eq!(null.rx_burst(&mut pool, &mut burst), BATCH);
        assert_eq!(null.tx_burst(&mut pool, &mut burst), BATCH);
        null.quiesce();
        assert_eq!(null.rx_burst(&mut pool, &mut burst), 0);
        assert_eq!(pool.available(), 64);
    }
}
