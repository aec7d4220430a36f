//! The process in which haul forwards: one side of a flow, which performs tasks until its run
//! closes the conversation. The conversation uses standard input, a socket.

use std::io;
use std::time::{Duration, Instant};

use haul::engine::Queue;
use haul::forward::{
    self, Counters, Direction, DropReason, Generator, KeptDevice, Mode, Null, Port, Settings,
    Snapshot, Vhost, VhostSettings, Virtio, VirtioSettings,
};
use haul_measure::sys::usage_process;

use super::ceiling::method_named;
use super::flow::{Flow, Layout};
use super::gate::{self, Turn};
use super::protocol::{Counted, Metered, Reply, Role, Source, Start, Task};
use super::trial::{Made, POLL_INTERVAL, QUANTILES, Trial};
use super::worker::{TIMEOUT, Worker, distributed};
use crate::drive::{self, Conversation};
use crate::error::Error;

/// The number of packets in a loop: as many as testpmd's `start tx_first 32` sends.
const PACKETS_OF_LOOP: usize = 32 * 32;

/// The time that packets in transit have after the last packet was made: for the side that ends
/// first, for the other side, which receives no more packets, and for a flow through a kernel.
const LINGER: Duration = Duration::from_millis(800);
const LINGER_OF_LAST: Duration = Duration::from_millis(80);
const LINGER_OF_KERNEL: Duration = Duration::from_secs(3);

/// A trial ends when no packet has arrived for this time.
const QUIET: Duration = Duration::from_millis(60);
const QUIET_OF_KERNEL: Duration = Duration::from_millis(300);

/// Serves one conversation on standard input, a Unix socket, until the other side closes it.
///
/// # Errors
/// Standard input is not a socket, or it ends in the middle of a line.
pub fn serve() -> Result<(), Error> {
    drive::serve(converse)
}

fn converse(mut run: Conversation) -> io::Result<()> {
    let Some(start) = run.hear_message::<Start>()? else { return Ok(()) };
    let mut forwarding = match Forwarding::start(&start) {
        Ok(forwarding) => forwarding,
        Err(reason) => return run.say_message(&Reply::Failed(reason)),
    };
    run.say_message(&Reply::Ready)?;
    while let Some(task) = run.hear_message::<Task>()? {
        let reply = forwarding.perform(&task).unwrap_or_else(Reply::Failed);
        run.say_message(&reply)?;
    }
    Ok(())
}

/// A side that runs.
struct Forwarding {
    flow: Flow,
    role: Role,
    source: Source,
    size_bytes: usize,
    /// A trial ends when no packet has arrived for this time.
    quiet: Duration,
    /// The threads that forward, each with its own queue pairs.
    workers: Vec<Worker>,
    /// DPDK's guest may hang if its switch ends while the guest forwards, so the device is
    /// dropped last.
    _device: Option<KeptDevice>,
}

impl Forwarding {
    fn start(start: &Start) -> Result<Self, String> {
        let flow: Flow = start.flow.parse()?;
        let layout: Layout = start.layout.parse()?;
        let (queues, device) = ring(start, layout)?;
        let is_first_to_end = (start.role == Role::Guest) == flow.is_from_guest();
        let settings = |cpu| Settings {
            mode: mode(start, flow),
            cpu: Some(cpu),
            linger: match is_first_to_end {
                _ if start.is_to_kernel => LINGER_OF_KERNEL,
                true => LINGER,
                false => LINGER_OF_LAST,
            },
            ..Settings::default()
        };
        let hands = distributed(queues, start.cpus.len()).into_iter().zip(&start.cpus).enumerate();
        let workers =
            hands.map(|(number, (queues, cpu))| Worker::start(number, queues, settings(*cpu)));
        Ok(Self {
            flow,
            role: start.role,
            source: start.source,
            size_bytes: start.size_bytes,
            quiet: if start.is_to_kernel { QUIET_OF_KERNEL } else { QUIET },
            workers: workers.collect::<Result<_, _>>()?,
            _device: device,
        })
    }

    fn perform(&mut self, task: &Task) -> Result<Reply, String> {
        match task {
            Task::Await => self.await_link().map(|()| Reply::Done),
            Task::Go(rate) => self.go(*rate).map(|()| Reply::Done),
            Task::Resize(size_bytes) => {
                self.size_bytes = *size_bytes;
                self.go(None).map(|()| Reply::Done)
            }
            Task::Pause => self.pause().map(|()| Reply::Done),
            Task::Meter(is_on) => {
                self.workers.iter().for_each(|worker| worker.meter().turn(*is_on));
                Ok(Reply::Done)
            }
            Task::Count => {
                if self.workers.iter().any(Worker::is_over) {
                    return self.halt().and_then(|_| Err("its thread has ended".to_owned()));
                }
                let snapshots = self.workers.iter().map(Worker::snapshot);
                Ok(Reply::Counted(self.counted(&snapshots.collect::<Result<Vec<_>, _>>()?)))
            }
            Task::Trial { rate, seconds } => self.trial(*rate, *seconds).map(Reply::Counted),
            Task::Halt => self.halt().map(Reply::Counted),
        }
    }

    fn await_link(&self) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < TIMEOUT {
            let linked = self.workers.iter().map(Worker::is_linked);
            if linked.collect::<Result<Vec<_>, _>>()?.into_iter().all(|is_linked| is_linked) {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let mut message =
            format!("the other side has not connected within {} s", TIMEOUT.as_secs());
        for worker in &self.workers {
            for (port, reason) in worker.snapshot()?.obstacles {
                message.push_str(&format!("; {port}: {reason}"));
            }
        }
        Err(message)
    }

    /// Opens the gates. All threads together make this many packets per second.
    fn go(&mut self, rate: Option<f64>) -> Result<(), String> {
        let rate = rate.map(|rate| rate / self.workers.len() as f64);
        for number in 0..self.workers.len() {
            let port = self.source(number, rate)?;
            self.workers[number].post(port);
        }
        self.await_open()
    }

    /// Whether this side makes packets.
    fn makes(&self) -> bool {
        match self.role {
            Role::Switch => matches!(self.flow, Flow::Pvp | Flow::Enqueue),
            Role::Guest => self.flow.is_from_guest(),
        }
    }

    /// The port behind the gate of a thread.
    fn source(&mut self, number: usize, rate: Option<f64>) -> Result<Box<dyn Port>, String> {
        let makes = self.makes();
        let turns = match (self.role, self.flow) {
            (Role::Switch, Flow::Loopback) => Some(PACKETS_OF_LOOP),
            (Role::Guest, Flow::Pvp | Flow::Loopback) | (Role::Switch, Flow::Return) => Some(0),
            _ => None,
        };
        Ok(match turns {
            Some(packets) => Box::new(Turn::new(packets, self.size_bytes)),
            None if !makes => Box::new(Null::new(gate::NAME)),
            None if self.source == Source::Null => {
                Box::new(Null::source(gate::NAME, self.size_bytes))
            }
            None => {
                let worker = &mut self.workers[number];
                let made = Generator::new(gate::NAME, &worker.traffic(self.size_bytes, rate));
                let generator = made.map_err(|error| error.to_string())?;
                worker.generator = Some((generator.pace(), generator.watch()));
                Box::new(generator)
            }
        })
    }

    fn await_open(&self) -> Result<(), String> {
        self.workers.iter().try_for_each(Worker::await_taken)
    }

    /// Offers a load, and returns the counters. Packets that were not made in time count as lost,
    /// because the load was not offered.
    fn trial(&self, rate: f64, seconds: f64) -> Result<Counted, String> {
        let traffic = self.workers.iter().map(|worker| worker.traffic(self.size_bytes, None));
        let (trial, generators) = Trial::new(rate, seconds, traffic.collect())?;
        for (worker, generator) in self.workers.iter().zip(generators) {
            worker.post(Box::new(generator));
        }
        self.await_open()?;
        let came = trial.await_end(self.quiet);
        self.workers.iter().for_each(|worker| worker.post(Box::new(Null::new(gate::NAME))));
        self.await_open()?;
        Ok(trial.counted(came))
    }

    /// Makes no more packets. A side that returns packets still does.
    fn pause(&self) -> Result<(), String> {
        if !self.makes() {
            return Ok(());
        }
        self.workers.iter().for_each(|worker| worker.post(Box::new(Null::new(gate::NAME))));
        self.await_open()
    }

    fn halt(&mut self) -> Result<Counted, String> {
        self.workers.iter().for_each(Worker::stop_soon);
        let stopped: Vec<_> = self.workers.iter_mut().map(Worker::stop).collect();
        let snapshots = stopped.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(self.counted(&snapshots))
    }

    /// The counters of all threads together.
    fn counted(&self, snapshots: &[Snapshot]) -> Counted {
        let ports = || snapshots.iter().flat_map(|snapshot| &snapshot.ports);
        let sum = |is_source: bool, of: &dyn Fn(&Counters) -> u64| -> u64 {
            let meant = ports().filter(|(name, ..)| (name == gate::NAME) == is_source);
            meant.map(|(.., counters)| of(counters)).sum()
        };
        let made = sum(true, &|it| it.rx.packets);
        let back = sum(true, &|it| it.tx.packets);
        let rx_packets = sum(false, &|it| it.rx.packets);
        let busy_cycles = snapshots.iter().map(|snapshot| snapshot.busy_cycles).sum();
        let times = snapshots.iter().map(|snapshot| snapshot.time_ns);
        let mut counted = Counted {
            // The threads publish their counters in turn, and the mean of their times gives the
            // right rate.
            time_ns: times.sum::<u64>() / snapshots.len() as u64,
            made,
            rx_packets,
            tx_packets: sum(false, &|it| it.tx.packets),
            // A packet that returned with the bytes of another packet counts as returned too.
            returned: back + sum(true, &|it| it.tx.drops_for(DropReason::Foreign)),
            missing: made.saturating_sub(back),
            cycles_per_packet: busy_cycles as f64 / rx_packets.max(1) as f64,
            busy_cycles,
            cpu_ns: usage_process().cpu.as_nanos() as u64,
            metered: self.metered(),
            page_bytes: if self.workers[0].is_huge { 2 << 20 } else { 4 << 10 },
            ..Counted::default()
        };
        let agreements = snapshots.iter().flat_map(|snapshot| &snapshot.agreements);
        if let Some(agreement) = agreements.flatten().next() {
            counted.features = agreement.features;
            counted.ring_size = agreement.ring_size;
        }
        let generators: Option<Vec<_>> =
            self.workers.iter().map(|worker| worker.generator.clone()).collect();
        if let Some(generators) = generators {
            let made = Made(generators);
            let findings = made.findings();
            let order = findings.sum();
            counted.made = made.count();
            counted.missing = counted.made.saturating_sub(order.unique);
            counted.reordered = order.reordered;
            let value = |quantile| findings.latency.value_at_quantile(quantile) as f64;
            counted.latency_ns = QUANTILES.map(|quantile| (quantile, value(quantile))).into();
        }
        for (name, queue, counters) in ports() {
            for (label, direction) in [("rx", &counters.rx), ("tx", &counters.tx)] {
                add_drops(&format!("{name}.{label}"), direction, &mut counted);
            }
            if name != gate::NAME {
                counted.rx_batches.insert(*queue, trimmed(&counters.rx.batches));
            }
        }
        counted
    }

    fn metered(&self) -> [Metered; 2] {
        let mut sums = [Metered::default(); 2];
        for worker in &self.workers {
            for (sum, one) in sums.iter_mut().zip(worker.meter().counts()) {
                sum.cycles += one.cycles;
                sum.packets += one.packets;
            }
        }
        sums
    }
}

/// Queue pairs between switch and guest, and the device of a switch.
type Ring = (Vec<Box<dyn Port>>, Option<KeptDevice>);

/// The queue pairs of this side.
fn ring(start: &Start, layout: Layout) -> Result<Ring, String> {
    fn boxed<P: Port + 'static>(ports: Vec<P>) -> Vec<Box<dyn Port>> {
        ports.into_iter().map(|port| -> Box<dyn Port> { Box::new(port) }).collect()
    }
    let Start { queues, .. } = *start;
    let threads = start.cpus.len();
    if threads == 0 || threads > queues.into() {
        return Err(format!("{threads} threads cannot share {queues} queue pairs"));
    }
    let is_mergeable = layout.is_mergeable();
    match start.role {
        Role::Switch => {
            let copy = method_named(&start.copy);
            let copy = copy.ok_or_else(|| format!("unknown copy {:?}", start.copy))?;
            let role =
                if start.guest_listens { forward::Role::Client } else { forward::Role::Server };
            let engine = start.engine.as_deref().map(Queue::by_name).transpose();
            let engine = engine.map_err(|error| error.to_string())?;
            let new = VhostSettings::new(&start.socket);
            // Like net_vhost: Linux copies each packet once more without them.
            let has_offloads = true;
            let settings =
                VhostSettings { role, copy, is_mergeable, queues, has_offloads, engine, ..new };
            let queues = Vhost::open("vhost", &settings).map_err(|error| error.to_string())?;
            let device = queues.first().map(Vhost::kept);
            Ok((boxed(queues), device))
        }
        Role::Guest => {
            let is_packed = layout.is_packed();
            let role =
                if start.guest_listens { forward::Role::Server } else { forward::Role::Client };
            let new = VirtioSettings::new(&start.socket);
            let is_in_order = layout.is_in_order();
            let settings =
                VirtioSettings { role, is_mergeable, is_packed, is_in_order, queues, ..new };
            let queues = Virtio::open("virtio", &settings).map_err(|error| error.to_string())?;
            Ok((boxed(queues), None))
        }
    }
}

fn add_drops(of: &str, direction: &Direction, counted: &mut Counted) {
    for reason in DropReason::ALL {
        let count = direction.drops_for(reason);
        if count > 0 {
            *counted.drops.entry(format!("{of}.{}", reason.name())).or_default() += count;
        }
    }
}

/// The batch counts up to the largest size that a burst had.
fn trimmed(batches: &[u64]) -> Vec<u64> {
    let last = batches.iter().rposition(|count| *count > 0);
    batches[..last.map_or(0, |last| last + 1)].to_vec()
}

/// A guest returns packets with other addresses, as testpmd's mode `mac` does. A switch does the
/// same if its packets have no addresses and a kernel would drop them.
fn mode(start: &Start, flow: Flow) -> Mode {
    let is_bare = start.is_to_kernel && start.source == Source::Null;
    let (source, target) = ([0x02, 0, 0, 0, 0, 0x10], [0x02, 0, 0, 0, 0, 0x11]);
    match (start.role, flow) {
        (Role::Guest, Flow::Pvp | Flow::Loopback) => Mode::Mac { source, target },
        (Role::Switch, _) if is_bare => Mode::Mac { source, target },
        _ => Mode::Io,
    }
}

#[cfg(test)]
mod tests;
