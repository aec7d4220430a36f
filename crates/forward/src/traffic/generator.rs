//! A port that generates packets: numbered, timed, at a rate or as fast as it is polled. It
//! inspects packets that return to it, like a sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::{Addresses, Template};
use super::sink::{Inspector, Watch};
use super::size::Sizes;
use super::stamp::{HEADERS_BYTES, STAMP_BYTES, Stamp};
use crate::clock::now_ns;
use crate::contract::{Link, Port};
use crate::counters::Counters;
use crate::error::Error;
use crate::pool::{Burst, Packet, Pool};

/// The packets that a generator makes.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The sizes of packets.
    pub sizes: Sizes,
    /// Packets a second; `None` for as fast as the port is polled.
    pub rate: Option<f64>,
    /// How many packets are generated; `None` for no limit.
    pub packets: Option<u64>,
    /// How many flows; consecutive packets belong to different flows.
    pub flows: u32,
    /// The number of the first flow, so that several generators make different flows.
    pub flow_first: u32,
    /// Ethernet addresses.
    pub addresses: Addresses,
    /// The number of the stream, below 64, by which a sink distinguishes several. It is also the
    /// number of the generator's queue.
    pub stream: u8,
}

impl Default for Traffic {
    /// Packets of 64 B in one flow, as fast as the port is polled, without limit.
    fn default() -> Self {
        Self {
            sizes: Sizes::Fixed(64),
            rate: None,
            packets: None,
            flows: 1,
            flow_first: 0,
            addresses: Addresses::default(),
            stream: 0,
        }
    }
}

/// The largest number of flows. Each flow has a template per size.
const FLOWS_MAX: u32 = 4096;

/// Highest first flow: each of 64 generators can have its own flows.
const FLOW_FIRST_MAX: u32 = 64 * (FLOWS_MAX - 1);

/// The largest number of templates, for all flows and sizes together.
const TEMPLATES_MAX: usize = 1 << 20;

/// How well a generator kept its rate, readable from another thread.
#[derive(Clone, Debug, Default)]
pub struct Pace(Arc<PaceWords>);

#[derive(Debug, Default)]
struct PaceWords {
    made: AtomicU64,
    took_ns: AtomicU64,
    late_ns_max: AtomicU64,
    late_ns_sum: AtomicU64,
    bursts: AtomicU64,
}

impl Pace {
    /// Packets that were generated: the sequence numbers below this.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.0.made.load(Ordering::Relaxed)
    }

    /// Nanoseconds from the first to the last of these packets.
    #[must_use]
    pub fn took_ns(&self) -> u64 {
        self.0.took_ns.load(Ordering::Relaxed)
    }

    /// The longest time by which a burst's first packet was late, in nanoseconds.
    #[must_use]
    pub fn late_ns_max(&self) -> u64 {
        self.0.late_ns_max.load(Ordering::Relaxed)
    }

    /// The mean of these times, in nanoseconds.
    #[must_use]
    pub fn late_ns_mean(&self) -> f64 {
        let bursts = self.0.bursts.load(Ordering::Relaxed).max(1);
        self.0.late_ns_sum.load(Ordering::Relaxed) as f64 / bursts as f64
    }
}

/// Generates packets. Inspects every packet that is sent to it, as a [`Sink`](crate::Sink) does.
#[derive(Debug)]
pub struct Generator {
    name: String,
    stream: u8,
    /// One template for each size of a round and each flow: `sizes.len()` templates of the first
    /// flow, and so on.
    templates: Vec<Template>,
    sizes: Vec<usize>,
    flows: u32,
    /// Nanoseconds between two packets.
    interval_ns: Option<f64>,
    packets: u64,
    next: u64,
    /// When the first packet was polled.
    start_ns: Option<u64>,
    is_over: bool,
    pace: Pace,
    inspector: Inspector,
    counters: Counters,
}

impl Generator {
    /// A generator of this name.
    ///
    /// # Errors
    /// [`Error::Value`] for a size, a rate or a number of flows outside the limits.
    pub fn new(name: &str, traffic: &Traffic) -> Result<Self, Error> {
        let value = |what, value: String, limit| Err(Error::Value { what, value, limit });
        if traffic.flows == 0 || traffic.flows > FLOWS_MAX {
            return value("a number of flows of", traffic.flows.to_string(), "choose 1 to 4096");
        }
        if traffic.flow_first > FLOW_FIRST_MAX {
            let value = traffic.flow_first.to_string();
            return Err(Error::Value {
                what: "a first flow of",
                value,
                limit: "choose 0 to 262080",
            });
        }
        if traffic.stream >= 64 {
            return value("a stream number of", traffic.stream.to_string(), "choose 0 to 63");
        }
        if let Some(rate) = traffic.rate
            && !(rate > 0.0 && rate <= 1e9)
        {
            return value("a rate of", format!("{rate} packets/s"), "choose above 0 and up to 1e9");
        }
        let sizes = traffic.sizes.round()?;
        if sizes.len() * traffic.flows as usize > TEMPLATES_MAX {
            let product = format!("{} sizes in {} flows", sizes.len(), traffic.flows);
            return value("a mix of", product, "their product is 1048576 at most");
        }
        let mut templates = Vec::with_capacity(sizes.len() * traffic.flows as usize);
        for flow in 0..traffic.flows {
            for size in &sizes {
                templates.push(Template::new(
                    &traffic.addresses,
                    traffic.flow_first + flow,
                    *size,
                )?);
            }
        }
        Ok(Self {
            name: name.into(),
            stream: traffic.stream,
            templates,
            sizes,
            flows: traffic.flows,
            interval_ns: traffic.rate.map(|rate| 1e9 / rate),
            packets: traffic.packets.unwrap_or(u64::MAX),
            next: 0,
            start_ns: None,
            is_over: false,
            pace: Pace::default(),
            inspector: Inspector::new(),
            counters: Counters::default(),
        })
    }

    /// The findings about packets that returned to this port.
    #[must_use]
    pub fn watch(&self) -> Watch {
        self.inspector.watch()
    }

    /// How well this generator keeps its rate.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace.clone()
    }

    /// How many packets are due, and since when the first of them is due.
    fn due(&self, now_ns: u64, start_ns: u64) -> (u64, u64) {
        let left = if self.is_over { 0 } else { self.packets - self.next };
        let Some(interval_ns) = self.interval_ns else { return (left, now_ns) };
        let due = ((now_ns - start_ns) as f64 / interval_ns) as u64 + 1;
        let first_ns = start_ns + (self.next as f64 * interval_ns) as u64;
        (due.saturating_sub(self.next).min(left), first_ns.min(now_ns))
    }

    fn make(&self, pool: &mut Pool, sequence: u64, time_ns: u64) -> Option<Packet> {
        let index = (sequence % self.sizes.len() as u64) as usize;
        let flow = (sequence / self.sizes.len() as u64 % u64::from(self.flows)) as usize;
        let size = self.sizes[index];
        let packet = pool.take(size)?;
        let stamp = Stamp { stream: self.stream, sequence, time_ns }.bytes();
        let headers = self.templates[flow * self.sizes.len() + index].headers(&stamp);
        let mut front = [0; HEADERS_BYTES + STAMP_BYTES];
        front[..HEADERS_BYTES].copy_from_slice(&headers);
        front[HEADERS_BYTES..].copy_from_slice(&stamp);
        let mut is_whole = pool.write(&packet, 0, &front);
        let mut at = front.len();
        while at < size {
            let here = (size - at).min(ZEROS.len());
            is_whole &= pool.write(&packet, at, &ZEROS[..here]);
            at += here;
        }
        debug_assert!(is_whole, "a packet of {size} B holds {size} B");
        Some(packet)
    }
}

/// The bytes behind the stamp.
static ZEROS: [u8; 2048] = [0; 2048];

impl Port for Generator {
    fn name(&self) -> &str {
        &self.name
    }

    fn queue(&self) -> u16 {
        self.stream.into()
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let now_ns = now_ns();
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        let (due, first_ns) = self.due(now_ns, start_ns);
        let count = due.min(burst.room() as u64);
        let (mut made, mut bytes) = (0, 0);
        while made < count {
            let time_ns = match self.interval_ns {
                Some(interval_ns) => first_ns + (made as f64 * interval_ns) as u64,
                None => now_ns,
            };
            let Some(packet) = self.make(pool, self.next, time_ns) else { break };
            bytes += pool.length(&packet) as u64;
            burst.push(packet);
            self.next += 1;
            made += 1;
        }
        if made > 0 {
            let late_ns = now_ns - first_ns;
            let words = &self.pace.0;
            words.took_ns.store(now_ns - start_ns, Ordering::Relaxed);
            words.made.store(self.next, Ordering::Relaxed);
            words.late_ns_max.fetch_max(late_ns, Ordering::Relaxed);
            words.late_ns_sum.fetch_add(late_ns, Ordering::Relaxed);
            words.bursts.fetch_add(1, Ordering::Relaxed);
        }
        self.counters.rx.batch(made as usize, bytes);
        made as usize
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        self.inspector.inspect(pool, burst, &mut self.counters.tx)
    }

    fn service(&mut self, _: &mut Pool) -> Result<(), Error> {
        self.inspector.publish();
        Ok(())
    }

    fn link(&self) -> Link {
        if self.is_over || self.next >= self.packets { Link::Finished } else { Link::Up }
    }

    fn quiesce(&mut self) {
        self.is_over = true;
    }

    fn stop(&mut self, _: &mut Pool) {
        self.is_over = true;
        self.inspector.publish();
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
