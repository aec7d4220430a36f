//! The time of a program's calls, as parameters of its records.

use haul_experiments::Context;
use haul_experiments::copy::cost::Costs;
use haul_measure::Caches;
use haul_model::Record;
use haul_model::experiment::key;
use haul_model::profile::Calls;

use crate::command::this_machine;
use crate::error::Error;
use crate::stop::STOP;

/// The records of one profile, with the time of their calls and of the program as far as they are
/// known. After Ctrl-C nothing is measured, so that the records have no times.
///
/// # Errors
/// The calls cannot be measured.
pub(super) fn on(records: Vec<Record>, cpu_s: Option<f64>) -> Result<Vec<Record>, Error> {
    let Some(all) = records.first().and_then(Calls::of) else { return Ok(records) };
    let mut context = Context {
        run: String::new(),
        machine: String::new(),
        stop: &STOP,
        caches: Caches::from_sizes(&this_machine().caches_bytes),
        cpus: Vec::new(),
        sink: &mut |_| (),
        progress: &mut |_| (),
        warn: &mut |_| (),
    };
    let costs = Costs::measure(&all, &mut context)?;
    let rounded = |seconds: f64| (seconds * 1e9).round() / 1e9;
    let with_time = |record: Record| {
        let Some((costs, calls)) = costs.as_ref().zip(Calls::of(&record)) else { return record };
        let spent = costs.of(&calls);
        record.with(key::LIBC_S, rounded(spent.libc_s)).with(key::HAUL_S, rounded(spent.haul_s))
    };
    let mut records: Vec<Record> = records.into_iter().map(with_time).collect();
    if let Some((first, cpu_s)) = records.first_mut().zip(cpu_s) {
        first.parameters.insert(key::PROGRAM_CPU_S.into(), rounded(cpu_s).into());
    }
    Ok(records)
}
