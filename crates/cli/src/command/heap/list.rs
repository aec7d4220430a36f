//! `haul heap list`: the heaps that processes share by name.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use haul::heap::{Heap, NAMES_FOLDER, NAMES_PREFIX, Node, Stats};
use haul_machine::sys;
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Record};

use crate::arguments::heap::List as Arguments;
use crate::command::{self, Command};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) struct List {
    heaps: Vec<Shared>,
    json: bool,
}

/// A heap with its name.
struct Shared {
    name: String,
    user: u32,
    /// What the heap holds, or why it cannot be inspected.
    stats: Result<Stats, String>,
}

impl List {
    /// # Errors
    ///
    /// The folder of names cannot be read.
    pub(super) fn read(arguments: Arguments) -> Result<Self, Error> {
        let path = Path::new(NAMES_FOLDER);
        let failed = |reason: io::Error| {
            Error::Haul(haul_machine::Error::Read { path: path.to_owned(), reason })
        };
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            // Without the folder, no heap has a name.
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { heaps: Vec::new(), json: arguments.json });
            }
            Err(reason) => return Err(failed(reason)),
        };
        let mut heaps = Vec::new();
        for entry in entries.flatten() {
            let file = entry.file_name();
            let found = file.to_str().and_then(|file| file.strip_prefix(NAMES_PREFIX));
            let Some((name, status)) = found.zip(entry.metadata().ok()) else { continue };
            let stats = Heap::builder().attach_named(name).map(|heap| heap.stats(Node::ANY));
            let stats = stats.map_err(|error| error.to_string());
            heaps.push(Shared { name: name.to_owned(), user: status.uid(), stats });
        }
        heaps.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { heaps, json: arguments.json })
    }

    fn table(&self) -> Table {
        let mut table =
            Table::new(&["heap", "user", ">blocks", ">live", ">with memory", ">limit", "note"]);
        for heap in &self.heaps {
            let user = sys::name_of_user(heap.user).unwrap_or_else(|| heap.user.to_string());
            let mut row = vec![heap.name.clone(), user];
            match &heap.stats {
                Ok(stats) => row.extend([
                    stats.live.blocks.to_string(),
                    Bytes(stats.live.bytes).approximate(),
                    Bytes(stats.ready_bytes).approximate(),
                    Bytes(stats.limit_bytes).approximate(),
                ]),
                Err(reason) => {
                    row.extend([const { String::new() }; 4]);
                    row.push(reason.clone());
                }
            }
            table.add(row);
        }
        table
    }
}

impl Command for List {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        if !self.json {
            return Ok(());
        }
        command::record(name::HEAP_LIST, self.heaps.iter().flat_map(records), journal)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        if self.heaps.is_empty() {
            return terminal::print(
                "No heap is shared by name on this machine. Heap::builder().shared_named(NAME) makes one.",
            );
        }
        terminal::print(&self.table().text())?;
        terminal::print("\n`haul heap map --name HEAP` draws what one holds.")
    }
}

fn records(heap: &Shared) -> Vec<Record> {
    let Ok(stats) = &heap.stats else { return Vec::new() };
    let figures = [
        ("live", "B", stats.live.bytes),
        ("blocks", "count", stats.live.blocks),
        ("ready", "B", stats.ready_bytes),
        ("limit", "B", stats.limit_bytes),
    ];
    let record = |(metric, unit, value): (&str, &str, u64)| {
        let mut record = Record::new("", name::HEAP_LIST, "haul", metric, unit);
        record = record.with(key::HEAP, heap.name.as_str());
        record.samples = vec![value as f64];
        record
    };
    figures.into_iter().map(record).collect()
}
