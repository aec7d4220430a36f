//! A port that inspects packets: loss, order, duplicates, and latency.

use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::Histogram;

use super::order::{Order, Tracker};
use super::stamp::{HEADERS_BYTES, STAMP_BYTES, Stamp};
use crate::clock::now_ns;
use crate::contract::Port;
use crate::counters::{Counters, Direction, DropReason};
use crate::error::Error;
use crate::pool::{Burst, Pool};

/// The findings of a sink, as of its last [`Port::service`] or [`Port::stop`].
#[derive(Clone, Debug)]
pub struct Findings {
    /// The packets of each stream that arrived, by the number of the generator's queue.
    pub streams: Vec<Order>,
    /// Nanoseconds from the scheduled time of a packet to its arrival.
    pub latency: Histogram<u64>,
}

impl Findings {
    fn new() -> Self {
        Self { streams: Vec::new(), latency: histogram() }
    }

    /// Adds the findings of another sink about other packets.
    pub fn add(&mut self, other: &Self) {
        self.streams.extend(&other.streams);
        self.latency.add(&other.latency).expect("histograms of one kind");
    }

    /// The sum of all streams.
    #[must_use]
    pub fn sum(&self) -> Order {
        self.streams.iter().fold(Order::default(), |sum, stream| Order {
            unique: sum.unique + stream.unique,
            expected: sum.expected + stream.expected,
            reordered: sum.reordered + stream.reordered,
            duplicates: sum.duplicates + stream.duplicates,
        })
    }
}

/// Longest latency that is distinguished, in nanoseconds: a minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// A histogram of nanoseconds up to a minute, to 1%.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("1 is below the highest value")
}

/// Reads a sink's findings from another thread.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Mutex<Findings>>);

impl Watch {
    /// The findings as of the port's last service.
    #[must_use]
    pub fn findings(&self) -> Findings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The largest number of streams that are followed; a stamp with a higher number is foreign.
const STREAMS_MAX: usize = 64;

/// Follows streams.
#[derive(Debug)]
pub(super) struct Inspector {
    streams: Vec<Tracker>,
    latency: Histogram<u64>,
    watch: Watch,
}

impl Inspector {
    pub(super) fn new() -> Self {
        let watch = Watch(Arc::new(Mutex::new(Findings::new())));
        Self { streams: Vec::new(), latency: histogram(), watch }
    }

    pub(super) fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Inspects, counts and frees all packets of a burst.
    pub(super) fn inspect(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        counts: &mut Direction,
    ) -> usize {
        let (mut packets, mut bytes, mut foreign) = (0, 0, 0);
        let now_ns = if burst.is_empty() { 0 } else { now_ns() };
        while let Some(packet) = burst.pop() {
            let mut stamp = [0; STAMP_BYTES];
            if pool.read(&packet, HEADERS_BYTES, &mut stamp) && self.inspect_stamp(&stamp, now_ns) {
                packets += 1;
                bytes += pool.length(&packet) as u64;
            } else {
                foreign += 1;
            }
            pool.free(packet);
        }
        counts.batch(packets, bytes);
        counts.dropped(DropReason::Foreign, foreign);
        packets
    }

    fn inspect_stamp(&mut self, bytes: &[u8; STAMP_BYTES], now_ns: u64) -> bool {
        let Some(stamp) = Stamp::of(bytes) else { return false };
        let stream = usize::from(stamp.stream);
        if stream >= STREAMS_MAX {
            return false;
        }
        while self.streams.len() <= stream {
            self.streams.push(Tracker::new());
        }
        if !self.streams[stream].see(stamp.sequence) {
            return false;
        }
        let latency = now_ns.saturating_sub(stamp.time_ns);
        self.latency.saturating_record(latency.clamp(1, LATENCY_NS_MAX));
        true
    }

    /// Publishes the findings to watching threads.
    pub(super) fn publish(&self) {
        let streams = self.streams.iter().map(Tracker::order).collect();
        let findings = Findings { streams, latency: self.latency.clone() };
        *self.watch.0.lock().unwrap_or_else(PoisonError::into_inner) = findings;
    }
}

/// A port that inspects every packet that is sent to it, and delivers no packets.
#[derive(Debug)]
pub struct Sink {
    name: String,
    inspector: Inspector,
    counters: Counters,
}

impl Sink {
    /// A sink of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), inspector: Inspector::new(), counters: Counters::default() }
    }

    /// The findings of this sink.
    #[must_use]
    pub fn watch(&self) -> Watch {
        self.inspector.watch()
    }
}

impl Port for Sink {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx_burst(&mut self, _: &mut Pool, _: &mut Burst) -> usize {
        self.counters.rx.batch(0, 0);
        0
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        self.inspector.inspect(pool, burst, &mut self.counters.tx)
    }

    fn service(&mut self, _: &mut Pool) -> Result<(), Error> {
        self.inspector.publish();
        Ok(())
    }

    fn stop(&mut self, _: &mut Pool) {
        self.inspector.publish();
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
