//! Counters and batches for a terminal: while the forwarder runs, and at its end.

use haul::forward::{Counters, Direction, DropReason, Snapshot};
use haul_model::units::three_digits;

use crate::terminal::Table;

/// Length of the longest bar, in characters.
const BAR: usize = 40;

/// Sizes of batches that have their own bar: single sizes up to 8, then ranges that double.
const BINS: [(usize, usize); 14] = [
    (0, 0),
    (1, 1),
    (2, 2),
    (3, 3),
    (4, 4),
    (5, 5),
    (6, 6),
    (7, 7),
    (8, 8),
    (9, 16),
    (17, 31),
    (32, 32),
    (33, 64),
    (65, 256),
];

/// The forwarded packets between two snapshots, `seconds` apart: a line per port.
pub(super) fn lines(before: &Snapshot, now: &Snapshot, seconds: f64) -> Vec<String> {
    let earlier = |name: &str, queue: u16| {
        before.ports.iter().find(|(other, own, _)| other == name && *own == queue)
    };
    let line = |(name, queue, counters): &(String, u16, Counters)| {
        let since =
            earlier(name, *queue).map_or_else(|| counters.clone(), |it| counters.since(&it.2));
        let rate = |direction: &Direction| {
            let rate = direction.packets as f64 / seconds.max(1e-9);
            format!("{:>9} pps", human(rate))
        };
        format!(
            "{name:<8} queue {queue}  rx {}  {}  tx {}  {}  dropped {}",
            rate(&since.rx),
            spark(&since.rx),
            rate(&since.tx),
            spark(&since.tx),
            human((since.rx.drops_sum() + since.tx.drops_sum()) as f64),
        )
    };
    let since = |of: fn(&Snapshot) -> u64| of(now).saturating_sub(of(before)) as f64;
    let polls = since(|it| it.polls);
    let wasted = since(|it| it.wasted_polls) / polls.max(1.0);
    let mut lines: Vec<String> = now.ports.iter().map(line).collect();
    lines.push(format!(
        "polls: {} per second, {:.1}% wasted",
        human(polls / seconds),
        100.0 * wasted
    ));
    lines
}

/// A histogram with one character per bin, from an empty poll to the largest batch.
fn spark(direction: &Direction) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let counts = BINS.map(|bin| calls(direction, bin));
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let step = |count: u64| match count {
        0 => ' ',
        count => STEPS[((count * 7).div_ceil(most) as usize).min(7)],
    };
    format!("[{}]", counts.map(step).iter().collect::<String>())
}

fn calls(direction: &Direction, (first, last): (usize, usize)) -> u64 {
    let last = last.min(direction.batches.len() - 1);
    direction.batches[first..=last].iter().sum()
}

/// All counts, for the end of the run.
pub(super) fn whole(snapshot: &Snapshot, seconds: f64) -> String {
    let mut table = Table::new(&[
        "port",
        "queue",
        "way",
        ">packets",
        ">Mpps",
        ">Gbit/s",
        ">calls",
        ">per call",
        ">dropped",
        "why",
    ]);
    for (name, queue, counters) in &snapshot.ports {
        for (way, direction) in [("rx", &counters.rx), ("tx", &counters.tx)] {
            table.add(row(name, *queue, way, direction, seconds));
        }
    }
    let mut text = table.text();
    for (name, queue, counters) in &snapshot.ports {
        for (way, direction) in [("rx", &counters.rx), ("tx", &counters.tx)] {
            let bars = histogram(direction);
            if direction.packets > 0 && !bars.is_empty() {
                text.push_str(&format!(
                    "\n\n{name} queue {queue}, packets of a {way} call\n{bars}"
                ));
            }
        }
    }
    text
}

fn row(name: &str, queue: u16, way: &str, direction: &Direction, seconds: f64) -> Vec<String> {
    let rate = |amount: f64| three_digits(amount / seconds.max(1e-9));
    let full = direction.calls() - direction.batches[0];
    let why: Vec<String> = DropReason::ALL
        .into_iter()
        .filter(|reason| direction.drops_for(*reason) > 0)
        .map(|reason| format!("{} {}", reason.name(), direction.drops_for(reason)))
        .collect();
    vec![
        name.to_owned(),
        queue.to_string(),
        way.to_owned(),
        direction.packets.to_string(),
        rate(direction.packets as f64 / 1e6),
        rate(direction.bytes as f64 * 8.0 / 1e9),
        direction.calls().to_string(),
        format!("{:.1}", direction.packets as f64 / full.max(1) as f64),
        direction.drops_sum().to_string(),
        why.join(", "),
    ]
}

/// A bar for each size of a batch that occurred.
fn histogram(direction: &Direction) -> String {
    let all = direction.calls().max(1);
    let most = BINS.map(|bin| calls(direction, bin)).into_iter().max().unwrap_or(0).max(1);
    let bar = |bin: (usize, usize)| {
        let count = calls(direction, bin);
        let label = match bin {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        let width = (count as f64 / most as f64 * BAR as f64).ceil() as usize;
        let share = 100.0 * count as f64 / all as f64;
        format!("{label:>7} {:<BAR$} {share:5.1}%", "█".repeat(width))
    };
    let drawn = BINS.into_iter().filter(|bin| calls(direction, *bin) > 0).map(bar);
    drawn.collect::<Vec<_>>().join("\n")
}

/// `12.3M`, `950k`, `42`.
fn human(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(empty: u64, full: u64) -> Snapshot {
        let mut counters = Counters::default();
        for _ in 0..empty {
            counters.rx.batch(0, 0);
        }
        for _ in 0..full {
            counters.rx.batch(32, 32 * 64);
        }
        counters.tx.dropped(DropReason::Full, 5);
        let ports = vec![("vhost0".to_owned(), 0, counters)];
        Snapshot { ports, polls: empty + full, wasted_polls: empty, ..Snapshot::default() }
    }

    #[test]
    fn lines_show_packets_since_last_snapshot() {
        let lines = lines(&snapshot(10, 10), &snapshot(20, 30), 2.0);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("vhost0   queue 0  rx       320 pps  [▅"), "{}", lines[0]);
        assert!(lines[0].ends_with("dropped 0"), "{}", lines[0]);
        assert_eq!(lines[1], "polls: 15 per second, 33.3% wasted");
    }

    #[test]
    fn bins_cover_every_batch_once() {
        let mut direction = Direction::default();
        (0..=256).for_each(|size| direction.batch(size, 0));
        let sum: u64 = BINS.iter().map(|bin| calls(&direction, *bin)).sum();
        assert_eq!(sum, direction.calls());
    }

    #[test]
    fn whole_has_every_count() {
        let text = whole(&snapshot(10, 30), 1.0);
        for holds in ["960", "full 5", "packets of a rx call", "     32 ", "75.0%", "25.0%"] {
            assert!(text.contains(holds), "{holds}: {text}");
        }
    }
}
