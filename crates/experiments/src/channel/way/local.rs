//! Copies within B, for scale: one warm `memcpy`, and the seed's `mymemcpy` through a pipe.

use std::os::fd::OwnedFd;

use haul_measure::memory::{Pages, Region};

use super::seed::{CALL_BYTES, splice_into, splice_out};
use super::{Stage, Way};
use crate::channel::content;

/// B's own source.
#[derive(Default)]
struct Own {
    source: Option<Region>,
    next: usize,
}

/// The C library's memcpy, once, from warm private memory to the target.
#[derive(Default)]
pub(super) struct Memcpy(Own);

/// What the seed put in memcpy's place: vmsplice into a pipe and out of it, in one process.
pub(super) struct Mymemcpy {
    own: Own,
    output: OwnedFd,
    input: OwnedFd,
}

impl Own {
    /// The messages of a task, in B's memory.
    fn fill(&mut self, stage: &Stage<'_>) -> Result<(), String> {
        let bytes = stage.task.size * stage.task.count;
        self.next = 0;
        if self.source.as_ref().is_none_or(|source| source.bytes() < bytes) {
            self.source = None;
            let region = Region::touched(bytes, Pages::Unsaid);
            self.source = Some(region.map_err(|error| error.to_string())?);
        }
        if let Some(source) = &mut self.source {
            content::fill(&mut source.as_mut_slice()[..bytes], stage.task.seed);
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

impl Mymemcpy {
    pub(super) fn open() -> Result<Self, String> {
        let (input, output) = rustix::pipe::pipe().map_err(|error| error.to_string())?;
        Ok(Self { own: Own::default(), output, input })
    }
}

impl Way for Memcpy {
    fn send(&mut self, _message: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        target.copy_from_slice(self.0.message(target.len()));
        Ok(())
    }

    fn before(&mut self, stage: &Stage<'_>) -> Result<(), String> {
        if stage.source.is_empty() { self.0.fill(stage) } else { Ok(()) }
    }

    fn extra_bytes(&self) -> Option<u64> {
        Some(0)
    }
}

impl Way for Mymemcpy {
    fn send(&mut self, _message: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        let source = self.own.message(target.len());
        for (from, to) in source.chunks(CALL_BYTES).zip(target.chunks_mut(CALL_BYTES)) {
            splice_into(&self.output, from)?;
            splice_out(&self.input, to)?;
        }
        Ok(())
    }

    fn before(&mut self, stage: &Stage<'_>) -> Result<(), String> {
        if stage.source.is_empty() { self.own.fill(stage) } else { Ok(()) }
    }

    fn extra_bytes(&self) -> Option<u64> {
        rustix::pipe::fcntl_getpipe_size(&self.output).ok().map(|bytes| bytes as u64)
    }
}
