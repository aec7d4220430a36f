//! Copies within B, as a scale for the transfers: one warm `memcpy`, and `mymemcpy` of the 2014
//! experiment of memcpy against vmsplice, through a pipe.

use haul_measure::memory::{Pages, Region};

use super::Transport;
use super::experiment2014::mymemcpy;
use crate::channel::content;
use crate::channel::protocol::Task;

/// The source in B's memory.
#[derive(Default)]
struct Own {
    source: Option<Region>,
    next: usize,
}

/// The C library's memcpy, once, from warm private memory to the target.
#[derive(Default)]
pub(super) struct Memcpy(Own);

/// The experiment's replacement for memcpy: vmsplice into a pipe and out of it, in one process.
#[derive(Default)]
pub(super) struct Mymemcpy(Own);

impl Own {
    /// The messages of a task, in B's memory.
    fn fill(&mut self, task: &Task) -> Result<(), String> {
        let bytes = task.size * task.count;
        self.next = 0;
        if self.source.as_ref().is_none_or(|source| source.bytes() < bytes) {
            self.source = None;
            let region = Region::touched(bytes, Pages::Unsaid);
            self.source = Some(region.map_err(|error| error.to_string())?);
        }
        if let Some(source) = &mut self.source {
            content::fill(&mut source.as_mut_slice()[..bytes], task.seed);
        }
        Ok(())
    }

    fn message(&mut self, bytes: usize) -> &[u8] {
        let start = self.next;
        self.next += bytes;
        match &mut self.source {
            Some(source) => &source.as_mut_slice()[start..self.next],
            None => &[],
        }
    }
}

impl Transport for Memcpy {
    fn send(&mut self, _message: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        target.copy_from_slice(self.0.message(target.len()));
        Ok(())
    }

    fn before(&mut self, task: &Task, source: &[u8]) -> Result<(), String> {
        if source.is_empty() { self.0.fill(task) } else { Ok(()) }
    }

    fn extra_bytes(&self) -> Option<u64> {
        Some(0)
    }
}

impl Transport for Mymemcpy {
    fn send(&mut self, _message: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        let source = self.0.message(target.len());
        mymemcpy(target, source)
    }

    fn before(&mut self, task: &Task, source: &[u8]) -> Result<(), String> {
        if source.is_empty() { self.0.fill(task) } else { Ok(()) }
    }

    fn extra_bytes(&self) -> Option<u64> {
        // The pipe holds the pages of the source, not copies of them.
        Some(0)
    }
}
