//! `haul heap info`: shows what a trace holds.

use std::collections::BTreeMap;

use haul_experiments::heap::Trace;
use haul_experiments::heap::trace::live_bytes;
use haul_model::experiment::{key, name};
use haul_model::statistics::quantile_of_sorted;
use haul_model::trace::{History, Kind};
use haul_model::{Bytes, Nanos, Record};

use super::replay::read;
use crate::arguments::heap::Info as Arguments;
use crate::command::{self, Command};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

pub(super) struct Info {
    trace: Trace,
    json: bool,
}

/// Counts over a trace's operations.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    allocations: u64,
    zeroed: u64,
    reallocations: u64,
    frees: u64,
    /// Requested sizes in bytes, in ascending order.
    sizes: Vec<f64>,
    /// Allocations that requested a larger alignment than malloc's default.
    aligned: u64,
    by_tag: BTreeMap<u16, u64>,
    /// Bytes live at the end.
    live_bytes: u64,
}

/// Default alignment of malloc, in powers of two.
const DEFAULT_ALIGN_LOG2: u8 = 4;

impl Info {
    /// Reads the trace.
    ///
    /// # Errors
    /// The trace cannot be read, is not a trace, or is too long.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        Ok(Self { trace: read(&arguments.trace, &arguments.reading)?, json: arguments.json })
    }

    fn text(&self) -> String {
        let (header, history) = (&self.trace.header, &self.trace.history);
        let counts = Counts::of(history);
        let last_ns = history.operations.last().map_or(0, |last| last.time_ns);
        let threads = match history.threads.len() {
            1 => "1 thread".to_owned(),
            several => format!("{several} threads"),
        };
        let mut lines = vec![
            ("program", format!("{}, process {}", header.program_name(), header.process)),
            ("time", format!("{} in {threads}", Nanos(last_ns as f64))),
            (
                "calls",
                format!(
                    "{}: {} allocations ({} zeroed), {} reallocations, {} frees",
                    history.operations.len(),
                    counts.allocations,
                    counts.zeroed,
                    counts.reallocations,
                    counts.frees
                ),
            ),
            (
                "live",
                format!(
                    "at most {} in {} blocks; at the end {} in {}",
                    Bytes(history.peak_bytes).approximate(),
                    history.blocks,
                    Bytes(counts.live_bytes).approximate(),
                    history.live
                ),
            ),
            ("sizes", counts.sizes_text()),
            ("alignment", format!("{} asked for more than 16 B", counts.aligned)),
        ];
        let tags = self.tags(&counts);
        if !tags.is_empty() {
            lines.push(("tags", tags));
        }
        lines.extend(self.trace.remarks().into_iter().map(|remark| ("note", remark)));
        let lines: Vec<String> =
            lines.into_iter().map(|(name, text)| format!("{name:<10} {text}")).collect();
        lines.join("\n")
    }

    /// The ten tags with the most allocations.
    fn tags(&self, counts: &Counts) -> String {
        const SHOWN: usize = 10;
        let mut tags: Vec<(u64, u16)> =
            counts.by_tag.iter().map(|(tag, count)| (*count, *tag)).filter(|t| t.1 > 0).collect();
        tags.sort_unstable_by(|a, b| b.cmp(a));
        let name = |tag: u16| self.trace.history.tags.get(usize::from(tag)).cloned();
        let shown = tags.iter().take(SHOWN).filter_map(|(count, tag)| {
            Some(format!("{} {count}", name(*tag)?.replace(|c: char| c.is_control(), "?")))
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    fn records(&self) -> Vec<Record> {
        let history = &self.trace.history;
        let counts = Counts::of(history);
        let figures = [
            ("allocations", "count", counts.allocations),
            ("reallocations", "count", counts.reallocations),
            ("frees", "count", counts.frees),
            ("live_peak", "B", history.peak_bytes),
            ("live_at_end", "B", counts.live_bytes),
            ("size_p50", "B", counts.quantile(0.5)),
            ("size_p99", "B", counts.quantile(0.99)),
            ("lost", "count", history.oddities.lost),
        ];
        let record = |(metric, unit, value): (&str, &str, u64)| {
            let mut record = Record::new("", name::HEAP_TRACE, "program", metric, unit)
                .with(key::TRACE, self.trace.name())
                .with(key::PROGRAM, self.trace.header.program_name())
                .with(key::THREADS_RECORDED, history.threads.len());
            record.samples = vec![value as f64];
            record
        };
        figures.into_iter().map(record).collect()
    }
}

impl Command for Info {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        if !self.json {
            return Ok(());
        }
        command::record(name::HEAP_TRACE, self.records(), journal)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if self.json { Ok(()) } else { terminal::print(&self.text()) }
    }
}

impl Counts {
    fn of(history: &History) -> Self {
        let live_bytes = live_bytes(history).last().unwrap_or(0);
        let mut counts = Self { live_bytes, ..Self::default() };
        for operation in &history.operations {
            match operation.kind {
                Kind::Free => counts.frees += 1,
                Kind::Reallocate => counts.reallocations += 1,
                Kind::Allocate | Kind::AllocateZeroed => {
                    counts.allocations += 1;
                    counts.zeroed += u64::from(operation.kind == Kind::AllocateZeroed);
                    *counts.by_tag.entry(operation.tag).or_default() += 1;
                    counts.aligned += u64::from(operation.align_log2 > DEFAULT_ALIGN_LOG2);
                }
            }
            if operation.kind != Kind::Free {
                counts.sizes.push(operation.size as f64);
            }
        }
        counts.sizes.sort_unstable_by(f64::total_cmp);
        counts
    }

    fn quantile(&self, share: f64) -> u64 {
        quantile_of_sorted(&self.sizes, share).map_or(0, |bytes| bytes.round() as u64)
    }

    /// `half up to 64 B, 90% up to 1 KiB, ...`.
    fn sizes_text(&self) -> String {
        let up_to = |share| Bytes(self.quantile(share));
        format!(
            "half up to {}, 90% up to {}, 99% up to {}, the largest {}",
            up_to(0.5),
            up_to(0.9),
            up_to(0.99),
            up_to(1.0)
        )
    }
}

#[cfg(test)]
mod tests {
    use haul_model::trace::Operation;

    use super::*;

    #[test]
    fn counts_cover_calls_and_quantiles_of_sizes() {
        let operation = |kind, size, align_log2| Operation {
            time_ns: 0,
            size,
            block: 0,
            took_ns: 0,
            thread: 0,
            tag: 0,
            align_log2,
            kind,
        };
        let operations = vec![
            operation(Kind::Allocate, 64, 0),
            operation(Kind::AllocateZeroed, 4096, 12),
            operation(Kind::Reallocate, 128, 0),
            operation(Kind::Allocate, 192, 0),
            operation(Kind::Free, 128, 0),
        ];
        let counts = Counts::of(&History { operations, blocks: 1, ..History::default() });
        let counted = (counts.allocations, counts.zeroed, counts.reallocations, counts.frees);
        assert_eq!(counted, (3, 1, 1, 1));
        assert_eq!((counts.aligned, counts.quantile(0.5), counts.quantile(1.0)), (1, 160, 4096));
    }
}
