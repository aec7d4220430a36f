//! The stages of each transaction in a window of cycles: for pictures, and for tests that check
//! orders.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::configuration::Cycle;

/// The kind of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A line read for a fetch.
    Fetch,
    /// A line read for a load.
    Load,
    /// A line read for a store.
    Store,
    /// A dirty line written to memory.
    WriteBack,
    /// A copy, from `ecpy` to its final completion.
    Copy,
    /// An engine's read of a line.
    EngineRead,
    /// An engine's write of a line.
    EngineWrite,
    /// A device's write of a line.
    Device,
}

/// A stage in which a transaction spends time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Looked up in the caches.
    Caches,
    /// Translated and split by the copy control unit.
    Control,
    /// Waits for the bus, or holds its address lines.
    Bus,
    /// Announced to all caches by a multi-line snoop.
    Announce,
    /// Passes through the chipset.
    Chipset,
    /// Waits in the engine's queue.
    Engine,
    /// Waits in the controller's queue.
    Queue,
    /// Memory opens the row and moves the data.
    Memory,
    /// Waits for the bus's data lines, or holds them.
    Data,
    /// Notifies the processor of a completion.
    Notify,
}

/// A transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The transaction's number. Numbers count up.
    pub number: u32,
    /// The kind of transaction.
    pub what: What,
    /// The first byte that the transaction reads or writes; for a copy, of the target.
    pub address: u64,
    /// The number of bytes that the transaction reads or writes.
    pub bytes: u64,
    /// The number of the copy that an engine reads or writes for.
    pub copy: Option<u32>,
}

/// A span of time that a transaction spent in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The transaction's number.
    pub transaction: u32,
    /// The stage.
    pub stage: Stage,
    /// From this cycle.
    pub from: Cycle,
    /// To this cycle.
    pub to: Cycle,
    /// Which channel, in [`Stage::Queue`] and [`Stage::Memory`]; 0 elsewhere.
    pub channel: u8,
}

/// The limit of transactions of a trace. A picture of more transactions would not be readable.
pub const TRANSACTIONS_MAX: usize = 1 << 16;

/// All transactions that were under way in a window, up to [`TRANSACTIONS_MAX`]. Needs some
/// hundred bytes of memory for each of these transactions, and for each that is under way before
/// the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The window.
    pub window: Range<Cycle>,
    /// The transactions, by number.
    pub transactions: Vec<Transaction>,
    /// The number of spans in the window of transactions beyond [`TRANSACTIONS_MAX`], which are
    /// not kept.
    pub left_out: u64,
    /// Transactions that have begun and not ended, and have had no span in the window so far.
    open: HashMap<u32, Transaction>,
    /// The spans of [`Self::transactions`], by transaction.
    spans: HashMap<u32, Vec<Span>>,
    /// The same spans by stage and channel.
    rows: BTreeMap<(Stage, u8), Row>,
}

/// The spans of one stage, and of one channel if there are several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// Sorted by their beginning.
    spans: Vec<Span>,
    longest: Cycle,
}

impl Trace {
    /// An empty trace of a window.
    #[must_use]
    pub fn new(window: Range<Cycle>) -> Self {
        Self {
            window,
            transactions: Vec::new(),
            left_out: 0,
            open: HashMap::new(),
            spans: HashMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// Records a transaction that begins at `now`, unless the window is over. The trace keeps it
    /// once one of its spans is in the window.
    pub fn begin(&mut self, now: Cycle, transaction: Transaction) {
        if now < self.window.end {
            self.open.insert(transaction.number, transaction);
        }
    }

    /// Ends a transaction: no more spans follow. If none of its spans was in the window, it is
    /// dropped.
    pub fn end(&mut self, transaction: u32) {
        self.open.remove(&transaction);
    }

    /// Records a span, if it overlaps the window.
    pub fn span(&mut self, span: Span) {
        let is_inside = span.from < self.window.end && span.to > self.window.start;
        if !is_inside || span.from > span.to {
            return;
        }
        if self.transactions.len() < TRANSACTIONS_MAX
            && let Some(transaction) = self.open.remove(&span.transaction)
        {
            let place = self.transactions.partition_point(|each| each.number < span.transaction);
            self.transactions.insert(place, transaction);
            self.spans.insert(span.transaction, Vec::new());
        }
        let Some(spans) = self.spans.get_mut(&span.transaction) else {
            self.left_out += 1;
            return;
        };
        spans.push(span);
        let row = self.rows.entry((span.stage, span.channel)).or_default();
        let place = row.spans.partition_point(|each| each.from <= span.from);
        row.spans.insert(place, span);
        row.longest = row.longest.max(span.to - span.from);
    }

    /// All spans, by transaction. The spans of a transaction are in the order of recording.
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        self.transactions.iter().filter_map(|each| self.spans.get(&each.number)).flatten()
    }

    /// The spans of a transaction, sorted by time.
    #[must_use]
    pub fn of(&self, transaction: u32) -> Vec<Span> {
        let mut spans = self.spans.get(&transaction).cloned().unwrap_or_default();
        spans.sort_by_key(|span| (span.from, span.to));
        spans
    }

    /// The transactions for which a span waited: the transactions that memory served on the
    /// span's channel, or that the bus carried, during the span. Empty for a stage that waits for
    /// no other transaction. The cost is proportional to the spans of the stage at that time.
    #[must_use]
    pub fn waited_for(&self, span: &Span) -> Vec<u32> {
        let holder = match span.stage {
            Stage::Queue => Stage::Memory,
            Stage::Data => Stage::Data,
            Stage::Bus => Stage::Bus,
            _ => return Vec::new(),
        };
        let Some(row) = self.rows.get(&(holder, span.channel)) else {
            return Vec::new();
        };
        let earliest = span.from.saturating_sub(row.longest);
        let first = row.spans.partition_point(|other| other.from < earliest);
        let end = row.spans.partition_point(|other| other.from < span.to);
        let held = |other: &&Span| {
            other.transaction != span.transaction
                && other.to > span.from
                && (holder == Stage::Memory || other.from <= span.from)
        };
        row.spans[first..end].iter().filter(held).map(|other| other.transaction).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction(number: u32) -> Transaction {
        Transaction { number, what: What::Load, address: 0, bytes: 64, copy: None }
    }

    fn span(transaction: u32, from: Cycle, to: Cycle) -> Span {
        Span { transaction, stage: Stage::Bus, from, to, channel: 0 }
    }

    #[test]
    fn trace_keeps_only_transactions_with_spans_in_the_window() {
        let mut trace = Trace::new(1000..1010);
        // The only transaction with a span in the window begins long before all others.
        trace.begin(0, transaction(0));
        for number in 1..100_000 {
            trace.begin(number.into(), transaction(number));
            trace.span(span(number, 1, 2));
            trace.end(number);
        }
        assert_eq!(trace.open.len(), 1, "an ended transaction is dropped");
        trace.span(span(0, 5, 1001));
        trace.end(0);
        assert_eq!(trace.transactions, [transaction(0)]);
        assert_eq!(trace.of(0), [span(0, 5, 1001)]);
        trace.begin(1010, transaction(100_000));
        trace.span(span(100_000, 1010, 1020));
        assert_eq!((trace.transactions.len(), trace.open.len(), trace.left_out), (1, 0, 0));
    }

    #[test]
    fn full_trace_counts_left_out_spans() {
        let mut trace = Trace::new(0..Cycle::MAX);
        let count = TRANSACTIONS_MAX as u32 + 5;
        for number in 0..count {
            trace.begin(number.into(), transaction(number));
            trace.span(span(number, number.into(), Cycle::from(number) + 2));
            trace.end(number);
        }
        assert_eq!((trace.transactions.len(), trace.left_out), (TRANSACTIONS_MAX, 5));
        assert_eq!(trace.waited_for(&span(9, 9, 11)), [8], "the holder of the bus when it began");
    }
}
