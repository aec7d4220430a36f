//! Background threads that close descriptors whose closing a peer may delay.
//!
//! The delay has no limit, so both the threads and the unclosed descriptors are counted. If there
//! are too many unclosed descriptors, this process accepts no new peer.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::net::sockopt;

use super::error::Error;
use super::fork::Lock;

/// The largest number of threads. It is enough even if some threads never end.
const CLOSERS_MAX: usize = 16;

/// With this many unclosed descriptors, this process accepts no new peer. The limit has room for
/// the descriptors of one packet (253, the kernel's SCM_MAX_FD) and a few sockets. It is a
/// quarter of the 1024 descriptors that a process may have by default.
const HELD_MAX: usize = 256;

static FILES: BackgroundCloser<OwnedFd> = BackgroundCloser::new(close_file);

/// Closes descriptors from a peer, or a socket that contains such descriptors, without waiting
/// for the peer.
pub fn close(files: impl IntoIterator<Item = OwnedFd>) {
    FILES.add(files);
}

/// Checks whether this process may accept a new peer.
///
/// # Errors
/// [`Error::Unclosed`].
pub fn check() -> Result<(), Error> {
    FILES.check()
}

fn close_file(file: OwnedFd) {
    // With this option the kernel drops a socket's unsent bytes, instead of waiting until they
    // are sent. The option is not reliable: setting it fails for other files, and a peer that
    // shares the socket can reset it.
    let _ = sockopt::set_socket_linger(&file, Some(Duration::ZERO));
    drop(file);
}

struct BackgroundCloser<T: 'static> {
    state: Lock<State<T>>,
    close: fn(T),
}

struct State<T> {
    waiting: VecDeque<T>,
    /// The number of descriptors that are being closed.
    closing: usize,
    closers: usize,
}

impl<T> State<T> {
    /// The number of descriptors that are not closed yet.
    fn held(&self) -> usize {
        self.waiting.len() + self.closing
    }
}

impl<T: Send> BackgroundCloser<T> {
    const fn new(close: fn(T)) -> Self {
        let state = State { waiting: VecDeque::new(), closing: 0, closers: 0 };
        // A child of fork has none of these threads, and starts its own threads for waiting
        // descriptors.
        let renew = |state: &mut State<T>| (state.closing, state.closers) = (0, 0);
        Self { state: Lock::new(state, renew), close }
    }

    fn state(&'static self) -> MutexGuard<'static, State<T>> {
        self.state.lock()
    }

    fn add(&'static self, things: impl IntoIterator<Item = T>) {
        let mut state = self.state();
        state.waiting.extend(things);
        self.help(&mut state);
    }

    /// Starts one more thread if a descriptor waits. If no thread can be started, the descriptor
    /// waits for a later call. This call does not close it, because one usable descriptor less is
    /// better than a call that never ends.
    fn help(&'static self, state: &mut State<T>) {
        if state.waiting.is_empty() || state.closers == CLOSERS_MAX {
            return;
        }
        let started = thread::Builder::new().name("haul-close".into()).spawn(move || self.work());
        state.closers += usize::from(started.is_ok());
    }

    fn work(&'static self) {
        let mut state = self.state();
        while let Some(thing) = state.waiting.pop_front() {
            state.closing += 1;
            drop(state);
            (self.close)(thing);
            state = self.state();
            state.closing -= 1;
        }
        state.closers -= 1;
    }

    fn check(&'static self) -> Result<(), Error> {
        let mut state = self.state();
        let held = state.held();
        if held < HELD_MAX {
            return Ok(());
        }
        // Tries again, because starting a thread may have failed before.
        self.help(&mut state);
        Err(Error::Unclosed { held, limit: HELD_MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    /// Waits until `is_so` returns true. If that takes too long, the test fails.
    fn soon(is_so: impl Fn() -> bool) {
        let start = std::time::Instant::now();
        while !is_so() {
            assert!(start.elapsed().as_secs() < 30, "it never comes");
            thread::yield_now();
        }
    }

    /// Waits until the sender is dropped.
    fn wait(until: Receiver<()>) {
        let _ = until.recv();
    }

    #[test]
    fn slow_descriptors_are_counted_and_closed_by_limited_threads() {
        static CLOSER: BackgroundCloser<Receiver<()>> = BackgroundCloser::new(wait);
        let mut holding = Vec::new();
        for held in 0..HELD_MAX + 40 {
            assert_eq!(CLOSER.check().is_ok(), held < HELD_MAX, "{held}");
            let (hold, until) = channel();
            CLOSER.add([until]);
            holding.push(hold);
        }
        let error = CLOSER.check().unwrap_err();
        assert!(
            matches!(error, Error::Unclosed { held, limit } if held == HELD_MAX + 40 && limit == HELD_MAX),
            "{error:?}"
        );
        assert_eq!(CLOSER.state().closers, CLOSERS_MAX);
        drop(holding);
        soon(|| CLOSER.state().closers == 0);
        assert_eq!(CLOSER.state().held(), 0);
        assert!(CLOSER.check().is_ok());
    }

    #[test]
    fn fast_descriptor_is_closed_while_others_wait() {
        static CLOSER: BackgroundCloser<Receiver<()>> = BackgroundCloser::new(wait);
        let (hold, until) = channel();
        CLOSER.add([until]);
        let (gone, until) = channel();
        drop(gone);
        CLOSER.add([until]);
        soon(|| CLOSER.state().held() == 1);
        drop(hold);
    }
}
