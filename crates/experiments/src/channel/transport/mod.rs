//! What moves bytes from one process to another, as a driver has it at its end.
//!
//! From the bottom up:
//!
//! - `stream`: what every system has;
//! - `experiment2014`: the 2014 memcpy against vmsplice experiment, a yardstick of channels;
//! - `local`: copies within one process, for scale;
//! - `haul`: haul's channels.

mod experiment2014;
mod haul;
mod local;
mod stream;

use std::path::Path;
use std::time::{Duration, Instant};

use super::protocol::{Side, Task};

pub use haul::{ANNOUNCED, DIRTY_PAGES, INTEGRITY, UNTRUSTED};

/// The longest that two ends take to meet, before something is wrong.
const MEETING: Duration = Duration::from_secs(10);

/// How long an end waits before it looks again whether the other is there.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// One end of a transport. What fails says why, as a sentence without its full stop.
pub trait Transport {
    /// Sends a message. When it returns, the transport has no more use of these bytes, or says
    /// otherwise in its own documentation: nothing writes to them before B has verified what it
    /// has.
    ///
    /// # Errors
    /// It did not come about.
    fn send(&mut self, message: &[u8]) -> Result<(), String>;

    /// Receives a message of this length into memory that is B's alone.
    ///
    /// # Errors
    /// It did not come, or another length did.
    fn receive(&mut self, target: &mut [u8]) -> Result<(), String>;

    /// As [`receive`](Self::receive), and the sender may write to the target.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// Where this fails, the target stays mapped, and nobody uses it until the sender is gone.
    unsafe fn receive_exposed(&mut self, target: &mut [u8]) -> Result<(), String> {
        self.receive(target)
    }

    /// Untimed, before the messages of a task. `source` has them at A, one after the other, and is
    /// empty at B.
    ///
    /// # Errors
    /// The transport cannot get ready for it.
    fn before(&mut self, _task: &Task, _source: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Untimed, when all messages of a task were received: puts what the transport has elsewhere
    /// into the target, to be verified there.
    ///
    /// # Errors
    /// What it has is not what was sent.
    fn after(&mut self, _target: &mut [u8]) -> Result<(), String> {
        Ok(())
    }

    /// Memory that this end has beside source and target, in bytes. What both ends share counts at
    /// A. `None` where the transport does not know: then the process's memory is looked at, and
    /// what is shared counts at both.
    fn extra_bytes(&self) -> Option<u64> {
        None
    }

    /// A word about the last message: which mechanism it took, say.
    fn remark(&self) -> String {
        String::new()
    }
}

/// Meets the other end by the transport of this name. Paths in `folder` are both ends' own.
///
/// # Errors
/// No transport has this name, or the other end does not come.
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

/// Tries again until it comes about or the time to meet is over.
fn meet<T, E: ToString>(mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, String> {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(met) => return Ok(met),
            Err(error) if started.elapsed() > MEETING => return Err(error.to_string()),
            Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

/// A path for this transport in the folder of both ends.
fn path(folder: &Path, name: &str) -> std::path::PathBuf {
    folder.join(name.replace(':', "-"))
}
