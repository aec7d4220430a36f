//! What each transaction did when, inside a window of cycles: for pictures, and for tests that
//! check orders.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// All transactions that were under way in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The window.
    pub window: Range<Cycle>,
    /// The transactions, by number.
    pub transactions: Vec<Transaction>,
    /// Their spans, in no order.
    pub spans: Vec<Span>,
}

impl Trace {
    /// An empty trace of a window.
    #[must_use]
    pub fn new(window: Range<Cycle>) -> Self {
        Self { window, transactions: Vec::new(), spans: Vec::new() }
    }

    /// Notes a transaction that begins at `now`, unless the window is over.
    pub fn begin(&mut self, now: Cycle, transaction: Transaction) {
        if now < self.window.end {
            self.transactions.push(transaction);
        }
    }

    /// Notes a span, if any of it is in the window.
    pub fn span(&mut self, span: Span) {
        if span.from < self.window.end && span.to >= self.window.start && span.from <= span.to {
            self.spans.push(span);
        }
    }

    /// The spans of a transaction, in the order of time.
    #[must_use]
    pub fn of(&self, transaction: u32) -> Vec<Span> {
        let mut spans: Vec<Span> =
            self.spans.iter().filter(|span| span.transaction == transaction).copied().collect();
        spans.sort_by_key(|span| (span.from, span.to));
        spans
    }

    /// Whom a span waited for: the transactions that memory served on its channel, or that the bus
    /// carried, meanwhile. Empty for spans that wait for nobody.
    #[must_use]
    pub fn waited_for(&self, span: &Span) -> Vec<u32> {
        let holder = match span.stage {
            Stage::Queue => Stage::Memory,
            Stage::Data => Stage::Data,
            Stage::Bus => Stage::Bus,
            _ => return Vec::new(),
        };
        let held = |other: &&Span| {
            other.stage == holder
                && other.transaction != span.transaction
                && other.channel == span.channel
                && other.from < span.to
                && other.to > span.from
                && (holder == Stage::Memory || other.from <= span.from)
        };
        let mut holders: Vec<&Span> = self.spans.iter().filter(held).collect();
        holders.sort_by_key(|other| other.from);
        holders.iter().map(|other| other.transaction).collect()
    }
}
