//! The workers of a forwarder: at most one per queue pair of each port, each on its processor.
//! The counts of the workers are summed.

use std::iter;

use haul::forward::{Counters, Link, Observer, Pool, Port, Running, Settings, Snapshot};

use super::ports::Opened;
use super::spec::Spec;
use crate::error::Error;

/// Number of buffers of a worker: several times the number in a guest's rings.
const PACKETS: u32 = 16_384;

/// Running workers.
pub(super) struct Workers(Vec<Running>);

/// Number of workers of two ports, on these processors if any are named.
///
/// # Errors
/// More processors are named than a port has queue pairs.
pub(super) fn count(specs: &[Spec; 2], cpus: &[usize]) -> Result<usize, Error> {
    let least = specs.iter().filter_map(Spec::queues).min();
    // Opening a port refuses an impossible number of queues.
    let most = least.map_or(STREAMS, |least| least.max(1));
    if cpus.len() > most {
        let (what, value) = ("a number of processors of", cpus.len().to_string());
        let limit = "each worker needs at least one queue pair of each port; name queues=N";
        return Err(haul::forward::Error::Value { what, value, limit }.into());
    }
    Ok(if cpus.is_empty() { least.unwrap_or(1).max(1) } else { cpus.len() })
}

/// The largest number of workers for ports without queue pairs: the number of a sink's streams.
const STREAMS: usize = 64;

impl Workers {
    /// Starts the workers.
    ///
    /// # Errors
    /// An error of [`Running::start`], or there is not enough memory.
    pub(super) fn start(
        ports: [Opened; 2],
        settings: Settings,
        cpus: &[usize],
    ) -> Result<Self, Error> {
        let [first, second] = ports.map(|port| port.of_workers);
        let count = first.len();
        // Without a yield, workers that wait for each other on one processor would wait for a
        // time slice.
        let yields = count > haul_measure::sys::affinity().len();
        let mut running = Vec::new();
        for (index, (first, second)) in first.into_iter().zip(second).enumerate() {
            let ports: Vec<Box<dyn Port>> = first.into_iter().chain(second).collect();
            let settings = Settings { cpu: cpus.get(index).copied(), yields, ..settings };
            let name = if count == 1 { "haul-forward".into() } else { format!("haul-fwd-{index}") };
            running.push(Running::start(&name, ports, Pool::new(PACKETS)?, settings)?);
        }
        Ok(Self(running))
    }

    /// Whether a worker has ended by itself.
    pub(super) fn are_over(&self) -> bool {
        self.0.iter().any(Running::is_over)
    }

    /// Whether each worker has a port that has given all its packets.
    pub(super) fn are_finished(&self) -> bool {
        self.0.iter().all(|worker| worker.snapshot().links.contains(&Link::Finished))
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        sum(self.0.iter().map(Running::snapshot))
    }

    /// A closure that reads the workers' counts from another thread.
    pub(super) fn observer(&self) -> impl FnMut() -> Snapshot + Send + 'static {
        let observers: Vec<Observer> = self.0.iter().map(Running::observer).collect();
        move || sum(observers.iter().map(Observer::now))
    }

    /// Stops all workers, and then waits for each. Returns the workers' counts, and the error of
    /// a worker that failed.
    pub(super) fn finish(self) -> (Snapshot, Result<(), Error>) {
        self.0.iter().for_each(Running::stop_soon);
        let (counted, ends): (Vec<_>, Vec<_>) = self.0.into_iter().map(Running::finish).unzip();
        let ended = ends.into_iter().collect::<Result<(), _>>().map_err(Error::from);
        (sum(counted.into_iter()), ended)
    }
}

/// Sums the counts of all workers, by port and queue. A port that consists of one port per worker
/// gets a queue per worker.
fn sum(counted: impl Iterator<Item = Snapshot>) -> Snapshot {
    let mut sum = Snapshot::default();
    let mut ports = Vec::new();
    for (worker, snapshot) in counted.enumerate() {
        let Snapshot { time_ns, links, agreements, obstacles, notes, crossed, .. } = snapshot;
        sum.time_ns = sum.time_ns.max(time_ns);
        // A worker publishes a link and an agreement for each port, or for none.
        let about = links.into_iter().zip(agreements.into_iter().chain(iter::repeat(None)));
        let about = about.map(Some).chain(iter::repeat(None));
        for ((name, queue, counters), about) in snapshot.ports.into_iter().zip(about) {
            let is_it = |port: &(String, u16, Counters)| port.0 == name && port.1 == queue;
            let is_there = ports.iter().any(|(other, _)| is_it(other));
            let queue = if is_there { worker as u16 } else { queue };
            ports.push(((name, queue, counters), about));
        }
        // The queue pairs of a port report the same texts.
        merge(&mut sum.obstacles, obstacles);
        merge(&mut sum.notes, notes);
        sum.crossed.extend(crossed);
        sum.busy_cycles += snapshot.busy_cycles;
        sum.idle_cycles += snapshot.idle_cycles;
        sum.wasted_polls += snapshot.wasted_polls;
        sum.polls += snapshot.polls;
    }
    let first = ports.first().map(|((name, ..), _)| name.clone());
    ports.sort_by_key(|((name, queue, _), _)| (Some(name) != first.as_ref(), *queue));
    for (port, about) in ports {
        sum.ports.push(port);
        if let Some((link, agreement)) = about {
            sum.links.push(link);
            sum.agreements.push(agreement);
        }
    }
    sum
}

/// Adds the entries that are missing.
fn merge(all: &mut Vec<(String, String)>, more: Vec<(String, String)>) {
    for entry in more {
        if !all.contains(&entry) {
            all.push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haul::forward::Null;

    use super::*;

    #[test]
    fn count_limits_workers_to_queue_pairs() {
        let specs =
            |first: &str, second: &str| [first, second].map(|text| Spec::parse(text).unwrap());
        for (first, second, cpus, expected) in [
            ("gen", "sink", &[][..], Some(1)),
            ("gen", "sink", &[0, 1, 2], Some(3)),
            ("gen", "vhost:path=a", &[], Some(1)),
            ("gen", "vhost:path=a", &[0, 1], None),
            ("gen", "vhost:path=a,queues=4", &[], Some(4)),
            ("gen", "vhost:path=a,queues=4", &[3, 5], Some(2)),
            ("virtio:path=b,queues=2", "vhost:path=a,queues=4", &[], Some(2)),
            ("pcap:in=b", "vhost:path=a,queues=4", &[], Some(1)),
            ("pcap:in=b", "vhost:path=a,queues=4", &[0, 1], None),
        ] {
            let found = count(&specs(first, second), cpus).ok();
            assert_eq!(found, expected, "{first} {second} {cpus:?}");
        }
    }

    #[test]
    fn sum_orders_counts_by_port_and_queue() {
        let of = |queue: u16| {
            let ports = vec![
                ("gen0".to_owned(), 0, Counters::default()),
                ("vhost0".to_owned(), queue, Counters::default()),
            ];
            let notes = vec![("vhost0".to_owned(), "it is so".to_owned())];
            let links = vec![Link::Up, if queue == 0 { Link::Up } else { Link::Down }];
            Snapshot { ports, notes, links, polls: 7, ..Snapshot::default() }
        };
        let sum = sum([of(0), of(1)].into_iter());
        let names: Vec<_> = sum.ports.iter().map(|(name, queue, _)| (&**name, *queue)).collect();
        assert_eq!(names, [("gen0", 0), ("gen0", 1), ("vhost0", 0), ("vhost0", 1)]);
        assert_eq!((sum.polls, sum.notes.len()), (14, 1));
        assert_eq!(sum.links, [Link::Up, Link::Up, Link::Up, Link::Down]);
    }

    #[test]
    fn finish_stops_workers_together() {
        let opened = || Opened {
            of_workers: (0..2).map(|_| vec![Box::new(Null::new("a")) as Box<dyn Port>]).collect(),
            ..Opened::default()
        };
        let other = || Opened {
            of_workers: (0..2).map(|_| vec![Box::new(Null::new("b")) as Box<dyn Port>]).collect(),
            ..Opened::default()
        };
        let settings = Settings { linger: Duration::from_millis(20), ..Settings::default() };
        let workers = Workers::start([opened(), other()], settings, &[]).unwrap();
        assert!(!workers.are_finished());
        let (counted, ended) = workers.finish();
        ended.unwrap();
        assert_eq!((counted.ports.len(), counted.links.len()), (4, 4));
    }
}
