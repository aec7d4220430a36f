//! The remarks of a record in addition to its figure: disturbances of the run, and notes for the
//! reader.

use haul_measure::disturbance::Noticed;
use haul_model::Record;
use haul_model::experiment::key;

/// The remarks that all records of a run share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remarks {
    notes: Vec<String>,
    steal_percent: Option<f64>,
    others_processors: Option<f64>,
}

impl Remarks {
    /// Notes for the reader, followed by the disturbances that the run noticed.
    pub(crate) fn new(notes: &[String], noticed: &Noticed) -> Self {
        let disturbances = noticed.disturbances.iter().map(ToString::to_string);
        Self {
            notes: notes.iter().cloned().chain(disturbances).collect(),
            steal_percent: noticed.steal_percent,
            others_processors: None,
        }
    }

    /// Adds the number of processors that unrelated programs kept busy, if this number is known.
    pub(crate) fn with_others(mut self, others_processors: Option<f64>) -> Self {
        self.others_processors = others_processors;
        self
    }

    /// Adds a note for the reader.
    pub(crate) fn add(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Whether records with these remarks are disturbed, by the hypervisor or by other programs:
    /// see [`Record::is_disturbed`] and [`Record::is_beside_others`].
    pub(crate) fn is_disturbed(&self) -> bool {
        self.steal_percent.is_some_and(|percent| percent > Record::STEAL_PERCENT_MAX)
            || self.others_processors.is_some_and(|count| count > Record::OTHERS_PROCESSORS_MAX)
    }

    /// Adds the remarks to a record: `steal_percent` and `others_processors` to two decimals, and
    /// `note` if there is a note.
    pub(crate) fn on(&self, mut record: Record) -> Record {
        let rounded = |value: f64| (100.0 * value).round() / 100.0;
        if let Some(percent) = self.steal_percent {
            record = record.with(key::STEAL_PERCENT, rounded(percent));
        }
        if let Some(count) = self.others_processors {
            record = record.with(key::OTHERS_PROCESSORS, rounded(count));
        }
        if !self.notes.is_empty() {
            record = record.with(key::NOTE, self.notes.join("; "));
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use haul_measure::disturbance::Disturbance;

    use super::*;

    #[test]
    fn record_has_noticed_remarks_only() {
        let record = || Record::new("r", "copy.size", "haul", "time", "ns");
        assert_eq!(Remarks::default().on(record()), record());

        let disturbances = vec![Disturbance::Unpinned];
        let noticed = Noticed { steal_percent: Some(1.23456), disturbances };
        let mut remarks = Remarks::new(&["another level was requested".into()], &noticed);
        remarks.add("threads took turns".into());
        let remarked = remarks.on(record());
        assert_eq!(remarked.parameters["steal_percent"], 1.23);
        assert!(!remarked.parameters.contains_key("others_processors") && !remarks.is_disturbed());
        let busy = remarks.clone().with_others(Some(0.987));
        assert_eq!(busy.on(record()).parameters["others_processors"], 0.99);
        assert!(busy.is_disturbed() && !remarks.with_others(Some(0.1)).is_disturbed());
        let note =
            "another level was requested; threads were not pinned to CPUs; threads took turns";
        assert_eq!(remarked.parameters["note"], note);
    }
}
