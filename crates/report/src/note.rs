//! What is said beside a figure: the record's own note, and whether the hypervisor disturbed it.

use haul_model::Record;

use crate::text;

/// A figure counts as disturbed where the hypervisor took more than this of all processors' time while
/// it was taken, in percent. The kernel counts in ticks of 10 ms: of a short step (0.3 s on two
/// processors) this is three of them, so that a tick or two by chance mark nothing.
pub(crate) const STEAL_PERCENT_MAX: f64 = 5.0;

/// What the hypervisor took of all processors' time while a figure was taken, in percent; `None` where
/// the record does not say, or says what no share can be.
pub(crate) fn steal_percent(record: &Record) -> Option<f64> {
    let percent = record.parameters.get("steal_percent")?.as_f64()?;
    (0.0..=100.0).contains(&percent).then_some(percent)
}

/// Whether the hypervisor disturbed a figure.
pub(crate) fn is_disturbed(record: &Record) -> bool {
    steal_percent(record).is_some_and(|percent| percent > STEAL_PERCENT_MAX)
}

/// What a reader has to know of a figure beside its number: its own note, and what the hypervisor took
/// where that is more than 5% of the processors' time. `None` where there is nothing.
///
/// ```
/// use haul_model::Record;
/// let record = Record::new("r", "copy.size", "haul", "time", "ns").with("note", "2 threads shared 1 CPU");
/// assert_eq!(haul_report::note(&record.clone().with("steal_percent", 0.8)).unwrap(), "2 threads shared 1 CPU");
/// let disturbed = haul_report::note(&record.with("steal_percent", 14.2)).unwrap();
/// assert_eq!(disturbed, "2 threads shared 1 CPU; the hypervisor took 14% of the processors’ time");
/// ```
#[must_use]
pub fn note(record: &Record) -> Option<String> {
    let own = record.parameters.get("note").map(text::value);
    let taken = steal_percent(record).filter(|_| is_disturbed(record)).map(|percent| {
        format!("the hypervisor took {} of the processors’ time", text::percent(percent / 100.0))
    });
    let parts: Vec<String> = own.into_iter().chain(taken).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
