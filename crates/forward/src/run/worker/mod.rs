//! The loop of a worker, from its start until its packets in flight have arrived.
//!
//! - `round`: the path of packets from port to port.

mod round;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity};

use super::Settings;
use super::published::{Published, Snapshot};
use super::spread::Spread;
use super::unfinished::Unfinished;
use crate::clock::{cycles, nanoseconds, now_ns};
use crate::contract::{Link, Port};
use crate::counters::DropReason;
use crate::error::Error;
use crate::pool::{Burst, Pool};

/// The number of rounds between two reads of the clock: about 10 us of empty rounds.
const ROUNDS: u32 = 512;

/// The time between two services of the ports in nanoseconds: 1 ms, a fraction of the time that a
/// peer waits for an answer.
const SERVICE_NS: u64 = 1_000_000;

/// The time between two published copies of the counters in nanoseconds. A copy needs about
/// 10 us.
const PUBLISH_NS: u64 = 20_000_000;

pub(super) struct Worker {
    /// The queue pairs of one port, or of two.
    ports: Vec<Box<dyn Port>>,
    /// The range of queue pairs of each port.
    sides: Vec<Range<usize>>,
    /// For each queue pair, the packets for which it had no room yet. The last burst holds received
    /// packets that are to be spread over several queue pairs.
    bursts: Vec<Burst>,
    /// For each queue pair, and then for the packets to be spread over each port, those that wait
    /// for work which their port does not take; and whether there are any. They pass before their
    /// burst receives others.
    unfinished: Vec<Unfinished>,
    has_unfinished: bool,
    spread: Spread,
    /// Queue pairs over which packets are spread at the moment.
    open: Vec<usize>,
    pool: Pool,
    settings: Settings,
    stop: Arc<AtomicBool>,
    published: Arc<Published>,
    counts: Snapshot,
}

impl Worker {
    pub(super) fn new(
        ports: Vec<Box<dyn Port>>,
        sides: Vec<Range<usize>>,
        pool: Pool,
        settings: Settings,
        stop: Arc<AtomicBool>,
        published: Arc<Published>,
    ) -> Self {
        let bursts = (0..=ports.len()).map(|_| Burst::with_limit(settings.burst)).collect();
        let unfinished = (0..ports.len() + sides.len()).map(|_| Unfinished::new()).collect();
        let (spread, counts, has_unfinished) = (Spread::new(), Snapshot::default(), false);
        let open = Vec::with_capacity(ports.len());
        Self {
            ports,
            sides,
            bursts,
            unfinished,
            has_unfinished,
            spread,
            open,
            pool,
            settings,
            stop,
            published,
            counts,
        }
    }

    /// Forwards until the worker is stopped, both ports are finished, or one fails. Then lets
    /// packets in flight arrive, and stops the ports.
    pub(super) fn run(mut self) -> Result<Snapshot, Error> {
        self.pin()?;
        let result = self.forward();
        if result.is_ok() {
            self.linger();
        }
        for (to, port) in self.ports.iter_mut().enumerate() {
            let unfinished = self.unfinished[to].free(&mut self.pool);
            let left = self.bursts[to].len() as u64 + unfinished;
            port.counters_mut().tx.dropped(DropReason::Full, left);
            self.pool.free_burst(&mut self.bursts[to]);
            port.stop(&mut self.pool);
        }
        // Packets that were to be spread belong to no queue pair yet.
        for (side, unfinished) in self.sides.iter().zip(&mut self.unfinished[self.ports.len()..]) {
            let unspread = unfinished.free(&mut self.pool);
            self.ports[side.start].counters_mut().tx.dropped(DropReason::Full, unspread);
        }
        self.publish();
        result.map(|()| self.counts)
    }

    fn pin(&self) -> Result<(), Error> {
        let Some(cpu) = self.settings.cpu else { return Ok(()) };
        let refused = |reason: std::io::Error| Error::System {
            attempt: "run a worker on the chosen processor",
            reason,
            remedy: "choose a processor that this process may use (taskset -p $$)",
        };
        if cpu >= CpuSet::MAX_CPU {
            return Err(refused(std::io::ErrorKind::InvalidInput.into()));
        }
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).map_err(|reason| refused(reason.into()))
    }

    fn forward(&mut self) -> Result<(), Error> {
        let (mut rounds, mut serviced_ns, mut published_ns) = (0, 0, 0);
        let mut before = cycles();
        loop {
            if rounds == 0 {
                rounds = ROUNDS;
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if self.published.is_wanted() {
                    self.publish();
                }
                let now_ns = now_ns();
                if now_ns - serviced_ns >= SERVICE_NS {
                    serviced_ns = now_ns;
                    self.service()?;
                    if now_ns - published_ns >= PUBLISH_NS {
                        published_ns = now_ns;
                        self.publish();
                    }
                    if self.ports.iter().all(|port| port.link() == Link::Finished) {
                        return Ok(());
                    }
                }
            }
            rounds -= 1;
            let moved = self.round();
            let now = cycles();
            self.counts.polls += 1;
            if moved > 0 {
                self.counts.busy_cycles += now.wrapping_sub(before);
            } else {
                self.counts.wasted_polls += 1;
                self.counts.idle_cycles += now.wrapping_sub(before);
                if self.settings.yields {
                    rounds = rounds.min(16);
                    thread::yield_now();
                }
            }
            before = now;
        }
    }

    fn service(&mut self) -> Result<(), Error> {
        self.ports.iter_mut().try_for_each(|port| port.service(&mut self.pool))
    }

    /// Lets packets in flight arrive and counts them. Empty polls are not counted: after the end of
    /// a run there are millions, which would distort its histogram.
    fn linger(&mut self) {
        self.ports.iter_mut().for_each(|port| port.quiesce());
        let empty: Vec<u64> = self.ports.iter().map(|port| port.counters().rx.batches[0]).collect();
        self.forward_in_flight();
        for (port, empty) in self.ports.iter_mut().zip(empty) {
            port.counters_mut().rx.batches[0] = empty;
        }
    }

    /// Forwards until no packet arrived for a while and all sent packets have left, or the time is
    /// over.
    fn forward_in_flight(&mut self) {
        let linger_ns = nanoseconds(self.settings.linger);
        let start_ns = now_ns();
        let (mut moved_ns, mut serviced_ns) = (start_ns, start_ns);
        loop {
            let moved = self.round();
            let now_ns = now_ns();
            if moved > 0 {
                moved_ns = now_ns;
            }
            if now_ns - serviced_ns >= SERVICE_NS {
                serviced_ns = now_ns;
                if self.service().is_err() {
                    return;
                }
            }
            let mut is_drained = !self.has_unfinished && self.bursts.iter().all(Burst::is_empty);
            for port in &mut self.ports {
                is_drained &= port.drain(&mut self.pool);
            }
            let is_quiet = is_drained && now_ns - moved_ns > linger_ns / 4;
            if is_quiet || now_ns - start_ns > linger_ns {
                return;
            }
            if moved == 0 && self.settings.yields {
                thread::yield_now();
            }
        }
    }

    fn publish(&mut self) {
        self.counts.time_ns = now_ns();
        let ports = self.ports.iter();
        self.counts.ports = ports
            .map(|port| (port.name().to_owned(), port.queue(), port.counters().clone()))
            .collect();
        self.counts.agreements.resize(self.ports.len(), None);
        for (last, port) in self.counts.agreements.iter_mut().zip(&self.ports) {
            *last = port.agreement().or(*last);
        }
        self.counts.links = self.ports.iter().map(|port| port.link()).collect();
        let ports = self.ports.iter();
        let obstacles = ports.filter_map(|port| Some((port.name().to_owned(), port.obstacle()?)));
        self.counts.obstacles = obstacles.collect();
        let ports = self.ports.iter();
        let notes = ports
            .flat_map(|port| port.notes().into_iter().map(|note| (port.name().to_owned(), note)));
        self.counts.notes = notes.collect();
        let ports = self.ports.iter();
        let crossed =
            ports.filter_map(|port| Some((port.name().to_owned(), port.crossed()?.clone())));
        self.counts.crossed = crossed.collect();
        self.published.publish(&self.counts);
    }
}
