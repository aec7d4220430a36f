//! A thread that receives copies from a channel, as a program has one without a library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::subject::{Copies, Job};
use crate::error::Error;

/// The thread, and the channels to it and back.
#[derive(Debug)]
pub struct Thread {
    jobs: Option<Sender<Job>>,
    results: Receiver<Job>,
    done: Arc<AtomicU64>,
    submitted: u64,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts the thread.
    pub(super) fn start() -> Result<Self, Error> {
        let (jobs, queue) = channel::<Job>();
        let (finished, results) = channel();
        let done = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&done);
        let run = move || {
            for mut job in queue {
                haul_copy::copy(&mut job.target, &job.source);
                let _ = finished.send(job);
                count.fetch_add(1, Ordering::Release);
            }
        };
        let attempt = "start the peer's thread";
        let failed = |reason| haul_engine::Error::System { attempt, reason };
        let thread = std::thread::Builder::new().spawn(run).map_err(failed)?;
        Ok(Self { jobs: Some(jobs), results, done, submitted: 0, thread: Some(thread) })
    }
}

impl Copies for Thread {
    type Started = u64;

    fn submit(&mut self, job: Job) -> u64 {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
        self.submitted += 1;
        self.submitted
    }

    fn is_done(&mut self, until: &u64) -> bool {
        self.done.load(Ordering::Acquire) >= *until
    }

    fn wait(&mut self, _: u64) -> Job {
        self.results.recv().expect("the thread copies for as long as its channel is open")
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
