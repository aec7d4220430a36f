//! What is compared: engines, and what programs use without haul.

use std::hint::spin_loop;
use std::sync::Arc;

use haul_engine::Queue;

/// A copy with its buffers, which go to the subject and come back.
pub type Job = haul_engine::Copy<Vec<u8>, Arc<[u8]>>;

/// Something that copies beside the caller, or instead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A call of haul's copy: the baseline.
    Copy,
    /// haul's engine that copies in `submit`.
    Inline,
    /// haul's helper thread.
    Worker,
    /// haul's choice by size.
    Auto,
    /// What a program does without a library: a thread that receives copies from a channel of the
    /// standard library.
    Thread,
    /// DPDK's copy engine without hardware.
    DmaSkeleton,
    /// `rayon::spawn`.
    Rayon,
    /// tokio's `spawn_blocking`.
    Tokio,
}

impl Subject {
    /// haul's engines, in the order of `--engine`.
    pub const ENGINES: [Self; 3] = [Self::Inline, Self::Worker, Self::Auto];

    /// The peers, in the order of `--against`.
    pub const PEERS: [Self; 4] = [Self::DmaSkeleton, Self::Rayon, Self::Tokio, Self::Thread];

    /// The name in records and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Inline => "inline",
            Self::Worker => "worker",
            Self::Auto => "auto",
            Self::Thread => "thread",
            Self::DmaSkeleton => "dma_skeleton",
            Self::Rayon => "rayon",
            Self::Tokio => "tokio",
        }
    }
}

/// How a subject copies. The measured code is compiled for each subject.
pub trait Copies {
    /// A copy that was submitted.
    type Started;

    /// Submits a copy of the source to the target, which is equally long.
    fn submit(&mut self, job: Job) -> Self::Started;

    /// Whether the copy is done.
    fn is_done(&mut self, started: &Self::Started) -> bool;

    /// Waits as a caller does that has nothing else to do. Hands back the buffers.
    fn wait(&mut self, started: Self::Started) -> Job;

    /// Copies as a caller does that has nothing else to do.
    fn execute(&mut self, job: Job) -> Job {
        let started = self.submit(job);
        self.wait(started)
    }

    /// The queue of an engine of haul's, which has batches.
    fn queue(&self) -> Option<&Queue> {
        None
    }

    /// Waits by polls alone, so that the engine does all of the copy.
    fn watch(&mut self, started: Self::Started) -> Job {
        while !self.is_done(&started) {
            spin_loop();
        }
        self.wait(started)
    }
}
