//! Ctrl-C: the first ends the measurement and keeps what there is, the second ends the program.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Ending, Error};
use crate::terminal;

/// Set by the first Ctrl-C, or by a journal that can write no more. Experiments look at it between
/// samples.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

/// Set by Ctrl-C alone.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What shells say of a program that Ctrl-C ended: 128 + SIGINT.
const EXIT_CODE_ABORTED: i32 = 130;

/// Watches for Ctrl-C, SIGTERM and SIGHUP from now on, and says at the first what `follows`: what
/// becomes of what is there.
///
/// # Errors
/// The system refuses a handler or the thread that it wakes.
pub(crate) fn watch(follows: &'static str) -> Result<(), Error> {
    ctrlc::set_handler(move || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            process::exit(EXIT_CODE_ABORTED);
        }
        STOP.store(true, Ordering::Relaxed);
        terminal::say(&format!("haul: interrupted; {follows} (once more to abort)"));
    })?;
    Ok(())
}

/// How a run that did not fail ended.
pub(crate) fn ending() -> Ending {
    if INTERRUPTED.load(Ordering::Relaxed) { Ending::Interrupted } else { Ending::Done }
}
