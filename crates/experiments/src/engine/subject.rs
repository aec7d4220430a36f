//! Engines, and a thread behind a channel, behind one interface.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use haul_engine::{Copy, Pending, Queue};

use crate::error::Error;

/// Something that copies beside the caller, or instead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// haul's engine that copies in `submit`: the baseline.
    Inline,
    /// haul's helper thread.
    Worker,
    /// haul's choice by size.
    Auto,
    /// What a program does without a library: a thread that receives copies from a channel of the
    /// standard library.
    Thread,
}

impl Subject {
    /// Every subject, the baseline first.
    pub const ALL: [Self; 4] = [Self::Inline, Self::Worker, Self::Auto, Self::Thread];

    /// The name in records and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Worker => "worker",
            Self::Auto => "auto",
            Self::Thread => "thread",
        }
    }

    /// The subject of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.name() == name)
    }

    /// Starts it.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn open(self) -> Result<Copier, Error> {
        let queue = match self {
            Self::Inline => Ok(Queue::inline()),
            Self::Worker => Queue::worker(),
            Self::Auto => Queue::auto(),
            Self::Thread => return Ok(Copier::Thread(Thread::start()?)),
        };
        Ok(Copier::Queue(queue?))
    }
}

/// A running subject.
#[derive(Debug)]
pub enum Copier {
    /// One of haul's engines.
    Queue(Queue),
    /// A thread behind a channel.
    Thread(Thread),
}

type Job = Copy<Vec<u8>, Arc<[u8]>>;

/// A copy that was submitted.
#[derive(Debug)]
pub enum Started {
    /// By one of haul's engines.
    Queue(Pending<Job>),
    /// By the thread: the number of copies that are done when it is done.
    Thread(usize),
}

impl Copier {
    /// Submits a copy of `source` into `target`, which is equally long.
    pub fn submit(&mut self, target: Vec<u8>, source: &Arc<[u8]>) -> Started {
        match self {
            Self::Queue(queue) => Started::Queue(queue.submit(Copy::new(target, source.clone()))),
            Self::Thread(thread) => thread.submit(target, source.clone()),
        }
    }

    /// Waits as a caller does that has nothing else to do. Hands back the target.
    pub fn wait(&mut self, started: Started) -> Vec<u8> {
        match (self, started) {
            (_, Started::Queue(pending)) => pending.wait().0.target,
            (Self::Thread(thread), Started::Thread(until)) => thread.wait(until),
            (Self::Queue(_), Started::Thread(_)) => Vec::new(),
        }
    }

    /// Waits by polls alone, so that the engine does all of the copy.
    pub fn watch(&mut self, started: Started) -> Vec<u8> {
        while !self.is_done(&started) {
            spin_loop();
        }
        self.wait(started)
    }

    /// Whether the copy is done.
    #[must_use]
    pub fn is_done(&self, started: &Started) -> bool {
        match (self, started) {
            (_, Started::Queue(pending)) => pending.is_done(),
            (Self::Thread(thread), Started::Thread(until)) => thread.is_done(*until),
            (Self::Queue(_), Started::Thread(_)) => true,
        }
    }
}

/// A target, and the source that is copied to it.
type ThreadJob = (Vec<u8>, Arc<[u8]>);

/// A thread that receives copies from a channel.
#[derive(Debug)]
pub struct Thread {
    jobs: Option<Sender<ThreadJob>>,
    results: std::sync::mpsc::Receiver<Vec<u8>>,
    done: Arc<AtomicUsize>,
    submitted: usize,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    fn start() -> Result<Self, Error> {
        let (jobs, queue) = channel::<ThreadJob>();
        let (finished, results) = channel();
        let done = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&done);
        let run = move || {
            for (mut target, source) in queue {
                haul_copy::copy(&mut target, &source);
                drop(source);
                let _ = finished.send(target);
                count.fetch_add(1, Ordering::Release);
            }
        };
        let attempt = "start the peer's thread";
        let failed = |reason| haul_engine::Error::System { attempt, reason };
        let thread = std::thread::Builder::new().spawn(run).map_err(failed)?;
        Ok(Self { jobs: Some(jobs), results, done, submitted: 0, thread: Some(thread) })
    }

    fn submit(&mut self, target: Vec<u8>, source: Arc<[u8]>) -> Started {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send((target, source));
        }
        self.submitted += 1;
        Started::Thread(self.submitted)
    }

    fn is_done(&self, until: usize) -> bool {
        self.done.load(Ordering::Acquire) >= until
    }

    fn wait(&self, _: usize) -> Vec<u8> {
        self.results.recv().unwrap_or_default()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_copies() {
        let source: Arc<[u8]> = (0..100_000_u32).map(|at| at as u8).collect();
        for subject in Subject::ALL {
            assert_eq!(Subject::of(subject.name()), Some(subject));
            let mut copier = subject.open().unwrap();
            for _ in 0..20 {
                let started = copier.submit(vec![0; source.len()], &source);
                assert!(copier.watch(started)[..] == source[..]);
                let started = copier.submit(vec![0; source.len()], &source);
                assert!(copier.wait(started)[..] == source[..]);
            }
        }
    }
}
