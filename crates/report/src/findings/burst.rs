//! The bursts of a running program, and the free capacity of the link.

use haul_model::Record;
use haul_model::experiment::{key, name};
use haul_model::units::three_digits;

use super::{Finding, Tone, finding};
use crate::select::field;

/// A sentence for each queue and direction of the newest run, whose records come first.
pub(super) fn bursts(run: &[&Record]) -> Vec<Finding> {
    let of = |record: &&&Record| {
        record.experiment == name::PCIE_BURST
            && record.metric == "packets"
            && record.parameters.contains_key(key::QUEUE)
    };
    let queues: Vec<&Record> = run.iter().filter(of).copied().collect();
    let Some(first) = queues.first().map(|record| record.run.clone()) else { return Vec::new() };
    let newest = queues.into_iter().filter(|record| record.run == first);
    newest.filter_map(of_queue).collect()
}

fn of_queue(record: &Record) -> Option<Finding> {
    let said = |name: &str| field(record, name);
    let rate = record.median()?;
    let (polls, empty) = (record.number(key::POLLS)?, record.number(key::EMPTY_POLLS)?);
    let verb = if said(key::DIRECTION)? == "rx" { "received" } else { "sent" };
    let mut text = format!(
        "Port {} ({}), queue {}: {verb} {} M packets/s",
        said(key::PORT)?,
        said(key::DEVICE)?,
        said(key::QUEUE)?,
        three_digits(rate / 1e6)
    );
    if let Some(batch) = record.number(key::AVERAGE_BATCH) {
        text += &format!(" in bursts of {} on average", three_digits(batch));
    }
    if polls > 0.0 {
        text += &format!(", {}% of them empty", three_digits(empty / polls * 100.0));
    }
    Some(finding(name::PCIE_BURST, Tone::Fact, text + "."))
}
