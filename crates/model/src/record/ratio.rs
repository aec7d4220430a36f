//! A comparison in time or cost, or in rates, whichever the record holds.

use serde::{Deserialize, Serialize};

use super::{Better, Comparison, Record};

/// What a ratio is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RatioOf {
    /// Time or another cost: below 1 is better.
    Cost,
    /// Rates: above 1 is better. Only the forwarder's records are written so, for its figures are
    /// packets a second, and so are those of whom it is held against.
    Rate,
}

impl Record {
    /// Compares the record: `comparison` is what its own samples gave, and is kept in time or cost.
    ///
    /// ```
    /// use haul_model::{Comparison, RatioOf, Record};
    /// let mut record = Record::new("r", "channel.transfer", "haul", "throughput", "GB/s");
    /// let baseline = "memcpy".to_owned();
    /// let (ratio, ratio_low, ratio_high, floor) = (2.0, 1.6, 2.5, 0.01);
    /// record.compare(Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor }));
    /// let held = record.comparison.unwrap();
    /// assert_eq!((held.ratio, held.ratio_low, held.ratio_high), (0.5, 0.4, 0.625));
    /// assert_eq!(record.ratio_of, Some(RatioOf::Cost));
    /// ```
    pub fn compare(&mut self, comparison: Option<Comparison>) {
        let is_rate = Better::of(self) == Some(Better::More);
        self.comparison = if is_rate { comparison.and_then(|it| it.inverse()) } else { comparison };
        self.ratio_of = (is_rate && self.comparison.is_some()).then_some(RatioOf::Cost);
    }

    /// The comparison in time or cost: below 1 is better. `None` where there is none, or where it
    /// is one of a rate of 0.
    #[must_use]
    pub fn cost(&self) -> Option<Comparison> {
        self.comparison_of(RatioOf::Cost)
    }

    /// The comparison in rates: above 1 is better. `None` as of [`Record::cost`].
    #[must_use]
    pub fn rate(&self) -> Option<Comparison> {
        self.comparison_of(RatioOf::Rate)
    }

    /// The comparison in the record's own metric: below 1 is less of it.
    #[must_use]
    pub fn of_metric(&self) -> Option<Comparison> {
        match Better::of(self) {
            Some(Better::More) => self.rate(),
            _ => self.cost(),
        }
    }

    fn comparison_of(&self, wanted: RatioOf) -> Option<Comparison> {
        let comparison = self.comparison.as_ref()?;
        let by_unit = || match Better::of(self) {
            Some(Better::More) => RatioOf::Rate,
            _ => RatioOf::Cost,
        };
        let held = self.ratio_of.unwrap_or_else(by_unit);
        if held == wanted { Some(comparison.clone()) } else { comparison.inverse() }
    }
}

impl Comparison {
    /// The same of the inverse quantity; `None` of a ratio of 0.
    fn inverse(&self) -> Option<Self> {
        let inverse = Self {
            baseline: self.baseline.clone(),
            ratio: 1.0 / self.ratio,
            ratio_low: 1.0 / self.ratio_high,
            ratio_high: 1.0 / self.ratio_low,
            floor: self.floor,
        };
        let numbers = [inverse.ratio, inverse.ratio_low, inverse.ratio_high];
        numbers.iter().all(|number| number.is_finite()).then_some(inverse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(unit: &str, ratio_of: Option<RatioOf>) -> Record {
        let mut record = Record::new("r", "channel.transfer", "haul", "x", unit);
        let (ratio, ratio_low, ratio_high, floor) = (0.5, 0.4, 0.8, 0.01);
        let baseline = "memcpy".to_owned();
        record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
        record.ratio_of = ratio_of;
        record
    }

    fn three(comparison: Option<Comparison>) -> Option<[f64; 3]> {
        comparison.map(|it| [it.ratio_low, it.ratio, it.ratio_high])
    }

    #[test]
    fn every_record_is_read_in_both_directions() {
        let (as_held, turned) = (Some([0.4, 0.5, 0.8]), Some([1.25, 2.0, 2.5]));
        for (unit, ratio_of, cost, rate, of_metric) in [
            ("ns", None, as_held, turned, as_held),
            // As records of rates were before they said so.
            ("GB/s", None, turned, as_held, as_held),
            ("GB/s", Some(RatioOf::Cost), as_held, turned, turned),
            ("packets/s", Some(RatioOf::Rate), turned, as_held, as_held),
            ("%", None, as_held, turned, as_held),
        ] {
            let record = record(unit, ratio_of);
            assert_eq!(three(record.cost()), cost, "{unit} {ratio_of:?}");
            assert_eq!(three(record.rate()), rate, "{unit} {ratio_of:?}");
            assert_eq!(three(record.of_metric()), of_metric, "{unit} {ratio_of:?}");
        }
    }

    #[test]
    fn a_time_is_kept_as_it_is_and_a_rate_of_nothing_is_not_compared() {
        let mut time = record("ns", None);
        time.compare(time.comparison.clone());
        assert_eq!((three(time.cost()), time.ratio_of), (Some([0.4, 0.5, 0.8]), None));
        let mut none = record("GB/s", None);
        let mut of_nothing = none.comparison.clone().unwrap();
        of_nothing.ratio_low = 0.0;
        none.compare(Some(of_nothing));
        assert_eq!((&none.comparison, none.ratio_of), (&None, None));
        none.compare(None);
        assert_eq!((none.cost(), none.rate()), (None, None));
    }
}
