//! The process that haul forwards in: one side of a flow, which does what it is asked until nobody
//! talks to it any more. The conversation goes over standard input, a socket.

use std::io;
use std::time::{Duration, Instant};

use haul::forward::{
    Copy, Counters, Direction, DropReason, Generator, KeptDevice, Link, Mode, Null, Pace, Pool,
    Port, Running, Settings, Sizes, Snapshot, Traffic, Vhost, VhostSettings, Virtio,
    VirtioSettings, Watch,
};

use super::flow::{Flow, Layout};
use super::gate::{self, Gate, Mailbox, Turn};
use super::meter::{Meter, MeteredPort};
use super::protocol::{Counted, Reply, Side, Source, Start, Task};
use super::trial::{LOOK_AGAIN, QUANTILES, Trial};
use crate::drive::{self, Conversation};
use crate::error::Error;

/// The thread that forwards.
const WORKER: &str = "haul-forward";

/// Buffers of a side: the rings' four times over, as DPDK's peers have them.
const PACKETS: u32 = 16_384;

/// Packets of a loop: as many as `start tx_first 32` of testpmd sends.
const PACKETS_OF_LOOP: usize = 32 * 32;

/// How long a side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long packets that are under way may take once no more are made: of the side that ends first,
/// and of the other, to which nothing comes any more.
const LINGER: Duration = Duration::from_millis(800);
const LINGER_OF_LAST: Duration = Duration::from_millis(80);
const LINGER_OF_KERNEL: Duration = Duration::from_secs(3);

/// How long nothing has to come of a trial until nothing more is expected.
const QUIET: Duration = Duration::from_millis(60);
const QUIET_OF_KERNEL: Duration = Duration::from_millis(300);

/// Serves one conversation on standard input, a Unix socket, until the other side closes it.
///
/// # Errors
/// Standard input is no socket, or breaks off within a line.
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
    side: Side,
    source: Source,
    size_bytes: usize,
    /// How long nothing has to come of a trial until nothing more is expected.
    quiet: Duration,
    mailbox: Mailbox,
    meter: Meter,
    running: Option<Running>,
    /// Where what a generator made and got back is seen.
    generator: Option<(Pace, Watch)>,
    is_huge: bool,
    /// DPDK's guest may hang when its switch goes while it forwards: the device goes last.
    _device: Option<KeptDevice>,
}

impl Forwarding {
    fn start(start: &Start) -> Result<Self, String> {
        let flow: Flow = start.flow.parse()?;
        let layout: Layout = start.layout.parse()?;
        let said = |error: haul::forward::Error| error.to_string();
        let pool = Pool::new(PACKETS).map_err(said)?;
        let is_huge = pool.has_huge_pages();
        let (ring, device) = ring(start, layout)?;
        let mailbox = Mailbox::default();
        let gate = Box::new(Gate::new(mailbox.clone()));
        let meter = Meter::default();
        let ring = Box::new(MeteredPort::new(ring, meter.clone()));
        let is_first_to_end = (start.side == Side::Guest) == flow.is_from_guest();
        let settings = Settings {
            mode: mode(start, flow),
            cpu: Some(start.cpu),
            linger: match is_first_to_end {
                _ if start.is_to_kernel => LINGER_OF_KERNEL,
                true => LINGER,
                false => LINGER_OF_LAST,
            },
            ..Settings::default()
        };
        let ports: [Box<dyn Port>; 2] = [gate, ring];
        let running = Running::start(WORKER, ports, pool, settings).map_err(said)?;
        Ok(Self {
            flow,
            side: start.side,
            source: start.source,
            size_bytes: start.size_bytes,
            quiet: if start.is_to_kernel { QUIET_OF_KERNEL } else { QUIET },
            mailbox,
            meter,
            running: Some(running),
            generator: None,
            is_huge,
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
            Task::Meter(is_on) => {
                self.meter.turn(*is_on);
                Ok(Reply::Done)
            }
            Task::Count => {
                let running = self.running.as_ref().ok_or("it has ended")?;
                if running.is_over() {
                    return self.halt().and_then(|_| Err("its thread has ended".to_owned()));
                }
                Ok(Reply::Counted(self.counted(&running.snapshot())))
            }
            Task::Trial { rate, seconds } => self.trial(*rate, *seconds).map(Reply::Counted),
            Task::Halt => self.halt().map(Reply::Counted),
        }
    }

    fn await_link(&self) -> Result<(), String> {
        let running = self.running.as_ref().ok_or("it has ended")?;
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let links = running.snapshot().links;
            if !links.is_empty() && links.iter().all(|link| *link == Link::Up) {
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let mut said = format!("the other side has not come within {} s", PATIENCE.as_secs());
        for (port, reason) in running.snapshot().obstacles {
            said.push_str(&format!("; {port}: {reason}"));
        }
        Err(said)
    }

    /// Opens the gate.
    fn go(&mut self, rate: Option<f64>) -> Result<(), String> {
        let makes = match self.side {
            Side::Switch => matches!(self.flow, Flow::Pvp | Flow::Enqueue),
            Side::Guest => self.flow.is_from_guest(),
        };
        let turns = match (self.side, self.flow) {
            (Side::Switch, Flow::Loopback) => Some(PACKETS_OF_LOOP),
            (Side::Guest, Flow::Pvp | Flow::Loopback) | (Side::Switch, Flow::Return) => Some(0),
            _ => None,
        };
        let port: Box<dyn Port> = match turns {
            Some(packets) => Box::new(Turn::new(packets, self.size_bytes)),
            None if !makes => Box::new(Null::new(gate::NAME)),
            None if self.source == Source::Null => {
                Box::new(Null::source(gate::NAME, self.size_bytes))
            }
            None => {
                let sizes = Sizes::Fixed(self.size_bytes);
                let traffic = Traffic { sizes, rate, ..Traffic::default() };
                let made = Generator::new(gate::NAME, &traffic);
                let generator = made.map_err(|error| error.to_string())?;
                self.generator = Some((generator.pace(), generator.watch()));
                Box::new(generator)
            }
        };
        self.open(port)
    }

    /// Puts this port in the place of the one before it.
    fn open(&self, port: Box<dyn Port>) -> Result<(), String> {
        self.mailbox.post(port);
        let started = Instant::now();
        while !self.mailbox.is_taken() {
            if started.elapsed() > PATIENCE {
                return Err("its thread does not come to open the gate".to_owned());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Offers a load, and says what came of it. Packets that were not made in time count as lost:
    /// the load was not offered.
    fn trial(&self, rate: f64, seconds: f64) -> Result<Counted, String> {
        let (trial, generator) = Trial::new(rate, seconds, self.size_bytes)?;
        self.open(Box::new(generator))?;
        let came = trial.await_end(self.quiet);
        self.open(Box::new(Null::new(gate::NAME)))?;
        Ok(trial.counted(came))
    }

    fn halt(&mut self) -> Result<Counted, String> {
        let running = self.running.take().ok_or("it has ended")?;
        let snapshot = running.stop().map_err(|error| error.to_string())?;
        Ok(self.counted(&snapshot))
    }

    fn counted(&self, snapshot: &Snapshot) -> Counted {
        let of = |is_meant: &dyn Fn(&str) -> bool| {
            let found = snapshot.ports.iter().find(|(name, ..)| is_meant(name));
            found.map(|(.., counters)| counters.clone()).unwrap_or_default()
        };
        let source: Counters = of(&|name| name == gate::NAME);
        let ring: Counters = of(&|name| name != gate::NAME);
        let packets = ring.rx.packets.max(1) as f64;
        let mut counted = Counted {
            time_ns: snapshot.time_ns,
            made: source.rx.packets,
            rx_packets: ring.rx.packets,
            tx_packets: ring.tx.packets,
            // What came with bytes of another packet came all the same.
            returned: source.tx.packets + source.tx.drops_for(DropReason::Foreign),
            missing: source.rx.packets.saturating_sub(source.tx.packets),
            rx_batches: trimmed(&ring.rx.batches),
            cycles_per_packet: snapshot.busy_cycles as f64 / packets,
            busy_cycles: snapshot.busy_cycles,
            metered: self.meter.counts(),
            page_bytes: if self.is_huge { 2 << 20 } else { 4 << 10 },
            ..Counted::default()
        };
        if let Some(agreement) = snapshot.agreements.iter().flatten().next() {
            counted.features = agreement.features;
            counted.ring_size = agreement.ring_size;
        }
        if let Some((pace, watch)) = &self.generator {
            let findings = watch.findings();
            let order = findings.sum();
            counted.made = pace.made();
            counted.missing = pace.made().saturating_sub(order.unique);
            counted.reordered = order.reordered;
            let value = |quantile| findings.latency.value_at_quantile(quantile) as f64;
            counted.latency_ns = QUANTILES.map(|quantile| (quantile, value(quantile))).into();
        }
        for (name, queue, counters) in &snapshot.ports {
            debug_assert_eq!(*queue, 0, "{name}");
            for (way, direction) in [("rx", &counters.rx), ("tx", &counters.tx)] {
                add_drops(&format!("{name}.{way}"), direction, &mut counted);
            }
        }
        counted
    }
}

/// The ring between switch and guest, from this side, and the device of a switch.
fn ring(start: &Start, layout: Layout) -> Result<(Box<dyn Port>, Option<KeptDevice>), String> {
    match start.side {
        Side::Switch => {
            let copy = Copy::named(&start.copy);
            let copy = copy.ok_or_else(|| format!("no copy is {:?}", start.copy))?;
            let is_mergeable = layout.is_mergeable();
            let settings =
                VhostSettings { copy, is_mergeable, ..VhostSettings::new(&start.socket) };
            let queues = Vhost::open("vhost", &settings).map_err(|error| error.to_string())?;
            let first = queues.into_iter().next().ok_or("it has no queue")?;
            let device = first.kept();
            Ok((Box::new(first), Some(device)))
        }
        Side::Guest => {
            let is_mergeable = layout.is_mergeable();
            let is_packed = layout.is_packed();
            let new = VirtioSettings::new(&start.socket);
            let is_in_order = layout.is_in_order();
            let settings = VirtioSettings { is_mergeable, is_packed, is_in_order, ..new };
            let queues = Virtio::open("virtio", &settings).map_err(|error| error.to_string())?;
            let first = queues.into_iter().next().ok_or("it has no queue")?;
            Ok((Box::new(first), None))
        }
    }
}

fn add_drops(of: &str, direction: &Direction, counted: &mut Counted) {
    for reason in DropReason::ALL {
        let count = direction.drops_for(reason);
        if count > 0 {
            counted.drops.insert(format!("{of}.{}", reason.name()), count);
        }
    }
}

/// Without the sizes that no burst can have.
fn trimmed(batches: &[u64]) -> Vec<u64> {
    let last = batches.iter().rposition(|count| *count > 0);
    batches[..last.map_or(0, |last| last + 1)].to_vec()
}

/// A guest gives packets on under other addresses, as testpmd's mode `mac` does; and so does a
/// switch whose packets have none, where a kernel would drop them.
fn mode(start: &Start, flow: Flow) -> Mode {
    let is_bare = start.is_to_kernel && start.source == Source::Null;
    let (source, target) = ([0x02, 0, 0, 0, 0, 0x10], [0x02, 0, 0, 0, 0, 0x11]);
    match (start.side, flow) {
        (Side::Guest, Flow::Pvp | Flow::Loopback) => Mode::Mac { source, target },
        (Side::Switch, _) if is_bare => Mode::Mac { source, target },
        _ => Mode::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_writes_addresses_where_a_kernel_would_drop_a_packet_without_them() {
        for (side, source, is_to_kernel, writes) in [
            (Side::Switch, Source::Null, true, true),
            (Side::Switch, Source::Null, false, false),
            (Side::Switch, Source::Generator, true, false),
            (Side::Guest, Source::Null, false, true),
        ] {
            let start = Start {
                side,
                flow: "pvp".into(),
                layout: "split".into(),
                size_bytes: 64,
                copy: "haul".into(),
                source,
                socket: "/none".into(),
                cpu: 0,
                is_to_kernel,
            };
            let found = mode(&start, Flow::Pvp);
            assert_eq!(matches!(found, Mode::Mac { .. }), writes, "{start:?}");
        }
    }
}
