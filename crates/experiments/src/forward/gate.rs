//! The end of a flow, which packets come from or go to. The gate is closed until both sides have
//! started, so that no packet is made before that. The gate can be opened again with another
//! rate, without a restart.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use haul::forward::{Burst, Counters, DropReason, Error, Link, Offloads, Packet, Pool, Port};

/// The name of the port in counters.
pub(super) const NAME: &str = "source";

/// A port that passes bursts to another port, which can be replaced.
pub(super) struct Gate {
    inner: Option<Box<dyn Port>>,
    next: Mailbox,
    counters: Counters,
}

/// The next port, until the worker takes it.
#[derive(Clone, Default)]
pub(super) struct Mailbox(Arc<Mutex<Option<Box<dyn Port>>>>);

impl Mailbox {
    /// Leaves a port for the worker, which soon replaces its current port with this one.
    pub(super) fn post(&self, port: Box<dyn Port>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(port);
    }

    /// Whether the worker has taken the last port.
    pub(super) fn is_taken(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn take(&self) -> Option<Box<dyn Port>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Gate {
    /// A closed gate.
    pub(super) fn new(next: Mailbox) -> Self {
        Self { inner: None, next, counters: Counters::default() }
    }
}

impl Port for Gate {
    fn name(&self) -> &str {
        NAME
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        self.inner.as_mut().map_or(0, |inner| inner.rx_burst(pool, burst))
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        if let Some(inner) = &mut self.inner {
            return inner.tx_burst(pool, burst);
        }
        self.counters.tx.dropped(DropReason::NoLink, burst.len() as u64);
        pool.free_burst(burst);
        0
    }

    fn service(&mut self, pool: &mut Pool) -> Result<(), Error> {
        if let Some(next) = self.next.take()
            && let Some(mut before) = self.inner.replace(next)
        {
            before.stop(pool);
        }
        self.inner.as_mut().map_or(Ok(()), |inner| inner.service(pool))
    }

    /// A closed gate drops each packet, which needs no work.
    fn offloads(&self) -> Offloads {
        self.inner.as_ref().map_or(Offloads::ALL, |inner| inner.offloads())
    }

    fn link(&self) -> Link {
        Link::Up
    }

    fn quiesce(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.quiesce();
        }
    }

    fn drain(&mut self, pool: &mut Pool) -> bool {
        self.inner.as_mut().is_none_or(|inner| inner.drain(pool))
    }

    fn stop(&mut self, pool: &mut Pool) {
        if let Some(inner) = &mut self.inner {
            inner.stop(pool);
        }
    }

    fn counters(&self) -> &Counters {
        self.inner.as_ref().map_or(&self.counters, |inner| inner.counters())
    }

    fn counters_mut(&mut self) -> &mut Counters {
        match &mut self.inner {
            Some(inner) => inner.counters_mut(),
            None => &mut self.counters,
        }
    }
}

/// The port at one end of a loop: it first sends a number of packets, and then returns the
/// packets that it receives.
pub(super) struct Turn {
    /// The number of packets still to be made, and their size.
    left: usize,
    size_bytes: usize,
    back: VecDeque<Packet>,
    counters: Counters,
}

impl Turn {
    /// A loop of this many packets.
    pub(super) fn new(packets: usize, size_bytes: usize) -> Self {
        let (back, counters) = (VecDeque::new(), Counters::default());
        Self { left: packets, size_bytes, back, counters }
    }
}

impl Port for Turn {
    fn name(&self) -> &str {
        NAME
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let (mut count, mut bytes) = (0, 0);
        while burst.room() > 0 {
            let Some(packet) = self.back.pop_front() else { break };
            bytes += pool.length(&packet) as u64;
            burst.push(packet);
            count += 1;
        }
        while self.left > 0 && burst.room() > 0 {
            let Some(packet) = pool.take(self.size_bytes) else { break };
            bytes += self.size_bytes as u64;
            burst.push(packet);
            self.left -= 1;
            count += 1;
        }
        self.counters.rx.batch(count, bytes);
        count
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let (count, mut bytes) = (burst.len(), 0);
        while let Some(packet) = burst.pop() {
            bytes += pool.length(&packet) as u64;
            self.back.push_back(packet);
        }
        self.counters.tx.batch(count, bytes);
        count
    }

    fn stop(&mut self, pool: &mut Pool) {
        self.left = 0;
        while let Some(packet) = self.back.pop_front() {
            pool.free(packet);
        }
    }

    fn quiesce(&mut self) {
        self.left = 0;
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
    use haul::forward::Null;

    use super::*;

    #[test]
    fn gate_is_closed_until_opened_and_can_be_opened_again() {
        let (mut pool, mut burst) = (Pool::new(64).unwrap(), Burst::new());
        let mailbox = Mailbox::default();
        let mut gate = Gate::new(mailbox.clone());
        assert_eq!(gate.rx_burst(&mut pool, &mut burst), 0);
        burst.push(pool.take(64).unwrap());
        assert_eq!(gate.tx_burst(&mut pool, &mut burst), 0);
        assert_eq!(gate.counters().tx.drops_for(DropReason::NoLink), 1);
        for size in [64, 128] {
            mailbox.post(Box::new(Null::source(NAME, size)));
            assert!(!mailbox.is_taken());
            gate.service(&mut pool).unwrap();
            assert!(mailbox.is_taken());
            assert_eq!(gate.rx_burst(&mut pool, &mut burst), 32);
            assert_eq!(gate.counters().rx.bytes, 32 * size as u64);
            pool.free_burst(&mut burst);
        }
        gate.stop(&mut pool);
        assert_eq!(pool.available(), 64);
    }

    #[test]
    fn turn_returns_received_packets() {
        let (mut pool, mut burst) = (Pool::new(64).unwrap(), Burst::new());
        let mut turn = Turn::new(40, 64);
        assert_eq!(turn.rx_burst(&mut pool, &mut burst), 32);
        assert_eq!(turn.tx_burst(&mut pool, &mut burst), 32);
        for expected in [32, 8, 0] {
            assert_eq!(turn.rx_burst(&mut pool, &mut burst), expected);
            pool.free_burst(&mut burst);
        }
        turn.stop(&mut pool);
        assert_eq!(pool.available(), 64);
    }
}
