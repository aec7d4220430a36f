//! The tables and the events of a file. Any bytes give a recording or an error.

use super::layout::{self, block, head, process, thread};
use super::{Event, Sample};
use crate::stream::StreamError;

/// The largest number of processes, threads and blocks that a reader accepts.
const TABLE_MAX: u32 = 1 << 20;

/// A whole recording.
#[derive(Clone, Debug)]
pub struct Recording<'a> {
    /// The processes, in the order of their starts. One that became another program (`exec`) is
    /// there twice.
    pub processes: Vec<Process>,
    /// The threads, in the order of their first calls.
    pub threads: Vec<Thread>,
    /// The number of calls that each thread skipped.
    pub skip: u64,
    /// The number of processes and threads for which there was no room.
    pub without_room: u64,
    blocks: &'a [u8],
}

/// A process of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// The process ID; 0 if it is not known.
    pub id: u32,
    /// The index of the process that it was forked from.
    pub parent: Option<usize>,
    /// Whether breakpoints observed its targets.
    pub has_breakpoints: bool,
    /// The name of the program.
    pub program: String,
    /// The version of its libc.
    pub libc: String,
    /// Its mappings when it started, as `/proc/self/maps` shows them.
    pub maps: String,
    /// The ticks of its counter in a nanosecond.
    pub(super) ticks_per_ns: Option<f64>,
}

/// A thread of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// The index of its process.
    pub process: usize,
    /// The number of its calls, kept or not.
    pub calls: u64,
    /// The sum of their sizes.
    pub bytes: u64,
    /// The number of calls of memcpy, memmove, memset with 0, and memset with another byte.
    pub functions: [u64; 4],
    /// The number of calls, from signal handlers, that interrupted a call that was being recorded.
    pub nested: u64,
    /// The number of calls that were not kept because the recording was full.
    pub no_room: u64,
    /// The kept calls.
    pub events: Vec<Event>,
    /// The calls whose target was observed.
    pub samples: Vec<Sample>,
}

impl<'a> Recording<'a> {
    /// Reads the used part of a file.
    ///
    /// # Errors
    /// It is an error if the bytes are not a recording of this version.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, StreamError> {
        let header = Fields(bytes.get(..layout::HEADER_BYTES).ok_or(StreamError::NoRecording)?);
        let is_ours = bytes.starts_with(&layout::MAGIC);
        if !is_ours || header.number(head::VERSION_AT) != layout::VERSION {
            return Err(StreamError::NoRecording);
        }
        let [processes, threads] = [head::PROCESSES, head::THREADS].map(|at| header.number(at));
        if processes > TABLE_MAX || threads > TABLE_MAX {
            return Err(StreamError::NoRecording);
        }
        let [processes, threads] = [processes as usize, threads as usize];
        let blocks_at = layout::blocks_at(processes, threads);
        let tables = bytes.get(..blocks_at).ok_or(StreamError::NoRecording)?;
        let threads_at = layout::HEADER_BYTES + processes * layout::PROCESS_BYTES;
        let [asked_processes, asked_threads] =
            [head::NEXT_PROCESS, head::NEXT_THREAD].map(|at| header.number(at) as usize);
        let entries = |at: usize, size: usize, count: usize| {
            tables[at..].chunks_exact(size).take(count).map(Fields)
        };
        let mut recording = Self {
            processes: Vec::new(),
            threads: Vec::new(),
            skip: header.long(head::SKIP),
            without_room: (asked_processes.saturating_sub(processes)
                + asked_threads.saturating_sub(threads)) as u64,
            blocks: &bytes[blocks_at..],
        };
        let used = asked_processes.min(processes);
        for entry in entries(layout::HEADER_BYTES, layout::PROCESS_BYTES, used) {
            let process = recording.process(&entry);
            recording.processes.push(process);
        }
        // A child without mappings of its own has those of its parent.
        for index in 0..recording.processes.len() {
            if let Some(parent) = recording.processes[index].parent
                && recording.processes[index].maps.is_empty()
            {
                recording.processes[index].maps = recording.processes[parent].maps.clone();
            }
        }
        let used = asked_threads.min(threads);
        for entry in entries(threads_at, layout::THREAD_BYTES, used) {
            recording.threads.extend(recording.thread(&entry));
        }
        Ok(recording)
    }

    fn process(&self, entry: &Fields<'_>) -> Process {
        let index = self.processes.len();
        let text = |at: usize, length: usize| {
            let text = entry.0[at..at + length].split(|byte| *byte == 0).next();
            let text = String::from_utf8_lossy(text.unwrap_or_default()).into_owned();
            text.replace(|c: char| c.is_control() || c == '/', "_")
        };
        let maps = entry.number(process::MAPS_BYTES) as usize;
        let maps = entry.reference(process::MAPS).and_then(|block| {
            let at = block.checked_mul(layout::BLOCK_BYTES)?;
            self.blocks.get(at..at.checked_add(maps)?)
        });
        let [early_ticks, early_ns, late_ticks, late_ns] =
            [process::EARLY_TICKS, process::EARLY_NS, process::LATE_TICKS, process::LATE_NS]
                .map(|at| entry.long(at));
        /// The shortest distance of two readings of both clocks that gives their rate to 1%.
        const DISTANCE_NS_MIN: u64 = 100_000;
        let ns = late_ns.saturating_sub(early_ns);
        let ticks = late_ticks.saturating_sub(early_ticks);
        Process {
            id: entry.number(process::ID),
            parent: entry.reference(process::PARENT).filter(|parent| *parent < index),
            has_breakpoints: entry.number(process::SAMPLING) == 1,
            program: text(process::PROGRAM, process::PROGRAM_BYTES),
            libc: text(process::LIBC, process::LIBC_BYTES),
            maps: String::from_utf8_lossy(maps.unwrap_or_default()).into_owned(),
            ticks_per_ns: (ns >= DISTANCE_NS_MIN && ticks > 0).then(|| ticks as f64 / ns as f64),
        }
    }

    /// The thread of an entry; `None` if its process is unknown.
    fn thread(&self, entry: &Fields<'_>) -> Option<Thread> {
        let process = entry.reference(thread::PROCESS)?;
        (process < self.processes.len()).then(|| Thread {
            process,
            calls: entry.long(thread::CALLS),
            bytes: entry.long(thread::BYTES),
            functions: [0, 1, 2, 3].map(|kind| entry.long(thread::FUNCTIONS + 8 * kind)),
            nested: entry.long(thread::NESTED),
            no_room: entry.long(thread::NO_ROOM),
            events: self.events(entry.reference(thread::FIRST_BLOCK), Event::from_words),
            samples: self.events(entry.reference(thread::FIRST_SAMPLES), Sample::from_words),
        })
    }

    /// The events of a list of blocks.
    fn events<T>(&self, first: Option<usize>, event: fn([u64; 3]) -> T) -> Vec<T> {
        let mut events = Vec::new();
        let mut next = first;
        // A damaged list may be a circle.
        let mut last = None;
        while let Some(index) = next.filter(|index| last.is_none_or(|last| *index > last)) {
            last = next;
            let at = index.saturating_mul(layout::BLOCK_BYTES);
            let bytes = self.blocks.get(at..at.saturating_add(layout::BLOCK_BYTES));
            let Some(block) = bytes.map(Fields) else { break };
            let used = (block.number(block::USED) as usize).min(layout::BLOCK_EVENTS);
            let entries = block.0[layout::BLOCK_HEADER_BYTES..].chunks_exact(layout::EVENT_BYTES);
            events.extend(entries.take(used).map(|entry| {
                let entry = Fields(entry);
                event([entry.long(0), entry.long(8), entry.long(16)])
            }));
            next = block.reference(block::NEXT);
        }
        events
    }
}

/// Numbers at offsets of bytes; 0 beyond their end.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn number(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes(b.try_into().unwrap_or_default()))
    }

    fn long(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().unwrap_or_default()))
    }

    fn reference(&self, at: usize) -> Option<usize> {
        (self.number(at) as usize).checked_sub(1)
    }
}
