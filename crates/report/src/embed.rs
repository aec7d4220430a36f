//! The records that a page embeds: as much of each record as is needed to make the page again.

use std::borrow::Cow;

use haul_model::Line;

use crate::compact::{digits, thin};

/// The largest number of samples that is embedded unchanged.
const SAMPLES_MAX: usize = 64;

/// The number of quantiles to which more samples are reduced. With 60 steps from the minimum to
/// the maximum, the quartiles and the median are among them.
const QUANTILES: usize = 61;

/// The number of significant digits of an embedded sample.
const DIGITS: usize = 4;

/// Lines as JSON with samples to four digits. Of more than [`SAMPLES_MAX`] samples only quantiles
/// are kept, ascending. Median and quartiles do not change within four digits.
pub(crate) fn lines_json(lines: &[Line]) -> Vec<String> {
    lines.iter().map(|line| smaller(line).to_json()).collect()
}

fn smaller(line: &Line) -> Cow<'_, Line> {
    let Line::Record(record) = line else { return Cow::Borrowed(line) };
    let mut record = record.clone();
    if record.samples.len() > SAMPLES_MAX {
        thin(&mut record, QUANTILES);
    }
    record.samples.iter_mut().for_each(|sample| *sample = digits(*sample, DIGITS));
    Cow::Owned(Line::from(record))
}

#[cfg(test)]
mod tests {
    use haul_model::Record;

    use super::*;
    use crate::stats::quantile;

    fn embedded(samples: Vec<f64>, note: Option<&str>) -> Record {
        let mut record = Record::new("r", "copy.size", "haul", "time", "ns");
        record.samples = samples;
        if let Some(note) = note {
            record = record.with("note", note);
        }
        match Line::parse(&lines_json(&[record.into()])[0]).unwrap() {
            Line::Record(record) => record,
            Line::Machine(_) => panic!("a record"),
        }
    }

    #[test]
    fn many_samples_keep_their_quartiles() {
        // All of 0..1000, out of order.
        let samples: Vec<f64> = (0..1000).map(|i| f64::from(i * 387 % 1000) + 0.123_456).collect();
        let found = embedded(samples.clone(), Some("busy"));
        assert_eq!(found.samples.len(), QUANTILES);
        for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let (was, is) = (quantile(&samples, share), quantile(&found.samples, share));
            assert!((was.unwrap() - is.unwrap()).abs() <= 5e-4 * was.unwrap(), "{share}: {is:?}");
        }
        assert_eq!((found.samples_count(), &found.parameters["note"]), (1000, &"busy".into()));
    }

    #[test]
    fn few_samples_keep_their_order() {
        let found = embedded(vec![7.345_678, 2.0, 123_456.0], None);
        assert_eq!(found.samples, [7.346, 2.0, 123_500.0]);
        assert!(found.parameters.is_empty());
        assert_eq!(embedded(vec![1.0; SAMPLES_MAX], None).samples.len(), SAMPLES_MAX);
    }
}
