//! The files that the recorded processes have mapped, read while they run: libraries that a
//! program opens later are not in what a process notes when it starts.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use haul_model::stream::recording::{Modules, Process};

use super::room::Room;

/// Time between two readings of a process's mappings.
const INTERVAL: Duration = Duration::from_millis(250);

/// The most processes whose mappings are read repeatedly: those that began last.
const PROCESSES_MAX: usize = 64;

/// The mappings of the processes of a run, by their index in the recording.
#[derive(Default)]
pub(super) struct Mappings {
    texts: HashMap<usize, Vec<String>>,
    last: Option<Instant>,
    processes: usize,
}

impl Mappings {
    /// Reads the mappings of new processes at once, and those of the others from time to time.
    pub(super) fn poll(&mut self, room: &Room) {
        let ids = room.processes();
        let is_due = self.last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if ids.len() == self.processes && !is_due {
            return;
        }
        let first = match is_due {
            true => ids.len().saturating_sub(PROCESSES_MAX),
            false => self.processes,
        };
        if is_due {
            self.last = Some(Instant::now());
        }
        self.processes = ids.len();
        for (index, id) in ids.iter().enumerate().skip(first) {
            // A process that became another program has the ID of its later entry.
            if *id != 0 && !ids[index + 1..].contains(id) {
                self.read(index, *id);
            }
        }
    }

    fn read(&mut self, index: usize, id: u32) {
        let Ok(text) = fs::read_to_string(format!("/proc/{id}/maps")) else { return };
        let texts = self.texts.entry(index).or_default();
        let code: String = text.lines().filter(|line| is_code(line)).flat_map(with_end).collect();
        if texts.last() != Some(&code) {
            texts.push(code);
        }
    }

    /// The mappings of a process.
    pub(super) fn of(&self, index: usize, process: &Process) -> Modules {
        let mut modules = Modules::default();
        modules.add(&process.maps);
        let read = self.texts.get(&index).into_iter().flatten();
        read.for_each(|text| modules.add(text));
        modules
    }
}

/// Whether a line is of a file with code, or of the beginning of a file.
fn is_code(line: &str) -> bool {
    let mut words = line.split(' ').skip(1);
    let rights = words.next().unwrap_or_default();
    let offset = words.next().unwrap_or_default();
    line.contains('/') && (rights.contains('x') || offset.bytes().all(|digit| digit == b'0'))
}

fn with_end(line: &str) -> [&str; 2] {
    [line, "\n"]
}
