//! Signals that ask to end: Ctrl-C, `kill`, `timeout`, a terminal that is closed, Ctrl-\\.
//!
//! One rule holds for all of them. If a command has records to keep ([`Stops`]), the first signal
//! ends the current step and keeps the records; otherwise it ends the program. Further signals
//! within a moment count as the same request: `timeout` signals its child and then the child's
//! group, and both a shell and a terminal that hang up send a signal. A later signal ends the
//! program in any case. In every case, temporary files are removed.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_measure::signals;

use crate::error::{Error, code_of_signal};
use crate::terminal;

/// Set by the first signal, or by a journal that cannot write. Experiments check this flag
/// between samples.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

/// Number of the first signal; 0 before it.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Set by the second signal.
static ABORT: AtomicBool = AtomicBool::new(false);

/// What a signal does to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stops {
    /// The first signal ends the program, because there are no records to keep.
    AtOnce,
    /// The first signal sets [`STOP`], which the command polls. The second signal ends the
    /// program.
    WithWhatThereIs,
    /// The command handles the second signal as well: see [`is_aborted`].
    ByItself,
}

/// The present [`Stops`], as a number.
static STOPS: AtomicU8 = AtomicU8::new(Stops::AtOnce as u8);

/// Time of the last signal that counted, and the reason why signals cannot be watched, if they
/// cannot.
static STATE: Mutex<State> = Mutex::new(State { counted: None, failure: None });

struct State {
    counted: Option<Instant>,
    failure: Option<io::Error>,
}

/// Signals within this time after a signal that counted are the same request. `timeout` sends its
/// two signals within some microseconds; a busy machine may need a hundred milliseconds.
const MOMENT: Duration = Duration::from_secs(1);

/// Watches for signals from now on. If the system has no means to watch with, signals end the
/// program as usual, and [`hand_over`] reports the error.
pub(crate) fn begin() {
    let failed = signals::watch(on_signal).err();
    lock().failure = failed;
}

/// Hands signals over to the command from now on, as `stops` says.
///
/// # Errors
/// haul cannot watch for signals, and the command needs to see them.
pub(crate) fn hand_over(stops: Stops) -> Result<(), Error> {
    let failure = lock().failure.take().filter(|_| stops != Stops::AtOnce);
    STOPS.store(stops as u8, Ordering::Relaxed);
    failure.map_or(Ok(()), |reason| Err(Error::Signals(reason)))
}

/// The first signal that arrived, if one did.
pub(crate) fn signal() -> Option<i32> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Whether a second signal arrived.
pub(crate) fn is_aborted() -> bool {
    ABORT.load(Ordering::Relaxed)
}

fn on_signal(signal: i32) {
    let stops = STOPS.load(Ordering::Relaxed);
    if stops == Stops::AtOnce as u8 {
        terminal::say("haul: interrupted before it was complete");
        leave(signal);
    }
    let now = Instant::now();
    let mut state = lock();
    match state.counted {
        Some(last) if now.duration_since(last) < MOMENT => return,
        None => {
            SIGNAL.store(signal, Ordering::Relaxed);
            STOP.store(true, Ordering::Relaxed);
            terminal::say(
                "haul: interrupted; ending after the current sample (press again to abort)",
            );
        }
        Some(_) if stops == Stops::ByItself as u8 && !ABORT.swap(true, Ordering::Relaxed) => {}
        Some(_) => leave(signal),
    }
    state.counted = Some(now);
}

/// Ends the program. The program's children end by themselves, because their connections to this
/// process close.
fn leave(signal: i32) -> ! {
    haul_machine::file::remove_temporary_files();
    haul_experiments::drive::remove_folders();
    process::exit(code_of_signal(signal).into());
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}
