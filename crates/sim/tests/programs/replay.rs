//! Replays the values of a run in the order of time instead of program order: stores as they
//! commit, engines' reads and writes line by line as memory or a cache serves them. The values that
//! loads find, and the memory at the end, must be those of the interpreter.
//!
//! Caches and memory count as one here; [`stale`] distinguishes them.

use std::collections::HashMap;

use haul_sim::core::trace::{PipelineTrace, Row};
use haul_sim::isa::Class;
use haul_sim::memory::trace::{Stage, Trace, Transaction, What};
use haul_sim::{Cycle, Image, Interpreter, Traffic};

use crate::generate::{DATA_BYTES, START, data_offset};

/// Pages at which copies are split.
const PAGE: u64 = 4096;

/// A timed access to memory.
enum Event {
    Store { address: u64, value: Vec<u8> },
    Read { line: u64, place: usize },
    Write { line: u64, place: usize },
    Load { address: u64, value: Vec<u8>, text: String },
}

/// A part of a copy inside one page of source and target, and the lines that were read for it.
struct Piece {
    /// The index of the copy in the program.
    copy: usize,
    source: u64,
    target: u64,
    bytes: u64,
    lines: HashMap<u64, Vec<u8>>,
}

/// The errors of a run of `image` whose copies work on lines of `line_bytes`.
pub(crate) fn wrong_values(
    image: &Image,
    line_bytes: u64,
    pipeline: &PipelineTrace,
    memory: &Trace,
) -> Vec<String> {
    let rows: Vec<&Row> = pipeline.rows.iter().filter(|row| !row.is_wrong_path).collect();
    let (mut events, machine) = of_processor(image, &rows);
    let mut pieces = pieces(&rows);
    events.extend(of_engines(&pieces, line_bytes, memory));
    events.sort_by_key(|(at, rank, _)| (*at, *rank));
    let mut data = Data::new(image, line_bytes);
    let mut found = Vec::new();
    for (at, _, event) in events {
        found.extend(data.happen(at, event, &mut pieces));
    }
    let wanted = machine.memory.read(data.start, data.bytes.len() as u64);
    if wanted != Some(data.bytes.as_slice()) {
        found.push("memory at the end differs from the interpreter's".into());
    }
    found
}

/// The loads and stores with their values, from the interpreter, and the machine at the program's
/// end.
fn of_processor(image: &Image, rows: &[&Row]) -> (Vec<(Cycle, u32, Event)>, Interpreter) {
    let mut machine = Interpreter::new(image, &[], Traffic::default()).expect("no traffic");
    let mut events = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let (address, bytes) = (row.data_address, row.data_bytes);
        let index = image.index_of(row.address);
        let value = |machine: &Interpreter| machine.memory.read(address, bytes).map(<[u8]>::to_vec);
        let before = value(&machine);
        assert!(machine.execute(image, index).is_ok(), "it has run before");
        match row.class {
            Class::Store => {
                let value = value(&machine).expect("it was just written");
                events.push((row.committed, 0, Event::Store { address, value }));
            }
            Class::Load if !is_forwarded(row, &rows[..place]) => {
                let (value, text) = (before.expect("it was just read"), row.text.clone());
                events.push((row.asked, 3, Event::Load { address, value, text }));
            }
            _ => {}
        }
    }
    (events, machine)
}

/// Whether a load got its value from an older store that had not committed, and not from memory.
fn is_forwarded(load: &Row, older: &[&Row]) -> bool {
    let (low, high) = (load.data_address, load.data_address + load.data_bytes);
    older.iter().any(|row| {
        row.class == Class::Store
            && row.committed > load.asked
            && row.data_address < high
            && low < row.data_address + row.data_bytes
    })
}

/// The pieces of all copies, in program order.
fn pieces(rows: &[&Row]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let is_copy = |row: &&&Row| row.class == Class::Copy && row.data_bytes > 0;
    for (copy, row) in rows.iter().filter(is_copy).enumerate() {
        let mut done = 0;
        while done < row.data_bytes {
            let (source, target) = (row.source_address + done, row.data_address + done);
            let room = (PAGE - source % PAGE).min(PAGE - target % PAGE);
            let bytes = room.min(row.data_bytes - done);
            pieces.push(Piece { copy, source, target, bytes, lines: HashMap::new() });
            done += bytes;
        }
    }
    pieces
}

/// The reads and writes of engines. The accesses of one copy to one line belong to the pieces
/// that need the line, in order.
fn of_engines(pieces: &[Piece], line_bytes: u64, memory: &Trace) -> Vec<(Cycle, u32, Event)> {
    let mut transactions: HashMap<(What, u32, u64), Vec<&Transaction>> = HashMap::new();
    for transaction in memory.transactions.iter().rev() {
        if let Some(copy) = transaction.copy {
            let key = (transaction.what, copy, transaction.address / line_bytes);
            transactions.entry(key).or_default().push(transaction);
        }
    }
    let copies = memory.transactions.iter().filter(|each| each.what == What::Copy);
    let copies: Vec<u32> = copies.map(|each| each.number).collect();
    let served = served(memory);
    let mut events = Vec::new();
    for (place, piece) in pieces.iter().enumerate() {
        let mut at = |what, line| {
            let of_line = transactions.get_mut(&(what, copies[piece.copy], line));
            let next = of_line.and_then(Vec::pop).expect("each line is read and written");
            served[&next.number]
        };
        for line in lines_read(piece, line_bytes) {
            events.push((at(What::EngineRead, line), 1, Event::Read { line, place }));
        }
        for line in piece.target / line_bytes..(piece.target + piece.bytes).div_ceil(line_bytes) {
            events.push((at(What::EngineWrite, line), 2, Event::Write { line, place }));
        }
    }
    let left = transactions.values().map(Vec::len).sum::<usize>();
    assert_eq!(left, 0, "engines access only the lines that copies need");
    events
}

/// When each transaction was served, by memory or by a cache.
fn served(memory: &Trace) -> HashMap<u32, Cycle> {
    let mut served = HashMap::new();
    for span in memory.spans() {
        if matches!(span.stage, Stage::Caches | Stage::Data) {
            served.entry(span.transaction).or_insert(span.from);
        }
    }
    for span in memory.spans().filter(|span| span.stage == Stage::Memory) {
        served.insert(span.transaction, span.from);
    }
    served
}

/// The lines of the source, and the partial lines of the target.
fn lines_read(piece: &Piece, line_bytes: u64) -> Vec<u64> {
    let (first, end) = (piece.target / line_bytes, piece.target + piece.bytes);
    let last = (end - 1) / line_bytes;
    let is_first_partial = !piece.target.is_multiple_of(line_bytes);
    let is_last_partial = !end.is_multiple_of(line_bytes);
    let source = piece.source / line_bytes..=(piece.source + piece.bytes - 1) / line_bytes;
    let mut lines: Vec<u64> = source.collect();
    lines.extend((is_first_partial || first == last && is_last_partial).then_some(first));
    lines.extend((is_last_partial && first != last).then_some(last));
    lines
}

/// Memory and caches as one.
struct Data {
    start: u64,
    bytes: Vec<u8>,
    line_bytes: u64,
}

impl Data {
    fn new(image: &Image, line_bytes: u64) -> Self {
        let start = START + u64::from(data_offset(image.code().len()));
        let bytes = (1..=DATA_BYTES / PAGE)
            .rev()
            .find_map(|pages| image.memory().read(start, pages * PAGE).map(<[u8]>::to_vec));
        Self { start, bytes: bytes.expect("a program has data"), line_bytes }
    }

    fn at(&mut self, address: u64, bytes: u64) -> &mut [u8] {
        let place = (address - self.start) as usize;
        &mut self.bytes[place..place + bytes as usize]
    }

    fn happen(&mut self, at: Cycle, event: Event, pieces: &mut [Piece]) -> Option<String> {
        let size = self.line_bytes;
        match event {
            Event::Store { address, value } => {
                self.at(address, value.len() as u64).copy_from_slice(&value);
                None
            }
            Event::Load { address, value, text } => {
                let found = self.at(address, value.len() as u64);
                (found != value)
                    .then(|| format!("{text} at cycle {at} found {found:x?}, not {value:x?}"))
            }
            Event::Read { line, place } => {
                let value = self.at(line * size, size).to_vec();
                pieces[place].lines.insert(line, value);
                None
            }
            Event::Write { line, place } => match written(&pieces[place], line, size) {
                Some(value) => {
                    self.at(line * size, size).copy_from_slice(&value);
                    None
                }
                None => Some(format!("line {line:#x} was written at {at} before all was read")),
            },
        }
    }
}

/// The bytes that a piece writes to a line, from the lines it has read; `None` if one is missing.
fn written(piece: &Piece, line: u64, line_bytes: u64) -> Option<Vec<u8>> {
    let first = line * line_bytes;
    (first..first + line_bytes)
        .map(|address| {
            let is_copied = (piece.target..piece.target + piece.bytes).contains(&address);
            let from = if is_copied { address - piece.target + piece.source } else { address };
            let read = piece.lines.get(&(from / line_bytes))?;
            read.get((from % line_bytes) as usize).copied()
        })
        .collect()
}

/// Accesses to a line in memory, in an order other than that in which the caches changed the
/// line: a read that missed a store still on its way, or an older write after a newer one.
pub(crate) fn stale(line_bytes: u64, pipeline: &PipelineTrace, memory: &Trace) -> Vec<String> {
    let mut changed: HashMap<u64, Vec<Cycle>> = HashMap::new();
    for row in pipeline.rows.iter().filter(|row| row.class == Class::Store && row.committed > 0) {
        changed.entry(row.data_address / line_bytes).or_default().push(row.committed);
    }
    let mut begun: HashMap<u32, Cycle> = HashMap::new();
    let mut served: HashMap<u32, Cycle> = HashMap::new();
    for span in memory.spans() {
        let first = begun.entry(span.transaction).or_insert(span.from);
        *first = span.from.min(*first);
        if span.stage == Stage::Memory {
            served.insert(span.transaction, span.from);
        }
    }
    let mut writes: HashMap<u64, Vec<Cycle>> = HashMap::new();
    let mut found = Vec::new();
    for each in &memory.transactions {
        let line = each.address / line_bytes;
        let at = served.get(&each.number).copied();
        match (each.what, at) {
            (What::Copy, _) => {}
            // A write into a cache, which is newer than memory from then on.
            (What::EngineWrite, None) => {
                changed.entry(line).or_default().push(begun[&each.number]);
            }
            (What::EngineWrite | What::WriteBack, Some(at)) => {
                let before = writes.entry(line).or_default();
                if before.iter().any(|other| *other > at) {
                    found.push(format!("{each:?} was served before an older write"));
                }
                before.push(at);
            }
            (_, Some(at)) => {
                let began = begun[&each.number];
                let of_line = changed.get(&line).into_iter().flatten();
                let last = of_line.copied().filter(|change| *change < began).max();
                let is_there = |last: Cycle| {
                    writes.get(&line).into_iter().flatten().any(|write| (last..=at).contains(write))
                };
                if last.is_some_and(|last| !is_there(last)) {
                    found.push(format!("{each:?} at {at} missed the change at {last:?}"));
                }
            }
            (_, None) => {}
        }
    }
    found
}
