//! A worker that forwards between two ports, run to completion: a burst in, what the mode does with
//! it, a burst out. Several workers share a port by its queue pairs, and nothing else.
//!
//! From the bottom up:
//!
//! - `echo`: answers of a host;
//! - `mode`: what is done with a packet;
//! - `spread`: which queue pair a packet goes to;
//! - `published`: a worker's counters, for others to see;
//! - `worker`: the loop.

mod echo;
mod mode;
mod published;
mod spread;
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

/// What is done with packets that a port has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// They are dropped at once, as DPDK's testpmd does.
    Never,
    /// They are tried so many times again, then dropped.
    Times(u32),
    /// They are tried until they are sent, as long as the port has a link and the worker runs.
    UntilSent,
}

/// How a worker forwards.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What is done with packets.
    pub mode: Mode,
    /// Packets of a burst, 1 to 256.
    pub burst: usize,
    /// What is done with those that a port has no room for.
    pub retry: Retry,
    /// The processor to run on; `None` for any.
    pub cpu: Option<usize>,
    /// Whether the worker gives its processor away after a poll that found nothing, for tests on a
    /// machine that has fewer processors than workers.
    pub yields: bool,
    /// How long a worker that is stopped waits for packets that are under way.
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

/// A worker that runs. It is stopped when this goes.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    published: Arc<Published>,
    thread: Thread<Result<Snapshot, Error>>,
}

impl Running {
    /// Starts a worker of this name that forwards from the first port to the second and back; of
    /// one port alone, what comes from it goes back to it. Ports of one name, which follow each
    /// other, are queue pairs of one: what comes is taken from each in turn, and what goes there is
    /// spread over them by a hash of its flow.
    ///
    /// # Errors
    /// [`Error::Value`] for a burst that cannot be, and for two ports of one name and queue, or for
    /// none or more than two names;
    /// [`Error::System`] where there is no thread, or the processor is not this process's.
    pub fn start(
        name: &str,
        ports: impl Into<Vec<Box<dyn Port>>>,
        pool: Pool,
        settings: Settings,
    ) -> Result<Self, Error> {
        if settings.burst == 0 || settings.burst > BURST_MAX {
            let (what, value) = ("a burst of", format!("{} packets", settings.burst));
            return Err(Error::Value { what, value, limit: "1 to 256 are" });
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

    /// What was counted, as of a few milliseconds ago.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.published.last()
    }

    /// Who sees its counters from another thread.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer::new(Arc::clone(&self.published))
    }

    /// Whether the worker has ended by itself: both ports are finished, or one failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Has it stop, as [`Running::stop`] does, and does not wait for it: of several workers whose
    /// packets meet elsewhere, all stop before the first has gone.
    pub fn stop_soon(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Stops it: ports that make packets make no more, what is under way arrives within
    /// [`Settings::linger`], and everything that was counted comes back.
    ///
    /// # Errors
    /// Why a port failed.
    ///
    /// # Panics
    /// The worker did.
    pub fn stop(self) -> Result<Snapshot, Error> {
        let (snapshot, ended) = self.finish();
        ended.map(|()| snapshot)
    }

    /// The same, with what was counted also where a port failed: nothing where none of it began.
    ///
    /// # Panics
    /// The worker did.
    pub fn finish(mut self) -> (Snapshot, Result<(), Error>) {
        // In a child of fork there is no worker, and nothing to be stopped.
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

/// Which ports are queue pairs of one: of one port or of two.
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
            return Err(Error::Value { what, value, limit: "each port has a name of its own" });
        }
    }
    if sides.is_empty() || sides.len() > 2 {
        let (what, value) = ("a worker of ports,", sides.len().to_string());
        return Err(Error::Value { what, value, limit: "1 or 2 are" });
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
