//! The interface through which a driver uses one end of a transport. A transport moves bytes from
//! one process to another.
//!
//! From the bottom up:
//!
//! - `stream`: the transports that every system has;
//! - `experiment2014`: the 2014 experiment of memcpy against vmsplice, as a scale;
//! - `local`: copies within one process, as a scale;
//! - `haul`: haul's channels.

mod experiment2014;
mod haul;
mod local;
mod stream;

use std::path::Path;
use std::time::{Duration, Instant};

use super::protocol::{Side, Task};

pub use haul::{ANNOUNCED, BY_ENGINE, DIRTY_PAGES, ENGINE, INTEGRITY, UNTRUSTED, without_engine};

/// The longest time until two ends have connected.
const MEETING: Duration = Duration::from_secs(10);

/// The time between two attempts to connect.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// One end of a transport. The errors of its methods are sentences without a full stop.
pub trait Transport {
    /// Sends a message. When the call returns, the transport does not use these bytes any more,
    /// unless the transport's documentation says otherwise. The run does not write to these bytes
    /// before B has verified its bytes.
    ///
    /// # Errors
    /// The message was not sent.
    fn send(&mut self, message: &[u8]) -> Result<(), String>;

    /// Receives a message of this length into memory that B alone maps.
    ///
    /// # Errors
    /// The message did not arrive, or has a different length.
    fn receive(&mut self, target: &mut [u8]) -> Result<(), String>;

    /// Like [`receive`](Self::receive), but the sender may write to the target.
    ///
    /// # Errors
    /// Those of [`receive`](Self::receive).
    ///
    /// # Safety
    /// If this fails, the target must stay mapped, and must not be used until the sender has ended.
    unsafe fn receive_exposed(&mut self, target: &mut [u8]) -> Result<(), String> {
        self.receive(target)
    }

    /// Prepares the messages of a task, before the timed part. At A, `source` contains the
    /// messages in sequence; at B, `source` is empty.
    ///
    /// # Errors
    /// The transport cannot prepare the messages.
    fn before(&mut self, _task: &Task, _source: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Finishes a task after the timed part: copies the bytes that the transport holds in its own
    /// memory into the target, where the run verifies them.
    ///
    /// # Errors
    /// The transport holds bytes that differ from the sent bytes.
    fn after(&mut self, _target: &mut [u8]) -> Result<(), String> {
        Ok(())
    }

    /// The memory of this end in addition to source and target, in bytes. Memory that both ends
    /// share counts at A. `None` if the transport does not know it. In this case, the memory of
    /// the process is measured, and shared memory counts at both ends.
    fn extra_bytes(&self) -> Option<u64> {
        None
    }

    /// A remark about the last message, such as the mechanism that it used.
    fn remark(&self) -> String {
        String::new()
    }
}

/// Connects to the other end through the transport with this name. Both ends use the paths in
/// `folder`.
///
/// # Errors
/// No transport has this name, or the other end does not connect.
pub fn open(name: &str, side: Side, folder: &Path) -> Result<Box<dyn Transport>, String> {
    match name {
        "pipe" => Ok(Box::new(stream::Pipe::open()?)),
        "unix" => Ok(Box::new(stream::Unix::open(side, folder)?)),
        "memcpy" => Ok(Box::new(local::Memcpy::default())),
        "2014:mymemcpy" => Ok(Box::new(local::Mymemcpy::default())),
        "2014:memcpy" => Ok(Box::new(experiment2014::Staged::open(side, folder)?)),
        "2014:vmsplice" => Ok(Box::new(experiment2014::Vmsplice::open(side, folder)?)),
        _ => Ok(Box::new(haul::Haul::open(name, side, folder)?)),
    }
}

/// Repeats the attempt until it succeeds or the time to connect is over.
fn meet<T, E: ToString>(mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, String> {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(met) => return Ok(met),
            Err(error) if started.elapsed() > MEETING => return Err(error.to_string()),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// The path of this transport's socket or file in the folder that both ends use.
fn path(folder: &Path, name: &str) -> std::path::PathBuf {
    folder.join(name.replace(':', "-"))
}
