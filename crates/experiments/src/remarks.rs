//! What a record says beside its figure: what disturbed the run, and what a reader has to know.

use haul_measure::disturbance::Noticed;
use haul_model::Record;
use haul_model::experiment::key;

/// The same for all records of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remarks {
    notes: Vec<String>,
    steal_percent: Option<f64>,
    others_processors: Option<f64>,
}

impl Remarks {
    /// What a reader has to know, then what was noticed of the machine.
    pub(crate) fn new(notes: &[String], noticed: &Noticed) -> Self {
        let told = noticed.disturbances.iter().map(ToString::to_string);
        Self {
            notes: notes.iter().cloned().chain(told).collect(),
            steal_percent: noticed.steal_percent,
            others_processors: None,
        }
    }

    /// How many processors programs that have nothing to do with it kept busy, where that is known.
    pub(crate) fn beside(mut self, others_processors: Option<f64>) -> Self {
        self.others_processors = others_processors;
        self
    }

    /// One more thing that a reader has to know.
    pub(crate) fn add(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Whether the records that say so are disturbed, by the hypervisor or by other programs: see
    /// [`Record::is_disturbed`] and [`Record::is_beside_others`].
    pub(crate) fn is_disturbed(&self) -> bool {
        self.steal_percent.is_some_and(|percent| percent > Record::STEAL_PERCENT_MAX)
            || self.others_processors.is_some_and(|count| count > Record::OTHERS_PROCESSORS_MAX)
    }

    /// A record that says so: `steal_percent` and `others_processors` to two decimals, and `note`
    /// where there is one.
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
    fn a_record_says_what_was_noticed_and_nothing_that_was_not() {
        let record = || Record::new("r", "copy.size", "haul", "time", "ns");
        assert_eq!(Remarks::default().on(record()), record());

        let disturbances = vec![Disturbance::Unpinned];
        let noticed = Noticed { steal_percent: Some(1.23456), disturbances };
        let mut remarks = Remarks::new(&["a level was asked for".into()], &noticed);
        remarks.add("threads took turns".into());
        let said = remarks.on(record());
        assert_eq!(said.parameters["steal_percent"], 1.23);
        assert!(!said.parameters.contains_key("others_processors") && !remarks.is_disturbed());
        let beside = remarks.clone().beside(Some(0.987));
        assert_eq!(beside.on(record()).parameters["others_processors"], 0.99);
        assert!(beside.is_disturbed() && !remarks.beside(Some(0.1)).is_disturbed());
        let note = "a level was asked for; threads were not pinned to CPUs; threads took turns";
        assert_eq!(said.parameters["note"], note);
    }
}
