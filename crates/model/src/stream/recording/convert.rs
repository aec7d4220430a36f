//! A thread's events as a stream.

use std::collections::HashMap;

use super::arena::Arena;
use super::reads::{self, Counts};
use super::{Event, Modules, Recording};
use crate::stream::{
    Call, Header, Read, ReadsBy, SITES_MAX, Site, Stream, TEXT_BYTES_MAX, TimeClass,
};

/// What a recording does not know about itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// A description by the user.
    pub about: String,
    /// When the recording began: RFC 3339.
    pub time: String,
    /// The id of the machine.
    pub machine: String,
}

/// The module of code that is in no file, such as that of a compiler at run time.
const NO_FILE: &str = "(no file)";

/// The site of calls beyond the largest number of sites.
const OTHER: &str = "(other)";

impl Recording<'_> {
    /// The thread with the most calls, of the process with the most calls.
    #[must_use]
    pub fn busiest(&self) -> Option<usize> {
        let of_process = |process| {
            let threads = self.threads.iter().filter(move |thread| thread.process == process);
            threads.map(|thread| thread.calls).sum::<u64>()
        };
        // Of equal ones, the first.
        let process = (0..self.processes.len()).rev().max_by_key(|process| of_process(*process))?;
        let threads = self.threads.iter().enumerate().rev();
        let of_it = threads.filter(|(_, thread)| thread.process == process);
        of_it.max_by_key(|(_, thread)| thread.calls).map(|(index, _)| index)
    }

    /// The number of a thread in its process, by first calls.
    #[must_use]
    pub fn number(&self, thread: usize) -> u32 {
        let process = self.threads[thread].process;
        self.threads[..thread].iter().filter(|other| other.process == process).count() as u32
    }

    /// The stream of a thread. `modules` are the mappings of its process.
    ///
    /// # Panics
    /// If there is no thread with this index.
    #[must_use]
    pub fn stream(&self, thread: usize, modules: &Modules, about: &About) -> Stream {
        let of = &self.threads[thread];
        let events = &of.events;
        let since_ns: Vec<u64> = events.iter().map(|event| self.ns(of.process, event)).collect();
        let mut reads = vec![Read::Unknown; events.len()];
        let samples = self.threads.iter().filter(|other| other.process == of.process);
        let has_samples = samples.clone().any(|other| !other.samples.is_empty());
        let (reads_by, counts) = match has_samples {
            true => (ReadsBy::Breakpoint, reads::by_samples(self, thread, &mut reads)),
            false => {
                let counts = reads::by_later_calls(events, &since_ns, &mut reads);
                (ReadsBy::LaterCalls, counts)
            }
        };
        let arena = Arena::of(events);
        let (sites, indices) = sites(events, &arena.kept, modules, &counts);
        let calls = arena.kept.iter().map(|index| {
            let event = &events[*index];
            let function = event.kind.function();
            Call {
                function,
                site: indices[&event.site],
                size: event.size,
                target: arena.offset(event.target),
                source: function.has_source().then(|| arena.offset(event.source)),
                since: TimeClass::of_ns(since_ns[*index]),
                read: reads[*index],
            }
        });
        let calls = calls.collect();
        let header = self.header(thread, about, reads_by, &arena);
        Stream { header, sites, calls }
    }

    fn header(&self, thread: usize, about: &About, reads_by: ReadsBy, arena: &Arena) -> Header {
        let of = &self.threads[thread];
        let process = &self.processes[of.process];
        let threads = self.threads.iter().filter(|other| other.process == of.process);
        let program = match process.program.as_str() {
            "" => "unknown".into(),
            program => program.into(),
        };
        Header {
            program,
            about: printable(&about.about),
            time: about.time.clone(),
            machine: about.machine.clone(),
            libc: printable(&format!("glibc {}", process.libc)),
            thread: self.number(thread),
            process_calls: threads.map(|thread| thread.calls).sum(),
            thread_calls: of.calls,
            skipped: self.skip.min(of.calls),
            left_out: (of.events.len() - arena.kept.len()) as u64,
            reads_by,
            pages: arena.pages,
        }
    }

    /// The nanoseconds since the previous call. A process that was too short to compare its two
    /// clocks has the rate of another one, because all counters of a machine have the same.
    fn ns(&self, process: usize, event: &Event) -> u64 {
        /// The rate of most counters is between 1 and 4 ticks in a nanosecond.
        const TICKS_PER_NS: f64 = 2.0;
        let own = self.processes[process].ticks_per_ns;
        let others = || self.processes.iter().find_map(|process| process.ticks_per_ns);
        let rate = own.or_else(others).unwrap_or(TICKS_PER_NS);
        (event.since_ticks as f64 / rate) as u64
    }
}

fn printable(text: &str) -> String {
    let mut text = text.replace(char::is_control, " ");
    while text.len() > TEXT_BYTES_MAX {
        text.pop();
    }
    text
}

/// The sites of the kept events, those with the most calls first, and the index of each return
/// address.
fn sites(
    events: &[Event],
    kept: &[usize],
    modules: &Modules,
    counts: &HashMap<u64, Counts>,
) -> (Vec<Site>, HashMap<u64, u16>) {
    let mut calls: HashMap<u64, u64> = HashMap::new();
    kept.iter().for_each(|index| *calls.entry(events[*index].site).or_default() += 1);
    let mut addresses: Vec<(u64, u64)> = calls.into_iter().collect();
    addresses.sort_by_key(|(address, calls)| (std::cmp::Reverse(*calls), *address));
    let (mut sites, mut indices): (Vec<Site>, _) = (Vec::new(), HashMap::new());
    let mut without_file = 0;
    for (address, _) in addresses {
        let Counts { sampled, read_soon } = counts.get(&address).copied().unwrap_or_default();
        if sites.len() == SITES_MAX - 1 {
            let (module, symbol) = (OTHER.into(), None);
            sites.push(Site { module, offset: 0, symbol, sampled: 0, read_soon: 0 });
        }
        if let Some(other) = sites.get_mut(SITES_MAX - 1) {
            other.sampled += sampled;
            other.read_soon += read_soon;
            indices.insert(address, (SITES_MAX - 1) as u16);
            continue;
        }
        let (module, offset) = modules.find(address).unwrap_or_else(|| {
            without_file += 1;
            (NO_FILE, without_file)
        });
        indices.insert(address, sites.len() as u16);
        sites.push(Site { module: module.into(), offset, symbol: None, sampled, read_soon });
    }
    (sites, indices)
}
