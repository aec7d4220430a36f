//! A heap in a replay, and its results.

use haul_measure::memory::HUGE_PAGE_BYTES;

use super::MIB;
use crate::drive::Program;
use crate::error::Error;
use crate::heap::child::{Figures, Running};
use crate::heap::peers::{Found, Peer};
use crate::heap::protocol::{Start, Task};
use crate::heap::script::Script;

/// The number of bytes by which the live blocks may exceed the growth of a process. Live blocks
/// may use memory that was free but resident before the first operation, although the heap was
/// asked to return it: some 100 KiB of glibc, and the rest of the first huge pages of other
/// heaps.
const FREE_BEFORE_BYTES: u64 = 512 << 10;
const FREE_BEFORE_BYTES_HUGE: u64 = 2 * HUGE_PAGE_BYTES as u64;

/// A heap in a run.
pub(super) struct Entrant<'a> {
    pub(super) found: &'a Found,
    pub(super) version: String,
    pub(super) pages: Option<String>,
    pub(super) failure: Option<Error>,
    pub(super) courses: Vec<Course>,
}

/// The result of one repetition.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    /// Nanoseconds per operation, by point.
    pub(super) time_ns: Vec<f64>,
    /// Operations of each point.
    operations: Vec<usize>,
    /// The growth of the resident MiB since the first operation, at each point's end.
    pub(super) footprint_mib: Vec<f64>,
    pub(super) hit: bool,
}

impl<'a> Entrant<'a> {
    pub(super) fn new(found: &'a Found) -> Self {
        Self { found, version: String::new(), pages: None, failure: None, courses: Vec::new() }
    }

    /// Starts a process for one repetition. Returns the resident bytes of the process after it
    /// has read the steps.
    pub(super) fn begin(
        &mut self,
        driver: &Program,
        start: &Start,
        script: &Script,
    ) -> Result<(Running, f64), Error> {
        let start =
            Start { peer: self.found.peer, library: self.found.library.clone(), ..start.clone() };
        let mut running = Running::start(driver, self.found, &start)?;
        self.version.clone_from(&running.version);
        self.pages.clone_from(&running.pages);
        let figures = running.perform(&Task::Load { path: script.path().into() })?;
        Ok((running, figures.values.first().copied().unwrap_or(0.0)))
    }

    /// Adds a point of this many operations, with this many live bytes at its end.
    ///
    /// # Errors
    /// The resident bytes are fewer than the live bytes, although every page of the live blocks
    /// was written to. The resident bytes are therefore not the footprint.
    pub(super) fn add(
        &mut self,
        figures: &Figures,
        resident: f64,
        operations: usize,
        live: u64,
    ) -> Result<(), Error> {
        let [time_ns, bytes] = figures.values[..] else { return Ok(()) };
        let (grown, live) = (bytes - resident, live as f64);
        let free_before = match self.found.peer {
            Peer::Haul | Peer::Dpdk => FREE_BEFORE_BYTES_HUGE,
            _ => FREE_BEFORE_BYTES,
        };
        if grown + (free_before as f64) < live {
            return Err(Error::Driver {
                peer: self.found.peer.name().to_owned(),
                attempt: "report its footprint".to_owned(),
                reason: format!(
                    "its memory grew by {:.2} MiB, but {:.2} MiB are live and were written to: the \
                     machine swaps, or merges pages; replay it with more free memory",
                    grown / MIB,
                    live / MIB
                ),
            });
        }
        let course = self.courses.last_mut().expect("pushed for each repetition");
        course.time_ns.push(time_ns);
        course.operations.push(operations);
        // The live bytes are resident. If the process has grown by less, some of the live bytes
        // are on pages that the heap had before.
        course.footprint_mib.push(grown.max(live) / MIB);
        course.hit |= figures.hit;
        Ok(())
    }
}

impl Course {
    /// The mean over the operations of all points.
    pub(super) fn mean_ns(&self) -> f64 {
        let all: usize = self.operations.iter().sum();
        let of_points = self.time_ns.iter().zip(&self.operations);
        let sum: f64 = of_points.map(|(time_ns, count)| time_ns * *count as f64).sum();
        sum / all.max(1) as f64
    }

    pub(super) fn peak_mib(&self) -> f64 {
        self.footprint_mib.iter().copied().fold(0.0, f64::max)
    }
}
