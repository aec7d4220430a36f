//! A window of cycles as a picture: what each instruction and each transaction did when, and whom it
//! waited for. Time goes from left to right, one letter for some cycles.

use std::ops::Range;

use haul_sim::core::trace::{PipelineTrace, Row};
use haul_sim::memory::trace::{Span, Stage, Trace, Transaction, What};

/// Columns of a row's own text, and of its remark.
const NAME_COLUMNS: usize = 34;
const REMARK_COLUMNS: usize = 44;

/// Letters of the time axis at least, and at most.
const LETTERS_MIN: usize = 40;
const LETTERS_MAX: usize = 160;

/// Rows of each part that are drawn; a picture of more is no picture.
const ROWS_MAX: usize = 80;

/// Cycles after which waiting is worth a remark.
const LONG: u64 = 20;

const LEGEND_PIPELINE: &str = "f fetched  d in the window, waits  x executes  m waits for memory  = done, waits to commit  C commits  ! dropped";
const LEGEND_MEMORY: &str = "c caches  t translated  b bus  a announced  h chipset  e engine's queue  q memory queue  M memory  d data on the bus  n notification";

/// What is drawn.
pub(super) struct Picture<'a> {
    pub(super) window: Range<u64>,
    pub(super) width: usize,
    pub(super) pipeline: &'a PipelineTrace,
    pub(super) transactions: Option<&'a Trace>,
}

impl Picture<'_> {
    /// The whole, without a last line break.
    pub(super) fn text(&self) -> String {
        let letters = self.letters();
        let Range { start, end } = self.window;
        let each = (end - start).div_ceil(letters as u64);
        let mut lines = vec![format!("cycles {start} to {end}, {each} a letter")];
        lines.push(format!("instructions: {LEGEND_PIPELINE}"));
        self.rows(&mut lines);
        if let Some(trace) = self.transactions {
            lines.push(String::new());
            lines.push(format!("transactions: {LEGEND_MEMORY}"));
            self.memory(trace, &mut lines);
        }
        lines.join("\n")
    }

    fn letters(&self) -> usize {
        let free = self.width.saturating_sub(NAME_COLUMNS + 2);
        let cycles = usize::try_from(self.window.end - self.window.start).unwrap_or(LETTERS_MAX);
        free.clamp(LETTERS_MIN, LETTERS_MAX).min(cycles.max(1))
    }

    fn rows(&self, lines: &mut Vec<String>) {
        let rows = &self.pipeline.rows;
        if rows.is_empty() {
            lines.push("  none was dispatched in this window".into());
        }
        for row in rows.iter().take(ROWS_MAX) {
            let mut axis = Axis::new(&self.window, self.letters());
            let end = [row.committed, row.squashed].into_iter().max().unwrap_or(0);
            let open = if end == 0 { self.window.end } else { end };
            let at_or = |at: u64, or: u64| if at == 0 { or } else { at };
            let issued = at_or(row.issued, open);
            let done = at_or(row.done, open);
            axis.fill(row.fetched, row.dispatched, 'f');
            axis.fill(row.dispatched, issued, 'd');
            axis.fill(issued, at_or(row.asked, done).min(done), 'x');
            if row.asked > 0 {
                axis.fill(row.asked, done, 'm');
            }
            axis.fill(done, open, '=');
            axis.mark(row.committed, 'C');
            axis.mark(row.squashed, '!');
            let name = format!("{:x} {}", row.address, row.text);
            lines.push(with_remark(&name, &axis.letters, &self.waits(row)));
        }
        let more = rows.len().saturating_sub(ROWS_MAX);
        if more > 0 {
            lines.push(format!("  and {more} more instructions: choose a shorter window"));
        }
    }

    /// Whom an instruction waited for.
    fn waits(&self, row: &Row) -> String {
        let Some(trace) = self.transactions else {
            return String::new();
        };
        let touches = |transaction: &&Transaction| {
            let (first, last) = (row.data_address, row.data_address + row.data_bytes.max(1));
            transaction.address / 64 * 64 < last
                && first < (transaction.address + transaction.bytes).next_multiple_of(64)
        };
        let under_way = |transaction: &&Transaction, from: u64, to: u64| {
            let spans = trace.of(transaction.number);
            let (first, last) = (spans.first(), spans.last());
            first.is_some_and(|span| span.from < to) && last.is_some_and(|span| span.to > from)
        };
        let find = |whats: &[What], from: u64, to: u64| {
            trace
                .transactions
                .iter()
                .filter(|each| whats.contains(&each.what) && row.data_bytes > 0)
                .find(|each| touches(each) && under_way(each, from, to))
        };
        let done = if row.done == 0 { self.window.end } else { row.done };
        if row.text.contains("ecpy") {
            return find(&[What::Copy], row.issued, done.max(row.committed))
                .map_or_else(String::new, |copy| format!("copy #{}", copy.number));
        }
        if row.asked > 0 && done > row.asked + LONG {
            let lines = [What::Load, What::Store, What::Fetch];
            if let Some(line) = find(&lines, row.asked, done) {
                return format!("waits for line #{}", line.number);
            }
        }
        let stalled = if row.asked > 0 { row.asked } else { done };
        let copy = find(&[What::Copy], row.issued, stalled);
        match copy.filter(|_| row.issued > 0 && stalled > row.issued + LONG) {
            Some(copy) => format!("stalls until copy #{} is complete", copy.number),
            None => String::new(),
        }
    }

    fn memory(&self, trace: &Trace, lines: &mut Vec<String>) {
        let shown = |transaction: &&Transaction| !trace.of(transaction.number).is_empty();
        let all: Vec<&Transaction> = trace.transactions.iter().filter(shown).collect();
        if all.is_empty() {
            lines.push("  none was under way in this window".into());
        }
        for transaction in all.iter().take(ROWS_MAX) {
            let mut axis = Axis::new(&self.window, self.letters());
            let spans = trace.of(transaction.number);
            spans.iter().for_each(|span| axis.fill(span.from, span.to, letter(span.stage)));
            let name = format!(
                "#{} {} {:#x}",
                transaction.number,
                what_name(transaction.what),
                transaction.address
            );
            lines.push(with_remark(&name, &axis.letters, &waited(trace, &spans)));
        }
        let more = all.len().saturating_sub(ROWS_MAX);
        if more > 0 {
            lines.push(format!("  and {more} more transactions: choose a shorter window"));
        }
    }
}

/// Whom a transaction waited for, by its spans.
fn waited(trace: &Trace, spans: &[Span]) -> String {
    let mut parts = Vec::new();
    for span in spans.iter().filter(|span| span.to > span.from + LONG) {
        let others = trace.waited_for(span);
        if others.is_empty() || !matches!(span.stage, Stage::Queue | Stage::Bus | Stage::Data) {
            continue;
        }
        let named: Vec<String> = others.iter().take(3).map(|other| format!("#{other}")).collect();
        let more = if others.len() > 3 { " ..." } else { "" };
        let where_ = match span.stage {
            Stage::Queue => format!("channel {}", span.channel),
            Stage::Bus => "address lines".into(),
            _ => "data lines".into(),
        };
        parts.push(format!("waits for {}{more} on {where_}", named.join(" ")));
    }
    parts.join("; ")
}

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

fn with_remark(name: &str, letters: &str, remark: &str) -> String {
    let name: String = name.chars().take(NAME_COLUMNS).collect();
    let remark: String = remark.chars().take(REMARK_COLUMNS).collect();
    format!("{name:<NAME_COLUMNS$} {letters}|{}{remark}", if remark.is_empty() { "" } else { " " })
}

/// A row of letters over a window.
struct Axis {
    window: Range<u64>,
    letters: String,
}

impl Axis {
    fn new(window: &Range<u64>, letters: usize) -> Self {
        Self { window: window.clone(), letters: " ".repeat(letters) }
    }

    fn place(&self, at: u64) -> usize {
        let Range { start, end } = self.window;
        let at = at.clamp(start, end) - start;
        let place = u128::from(at) * self.letters.len() as u128 / u128::from(end - start);
        place as usize
    }

    /// Letters from a cycle to another, at least one if any of it is inside.
    fn fill(&mut self, from: u64, to: u64, letter: char) {
        if to <= from || to <= self.window.start || from >= self.window.end {
            return;
        }
        let first = self.place(from).min(self.letters.len() - 1);
        let last = self.place(to).max(first + 1).min(self.letters.len());
        self.letters.replace_range(first..last, &letter.to_string().repeat(last - first));
    }

    fn mark(&mut self, at: u64, letter: char) {
        self.fill(at, at + u64::from(at > 0), letter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_where_their_cycles_are() {
        let mut axis = Axis::new(&(100..200), 10);
        axis.fill(120, 150, 'x');
        axis.fill(199, 900, 'y');
        axis.fill(0, 50, 'z');
        axis.mark(0, '!');
        assert_eq!(axis.letters, "  xxx    y");
    }

    #[test]
    fn whom_a_transaction_waited_for_is_said() {
        let mut trace = Trace::new(0..400);
        let read = |number| Transaction {
            number,
            what: What::EngineRead,
            address: 0,
            bytes: 64,
            copy: None,
        };
        let span = |transaction, stage, from, to| Span { transaction, stage, from, to, channel: 1 };
        trace.begin(0, read(1));
        trace.begin(0, read(2));
        trace.span(span(1, Stage::Memory, 10, 160));
        trace.span(span(2, Stage::Queue, 20, 100));
        trace.span(span(2, Stage::Memory, 100, 220));
        let picture = Picture {
            window: 0..400,
            width: 100,
            pipeline: &PipelineTrace::default(),
            transactions: Some(&trace),
        };
        let text = picture.text();
        let line = text.lines().find(|line| line.starts_with("#2")).expect("it is drawn");
        assert!(line.contains("qqq") && line.contains("waits for #1 on channel 1"), "{text}");
    }
}
