//! The counts at the end, as records and as text.

use haul::forward::{DropReason, Findings, Link, Order, Pace, Snapshot, Watch};
use haul_model::Record;
use haul_model::experiment::{key, name};

use crate::command::forward::picture;

/// The quantiles of latency that are recorded.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// The counts at the end.
pub(super) struct Done {
    snapshot: Snapshot,
    seconds: f64,
    made: Option<u64>,
    late_ns: Option<(f64, u64)>,
    /// The findings from the packets' numbers, and quantiles of latency in nanoseconds.
    order: Option<(Order, Vec<(f64, f64)>)>,
}

impl Done {
    pub(super) fn of(
        snapshot: Snapshot,
        seconds: f64,
        paces: &[Pace],
        watches: &[Vec<Watch>; 2],
    ) -> Self {
        let made = (!paces.is_empty()).then(|| paces.iter().map(Pace::made).sum());
        let late_ns = paces.first().map(|first| {
            let mean = paces.iter().map(Pace::late_ns_mean).sum::<f64>() / paces.len() as f64;
            (mean, paces.iter().map(Pace::late_ns_max).max().unwrap_or(first.late_ns_max()))
        });
        // With two generators, each sees the other's packets; with one generator and a sink, only
        // one sees packets.
        let found = watches.iter().filter_map(|watches| {
            let each = watches.iter().map(Watch::findings);
            each.reduce(|mut sum: Findings, other| {
                sum.add(&other);
                sum
            })
        });
        let found = found.max_by_key(|it| it.sum().unique);
        let order = found.map(|findings| {
            let value = |quantile| findings.latency.value_at_quantile(quantile) as f64;
            (findings.sum(), QUANTILES.map(|quantile| (quantile, value(quantile))).into())
        });
        Self { snapshot, seconds, made, late_ns, order }
    }

    /// Packets that were made but did not arrive. Without a generator here, the packets' numbers
    /// show how many were sent.
    fn lost(&self) -> Option<u64> {
        let (order, _) = self.order.as_ref().filter(|(order, _)| order.expected > 0)?;
        Some(self.made.unwrap_or(order.expected).saturating_sub(order.unique))
    }

    pub(super) fn records(&self) -> Vec<Record> {
        let one = |metric: &str, unit: &str, value: f64| {
            let mut record = Record::new("", name::FORWARD_BURST, "haul", metric, unit)
                .with(key::VERSION, env!("CARGO_PKG_VERSION"));
            record.samples = vec![value];
            record
        };
        let mut records = Vec::new();
        for (port, queue, counters) in &self.snapshot.ports {
            for (way, direction) in [("rx", &counters.rx), ("tx", &counters.tx)] {
                let of = |record: Record| {
                    record
                        .with(key::PORT, port.as_str())
                        .with(key::QUEUE, *queue)
                        .with(key::DIRECTION, way)
                };
                for (size, count) in direction.batches.iter().enumerate() {
                    if *count > 0 {
                        let record = one("batches", "count", *count as f64);
                        records.push(of(record).with(key::SIZE, size));
                    }
                }
                records.push(of(one("packets", "packets", direction.packets as f64)));
                records.push(of(one("bytes", "B", direction.bytes as f64)));
                let rate = direction.packets as f64 / self.seconds;
                records.push(of(one("rate", "packets/s", rate)));
                for reason in DropReason::ALL {
                    let count = direction.drops_for(reason);
                    if count > 0 {
                        let record = one("drops", "packets", count as f64);
                        records.push(of(record).with(key::REASON, reason.name()));
                    }
                }
            }
        }
        let Snapshot { busy_cycles, idle_cycles, wasted_polls, polls, .. } = self.snapshot;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        if self.packets() > 0 {
            records.push(one("cycles", "cycles/packet", share(busy_cycles, self.packets())));
        }
        records.push(one("poll", "cycles/poll", share(busy_cycles + idle_cycles, polls)));
        records.push(one("wasted_polls", "share", share(wasted_polls, polls)));
        self.of_numbers(&one, &mut records);
        records
    }

    /// The records that follow from the packets' numbers.
    fn of_numbers(&self, one: &dyn Fn(&str, &str, f64) -> Record, records: &mut Vec<Record>) {
        if let Some(made) = self.made {
            records.push(one("made", "packets", made as f64));
        }
        if let Some((mean, most)) = self.late_ns {
            records.push(one("late_mean", "ns", mean));
            records.push(one("late_max", "ns", most as f64));
        }
        let Some(lost) = self.lost() else { return };
        records.push(one("lost", "packets", lost as f64));
        let Some((order, latency)) = &self.order else { return };
        records.push(one("reordered", "packets", order.reordered as f64));
        records.push(one("duplicates", "packets", order.duplicates as f64));
        for (quantile, ns) in latency {
            records.push(one("latency", "ns", *ns).with(key::QUANTILE, *quantile));
        }
    }

    /// Packets received from both ports.
    fn packets(&self) -> u64 {
        self.snapshot.ports.iter().map(|(.., counters)| counters.rx.packets).sum()
    }

    pub(super) fn text(&self) -> String {
        let Snapshot { busy_cycles, idle_cycles, wasted_polls, polls, .. } = self.snapshot;
        let mut text = picture::whole(&self.snapshot, self.seconds);
        let mut line = format!(
            "\n\n{:.2} s; {} polls, {:.1}% wasted, {:.0} cycles each",
            self.seconds,
            polls,
            100.0 * wasted_polls as f64 / polls.max(1) as f64,
            (busy_cycles + idle_cycles) as f64 / polls.max(1) as f64,
        );
        if self.packets() > 0 {
            line.push_str(&format!(
                "; {:.0} cycles per packet",
                busy_cycles as f64 / self.packets() as f64
            ));
        }
        text.push_str(&line);
        if let (Some(lost), Some((order, latency))) = (self.lost(), &self.order) {
            let quantile = |wanted: f64| {
                latency.iter().find(|(quantile, _)| *quantile == wanted).map_or(0.0, |it| it.1)
            };
            text.push_str(&format!(
                "\nby the packets’ numbers: {} arrived, {lost} lost, {} out of order, {} twice; latency \
                 {:.1} us at the median, {:.1} us at 99%",
                order.unique,
                order.reordered,
                order.duplicates,
                quantile(0.5) / 1e3,
                quantile(0.99) / 1e3,
            ));
        }
        if self.has_port_without_peer() {
            text.push_str("\na port had no peer at the end");
        }
        for (port, reason) in self.snapshot.obstacles.iter().chain(&self.snapshot.notes) {
            text.push_str(&format!("\n{port}: {reason}"));
        }
        text
    }

    /// Whether a port has no queue pair with a link.
    fn has_port_without_peer(&self) -> bool {
        let Snapshot { ports, links, .. } = &self.snapshot;
        let is_down = |port: &str| {
            let mut own = ports.iter().zip(links).filter(|((name, ..), _)| name == port);
            own.all(|(_, link)| *link == Link::Down)
        };
        links.contains(&Link::Down) && ports.iter().any(|(name, ..)| is_down(name))
    }
}
