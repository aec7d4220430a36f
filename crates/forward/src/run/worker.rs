//! The loop of a worker.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity};

use super::echo::Host;
use super::mode::Mode;
use super::published::{Published, Snapshot};
use super::spread::Spread;
use super::unfinished::Unfinished;
use super::{Retry, Settings};
use crate::clock::{cycles, nanoseconds, now_ns};
use crate::contract::{Link, Port};
use crate::counters::DropReason;
use crate::error::Error;
use crate::offloads::Offloads;
use crate::pool::{Burst, Pool};

/// The number of rounds between two reads of the clock: about 10 us of empty rounds.
const ROUNDS: u32 = 512;

/// The time between two services of the ports in nanoseconds: 1 ms, a fraction of the time that a
/// peer waits for an answer.
const SERVICE_NS: u64 = 1_000_000;

/// The time between two published copies of the counters in nanoseconds. A copy needs about 10
/// us.
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

    /// Moves a burst from each port; returns how many packets arrived.
    #[inline]
    fn round(&mut self) -> usize {
        let mut came = 0;
        for side in 0..self.sides.len() {
            let to = self.sides[self.sides.len() - 1 - side].clone();
            for from in self.sides[side].clone() {
                came += if to.len() == 1 { self.step(from, to.start) } else { self.fan(from, &to) };
            }
        }
        came
    }

    /// Moves a burst from one queue pair to another; returns how many packets arrived.
    #[inline]
    fn step(&mut self, from: usize, to: usize) -> usize {
        if self.has_unfinished && !self.unfinished[to].is_empty() {
            let came = self.refill(&(to..to + 1), to, to);
            self.send(to);
            return came;
        }
        let burst = &mut self.bursts[to];
        let came = self.ports[from].rx_burst(&mut self.pool, burst);
        // Packets that wait for room were changed when they arrived.
        self.settings.mode.apply(&mut self.pool, burst, burst.len() - came);
        if let Mode::Echo(host) = self.settings.mode
            && came > 0
        {
            self.answer(&host, from, to, came);
        }
        if self.pool.take_asked() {
            self.finish(&(to..to + 1), to, to);
        }
        if !self.bursts[to].is_empty() {
            self.send(to);
        }
        came
    }

    /// Does the work that packets of a burst ask for, unless all queue pairs `to` take it. What
    /// does not fit into the burst waits in `unfinished[waiting]`.
    #[cold]
    fn finish(&mut self, to: &Range<usize>, burst: usize, waiting: usize) {
        let takes = self.taken(to);
        self.unfinished[waiting].stage(&self.pool, &mut self.bursts[burst], takes);
        self.refill(to, burst, waiting);
    }

    /// Moves packets to a burst whose work is done, and returns their number.
    #[cold]
    fn refill(&mut self, to: &Range<usize>, burst: usize, waiting: usize) -> usize {
        let takes = self.taken(to);
        let counts = &mut self.ports[to.start].counters_mut().tx;
        let bursts = &mut self.bursts[burst];
        let came = self.unfinished[waiting].refill(&mut self.pool, bursts, takes, counts);
        self.has_unfinished = self.unfinished.iter().any(|unfinished| !unfinished.is_empty());
        came
    }

    /// The work that all of these queue pairs take.
    fn taken(&self, to: &Range<usize>) -> Offloads {
        self.ports[to.clone()].iter().fold(Offloads::ALL, |all, port| all.and(port.offloads()))
    }

    /// Like `step`, but to several queue pairs of one port. Only queue pairs with a link get
    /// packets, because the other side may use only some of them. If none has a link, each drops
    /// its share.
    fn fan(&mut self, from: usize, to: &Range<usize>) -> usize {
        let (all, waiting) = (self.ports.len(), self.unspread(to));
        // Every queue pair has room for any of these packets.
        let room = self.bursts[to.clone()].iter().map(Burst::room).min().unwrap_or(0);
        self.bursts[all].set_limit(room);
        let came = if self.has_unfinished && !self.unfinished[waiting].is_empty() {
            self.refill(to, all, waiting)
        } else {
            self.receive(from, to)
        };
        if came > 0 {
            self.find_open(to);
        }
        while let Some(packet) = self.bursts[all].pop() {
            let queue = self.open[self.spread.queue(&self.pool, &packet, self.open.len())];
            if self.bursts[queue].room() > 0 {
                self.bursts[queue].push(packet);
            } else {
                // An answer occupies the packet's room.
                self.ports[queue].counters_mut().tx.dropped(DropReason::Full, 1);
                self.pool.free(packet);
            }
        }
        for queue in to.clone() {
            if !self.bursts[queue].is_empty() {
                self.send(queue);
            }
        }
        came
    }

    /// Receives a burst of packets that are to be spread over the queue pairs `to`.
    #[inline]
    fn receive(&mut self, from: usize, to: &Range<usize>) -> usize {
        let all = self.ports.len();
        let came = self.ports[from].rx_burst(&mut self.pool, &mut self.bursts[all]);
        self.settings.mode.apply(&mut self.pool, &self.bursts[all], 0);
        if let Mode::Echo(host) = self.settings.mode
            && came > 0
        {
            self.answer(&host, from, all, came);
        }
        if self.pool.take_asked() {
            self.finish(to, all, self.unspread(to));
        }
        came
    }

    /// The place in `unfinished` of the packets that are to be spread over the queue pairs `to`.
    #[inline]
    fn unspread(&self, to: &Range<usize>) -> usize {
        self.ports.len() + self.sides.iter().position(|side| side == to).unwrap_or(0)
    }

    /// Finds the queue pairs of a port over which packets are spread.
    #[inline]
    fn find_open(&mut self, to: &Range<usize>) {
        self.open.clear();
        let ports = &self.ports;
        self.open.extend(to.clone().filter(|queue| ports[*queue].link() == Link::Up));
        if self.open.is_empty() {
            self.open.extend(to.clone());
        }
    }

    /// Turns requests to the host into answers and sends them back. Inspects the last `came`
    /// packets of the burst `to`, which have just arrived.
    #[cold]
    fn answer(&mut self, host: &Host, from: usize, to: usize, came: usize) {
        let is_alone = self.sides.len() == 1;
        let waiting = self.bursts[to].len() - came;
        for index in 0..waiting + came {
            let Some(packet) = self.bursts[to].pop() else { break };
            let is_answer = index >= waiting && host.answer(&mut self.pool, &packet);
            // A worker with one port has no target for other packets.
            if !is_answer && is_alone && index >= waiting {
                self.ports[from].counters_mut().tx.dropped(DropReason::Foreign, 1);
                self.pool.free(packet);
                continue;
            }
            let target = if is_answer { from } else { to };
            if self.bursts[target].room() > 0 {
                self.bursts[target].push(packet);
            } else {
                let counted = target.min(self.ports.len() - 1);
                self.ports[counted].counters_mut().tx.dropped(DropReason::Full, 1);
                self.pool.free(packet);
            }
        }
        if from != to && !self.bursts[from].is_empty() {
            self.send(from);
        }
    }

    #[inline]
    fn send(&mut self, to: usize) {
        let (port, burst) = (&mut self.ports[to], &mut self.bursts[to]);
        port.tx_burst(&mut self.pool, burst);
        if burst.is_empty() {
            return;
        }
        let mut tries = match self.settings.retry {
            Retry::Never => 0,
            Retry::Times(tries) => tries,
            // The next round sends the remaining packets first.
            Retry::UntilSent => return,
        };
        while tries > 0 && !burst.is_empty() {
            std::hint::spin_loop();
            port.tx_burst(&mut self.pool, burst);
            tries -= 1;
        }
        port.counters_mut().tx.dropped(DropReason::Full, burst.len() as u64);
        self.pool.free_burst(burst);
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
