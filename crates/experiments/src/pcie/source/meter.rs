//! Rates, gaps, and counters that are probably wrong.

use std::time::Duration;

use super::contract::{Count, Quantity, Source, SourceError};

/// The rate of a counter in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The quantity of the counter.
    pub quantity: Quantity,
    /// The value per second, the unchanged value of a share, or the reason why the rate is not
    /// known.
    pub per_s: Result<f64, Gap>,
}

/// The reason why a rate is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The counter did not exist before.
    New,
    /// The counter does not exist any more.
    Vanished,
    /// The counter became smaller, because the device or its driver was reset.
    SetBack,
}

impl Gap {
    /// The reason of the gap as a sentence.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::New => "it has just appeared",
            Self::Vanished => "it has vanished: the device may have been removed",
            Self::SetBack => "it became smaller: the device or its driver was reset",
        }
    }
}

/// A source, and its last counts.
pub struct Meter {
    /// The source.
    pub source: Box<dyn Source>,
    last: Option<(Duration, Vec<Count>)>,
}

impl Meter {
    /// A meter before the first read.
    #[must_use]
    pub fn new(source: Box<dyn Source>) -> Self {
        Self { source, last: None }
    }

    /// The rates since the last call. `now` is the time since a moment that is the same in all
    /// calls. The first call returns no rates.
    ///
    /// # Errors
    /// Those of the source. The call after an error returns no rates.
    pub fn rates(&mut self, now: Duration) -> Result<Vec<Rate>, SourceError> {
        let last = self.last.take();
        let counts = self.source.read()?;
        let rates = match &last {
            Some((then, before)) => rates(before, &counts, now.saturating_sub(*then)),
            None => Vec::new(),
        };
        self.last = Some((now, counts));
        Ok(rates)
    }
}

fn rates(before: &[Count], now: &[Count], time: Duration) -> Vec<Rate> {
    let seconds = time.as_secs_f64();
    let find = |counts: &[Count], quantity: &Quantity| {
        counts.iter().find(|count| count.quantity == *quantity).cloned()
    };
    let mut rates: Vec<Rate> = now
        .iter()
        .map(|count| {
            let per_s = match (&count.quantity, find(before, &count.quantity)) {
                (Quantity::Percent(_), _) => Ok(count.value),
                (_, None) => Err(Gap::New),
                (_, Some(_)) if seconds <= 0.0 => Err(Gap::New),
                (_, Some(old)) => grown(&old, count).map(|more| more / seconds),
            };
            Rate { quantity: count.quantity.clone(), per_s }
        })
        .collect();
    let gone = before.iter().filter(|count| find(now, &count.quantity).is_none());
    rates.extend(
        gone.map(|count| Rate { quantity: count.quantity.clone(), per_s: Err(Gap::Vanished) }),
    );
    rates
}

/// The growth of a counter. If a counter became smaller, it has wrapped if its value was in the
/// last quarter of the range of 32 or 48 bits and is in the first quarter now. Otherwise, the
/// counter was reset.
fn grown(before: &Count, now: &Count) -> Result<f64, Gap> {
    let more = now.value - before.value;
    if more >= 0.0 {
        return Ok(more);
    }
    for bits in [32, 48] {
        let whole = 2_f64.powi(bits) * now.unit;
        if before.value > whole * 0.75 && before.value < whole && now.value < whole * 0.25 {
            return Ok(more + whole);
        }
    }
    Err(Gap::SetBack)
}

/// The allowed relative difference between a counter and the known bytes.
const TOLERANCE: f64 = 0.1;

/// The reason why a counter is probably wrong: `counted` is more than 10% below or above `known`,
/// the number of bytes that are known to have crossed the link. `None` if the counter may be
/// right, or if no bytes are known.
#[must_use]
pub fn suspicion(counted: f64, known: f64) -> Option<String> {
    let ratio = counted / known;
    if known <= 0.0 || !ratio.is_finite() || (ratio - 1.0).abs() <= TOLERANCE {
        return None;
    }
    let is_near = |factor: f64| (ratio / factor - 1.0).abs() <= TOLERANCE;
    let why = if is_near(8.0) || is_near(1.0 / 8.0) {
        ": a factor of 8 is the known error of free-running counters that a kernel scales wrongly"
    } else if is_near(4.0) || is_near(0.25) {
        ": a factor of 4 is a count of words of 4 B mistaken for bytes, or vice versa"
    } else if counted == 0.0 {
        ": it does not change; it may not be wired on this machine, or the device is below another \
         port"
    } else if ratio > 1.0 {
        ": other devices may be below the same port, or the program is not all that moves"
    } else {
        ""
    };
    Some(format!("it counts {:.0}% of what is known to have crossed{why}", ratio * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcie::source::contract::About;

    fn count(name: &'static str, value: f64) -> Count {
        Count { quantity: Quantity::Traffic(name), value, unit: 1.0 }
    }

    /// Gives one recorded answer after the other.
    struct Recorded(Vec<Vec<Count>>, About);

    impl Source for Recorded {
        fn name(&self) -> &'static str {
            "recorded"
        }

        fn about(&self) -> &About {
            &self.1
        }

        fn read(&mut self) -> Result<Vec<Count>, SourceError> {
            Ok(self.0.remove(0))
        }
    }

    fn meter(counts: Vec<Vec<Count>>) -> Meter {
        let about =
            About { unit: "", granularity: String::new(), traps: Vec::new(), is_tested: false };
        Meter::new(Box::new(Recorded(counts, about)))
    }

    #[test]
    fn rates_use_growth_of_counters() {
        let mut meter = meter(vec![
            vec![count("a", 100.0)],
            vec![count("a", 300.0), count("b", 7.0)],
            vec![count("b", 3.0)],
        ]);
        assert_eq!(meter.rates(Duration::from_secs(10)).unwrap(), []);
        let rate = |name, per_s| Rate { quantity: Quantity::Traffic(name), per_s };
        assert_eq!(
            meter.rates(Duration::from_secs(12)).unwrap(),
            [rate("a", Ok(100.0)), rate("b", Err(Gap::New))]
        );
        assert_eq!(
            meter.rates(Duration::from_secs(13)).unwrap(),
            [rate("b", Err(Gap::SetBack)), rate("a", Err(Gap::Vanished))]
        );
    }

    #[test]
    fn grown_follows_wraps_and_rejects_resets() {
        let whole = 2_f64.powi(32);
        let grown = |before: f64, now: f64| super::grown(&count("a", before), &count("a", now));
        assert_eq!(grown(whole - 10.0, 20.0), Ok(30.0));
        assert_eq!(grown(2_f64.powi(48) - 1.0, 1.0), Ok(2.0));
        for (before, now) in [(1000.0, 0.0), (whole / 2.0, 5.0), (whole * 3.0, 0.0)] {
            assert_eq!(grown(before, now), Err(Gap::SetBack), "{before} {now}");
        }
    }

    #[test]
    fn suspicion_names_cause_of_wrong_counter() {
        assert_eq!(suspicion(1.05e9, 1e9), None);
        assert_eq!(suspicion(1.0, 0.0), None);
        for (counted, part) in [
            (8e9, "factor of 8"),
            (2.5e8, "factor of 4"),
            (0.0, "does not change"),
            (1.5e9, "150%"),
        ] {
            let reason = suspicion(counted, 1e9).unwrap();
            assert!(reason.contains(part), "{reason}");
        }
    }
}
