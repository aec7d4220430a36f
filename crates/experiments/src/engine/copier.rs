//! One interface over everything that is compared.

use super::library::{Library, Source};
use super::subject::{Copies, Job, Subject};
use super::thread::Thread;
use crate::error::Error;
use haul_engine::{Pending, Queue};

/// A call of haul's copy.
#[derive(Debug)]
pub struct Call;

impl Copies for Call {
    type Started = Job;

    fn submit(&mut self, mut job: Job) -> Job {
        haul_copy::copy(&mut job.target, &job.source);
        job
    }

    fn is_done(&mut self, _: &Job) -> bool {
        true
    }

    fn wait(&mut self, job: Job) -> Job {
        job
    }

    #[inline(always)]
    fn execute(&mut self, job: Job) -> Job {
        self.submit(job)
    }
}

impl Copies for Queue {
    type Started = Pending<Job>;

    fn submit(&mut self, job: Job) -> Pending<Job> {
        Self::submit(self, job)
    }

    fn is_done(&mut self, started: &Pending<Job>) -> bool {
        started.is_done()
    }

    fn wait(&mut self, started: Pending<Job>) -> Job {
        started.wait().0
    }

    #[inline(always)]
    fn execute(&mut self, mut job: Job) -> Job {
        let copy = haul_engine::Copy::new(&mut job.target[..], &job.source[..]);
        assert!(Self::execute(self, copy).is_ok(), "an engine of software does every copy");
        job
    }

    fn queue(&self) -> Option<&Queue> {
        Some(self)
    }
}

/// A running subject.
#[derive(Debug)]
pub enum Copier {
    /// A call of haul's copy.
    Call(Call),
    /// One of haul's engines.
    Queue(Queue),
    /// A thread behind a channel.
    Thread(Thread),
    /// A peer from a library of its own.
    Library(Library),
}

impl Copier {
    /// Starts a subject. The first start of a peer outside this program compiles and loads the
    /// peer's library, which takes up to a second.
    ///
    /// # Errors
    /// A thread cannot be started; a peer is not installed.
    pub fn open(subject: Subject) -> Result<Self, Error> {
        let queue = match subject {
            Subject::Copy => return Ok(Self::Call(Call)),
            Subject::Inline => Ok(Queue::inline()),
            Subject::Worker => Queue::worker(),
            Subject::Auto => Queue::auto(),
            Subject::Thread => return Ok(Self::Thread(Thread::start()?)),
            Subject::DmaSkeleton | Subject::Rayon | Subject::Tokio => {
                let source =
                    if subject == Subject::DmaSkeleton { Source::Dpdk } else { Source::Pools };
                return Ok(Self::Library(Library::open(source, subject.name())?));
            }
        };
        Ok(Self::Queue(queue?))
    }

    /// The version of a peer's library.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        if let Self::Library(library) = self { Some(library.version()) } else { None }
    }

    /// Lets a subject poll that polls for as long as it is started. A subject is started while it
    /// is measured only, so that it does not disturb the others.
    ///
    /// # Errors
    /// The peer does not start again.
    pub fn resume(&mut self) -> Result<(), Error> {
        if let Self::Library(library) = self { library.resume() } else { Ok(()) }
    }

    /// Ends the polls, until the next [`resume`](Self::resume). No copy is pending.
    pub fn pause(&mut self) {
        if let Self::Library(library) = self {
            library.pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_subject_copies() {
        let source: Arc<[u8]> = (0..100_000_u32).map(|at| at as u8).collect();
        for subject in [Subject::Copy, Subject::Thread].into_iter().chain(Subject::ENGINES) {
            let mut copier = Copier::open(subject).unwrap();
            copies(&mut copier, &source);
        }
    }

    #[test]
    fn peers_with_a_library_copy_or_name_their_package() {
        let source: Arc<[u8]> = (0..100_000_u32).map(|at| at as u8).collect();
        for subject in [Subject::DmaSkeleton, Subject::Rayon, Subject::Tokio] {
            match Copier::open(subject) {
                Ok(mut copier) => {
                    copies(&mut copier, &source);
                    copier.resume().unwrap();
                    assert!(Copier::open(subject).is_err(), "a library has one started engine");
                }
                Err(error) => {
                    let error = error.to_string();
                    let remedies = ["apt-get install", "cargo build"];
                    assert!(remedies.iter().any(|remedy| error.contains(remedy)), "{error}");
                }
            }
        }
    }

    fn copies(copier: &mut Copier, source: &Arc<[u8]>) {
        copier.resume().unwrap();
        match copier {
            Copier::Call(call) => copies_all(call, source),
            Copier::Queue(queue) => copies_all(queue, source),
            Copier::Thread(thread) => copies_all(thread, source),
            Copier::Library(library) => copies_all(library, source),
        }
        copier.pause();
    }

    fn copies_all<C: Copies>(subject: &mut C, source: &Arc<[u8]>) {
        for wait in [C::watch, C::wait] {
            for _ in 0..20 {
                let jobs = [1, 2].map(|_| Job::new(vec![0; source.len()], Arc::clone(source)));
                let started = jobs.map(|job| subject.submit(job));
                let are_right = started.map(|one| wait(subject, one).target[..] == source[..]);
                assert_eq!(are_right, [true; 2]);
                let job = subject.execute(Job::new(vec![0; source.len()], Arc::clone(source)));
                assert!(job.target[..] == source[..]);
            }
        }
    }
}
