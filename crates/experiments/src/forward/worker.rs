//! A thread in which haul forwards. At one end it has a gate, which packets come from or go to.
//! At the other end, it has queue pairs between switch and guest. A side has one thread for each
//! queue pair, or fewer threads with several queue pairs each. Threads share nothing.

use std::time::{Duration, Instant};

use haul::forward::{Link, Pace, Pool, Port, Running, Settings, Sizes, Snapshot, Traffic, Watch};

use super::gate::{Gate, Mailbox};
use super::meter::{Meter, MeteredPort};
use super::trial::POLL_INTERVAL;

/// The longest time until a side sees the other side, or until the side's thread answers.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The name of the thread.
const NAME: &str = "haul-forward";

/// The number of buffers per thread: four times the size of a ring in each direction, as for
/// DPDK's peers. If a thread has several queue pairs, the buffers in their rings are added.
const PACKETS: usize = 16_384;
const PACKETS_OF_QUEUE: usize = 4096;

/// The number of flows per queue if there are several queues. The hash of a packet's flow decides
/// its queue.
const FLOWS_OF_QUEUE: usize = 64;

/// The distance from the first flow of a thread to the first flow of the next thread.
const FLOWS_OF_THREAD: usize = 4096;

/// The queue pairs of each thread.
pub(super) fn distributed<T>(queues: Vec<T>, threads: usize) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, queue) in queues.into_iter().enumerate() {
        hands[number % threads].push(queue);
    }
    hands
}

/// A running thread.
pub(super) struct Worker {
    /// The first flow of the thread's packets, and the number of flows.
    flow_first: usize,
    flows: usize,
    mailbox: Mailbox,
    meter: Meter,
    running: Option<Running>,
    /// The packets that the worker's generator made and received.
    pub(super) generator: Option<(Pace, Watch)>,
    pub(super) is_huge: bool,
}

impl Worker {
    /// Starts the thread of this number with these queue pairs and a closed gate.
    pub(super) fn start(
        number: usize,
        queues: Vec<Box<dyn Port>>,
        settings: Settings,
    ) -> Result<Self, String> {
        let as_text = |error: haul::forward::Error| error.to_string();
        let packets = PACKETS.max(PACKETS_OF_QUEUE * queues.len());
        let pool = Pool::new(packets as u32).map_err(as_text)?;
        let is_huge = pool.has_huge_pages();
        let (mailbox, meter) = (Mailbox::default(), Meter::default());
        let flows = if queues.len() == 1 { 1 } else { FLOWS_OF_QUEUE * queues.len() };
        let gate: Box<dyn Port> = Box::new(Gate::new(mailbox.clone()));
        let metered = |port| -> Box<dyn Port> { Box::new(MeteredPort::new(port, meter.clone())) };
        let ports: Vec<_> = std::iter::once(gate).chain(queues.into_iter().map(metered)).collect();
        let running = Running::start(NAME, ports, pool, settings).map_err(as_text)?;
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

    /// Whether the thread has ended without a request.
    pub(super) fn is_over(&self) -> bool {
        self.running.as_ref().is_none_or(Running::is_over)
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Whether all queue pairs of the thread have a link.
    pub(super) fn is_linked(&self) -> Result<bool, String> {
        let links = self.snapshot()?.links;
        Ok(!links.is_empty() && links.iter().all(|link| *link == Link::Up))
    }

    /// The traffic of the thread's generator, in separate flows.
    pub(super) fn traffic(&self, size_bytes: usize, rate: Option<f64>) -> Traffic {
        let (flows, flow_first) = (self.flows as u32, self.flow_first as u32);
        Traffic { sizes: Sizes::Fixed(size_bytes), rate, flows, flow_first, ..Traffic::default() }
    }

    /// Gives the gate a new port, with which it soon replaces its current one.
    pub(super) fn post(&self, port: Box<dyn Port>) {
        self.mailbox.post(port);
    }

    /// Waits until the port is replaced.
    pub(super) fn await_taken(&self) -> Result<(), String> {
        let started = Instant::now();
        while !self.mailbox.is_taken() {
            if started.elapsed() > TIMEOUT {
                return Err("its thread does not open the gate".to_owned());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Asks the thread to stop, and does not wait for it.
    pub(super) fn stop_soon(&self) {
        self.running.iter().for_each(Running::stop_soon);
    }

    /// Stops the thread, and returns its counters.
    pub(super) fn stop(&mut self) -> Result<Snapshot, String> {
        let running = self.running.take().ok_or("it has ended")?;
        running.stop().map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_distributed_over_threads() {
        assert_eq!(distributed(vec![0, 1, 2, 3, 4], 2), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(distributed(vec![0], 1), [[0]]);
        assert_eq!(distributed(vec![0, 1, 2], 3), [[0], [1], [2]]);
    }
}
