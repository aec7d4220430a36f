//! The note beside a figure: the record's own note, and whether the hypervisor or other programs
//! disturbed the figure.

use haul_model::Record;
use haul_model::experiment::key;

use crate::text;

/// What a reader must know in addition to the number: the record's own note, the share that the
/// hypervisor took if it is more than 5% of the processors' time, and the processors that other
/// programs kept busy if they are more than a quarter of one. `None` if there is nothing to say.
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
/// let beside = haul_report::note(&calm.with("others_processors", 0.97)).unwrap();
/// assert_eq!(beside, format!("{note}; other programs kept 0.97 processors busy"));
/// ```
#[must_use]
pub fn note(record: &Record) -> Option<String> {
    let own = record.shown(key::NOTE);
    let taken = record.steal_percent().filter(|_| record.is_disturbed()).map(|percent| {
        format!("the hypervisor took {} of the processors’ time", text::percent(percent / 100.0))
    });
    let beside = record.others_processors().filter(|_| record.is_beside_others());
    let beside = beside.map(|count| format!("other programs kept {count:.2} processors busy"));
    let parts: Vec<String> = own.into_iter().chain(taken).chain(beside).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
