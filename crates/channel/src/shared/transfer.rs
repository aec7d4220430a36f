//! How a transfer goes on: step by step, and never without a look at the peer and the clock. How an
//! end waits meanwhile: see `waiting`.

use std::hint;
use std::time::{Duration, Instant};

use haul_model::Bytes;

use super::bell::{ASLEEP, POLLING};
use super::error::Error;
use super::lane::Lane;
use super::waiting::{Next, Waiting};
use haul_peer::deadline::Clock;

/// First sleep, after which the peer's life and the clock are looked at; each later one is longer.
const SLEEP_MIN: Duration = Duration::from_millis(5);
/// How long a call that does not wait moves things: some 10 MB. What is left by then is for the
/// next call.
const TURN: Duration = Duration::from_millis(1);
/// Longest sleep: how late the death of a peer is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// What one look at a transfer brought.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// It is complete.
    Done(T),
    /// Something moved, and more may.
    Moved,
    /// Nothing can move before the peer does.
    Blocked,
}

impl<T> Step<T> {
    pub(crate) fn map<U>(self, to: impl FnOnce(T) -> U) -> Step<U> {
        match self {
            Self::Done(output) => Step::Done(to(output)),
            Self::Moved => Step::Moved,
            Self::Blocked => Step::Blocked,
        }
    }
}

/// A transfer, or a part of one, that is moved on step by step and never waits by itself.
pub(crate) trait Transfer {
    type Output;

    /// Moves what can be moved now, of a large message a piece: some 0.1 ms, and a few at most, for
    /// the clock is looked at between two steps alone.
    fn step(&mut self) -> Result<Step<Self::Output>, Error>;

    fn lane(&mut self) -> &mut Lane;

    /// `send` or `receive`.
    fn attempt(&self) -> &'static str;

    /// Bytes moved, and bytes there are.
    fn progress(&self) -> (u64, u64);

    /// Whether the peer has begun with this message: from then on it must go on.
    fn has_begun(&self) -> bool;
}

/// Moves a transfer on until it is complete, or the peer is gone, or the time is over.
pub(crate) fn drive<T: Transfer>(transfer: &mut T) -> Result<T::Output, Error> {
    let settings = &transfer.lane().link.settings;
    let clock = Clock::new(settings.wait, settings.deadline);
    Ok(drive_until(transfer, clock)?.expect("only a pause ends before it is complete"))
}

/// As [`drive`], for so long at most: `None` where it is not complete by then. The deadline is the
/// caller's to keep.
pub(crate) fn drive_for<T: Transfer>(
    transfer: &mut T,
    time: Duration,
) -> Result<Option<T::Output>, Error> {
    drive_until(transfer, Clock::of_a_pause(time))
}

/// `None` only where the clock says that the caller goes on.
fn drive_until<T: Transfer>(
    transfer: &mut T,
    mut clock: Clock,
) -> Result<Option<T::Output>, Error> {
    transfer.lane().clear_pending();
    let (mut waiting, mut announced, mut sleep) = (Waiting::default(), None, SLEEP_MIN);
    loop {
        let step = transfer.step();
        // First, for what was read there means nothing then.
        transfer.lane().link.check_memory()?;
        match step? {
            Step::Done(output) => return Ok(Some(output)),
            Step::Moved => {
                if is_over(&mut clock, transfer)? {
                    return Ok(None);
                }
                (waiting, announced, sleep) = (Waiting::default(), None, SLEEP_MIN);
            }
            Step::Blocked => {
                let Some(seen) = announced.take() else {
                    match waiting.next(transfer.lane(), &mut clock) {
                        Next::Poll => hint::spin_loop(),
                        Next::GiveWay => transfer.lane().give_way(),
                        Next::Sleep => announced = Some(transfer.lane().announce(ASLEEP)),
                    }
                    continue;
                };
                let left = clock.left(|| transfer.has_begun());
                let time = left.map_or(sleep, |left| sleep.min(left));
                let was_woken = transfer.lane().sleep(seen, time);
                sleep = (sleep * 2).min(SLEEP_MAX);
                transfer.lane().check_own()?;
                let has_begun = transfer.has_begun();
                // Asking takes two system calls. A peer that rang was there, and one that is gone
                // rings no more.
                if !was_woken && transfer.lane().is_peer_gone(has_begun) {
                    return finish_without_peer(transfer, |transfer| is_over(&mut clock, transfer));
                }
                if is_over(&mut clock, transfer)? {
                    return Ok(None);
                }
                waiting = Waiting::default();
            }
        }
    }
}

/// Looks for something so many times, and once.
#[inline]
pub(crate) fn poll<T>(spins: u32, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..spins {
        if let Some(found) = find() {
            return Some(found);
        }
        hint::spin_loop();
    }
    find()
}

/// Moves a transfer on as far as it goes now, for [`TURN`] at most; `None` where the link's
/// descriptor tells when to come again.
pub(crate) fn advance<T: Transfer>(transfer: &mut T) -> Result<Option<T::Output>, Error> {
    transfer.lane().clear_pending();
    transfer.lane().link.read_socket();
    let mut start = None;
    let mut has_left = |transfer: &mut T| {
        let is_over = start.get_or_insert_with(Instant::now).elapsed() >= TURN;
        Ok(is_over && transfer.lane().set_pending())
    };
    let mut has_announced = false;
    loop {
        let step = transfer.step();
        transfer.lane().link.check_memory()?;
        match step? {
            Step::Done(output) => return Ok(Some(output)),
            Step::Moved if has_left(transfer)? => {
                transfer.lane().link.check_whole()?;
                return Ok(None);
            }
            Step::Moved => {}
            Step::Blocked if has_announced => {
                transfer.lane().sleeps += 1;
                break;
            }
            Step::Blocked => {
                transfer.lane().announce(POLLING);
                has_announced = true;
            }
        }
    }
    let has_begun = transfer.has_begun();
    if transfer.lane().is_peer_gone(has_begun) {
        return finish_without_peer(transfer, has_left);
    }
    // Nothing is read from the socket any more, so it would stay readable: nobody must poll it
    // again.
    transfer.lane().link.check_whole()?;
    Ok(None)
}

/// What a peer told before it went still counts; `None` where the caller goes on, as `is_over`
/// says.
fn finish_without_peer<T: Transfer>(
    transfer: &mut T,
    mut is_over: impl FnMut(&mut T) -> Result<bool, Error>,
) -> Result<Option<T::Output>, Error> {
    loop {
        let step = transfer.step();
        transfer.lane().link.check_memory()?;
        match step? {
            Step::Done(output) => return Ok(Some(output)),
            Step::Moved if is_over(transfer)? => return Ok(None),
            Step::Moved => {}
            Step::Blocked => {
                let (done, size) = transfer.progress();
                let (done, size) = (Bytes(done), Bytes(size));
                return Err(Error::PeerGone { attempt: transfer.attempt(), done, size });
            }
        }
    }
}

/// Whether the caller goes on.
fn is_over<T: Transfer>(clock: &mut Clock, transfer: &T) -> Result<bool, Error> {
    let Some((waited, limit)) = clock.over(|| transfer.has_begun()) else { return Ok(false) };
    if clock.is_a_pause() {
        return Ok(true);
    }
    let (done, size) = transfer.progress();
    let (done, size) = (Bytes(done), Bytes(size));
    Err(Error::Deadline { attempt: transfer.attempt(), done, size, waited, limit })
}
