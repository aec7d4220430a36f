//! A window of cycles, row by row: the actions of each instruction and each transaction with their
//! times, and what it waited for. `picture` draws the window as text; records carry it to the page,
//! which draws it too.

use std::ops::Range;

use haul_model::experiment::{key, name};
use haul_model::{Kind, Record};
use haul_sim::Outcome;
use haul_sim::core::trace::Row as Instruction;
use haul_sim::memory::trace::{Span as Stay, Stage, Trace, Transaction, What};

/// A wait of at least this number of cycles gets a remark.
const LONG: u64 = 20;

/// The largest number of rows per part in records. More rows are unreadable.
const RECORDS_MAX: usize = 400;

/// The actions of an instruction or a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// `800000a4 lw t0, 0(a1)`, or `#8216 engine read 0x80472040`.
    pub(super) name: String,
    pub(super) spans: Vec<Span>,
    /// What the instruction or transaction waited for; empty if it did not wait.
    pub(super) remark: String,
}

/// A letter for some cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) letter: char,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// All rows of a window, ordered by time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) cycles: Range<u64>,
    pub(super) instructions: Vec<Row>,
    pub(super) transactions: Vec<Row>,
    /// Whether the window holds more rows than were recorded.
    pub(super) is_full: bool,
}

impl Window {
    /// The window of a traced run on a machine with lines of this size; `None` if the run was not
    /// traced.
    pub(super) fn of(cycles: &Range<u64>, outcome: &Outcome, line_bytes: u64) -> Option<Self> {
        let pipeline = outcome.pipeline.as_ref()?;
        let trace = outcome.transactions.as_ref();
        let waiters = trace.map(|trace| Waiters::of(trace, line_bytes));
        let instruction = |row: &Instruction| {
            let name = format!("{:x} {}", row.address, row.text);
            let waited = waiters.as_ref().map(|waiters| waits(row, waiters, cycles.end));
            let remark = waited.unwrap_or_default();
            Row { name, spans: spans_of(row, cycles), remark }
        };
        Some(Self {
            cycles: cycles.clone(),
            instructions: pipeline.rows.iter().map(instruction).collect(),
            transactions: trace.map_or_else(Vec::new, |trace| transactions(trace, cycles)),
            is_full: pipeline.left_out > 0 || trace.is_some_and(|trace| trace.left_out > 0),
        })
    }

    /// One record per row, from which the page draws the picture.
    pub(super) fn records(&self) -> Vec<Record> {
        let parts = [("instruction", &self.instructions), ("transaction", &self.transactions)];
        let mut records = Vec::new();
        for (part, rows) in parts {
            for (order, row) in rows.iter().take(RECORDS_MAX).enumerate() {
                let mut record = self.record(part, order, row);
                if order == 0 && rows.len() > RECORDS_MAX {
                    record = record.with(key::LEFT_OUT, rows.len() - RECORDS_MAX);
                }
                records.push(record);
            }
        }
        records
    }

    fn record(&self, part: &str, order: usize, row: &Row) -> Record {
        let spans: Vec<String> =
            row.spans.iter().map(|s| format!("{} {}..{}", s.letter, s.from, s.to)).collect();
        let mut record = Record::new("", name::SIM_TRACE, "haul", part, "cycles")
            .with(key::FROM_CYCLE, self.cycles.start)
            .with(key::TO_CYCLE, self.cycles.end)
            .with(key::ORDER, order)
            .with(key::ROW, row.name.clone())
            .with(key::SPANS, spans.join(", "))
            .with(key::WAITS, row.remark.clone());
        let (from, to) = (row.spans.first(), row.spans.last());
        record.samples = vec![to.map_or(0, |to| to.to - from.map_or(0, |from| from.from)) as f64];
        record.kind = Kind::Modelled;
        record
    }
}

/// A span, if a part of it is in the window.
fn span(letter: char, from: u64, to: u64, window: &Range<u64>) -> Option<Span> {
    let is_inside = from < to && to > window.start && from < window.end;
    is_inside.then_some(Span { letter, from, to })
}

fn spans_of(row: &Instruction, window: &Range<u64>) -> Vec<Span> {
    let end = row.committed.max(row.squashed);
    let or = |at: u64, or: u64| if at == 0 { or } else { at };
    let open = or(end, window.end);
    let (issued, done) = (or(row.issued, open), or(row.done, open));
    let asked = or(row.asked, done).min(done);
    let mark = |at: u64| (at, at + u64::from(at > 0));
    [
        ('f', (row.fetched, row.dispatched)),
        ('d', (row.dispatched, issued)),
        ('x', (issued, asked)),
        ('m', (asked, done)),
        ('=', (done, open)),
        ('C', mark(row.committed)),
        ('!', mark(row.squashed)),
    ]
    .into_iter()
    .filter_map(|(letter, (from, to))| span(letter, from, to, window))
    .collect()
}

/// Lifetime of a transaction that an instruction may wait for, and the bytes of its lines.
#[derive(Clone, Debug)]
struct Stretch {
    number: u32,
    from: u64,
    to: u64,
    bytes: Range<u64>,
    /// The latest end of this and all earlier stretches, at which a backward search may stop.
    latest: u64,
}

/// Transactions that instructions wait for: lines and copies, each ordered by their start.
struct Waiters {
    lines: Vec<Stretch>,
    copies: Vec<Stretch>,
}

impl Waiters {
    fn of(trace: &Trace, line_bytes: u64) -> Self {
        let stretches = |whats: &[What]| {
            let of_kind = trace.transactions.iter().filter(|each| whats.contains(&each.what));
            let mut stretches: Vec<Stretch> = of_kind
                .filter_map(|each| stretch(each, &trace.of(each.number), line_bytes))
                .collect();
            stretches.sort_by_key(|stretch| (stretch.from, stretch.number));
            let mut latest = 0;
            for stretch in &mut stretches {
                latest = stretch.to.max(latest);
                stretch.latest = latest;
            }
            stretches
        };
        Self {
            lines: stretches(&[What::Load, What::Store, What::Fetch]),
            copies: stretches(&[What::Copy]),
        }
    }
}

fn stretch(transaction: &Transaction, spans: &[Stay], line_bytes: u64) -> Option<Stretch> {
    let (number, address) = (transaction.number, transaction.address);
    let end = (address + transaction.bytes).next_multiple_of(line_bytes);
    let (from, to) = (spans.first()?.from, spans.last()?.to);
    Some(Stretch { number, from, to, bytes: address / line_bytes * line_bytes..end, latest: 0 })
}

/// The first transaction that touches the instruction's data and was active in these cycles.
fn find(stretches: &[Stretch], row: &Instruction, from: u64, to: u64) -> Option<u32> {
    let (first, end) = (row.data_address, row.data_address + row.data_bytes);
    let begun = stretches.partition_point(|stretch| stretch.from < to);
    stretches[..begun]
        .iter()
        .rev()
        .take_while(|stretch| stretch.latest > from)
        .filter(|each| each.to > from && each.bytes.start < end && first < each.bytes.end)
        .map(|each| each.number)
        .min()
        .filter(|_| row.data_bytes > 0)
}

/// What an instruction waited for.
fn waits(row: &Instruction, waiters: &Waiters, window_end: u64) -> String {
    let done = if row.done == 0 { window_end } else { row.done };
    if row.text.contains("ecpy") {
        return find(&waiters.copies, row, row.issued, done.max(row.committed))
            .map_or_else(String::new, |copy| format!("copy #{copy}"));
    }
    if row.asked > 0
        && done > row.asked + LONG
        && let Some(line) = find(&waiters.lines, row, row.asked, done)
    {
        return format!("waits for line #{line}");
    }
    let stalled = if row.asked > 0 { row.asked } else { done };
    if row.issued == 0 || stalled <= row.issued + LONG {
        return String::new();
    }
    find(&waiters.copies, row, row.issued, stalled)
        .map_or_else(String::new, |copy| format!("stalls until copy #{copy} is complete"))
}

fn transactions(trace: &Trace, window: &Range<u64>) -> Vec<Row> {
    let row = |transaction: &Transaction| {
        let stays = trace.of(transaction.number);
        let spans: Vec<Span> = stays
            .iter()
            .filter_map(|stay| span(letter(stay.stage), stay.from, stay.to, window))
            .collect();
        let Transaction { number, what, address, .. } = *transaction;
        let name = format!("#{number} {} {address:#x}", what_name(what));
        (!spans.is_empty()).then(|| Row { name, spans, remark: waited(trace, &stays) })
    };
    trace.transactions.iter().filter_map(row).collect()
}

/// What a transaction waited for, by its stage.
fn waited(trace: &Trace, stays: &[Stay]) -> String {
    let mut parts = Vec::new();
    for stay in stays.iter().filter(|stay| stay.to > stay.from + LONG) {
        let others = trace.waited_for(stay);
        if others.is_empty() || !matches!(stay.stage, Stage::Queue | Stage::Bus | Stage::Data) {
            continue;
        }
        let named: Vec<String> = others.iter().take(3).map(|other| format!("#{other}")).collect();
        let more = if others.len() > 3 { " ..." } else { "" };
        let place = match stay.stage {
            Stage::Queue => format!("channel {}", stay.channel),
            Stage::Bus => "address lines".into(),
            _ => "data lines".into(),
        };
        parts.push(format!("waits for {}{more} on {place}", named.join(" ")));
    }
    parts.join("; ")
}

/// Letters of the stages, as `picture` and the page explain them.
fn letter(stage: Stage) -> char {
    match stage {
        Stage::Caches => 'c',
        Stage::Control => 't',
        Stage::Bus => 'b',
        Stage::Announce => 'a',
        Stage::Chipset => 'h',
        Stage::Engine => 'e',
        Stage::Queue => 'q',
        Stage::Memory => 'M',
        Stage::Data => 'd',
        Stage::Notify => 'n',
    }
}

fn what_name(what: What) -> &'static str {
    match what {
        What::Fetch => "fetch",
        What::Load => "load",
        What::Store => "store",
        What::WriteBack => "write-back",
        What::Copy => "copy to",
        What::EngineRead => "engine read",
        What::EngineWrite => "engine write",
        What::Device => "device write",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remark_names_transaction_waited_for() {
        let mut trace = Trace::new(0..400);
        let read = |number| {
            let what = What::EngineRead;
            Transaction { number, what, address: 0, bytes: 64, copy: None }
        };
        let stay = |transaction, stage, from, to| Stay { transaction, stage, from, to, channel: 1 };
        trace.begin(0, read(1));
        trace.begin(0, read(2));
        trace.begin(0, read(3));
        trace.span(stay(1, Stage::Memory, 10, 160));
        trace.span(stay(2, Stage::Queue, 20, 100));
        trace.span(stay(2, Stage::Memory, 100, 220));
        let rows = transactions(&trace, &(0..400));
        assert_eq!(rows.len(), 2, "an inactive transaction has no row: {rows:?}");
        assert_eq!(rows[1].name, "#2 engine read 0x0");
        assert_eq!(rows[1].spans[0], Span { letter: 'q', from: 20, to: 100 });
        assert_eq!(rows[1].remark, "waits for #1 on channel 1");
    }

    #[test]
    fn instruction_waits_for_holder_of_its_line_of_any_size() {
        let mut trace = Trace::new(0..4000);
        let copy = Transaction { number: 7, what: What::Copy, address: 300, bytes: 8, copy: None };
        trace.begin(0, copy);
        trace.span(Stay { transaction: 7, stage: Stage::Engine, from: 0, to: 3000, channel: 0 });
        let row = Instruction {
            address: 0,
            text: "ld".into(),
            class: haul_sim::isa::Class::Load,
            is_wrong_path: false,
            data_address: 130,
            source_address: 0,
            data_bytes: 8,
            fetched: 1,
            dispatched: 2,
            issued: 3,
            asked: 3000,
            done: 3002,
            committed: 3003,
            squashed: 0,
        };
        let remark = |line_bytes| waits(&row, &Waiters::of(&trace, line_bytes), 4000);
        assert_eq!(remark(256), "", "another line");
        assert_eq!(remark(512), "stalls until copy #7 is complete");
    }

    #[test]
    fn records_have_rows_up_to_limit() {
        let row = |name: usize| Row {
            name: name.to_string(),
            spans: vec![Span { letter: 'x', from: 3, to: 7 }],
            remark: String::new(),
        };
        let window = Window {
            cycles: 0..10,
            instructions: (0..RECORDS_MAX + 5).map(row).collect(),
            transactions: vec![row(0)],
            is_full: false,
        };
        let records = window.records();
        assert_eq!(records.len(), RECORDS_MAX + 1);
        assert_eq!(records[0].parameters["left_out"], 5);
        assert_eq!(records[RECORDS_MAX].parameters["spans"], "x 3..7");
        assert_eq!(
            (records[0].samples[0], records[RECORDS_MAX].metric.as_str()),
            (4.0, "transaction")
        );
    }
}
