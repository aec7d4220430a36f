//! The state of a run: the names of the run and the machine in its records, the receiver of these
//! records, and the flag that stops the run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_measure::{Caches, Progress};
use haul_model::Record;

/// The state that all experiments of a command share.
pub struct Context<'a> {
    /// The name of the run that writes the records: the same for all records of a command.
    pub run: String,
    /// `Machine::id` of the machine.
    pub machine: String,
    /// If this flag is set, the experiment returns after the current sample, with the records so
    /// far.
    pub stop: &'a AtomicBool,
    /// Cache sizes of one core.
    pub caches: Caches,
    /// The CPUs that threads are pinned to. If the list is empty, threads are pinned to the CPUs
    /// that this process may run on.
    pub cpus: Vec<usize>,
    /// Receives every record as soon as it is complete.
    pub sink: &'a mut dyn FnMut(Record),
    /// Receives the progress of an experiment, at most 20 times a second.
    pub progress: &'a mut dyn FnMut(&Step),
    /// Receives the reason for which an experiment leaves out a subject and continues with the
    /// other subjects.
    pub warn: &'a mut dyn FnMut(&str),
}

/// The progress of an experiment.
#[derive(Clone, Debug)]
pub struct Step {
    /// The current measurement: `copy.size 4096 B`.
    pub what: String,
    /// The time since the measurement began.
    pub elapsed: Duration,
    /// The time that the measurement may take.
    pub budget: Duration,
}

impl Context<'_> {
    /// Whether the experiment must return.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reports the progress of the measurement of `what`.
    pub fn report_progress(&mut self, what: &str, progress: Progress) {
        let Progress { elapsed, budget, .. } = progress;
        (self.progress)(&Step { what: what.to_owned(), elapsed, budget });
    }

    /// Passes a record, stamped with the run, the machine and the current time, to the sink.
    pub fn emit(&mut self, mut record: Record) {
        record.stamp(&self.run, &self.machine, &now());
        (self.sink)(record);
    }
}

/// For tests: the result of `measure`, its records, and its warnings.
#[cfg(test)]
pub(crate) fn measured<T>(
    cpus: Vec<usize>,
    measure: impl FnOnce(&mut Context<'_>) -> T,
) -> (T, Vec<Record>, Vec<String>) {
    let (mut records, mut warnings) = (Vec::new(), Vec::new());
    let done = measure(&mut Context {
        run: String::new(),
        machine: String::new(),
        stop: &AtomicBool::new(false),
        caches: Caches::default(),
        cpus,
        sink: &mut |record| records.push(record),
        progress: &mut |_| (),
        warn: &mut |text| warnings.push(text.to_owned()),
    });
    (done, records, warnings)
}

/// The current time in the form of records: RFC 3339, UTC, to the second.
#[must_use]
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs())
}

/// Seconds since 1970 as RFC 3339. The calendar is Howard Hinnant's `civil_from_days`
/// ("chrono-compatible low-level date algorithms"): years begin in March, and an era has 400 of
/// them.
fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_formats_known_instants() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
