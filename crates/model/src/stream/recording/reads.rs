//! When targets were read: from samples, or from later calls.

use std::collections::HashMap;

use super::{Event, Recording};
use crate::stream::{Read, TimeClass};

/// The number of later calls of a thread of which the sources are compared with a target.
pub(super) const LATER_CALLS: usize = 64;

/// The observed calls of a site, and the targets of these that were read soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) sampled: u64,
    pub(super) read_soon: u64,
}

impl Counts {
    pub(super) fn count(&mut self, read: Read) {
        self.sampled += 1;
        self.read_soon += u64::from(read.is_soon() == Some(true));
    }
}

fn class(read_ns: Option<u64>) -> Read {
    read_ns.map_or(Read::NotRead, |ns| Read::After(TimeClass::of_ns(ns)))
}

/// Sets the reads of a thread's events that were sampled, and returns the counts of each return
/// address. The samples of all threads of the process count.
pub(super) fn by_samples(
    recording: &Recording<'_>,
    thread: usize,
    reads: &mut [Read],
) -> HashMap<u64, Counts> {
    let process = recording.threads[thread].process;
    for sample in &recording.threads[thread].samples {
        let index = sample.call.checked_sub(recording.skip).and_then(|at| usize::try_from(at).ok());
        if let Some(read) = index.and_then(|index| reads.get_mut(index)) {
            *read = class(sample.read_ns);
        }
    }
    let mut counts: HashMap<u64, Counts> = HashMap::new();
    let threads = recording.threads.iter().filter(|thread| thread.process == process);
    for sample in threads.flat_map(|thread| &thread.samples) {
        counts.entry(sample.site).or_default().count(class(sample.read_ns));
    }
    counts
}

/// Sets the reads of all events: a later call whose source includes the first byte of a target
/// reads it, and one whose target includes it overwrites it.
pub(super) fn by_later_calls(
    events: &[Event],
    since_ns: &[u64],
    reads: &mut [Read],
) -> HashMap<u64, Counts> {
    let includes = |start: u64, size: u32, byte: u64| byte.wrapping_sub(start) < size.into();
    let mut counts: HashMap<u64, Counts> = HashMap::new();
    for (at, event) in events.iter().enumerate() {
        let mut elapsed_ns = 0_u64;
        let mut read = Read::NotRead;
        for later in at + 1..events.len().min(at + 1 + LATER_CALLS) {
            let other = &events[later];
            elapsed_ns = elapsed_ns.saturating_add(since_ns[later]);
            let has_source = other.kind.function().has_source();
            if has_source && includes(other.source, other.size, event.target) {
                read = class(Some(elapsed_ns));
                break;
            }
            if includes(other.target, other.size, event.target) {
                break;
            }
        }
        if event.size > 0 {
            reads[at] = read;
            counts.entry(event.site).or_default().count(read);
        }
    }
    counts
}
