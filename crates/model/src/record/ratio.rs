//! Conversion of a comparison between costs and rates.

use serde::{Deserialize, Serialize};

use super::{Better, Comparison, Record};

/// The quantity of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RatioOf {
    /// A ratio of times or other costs: below 1 is better.
    Cost,
    /// A ratio of rates: above 1 is better. Only the forwarder's records use it, because its
    /// figures and those of its peers are packets a second.
    Rate,
}

impl Record {
    /// Sets the record's comparison. `comparison` must be in the record's own metric; it is stored
    /// as a ratio of costs.
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

    /// The comparison in times or costs: below 1 is better. `None` if there is no comparison, or if
    /// it has a rate of 0.
    #[must_use]
    pub fn cost(&self) -> Option<Comparison> {
        self.comparison_of(RatioOf::Cost)
    }

    /// The comparison in rates: above 1 is better. `None` in the same cases as [`Record::cost`].
    #[must_use]
    pub fn rate(&self) -> Option<Comparison> {
        self.comparison_of(RatioOf::Rate)
    }

    /// The comparison in the record's own metric: below 1 means that the subject has less of it.
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
    /// The comparison of the inverse quantity; `None` if a ratio is 0.
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
    fn comparison_converts_between_cost_and_rate() {
        let (as_held, turned) = (Some([0.4, 0.5, 0.8]), Some([1.25, 2.0, 2.5]));
        for (unit, ratio_of, cost, rate, of_metric) in [
            ("ns", None, as_held, turned, as_held),
            // Older records of rates have no `ratio_of`.
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
    fn compare_keeps_times_and_drops_rates_of_zero() {
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
