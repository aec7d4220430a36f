//! What a change of a whole program does.

use haul_model::experiment::name;
use haul_model::{Record, Verdict};

use super::{Finding, Tone, finding};
use crate::field;

/// The verdict of each field test, as a sentence.
pub(super) fn tests(records: &[&Record]) -> Vec<Finding> {
    records.iter().filter_map(|record| of_test(record)).collect()
}

fn of_test(record: &Record) -> Option<Finding> {
    let tone = match field::verdict(record)? {
        Verdict::Less => Tone::Better,
        Verdict::More => Tone::Worse,
        Verdict::NoDifference => Tone::Same,
        Verdict::CannotTell => Tone::Unknown,
    };
    Some(finding(name::FIELD_VERDICT, tone, field::sentence(record)?))
}
