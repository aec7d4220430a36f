//! A load that is offered for a time, and what came of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use haul::forward::{Findings, Generator, Pace, Traffic, Watch};

use super::gate;
use super::protocol::Counted;

/// How often it is looked whether packets were made or came, or a side is ready.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// For how long after its time a trial's packets are waited for that were not made in it.
const LATE: Duration = Duration::from_millis(10);

/// How much longer than its time the making of a trial's packets may take: as much as the bounds of
/// a search may be apart. What takes longer is another load.
const LONGER_MAX: f64 = 0.005;

/// The quantiles of latency that are told.
pub(super) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// What generators made and got back, from outside their workers.
pub(super) struct Made(pub(super) Vec<(Pace, Watch)>);

impl Made {
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(pace, _)| pace.made()).sum()
    }

    fn took_ns(&self) -> u64 {
        self.0.iter().map(|(pace, _)| pace.took_ns()).max().unwrap_or(0)
    }

    /// What came back to all of them.
    pub(super) fn findings(&self) -> Findings {
        let each = self.0.iter().map(|(_, watch)| watch.findings());
        let sum = each.reduce(|mut sum, more| {
            sum.add(&more);
            sum
        });
        sum.expect("a side has a thread")
    }
}

/// A trial, from outside its workers.
pub(super) struct Trial {
    packets: u64,
    time: Duration,
    made: Made,
}

impl Trial {
    /// A trial of so many packets a second, of equal parts of this traffic, and the ports that make
    /// them.
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

    /// Waits from its start until all came, or nothing more did for this long; how many came.
    pub(super) fn await_end(&self, quiet: Duration) -> u64 {
        // Whoever looks takes a processor from one of the sides.
        sleep(self.time);
        let over = Instant::now();
        while self.made.count() < self.packets && over.elapsed() < self.time / 20 + LATE {
            sleep(LOOK_AGAIN);
        }
        let (mut came, mut since) = (self.came(), Instant::now());
        while came < self.packets && since.elapsed() < quiet {
            sleep(LOOK_AGAIN);
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

    /// What came of it, where so many came. Those that were not made in time count as lost.
    pub(super) fn counted(&self, came: u64) -> Counted {
        let took = Duration::from_nanos(self.made.took_ns());
        let unsent = unsent(self.packets, self.made.count(), took, self.time);
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

/// How many packets were not made within a trial's time, where so many were in the time that it
/// took.
fn unsent(packets: u64, made: u64, took: Duration, time: Duration) -> u64 {
    let longer = took.as_secs_f64() / time.as_secs_f64();
    let in_time = if longer > 1.0 + LONGER_MAX { made as f64 / longer } else { made as f64 };
    packets - (in_time as u64).min(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_was_not_kept_counts_as_lost_for_what_it_lacked() {
        let ms = Duration::from_millis;
        // A third of the rate, waited for until all were made, and until time was up.
        assert_eq!(unsent(900, 900, ms(60), ms(20)), 600);
        assert_eq!(unsent(900, 600, ms(40), ms(20)), 600);
        // Kept, or late by less than the bounds of a search are apart.
        assert_eq!(unsent(900, 900, ms(19), ms(20)), 0);
        assert_eq!(unsent(900, 900, ms(1004), ms(1000)), 0);
        assert_eq!(unsent(900, 0, ms(0), ms(20)), 900);
    }
}
