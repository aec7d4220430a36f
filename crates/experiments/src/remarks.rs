//! What a record says beside its figure: what disturbed the run, and what a reader has to know.

use haul_measure::disturbance::Noticed;
use haul_model::Record;
use haul_model::experiment::key;

/// The same for all records of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remarks {
    notes: Vec<String>,
    steal_percent: Option<f64>,
}

impl Remarks {
    /// What a reader has to know, then what was noticed of the machine.
    pub(crate) fn new(notes: &[String], noticed: &Noticed) -> Self {
        let told = noticed.disturbances.iter().map(ToString::to_string);
        Self {
            notes: notes.iter().cloned().chain(told).collect(),
            steal_percent: noticed.steal_percent,
        }
    }

    /// One more thing that a reader has to know.
    pub(crate) fn add(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Whether the records that say so are disturbed: see [`Record::is_disturbed`].
    pub(crate) fn is_disturbed(&self) -> bool {
        self.steal_percent.is_some_and(|percent| percent > Record::STEAL_PERCENT_MAX)
    }

    /// A record that says so: `steal_percent` to two decimals, and `note` where there is one.
    pub(crate) fn on(&self, mut record: Record) -> Record {
        if let Some(percent) = self.steal_percent {
            record = record.with(key::STEAL_PERCENT, (100.0 * percent).round() / 100.0);
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
        let note = "a level was asked for; threads were not pinned to CPUs; threads took turns";
        assert_eq!(said.parameters["note"], note);
    }
}
