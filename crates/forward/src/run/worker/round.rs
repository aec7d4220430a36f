//! A round: a burst from each port, changed and sent.

use std::ops::Range;

use super::Worker;
use crate::contract::Link;
use crate::counters::DropReason;
use crate::offloads::Offloads;
use crate::pool::Burst;
use crate::run::Retry;
use crate::run::echo::Host;
use crate::run::mode::Mode;

impl Worker {
    /// Moves a burst from each port; returns how many packets arrived.
    #[inline]
    pub(super) fn round(&mut self) -> usize {
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
}
