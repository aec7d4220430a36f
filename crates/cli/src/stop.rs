//! Signals that ask to end: Ctrl-C, `kill`, `timeout`, a terminal that is closed, Ctrl-\\.
//!
//! One rule for all of them. The first ends what is under way and keeps what there is, where a
//! command has something to keep ([`Stops`]), and else the program. Others within a moment are the
//! same request: `timeout` signals its child and then the child's group, a shell and a terminal
//! that hang up both say so. A later one ends the program in any case. Whatever the way, no
//! temporary file stays.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_measure::signals;

use crate::error::{Error, code_of_signal};
use crate::terminal;

/// Set by the first signal, or by a journal that can write no more. Experiments look at it between
/// samples.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

/// The first signal's number; 0 before it.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Set by the second.
static ABORT: AtomicBool = AtomicBool::new(false);

/// What a signal does to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stops {
    /// The first ends the program: there is nothing to keep.
    AtOnce,
    /// The first sets [`STOP`], at which the command looks, and the second ends the program.
    WithWhatThereIs,
    /// The second is the command's as well: see [`is_aborted`].
    ByItself,
}

/// What holds now, as a number.
static STOPS: AtomicU8 = AtomicU8::new(Stops::AtOnce as u8);

/// When the last signal that counted came, and why nobody hears of them, where that is so.
static STATE: Mutex<State> = Mutex::new(State { counted: None, deaf: None });

struct State {
    counted: Option<Instant>,
    deaf: Option<io::Error>,
}

/// Signals so soon after one that counted are the same request. `timeout` takes some microseconds
/// between its two; a machine that is busy may take a hundred milliseconds.
const MOMENT: Duration = Duration::from_secs(1);

/// Watches for signals from now on. Where the system has nothing to watch with they end the
/// program as ever, which is told by [`hand_over`].
pub(crate) fn begin() {
    let failed = signals::watch(told).err();
    lock().deaf = failed;
}

/// Leaves signals to the command from now on, as it wants them.
///
/// # Errors
/// Signals cannot be watched for, and the command has to see them.
pub(crate) fn hand_over(stops: Stops) -> Result<(), Error> {
    let deaf = lock().deaf.take().filter(|_| stops != Stops::AtOnce);
    STOPS.store(stops as u8, Ordering::Relaxed);
    deaf.map_or(Ok(()), |reason| Err(Error::Signals(reason)))
}

/// The first signal that came, if one did.
pub(crate) fn signal() -> Option<i32> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Whether a second signal came.
pub(crate) fn is_aborted() -> bool {
    ABORT.load(Ordering::Relaxed)
}

fn told(signal: i32) {
    let stops = STOPS.load(Ordering::Relaxed);
    if stops == Stops::AtOnce as u8 {
        terminal::say("haul: interrupted before it was done");
        leave(signal);
    }
    let now = Instant::now();
    let mut state = lock();
    match state.counted {
        Some(last) if now.duration_since(last) < MOMENT => return,
        None => {
            SIGNAL.store(signal, Ordering::Relaxed);
            STOP.store(true, Ordering::Relaxed);
            terminal::say("haul: interrupted; ending with what is under way (once more to abort)");
        }
        Some(_) if stops == Stops::ByItself as u8 && !ABORT.swap(true, Ordering::Relaxed) => {}
        Some(_) => leave(signal),
    }
    state.counted = Some(now);
}

/// Ends the program. Its children end by themselves: each has a conversation with this process.
fn leave(signal: i32) -> ! {
    haul_machine::file::remove_temporary_files();
    haul_experiments::drive::remove_folders();
    process::exit(code_of_signal(signal).into());
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}
