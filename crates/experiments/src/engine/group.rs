//! Copies that are submitted together: as one operation where the subject has batches.

use std::sync::Arc;

use haul_engine::{Batch, Pending, Queue};

use super::subject::{Copies, Job};

/// How a subject does groups of copies.
pub(super) trait Groups {
    /// A group that can be submitted.
    type Jobs;
    /// A group that was submitted.
    type Started;

    /// Submits the copies of a group.
    fn submit(&mut self, jobs: Self::Jobs) -> Self::Started;

    /// Whether all of them are done.
    fn are_done(&mut self, started: &Self::Started) -> bool;

    /// Waits for them by polls alone, and hands back the buffers.
    fn watch(&mut self, started: Self::Started) -> Self::Jobs;
}

/// Groups of several copies.
pub(super) trait OfSeveral: Groups {
    /// Prepares a group, which is not measured.
    fn prepare(jobs: Vec<Job>) -> Self::Jobs;

    /// The copies of a group that is done.
    fn take(jobs: Self::Jobs) -> Vec<Job>;
}

/// Makes each copy a group of its own.
pub(super) struct One<'a, C>(pub(super) &'a mut C);

impl<C: Copies> Groups for One<'_, C> {
    type Jobs = Job;
    type Started = C::Started;

    fn submit(&mut self, job: Job) -> C::Started {
        self.0.submit(job)
    }

    fn are_done(&mut self, started: &C::Started) -> bool {
        self.0.is_done(started)
    }

    fn watch(&mut self, started: C::Started) -> Job {
        self.0.watch(started)
    }
}

/// Submits each copy of a group by itself.
pub(super) struct Each<'a, C>(pub(super) &'a mut C);

impl<C: Copies> Groups for Each<'_, C> {
    type Jobs = Vec<Job>;
    type Started = Vec<C::Started>;

    fn submit(&mut self, jobs: Vec<Job>) -> Vec<C::Started> {
        jobs.into_iter().map(|job| self.0.submit(job)).collect()
    }

    fn are_done(&mut self, started: &Vec<C::Started>) -> bool {
        started.iter().all(|one| self.0.is_done(one))
    }

    fn watch(&mut self, started: Vec<C::Started>) -> Vec<Job> {
        started.into_iter().map(|one| self.0.watch(one)).collect()
    }
}

impl<C: Copies> OfSeveral for Each<'_, C> {
    fn prepare(jobs: Vec<Job>) -> Vec<Job> {
        jobs
    }

    fn take(jobs: Vec<Job>) -> Vec<Job> {
        jobs
    }
}

/// Submits a group as one operation of haul's.
pub(super) struct Batches(pub(super) Queue);

type OneBatch = Batch<Vec<u8>, Arc<[u8]>>;

impl Groups for Batches {
    type Jobs = OneBatch;
    type Started = Pending<OneBatch>;

    fn submit(&mut self, jobs: OneBatch) -> Pending<OneBatch> {
        self.0.submit(jobs)
    }

    fn are_done(&mut self, started: &Pending<OneBatch>) -> bool {
        started.is_done()
    }

    fn watch(&mut self, started: Pending<OneBatch>) -> OneBatch {
        while !started.is_done() {
            std::hint::spin_loop();
        }
        started.wait().0
    }
}

impl OfSeveral for Batches {
    fn prepare(jobs: Vec<Job>) -> OneBatch {
        Batch::new(jobs.into_iter().map(|job| (job.target, job.source)).collect())
    }

    fn take(jobs: OneBatch) -> Vec<Job> {
        jobs.copies.into_iter().map(|(target, source)| Job::new(target, source)).collect()
    }
}
