//! What each transaction did when, inside a window of cycles: for pictures, and for tests that
//! check orders.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::configuration::Cycle;

/// What a transaction is.
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

/// Where a transaction spends a span of time.
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
    /// A completion is told to the processor.
    Notify,
}

/// A transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its number: they count up.
    pub number: u32,
    /// What it is.
    pub what: What,
    /// The first byte that it concerns; of a copy, the target's.
    pub address: u64,
    /// Bytes that it concerns.
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

/// Transactions that a trace holds at most; a picture of more is no picture.
pub const TRANSACTIONS_MAX: usize = 1 << 16;

/// All transactions that were under way in a window, up to [`TRANSACTIONS_MAX`]. Memory: some
/// hundred bytes for each, and for each that is under way before the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The window.
    pub window: Range<Cycle>,
    /// The transactions, by number.
    pub transactions: Vec<Transaction>,
    /// Spans in the window of transactions beyond [`TRANSACTIONS_MAX`], which are not kept.
    pub left_out: u64,
    /// Begun and not ended, and not seen in the window so far.
    open: HashMap<u32, Transaction>,
    /// Their spans, by transaction.
    spans: HashMap<u32, Vec<Span>>,
    /// The same by where they were spent.
    rows: BTreeMap<(Stage, u8), Row>,
}

/// The spans of one stage, and of one channel where there are several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// By their beginning.
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

    /// Notes a transaction that begins at `now`, unless the window is over. It is kept once a span
    /// of it is in the window.
    pub fn begin(&mut self, now: Cycle, transaction: Transaction) {
        if now < self.window.end {
            self.open.insert(transaction.number, transaction);
        }
    }

    /// A transaction has no spans any more: if none was in the window, it is forgotten.
    pub fn end(&mut self, transaction: u32) {
        self.open.remove(&transaction);
    }

    /// Notes a span, if any of it is in the window.
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

    /// All spans, by transaction; those of one as they were noted.
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        self.transactions.iter().filter_map(|each| self.spans.get(&each.number)).flatten()
    }

    /// The spans of a transaction, in the order of time.
    #[must_use]
    pub fn of(&self, transaction: u32) -> Vec<Span> {
        let mut spans = self.spans.get(&transaction).cloned().unwrap_or_default();
        spans.sort_by_key(|span| (span.from, span.to));
        spans
    }

    /// Whom a span waited for: the transactions that memory served on its channel, or that the bus
    /// carried, meanwhile. Empty for spans that wait for nobody. Costs what its stage held then.
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
    fn only_what_is_under_way_in_the_window_is_kept() {
        let mut trace = Trace::new(1000..1010);
        // The one that will be in it began long before all others.
        trace.begin(0, transaction(0));
        for number in 1..100_000 {
            trace.begin(number.into(), transaction(number));
            trace.span(span(number, 1, 2));
            trace.end(number);
        }
        assert_eq!(trace.open.len(), 1, "what has ended is forgotten");
        trace.span(span(0, 5, 1001));
        trace.end(0);
        assert_eq!(trace.transactions, [transaction(0)]);
        assert_eq!(trace.of(0), [span(0, 5, 1001)]);
        trace.begin(1010, transaction(100_000));
        trace.span(span(100_000, 1010, 1020));
        assert_eq!((trace.transactions.len(), trace.open.len(), trace.left_out), (1, 0, 0));
    }

    #[test]
    fn a_full_trace_counts_what_it_leaves_out() {
        let mut trace = Trace::new(0..Cycle::MAX);
        let count = TRANSACTIONS_MAX as u32 + 5;
        for number in 0..count {
            trace.begin(number.into(), transaction(number));
            trace.span(span(number, number.into(), Cycle::from(number) + 2));
            trace.end(number);
        }
        assert_eq!((trace.transactions.len(), trace.left_out), (TRANSACTIONS_MAX, 5));
        assert_eq!(trace.waited_for(&span(9, 9, 11)), [8], "who held the bus when it began");
    }
}
