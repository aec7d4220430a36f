//! Compacts records so that they still produce the same page.

use std::num::NonZeroU64;

use haul_model::{Line, Record};

use crate::findings;
use crate::stats::quantile_of_sorted;

/// The number of quantiles to which samples are reduced: minimum, quartiles, median and maximum.
const QUANTILES: usize = 5;

/// The number of significant digits of a stored sample. A page shows bytes and picoseconds to the
/// last digit; nine digits changed 70 of a million cells.
const DIGITS: usize = 12;

/// The same lines in compact form: a record with more than five samples keeps the minimum, the
/// quartiles and the maximum, and each sample keeps twelve digits.
///
/// Samples that a page compares one by one, those of a channel's throughput, stay in the order in
/// which they were taken.
///
/// ```
/// use haul_model::{Line, Record};
/// let mut record = Record::new("r", "copy.size", "haul", "time", "ns");
/// record.samples = (0..1001).map(f64::from).collect();
/// let Line::Record(compact) = &haul_report::compact(vec![record.into()])[0] else { panic!() };
/// assert_eq!((compact.samples.len(), compact.samples_count()), (5, 1001));
/// assert_eq!(compact.median(), Some(500.0));
/// ```
#[must_use]
pub fn compact(mut lines: Vec<Line>) -> Vec<Line> {
    for line in &mut lines {
        let Line::Record(record) = line else { continue };
        if !findings::is_compared_by_sample(record) {
            thin(record, QUANTILES);
        }
        record.samples.iter_mut().for_each(|sample| *sample = digits(*sample, DIGITS));
    }
    lines
}

/// Reduces more than `quantiles` samples to that many quantiles, ascending. A multiple of four plus
/// one includes the quartiles and the median.
pub(crate) fn thin(record: &mut Record, quantiles: usize) {
    if record.samples.len() <= quantiles {
        return;
    }
    record.quantiles_of = NonZeroU64::new(record.samples_count());
    record.samples.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let share = |index: usize| index as f64 / (quantiles - 1) as f64;
    record.samples = (0..quantiles)
        .filter_map(|index| quantile_of_sorted(&record.samples, share(index)))
        .collect();
}

/// The value rounded to `digits` significant digits.
pub(crate) fn digits(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::quantile;

    fn record(samples: Vec<f64>) -> Record {
        let mut record = Record::new("r", "copy.size", "haul", "time", "ns");
        record.samples = samples;
        record
    }

    fn compacted(record: Record) -> Record {
        match compact(vec![record.into()]).remove(0) {
            Line::Record(record) => record,
            Line::Machine(_) => panic!("a record"),
        }
    }

    #[test]
    fn quantiles_shown_on_a_page_are_preserved() {
        for count in [6, 7, 8, 9, 64, 65, 1000, 1001] {
            // All of 0..count, out of order.
            let samples: Vec<f64> = (0..count)
                .map(|i| f64::from(i * 387 % count) * 1.1 + 0.123_456_789_012_345)
                .collect();
            let found = compacted(record(samples.clone()));
            assert_eq!((found.samples.len(), found.samples_count()), (QUANTILES, count as u64));
            for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
                let was = digits(quantile(&samples, share).unwrap(), DIGITS);
                assert_eq!(quantile(&found.samples, share), Some(was), "{count}: {share}");
            }
            let was = record(samples).median().unwrap();
            assert_eq!(found.median(), Some(digits(was, DIGITS)), "{count}");
            assert_eq!(compacted(found.clone()), found, "compact twice");
        }
    }

    #[test]
    fn few_samples_and_samples_compared_one_by_one_keep_their_order() {
        let few = compacted(record(vec![3.0, 1.0, 2.0]));
        assert_eq!((few.samples.as_slice(), few.quantiles_of), (&[3.0, 1.0, 2.0][..], None));
        let mut paired = record((0..100).rev().map(f64::from).collect());
        paired.experiment = "channel.transfer".into();
        paired.metric = "throughput".into();
        assert_eq!(compacted(paired.clone()), paired);
    }
}
