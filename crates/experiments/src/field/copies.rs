//! The share of the copies in the program's processor time, for a test of haul's copies.
//!
//! After the rounds, the changed program runs once more, and its library profiles its calls. The
//! time of the calls is the number of each size, times the measured time of one call of that size:
//! see [`cost`](crate::copy::cost). The share says what the change can gain where the runs differ
//! by more than that from each other.

use std::time::Duration;

use haul_machine::file::read_limited;
use haul_measure::rounds::Progress;
use haul_measure::rounds::placed::CHANGED;
use haul_model::Record;
use haul_model::experiment::key;
use haul_model::profile::{Calls, Profile, layout};

use super::Change;
use super::state::Test;
use super::trial::Failure;
use crate::context::Context;
use crate::copy::cost::{Costs, Spent};
use crate::drive::Folder;
use crate::error::Error;

/// The variable that names the file of a profile.
const VARIABLE: &str = "HAUL_COPY_PROFILE";

/// The shares of copies and fills in the program's processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Copies {
    /// With libc's functions.
    without: f64,
    /// With haul's, of the same processor time.
    with: f64,
}

impl Copies {
    /// The shares in a run that took this processor time with haul's functions. The estimate for a
    /// program that does nothing else may exceed that time; both times are then reduced in
    /// proportion.
    fn of(spent: Spent, cpu_s: f64) -> Option<Self> {
        let part = (cpu_s / spent.haul_s.max(f64::MIN_POSITIVE)).min(1.0);
        let (libc_s, haul_s) = (spent.libc_s * part, spent.haul_s * part);
        let cpu_without_s = cpu_s - haul_s + libc_s;
        let share = |seconds: f64| seconds / cpu_without_s;
        let is_possible = cpu_s > 0.0 && cpu_without_s > 0.0;
        is_possible.then(|| Self { without: share(libc_s), with: share(haul_s) })
    }

    pub(super) fn on(self, record: Record) -> Record {
        let rounded = |share: f64| (1e6 * share).round() / 1e6;
        record
            .with(key::COPY_SHARE, rounded(self.without))
            .with(key::COPY_SHARE_CHANGED, rounded(self.with))
    }
}

/// The shares, if the change is haul's copies and the test was not stopped. Reports why they are
/// not known; the test is valid without them.
///
/// # Errors
/// haul copies a wrong byte.
pub(super) fn measure(test: &Test<'_>, context: &mut Context<'_>) -> Result<Option<Copies>, Error> {
    let is_copy = |change: &Change| matches!(change, Change::Copy(_));
    if !test.field.changes.iter().any(is_copy) || test.rounds.is_empty() || context.is_stopped() {
        return Ok(None);
    }
    let (rounds, none) = (test.rounds.len(), Duration::ZERO);
    let progress = Progress { rounds, elapsed: none, budget: none };
    context.report_progress("once more, to count its copies", progress);
    match profiled(test, context) {
        Ok(Some((calls, cpu_s))) => {
            let costs = Costs::measure(&calls, context)?;
            Ok(costs.and_then(|costs| Copies::of(costs.of(&calls), cpu_s)))
        }
        Ok(None) => Ok(None),
        Err(reason) => {
            (context.warn)(&format!("the share of the copies is not known: {reason}"));
            Ok(None)
        }
    }
}

/// The calls of one more run of the changed program, and its processor time in seconds; `None` if
/// the test was stopped.
fn profiled(test: &Test<'_>, context: &Context<'_>) -> Result<Option<(Calls, f64)>, String> {
    let folder = Folder::new("field-copies").map_err(|reason| reason.to_string())?;
    let file = folder.path().join("profile.mapped");
    let mut command = test.commands[CHANGED].clone();
    command.set(VARIABLE.into(), file.clone().into());
    let stop = context.stop;
    let is_stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let sample = match test.field.trial(&command, &is_stopped) {
        Ok(sample) => sample,
        Err(_) if is_stopped() => return Ok(None),
        Err(Failure::Stopped) => return Ok(None),
        Err(Failure::Reason(reason)) => return Err(reason),
    };
    if !file.exists() {
        return Err("the program made no profile; it may run as another user, or under a filter \
                    of system calls"
            .into());
    }
    let bytes = read_limited(&file, layout::FILE_BYTES as u64).map_err(|it| it.to_string())?;
    let profile = Profile::parse(&bytes).map_err(|it| it.to_string())?;
    Ok(Some((Calls::of_sites(&profile.sites), sample.cpu_s)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_without_the_change() {
        // The run took 8 s, of which haul's copies took 1; libc's take 3, so that it takes 10.
        let copies = Copies::of(Spent { libc_s: 3.0, haul_s: 1.0 }, 8.0).unwrap();
        assert_eq!(copies, Copies { without: 0.3, with: 0.1 });
        assert_eq!(Copies::of(Spent::default(), 0.0), None);
        let only = Copies::of(Spent { libc_s: 9.0, haul_s: 3.0 }, 1.0).unwrap();
        assert_eq!(only, Copies { without: 1.0, with: 1.0 / 3.0 });
    }
}
