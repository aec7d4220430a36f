//! Checks whether copies, loads and stores reached memory in an order that the program allows.
//! Values cannot show this order, because they are computed in program order; the traces of
//! pipeline and memory can.

use haul_sim::Cycle;
use haul_sim::core::trace::{PipelineTrace, Row};
use haul_sim::isa::Class;
use haul_sim::memory::trace::{Trace, What};

/// A copy that retired, and the cycle of its end.
struct Copied<'a> {
    row: &'a Row,
    /// Its index among the rows.
    place: usize,
    /// The cycle in which the copy's last byte was in memory and all caches had been informed.
    complete: Cycle,
}

/// Loads and stores that accessed bytes which a copy had still to read or write, as text.
///
/// `may_pass`: whether the engine lets younger loads execute before the copy has completed.
pub(crate) fn violations(pipeline: &PipelineTrace, memory: &Trace, may_pass: bool) -> Vec<String> {
    let mut found = Vec::new();
    for copied in copies(pipeline, memory) {
        for (place, row) in pipeline.rows.iter().enumerate().skip(copied.place + 1) {
            let is_early = match row.class {
                Class::Load => {
                    let meets = overlap(row, copied.row.data_address, copied.row.data_bytes);
                    let is_early = row.asked > 0 && row.asked < copied.complete;
                    is_early && (!may_pass || meets && !has_newer_store(pipeline, &copied, place))
                }
                Class::Store => {
                    let meets = overlap(row, copied.row.data_address, copied.row.data_bytes)
                        || overlap(row, copied.row.source_address, copied.row.data_bytes);
                    row.committed > 0 && row.committed < copied.complete && (meets || !may_pass)
                }
                _ => false,
            };
            if is_early && !row.is_wrong_path {
                found.push(format!(
                    "{} at cycle {} before the copy to {:#x} was complete at {}",
                    row.text,
                    row.asked.max(row.committed),
                    copied.row.data_address,
                    copied.complete
                ));
            }
        }
    }
    found
}

/// The copies in program order, which is also the order of their numbers in memory's trace.
fn copies<'a>(pipeline: &'a PipelineTrace, memory: &Trace) -> Vec<Copied<'a>> {
    let rows = pipeline.rows.iter().enumerate();
    let retired =
        rows.filter(|(_, row)| row.class == Class::Copy && row.data_bytes > 0 && row.committed > 0);
    let transactions = memory.transactions.iter().filter(|each| each.what == What::Copy);
    let pairs: Vec<_> = retired.zip(transactions).collect();
    pairs
        .into_iter()
        .map(|((place, row), transaction)| {
            assert_eq!(
                (transaction.address, transaction.bytes),
                (row.data_address, row.data_bytes)
            );
            let spans = memory.of(transaction.number);
            let complete = spans.iter().map(|span| span.to).max().unwrap_or_default();
            assert!(row.asked < complete, "a copy takes time");
            Copied { row, place, complete }
        })
        .collect()
}

/// Whether a store between the copy and the load at `place` gave the load its value.
fn has_newer_store(pipeline: &PipelineTrace, copied: &Copied<'_>, place: usize) -> bool {
    let load = &pipeline.rows[place];
    pipeline.rows[copied.place + 1..place].iter().any(|row| {
        row.class == Class::Store
            && row.committed > 0
            && row.data_address <= load.data_address
            && row.data_address + row.data_bytes >= load.data_address + load.data_bytes
    })
}

fn overlap(row: &Row, address: u64, bytes: u64) -> bool {
    row.data_address < address + bytes && address < row.data_address + row.data_bytes
}
