//! What is said beside a figure: the record's own note, and whether the hypervisor disturbed it.

use haul_model::Record;
use haul_model::experiment::key;

use crate::text;

/// What a reader has to know of a figure beside its number: its own note, and what the hypervisor
/// took where that is more than 5% of the processors' time. `None` where there is nothing.
///
/// ```
/// use haul_model::Record;
/// let note = "2 threads shared 1 CPU";
/// let record = Record::new("r", "copy.size", "haul", "time", "ns").with("note", note);
/// let calm = record.clone().with("steal_percent", 0.8);
/// assert_eq!(haul_report::note(&calm).unwrap(), note);
/// let disturbed = haul_report::note(&record.with("steal_percent", 14.2)).unwrap();
/// let more = "the hypervisor took 14% of the processors’ time";
/// assert_eq!(disturbed, format!("{note}; {more}"));
/// ```
#[must_use]
pub fn note(record: &Record) -> Option<String> {
    let own = record.parameters.get(key::NOTE).map(text::value);
    let taken = record.steal_percent().filter(|_| record.is_disturbed()).map(|percent| {
        format!("the hypervisor took {} of the processors’ time", text::percent(percent / 100.0))
    });
    let parts: Vec<String> = own.into_iter().chain(taken).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
