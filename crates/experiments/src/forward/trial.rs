//! A load that is offered for a time, and its outcome.

use std::thread::sleep;
use std::time::{Duration, Instant};

use haul::forward::{Findings, Generator, Pace, Traffic, Watch};

use super::gate;
use super::protocol::Counted;

/// The time between two checks for packets or for a side.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The time after a trial in which generators still make late packets.
const LATE: Duration = Duration::from_millis(10);

/// The allowed excess of the time in which a trial's packets are made, relative to the trial's
/// time: as much as the bounds of a search may be apart. If the packets are made in a longer
/// time, the load is a different one.
const LONGER_MAX: f64 = 0.005;

/// The reported quantiles of latency.
pub(super) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// The packets that generators made and received, for code outside the generators' workers.
pub(super) struct Made(pub(super) Vec<(Pace, Watch)>);

impl Made {
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(pace, _)| pace.made()).sum()
    }

    fn took_ns(&self) -> u64 {
        self.0.iter().map(|(pace, _)| pace.took_ns()).max().unwrap_or(0)
    }

    /// The packets that all generators received.
    pub(super) fn findings(&self) -> Findings {
        let each = self.0.iter().map(|(_, watch)| watch.findings());
        let sum = each.reduce(|mut sum, more| {
            sum.add(&more);
            sum
        });
        sum.expect("a side has a thread")
    }
}

/// A trial, for code outside its workers.
pub(super) struct Trial {
    packets: u64,
    time: Duration,
    made: Made,
}

impl Trial {
    /// Creates a trial of this many packets per second, and one port for each part of the
    /// traffic. Each port makes an equal share of the packets.
    pub(super) fn new(
        rate: f64,
        seconds: f64,
        parts: Vec<Traffic>,
    ) -> Result<(Self, Vec<Generator>), String> {
        let time = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
        let rate = rate / parts.len() as f64;
        let packets = (rate * seconds).round().max(1.0) as u64;
        let mut generators = Vec::new();
        for traffic in parts {
            let traffic = Traffic { rate: Some(rate), packets: Some(packets), ..traffic };
            let made = Generator::new(gate::NAME, &traffic);
            generators.push(made.map_err(|error| error.to_string())?);
        }
        let made = generators.iter().map(|made| (made.pace(), made.watch())).collect();
        let packets = packets * generators.len() as u64;
        Ok((Self { packets, time, made: Made(made) }, generators))
    }

    /// Waits, from the start of the trial, until all packets have arrived, or no packet has
    /// arrived for this time. Returns the number of packets.
    pub(super) fn await_end(&self, quiet: Duration) -> u64 {
        // If this thread polled, it would take a processor from one of the sides.
        sleep(self.time);
        let over = Instant::now();
        while self.made.count() < self.packets && over.elapsed() < self.time / 20 + LATE {
            sleep(POLL_INTERVAL);
        }
        let (mut came, mut since) = (self.came(), Instant::now());
        while came < self.packets && since.elapsed() < quiet {
            sleep(POLL_INTERVAL);
            let now = self.came();
            if now > came {
                (came, since) = (now, Instant::now());
            }
        }
        came
    }

    fn came(&self) -> u64 {
        self.made.findings().sum().unique
    }

    /// The counters of the trial if this many packets arrived. Packets that were not made in time
    /// count as lost.
    pub(super) fn counted(&self, came: u64) -> Counted {
        let elapsed = Duration::from_nanos(self.made.took_ns());
        let unsent = unsent(self.packets, self.made.count(), elapsed, self.time);
        let findings = self.made.findings();
        let value = |quantile| findings.latency.value_at_quantile(quantile) as f64;
        Counted {
            made: self.packets,
            unsent,
            returned: came,
            missing: unsent.max(self.packets - came.min(self.packets)),
            reordered: findings.sum().reordered,
            latency_ns: QUANTILES.map(|quantile| (quantile, value(quantile))).into(),
            ..Counted::default()
        }
    }
}

/// The number of packets that were not made within a trial's time, if `made` packets were made in
/// the `elapsed` time.
fn unsent(packets: u64, made: u64, elapsed: Duration, time: Duration) -> u64 {
    let longer = elapsed.as_secs_f64() / time.as_secs_f64();
    let in_time = if longer > 1.0 + LONGER_MAX { made as f64 / longer } else { made as f64 };
    packets - (in_time as u64).min(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_not_made_in_time_count_as_lost() {
        let ms = Duration::from_millis;
        // The generator reaches a third of the rate: first it makes all packets late, and then it
        // makes two thirds of them.
        assert_eq!(unsent(900, 900, ms(60), ms(20)), 600);
        assert_eq!(unsent(900, 600, ms(40), ms(20)), 600);
        // All packets are made in time, or are late by less than the distance between the bounds
        // of a search.
        assert_eq!(unsent(900, 900, ms(19), ms(20)), 0);
        assert_eq!(unsent(900, 900, ms(1004), ms(1000)), 0);
        assert_eq!(unsent(900, 0, ms(0), ms(20)), 900);
    }
}
