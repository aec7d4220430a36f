//! A thread of haul's that forwards: on one side a gate that packets come from or go to, on the
//! other queue pairs between switch and guest. A side has one thread for each queue pair, or fewer,
//! which have several each; they share nothing.

use std::time::{Duration, Instant};

use haul::forward::{Link, Pace, Pool, Port, Running, Settings, Sizes, Snapshot, Traffic, Watch};

use super::gate::{Gate, Mailbox};
use super::meter::{Meter, MeteredPort};
use super::trial::LOOK_AGAIN;

/// How long a side waits for the other, or for its own thread.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What the thread is called.
const NAME: &str = "haul-forward";

/// Buffers of a thread: a ring's four times over there and back, as DPDK's peers have them; and
/// those that several queue pairs hold.
const PACKETS: usize = 16_384;
const PACKETS_OF_QUEUE: usize = 4096;

/// Flows of the packets for a queue, where there are several: their hash spreads them.
const FLOWS_OF_QUEUE: usize = 64;

/// From the first flow of a thread to that of the next.
const FLOWS_OF_THREAD: usize = 4096;

/// Queue pairs of one thread, of so many: as they are dealt out.
pub(super) fn dealt<T>(queues: Vec<T>, threads: usize) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, queue) in queues.into_iter().enumerate() {
        hands[number % threads].push(queue);
    }
    hands
}

/// A thread that runs.
pub(super) struct Worker {
    /// The first flow of its packets, and how many there are.
    flow_first: usize,
    flows: usize,
    mailbox: Mailbox,
    meter: Meter,
    running: Option<Running>,
    /// Where what its generator made and got back is seen.
    pub(super) generator: Option<(Pace, Watch)>,
    pub(super) is_huge: bool,
}

impl Worker {
    /// Starts the thread of this number with these queue pairs, whose gate is closed.
    pub(super) fn start(
        number: usize,
        queues: Vec<Box<dyn Port>>,
        settings: Settings,
    ) -> Result<Self, String> {
        let said = |error: haul::forward::Error| error.to_string();
        let packets = PACKETS.max(PACKETS_OF_QUEUE * queues.len());
        let pool = Pool::new(packets as u32).map_err(said)?;
        let is_huge = pool.has_huge_pages();
        let (mailbox, meter) = (Mailbox::default(), Meter::default());
        let flows = if queues.len() == 1 { 1 } else { FLOWS_OF_QUEUE * queues.len() };
        let gate: Box<dyn Port> = Box::new(Gate::new(mailbox.clone()));
        let metered = |port| -> Box<dyn Port> { Box::new(MeteredPort::new(port, meter.clone())) };
        let ports: Vec<_> = std::iter::once(gate).chain(queues.into_iter().map(metered)).collect();
        let running = Running::start(NAME, ports, pool, settings).map_err(said)?;
        let (running, generator) = (Some(running), None);
        Ok(Self {
            flow_first: number * FLOWS_OF_THREAD,
            flows,
            mailbox,
            meter,
            running,
            generator,
            is_huge,
        })
    }

    fn running(&self) -> Result<&Running, String> {
        self.running.as_ref().ok_or_else(|| "it has ended".to_owned())
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, String> {
        self.running().map(Running::snapshot)
    }

    /// Whether it has ended by itself.
    pub(super) fn is_over(&self) -> bool {
        self.running.as_ref().is_none_or(Running::is_over)
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Whether all of its queue pairs have a link.
    pub(super) fn is_linked(&self) -> Result<bool, String> {
        let links = self.snapshot()?.links;
        Ok(!links.is_empty() && links.iter().all(|link| *link == Link::Up))
    }

    /// What its generator makes, in flows of its own.
    pub(super) fn traffic(&self, size_bytes: usize, rate: Option<f64>) -> Traffic {
        let (flows, flow_first) = (self.flows as u32, self.flow_first as u32);
        Traffic { sizes: Sizes::Fixed(size_bytes), rate, flows, flow_first, ..Traffic::default() }
    }

    /// Puts a port in the place of the one before it, soon.
    pub(super) fn post(&self, port: Box<dyn Port>) {
        self.mailbox.post(port);
    }

    /// Waits until it is there.
    pub(super) fn await_taken(&self) -> Result<(), String> {
        let started = Instant::now();
        while !self.mailbox.is_taken() {
            if started.elapsed() > PATIENCE {
                return Err("its thread does not come to open the gate".to_owned());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Has it stop, and does not wait for it.
    pub(super) fn stop_soon(&self) {
        self.running.iter().for_each(Running::stop_soon);
    }

    /// Stops it, with what it has counted.
    pub(super) fn stop(&mut self) -> Result<Snapshot, String> {
        let running = self.running.take().ok_or("it has ended")?;
        running.stop().map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_dealt_out_to_threads() {
        assert_eq!(dealt(vec![0, 1, 2, 3, 4], 2), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(dealt(vec![0], 1), [[0]]);
        assert_eq!(dealt(vec![0, 1, 2], 3), [[0], [1], [2]]);
    }
}
