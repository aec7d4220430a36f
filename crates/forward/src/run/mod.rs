//! A worker that forwards between two ports and runs to completion: it receives a burst, applies
//! the mode, and sends the burst. Several workers share only a port's queue pairs.
//!
//! From the bottom up:
//!
//! - `echo`: answers to ARP and ping;
//! - `mode`: the change that a worker makes to packets;
//! - `spread`: the queue pair of each packet;
//! - `unfinished`: packets with work that their port does not take;
//! - `published`: a worker's counters for other threads;
//! - `worker`: the loop.

mod echo;
mod mode;
mod published;
mod spread;
mod unfinished;
mod worker;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::contract::Port;
use super::error::Error;
use super::pool::{BURST_MAX, Pool};
use haul_peer::fork::Thread;

pub use echo::Host;
pub use mode::Mode;
pub use published::{Observer, Snapshot};

use published::Published;

/// The handling of packets for which a port has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The worker drops the packets at once, like DPDK's testpmd.
    Never,
    /// The worker retries this many times, then drops the packets.
    Times(u32),
    /// The worker retries until the packets are sent, as long as the port has a link and the
    /// worker runs.
    UntilSent,
}

/// How a worker forwards.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The change that the worker makes to packets.
    pub mode: Mode,
    /// The largest number of packets per burst, 1 to 256.
    pub burst: usize,
    /// The handling of packets for which a port has no room.
    pub retry: Retry,
    /// The processor to run on; `None` for any.
    pub cpu: Option<usize>,
    /// Whether the worker yields its processor after a poll that found no packet, for tests on a
    /// machine that has fewer processors than workers.
    pub yields: bool,
    /// How long a stopped worker waits for packets in flight.
    pub linger: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Io,
            burst: 32,
            retry: Retry::Never,
            cpu: None,
            yields: false,
            linger: Duration::from_millis(100),
        }
    }
}

/// A running worker. Dropping this stops it.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    published: Arc<Published>,
    thread: Thread<Result<Snapshot, Error>>,
}

impl Running {
    /// Starts a worker of this name. With two ports it forwards from the first to the second and
    /// back. With one port it sends packets back to that port. Consecutive ports of one name are
    /// queue pairs of one port: the worker receives from each in turn, and spreads packets over
    /// them by a hash of their flow.
    ///
    /// # Errors
    /// [`Error::Value`] for a burst size outside the limits, if two ports have the same name and
    /// queue, and if there is no name or more than two; [`Error::System`] if the thread cannot be
    /// started, or the process may not use the processor.
    pub fn start(
        name: &str,
        ports: impl Into<Vec<Box<dyn Port>>>,
        pool: Pool,
        settings: Settings,
    ) -> Result<Self, Error> {
        if settings.burst == 0 || settings.burst > BURST_MAX {
            let (what, value) = ("a burst of", format!("{} packets", settings.burst));
            return Err(Error::Value { what, value, limit: "choose 1 to 256" });
        }
        let ports = ports.into();
        let sides = sides(&ports)?;
        let stop = Arc::new(AtomicBool::new(false));
        let published = Arc::new(Published::default());
        let worker =
            worker::Worker::new(ports, sides, pool, settings, stop.clone(), published.clone());
        let started = thread::Builder::new().name(name.into()).spawn(move || worker.run());
        let thread = started.map_err(|reason| Error::System {
            attempt: "start a worker",
            reason,
            remedy: "raise the limit of processes (ulimit -u)",
        })?;
        Ok(Self { stop, published, thread: Thread::new(thread) })
    }

    /// The counts of a few milliseconds ago.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.published.last()
    }

    /// An observer, which reads the worker's counters on another thread.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer::new(Arc::clone(&self.published))
    }

    /// Whether the worker has ended by itself: both ports are finished, or one failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Makes the worker stop, like [`Running::stop`], but does not wait for the worker's end. A
    /// caller of several workers that exchange packets calls this for all workers before it waits
    /// for the first one.
    pub fn stop_soon(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Stops the worker: sources of packets make no more, packets in flight arrive within
    /// [`Settings::linger`], and all counts are returned.
    ///
    /// # Errors
    /// The failure of a port.
    ///
    /// # Panics
    /// Panics if the worker panicked.
    pub fn stop(self) -> Result<Snapshot, Error> {
        let (snapshot, ended) = self.finish();
        ended.map(|()| snapshot)
    }

    /// Like [`Running::stop`], but returns the counts even if a port failed. The counts are empty
    /// if the worker never began.
    ///
    /// # Panics
    /// Panics if the worker panicked.
    pub fn finish(mut self) -> (Snapshot, Result<(), Error>) {
        // A child of fork has no worker to stop.
        match self.end().unwrap_or_else(|| Ok(self.snapshot())) {
            Ok(snapshot) => (snapshot, Ok(())),
            // A worker publishes its last counts before it ends.
            Err(error) => (self.snapshot(), Err(error)),
        }
    }

    fn end(&mut self) -> Option<Result<Snapshot, Error>> {
        self.stop.store(true, Ordering::Relaxed);
        let result = self.thread.join()?;
        Some(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

/// Groups the queue pairs by port, into one or two ports.
fn sides(ports: &[Box<dyn Port>]) -> Result<Vec<Range<usize>>, Error> {
    let mut sides: Vec<Range<usize>> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let before = &ports[..index];
        match sides.last_mut().filter(|side| ports[side.start].name() == port.name()) {
            Some(side) => side.end += 1,
            None => sides.push(index..index + 1),
        }
        let queue = (port.name(), port.queue());
        if before.iter().any(|other| (other.name(), other.queue()) == queue) {
            let (what, value) = ("a second port of the name", port.name().to_owned());
            return Err(Error::Value { what, value, limit: "each port needs a unique name" });
        }
    }
    if sides.is_empty() || sides.len() > 2 {
        let (what, value) = ("a worker of", format!("{} ports", sides.len()));
        return Err(Error::Value { what, value, limit: "choose 1 or 2" });
    }
    Ok(sides)
}

impl Drop for Running {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = self.end();
        }
    }
}
