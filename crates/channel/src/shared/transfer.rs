//! The loop of a transfer: step by step, with a check of the peer and the clock between two
//! steps. `waiting` says how an end waits meanwhile.

use std::hint;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_model::Bytes;

use super::bell::{ASLEEP, POLLING};
use super::beside::Copying;
use super::error::Error;
use super::lane::Lane;
use super::waiting::{Next, Waiting};
use haul_peer::deadline::Clock;

/// The duration of the first sleep, after which the peer and the clock are checked. Each later
/// sleep is longer.
const SLEEP_MIN: Duration = Duration::from_millis(5);
/// How long a call that does not wait moves bytes: enough for about 10 MB. The next call
/// continues.
const TURN: Duration = Duration::from_millis(1);
/// The longest sleep, and so the longest delay until the death of a peer is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// How long an end takes part in an engine's copy before it publishes what is there. Each later
/// pause for the same copy is twice as long, so that an engine that hangs is noticed as it would be
/// without a pause.
const COPY_MIN: Duration = Duration::from_micros(20);

/// The result of one step of a transfer.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// The transfer is complete.
    Done(T),
    /// Bytes moved, and more can be moved.
    Moved,
    /// No bytes can be moved before the peer acts.
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

/// A transfer, or a part of one. A step never waits.
pub(crate) trait Transfer {
    type Output;

    /// Moves the bytes that can be moved now; of a large message, one piece. A step takes about 0.1
    /// ms, a few ms at most, because the clock is only checked between steps.
    fn step(&mut self) -> Result<Step<Self::Output>, Error>;

    fn lane(&mut self) -> &mut Lane;

    /// `send` or `receive`.
    fn attempt(&self) -> &'static str;

    /// Bytes moved, and bytes of the message.
    fn progress(&self) -> (u64, u64);

    /// Whether the peer has begun with this message. From then on the deadline applies.
    fn has_begun(&self) -> bool;

    /// The copy of an engine that must end before the next bytes can move, if there is one.
    fn copying(&mut self) -> Option<&mut Copying> {
        None
    }
}

/// Steps a transfer until it is complete, the peer is gone, or the time has ended.
pub(crate) fn drive<T: Transfer>(transfer: &mut T) -> Result<T::Output, Error> {
    let settings = &transfer.lane().link.settings;
    let clock = Clock::new(settings.wait, settings.deadline);
    Ok(drive_until(transfer, clock)?.expect("only a pause ends before the transfer is complete"))
}

/// Like [`drive`], for `time` at most. Returns `None` if the transfer is not complete by then.
/// The caller must check the deadline.
pub(crate) fn drive_for<T: Transfer>(
    transfer: &mut T,
    time: Duration,
) -> Result<Option<T::Output>, Error> {
    drive_until(transfer, Clock::of_a_pause(time))
}

/// Returns `None` only if the clock's limit is the limit of a pause.
fn drive_until<T: Transfer>(
    transfer: &mut T,
    mut clock: Clock,
) -> Result<Option<T::Output>, Error> {
    transfer.lane().clear_pending();
    let (mut waiting, mut announced, mut sleep) = (Waiting::default(), None, SLEEP_MIN);
    let mut copy = COPY_MIN;
    loop {
        let step = transfer.step();
        // This check comes first, because the values that were read are meaningless if memory was
        // missing.
        transfer.lane().link.check_memory()?;
        match step? {
            Step::Done(output) => return Ok(Some(output)),
            Step::Moved => {
                if is_over(&mut clock, transfer)? {
                    return Ok(None);
                }
                (waiting, announced, sleep) = (Waiting::default(), None, SLEEP_MIN);
                copy = COPY_MIN;
            }
            Step::Blocked => {
                if take_part(transfer, &mut clock, &mut copy) {
                    if is_over(&mut clock, transfer)? {
                        return Ok(None);
                    }
                    continue;
                }
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
                // The check takes two system calls. A peer that rang the bell was alive.
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

/// Takes part in the copy of an engine for which the transfer waits, at most for `pause`, which
/// becomes twice as long. Returns false if there is no such copy.
fn take_part<T: Transfer>(transfer: &mut T, clock: &mut Clock, pause: &mut Duration) -> bool {
    if transfer.copying().is_none() {
        return false;
    }
    let left = clock.left(|| transfer.has_begun());
    let time = left.map_or(*pause, |left| left.min(*pause));
    if let Some(copying) = transfer.copying() {
        copying.wait_for(time);
    }
    *pause = pause.saturating_mul(2);
    true
}

/// Calls `find` until it returns a value, at most `spins` + 1 times.
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

/// Steps a transfer as far as possible now, for [`TURN`] at most. Returns `None` if the caller
/// should poll the link's descriptor.
pub(crate) fn advance<T: Transfer>(transfer: &mut T) -> Result<Option<T::Output>, Error> {
    transfer.lane().clear_pending();
    transfer.lane().clear_copied();
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
    // On a broken channel the socket is no longer read and stays readable, so the caller must not
    // poll it again.
    transfer.lane().link.check_whole()?;
    let link = Arc::clone(&transfer.lane().link);
    if let (Some(beside), Some(copying)) = (&link.beside, transfer.copying()) {
        beside.await_end(copying);
    }
    Ok(None)
}

/// Words that a peer published before it died still count. Returns `None` if `is_over` returns
/// true.
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

/// Whether a pause has ended. Returns an error if another time limit was reached.
fn is_over<T: Transfer>(clock: &mut Clock, transfer: &T) -> Result<bool, Error> {
    let Some((waited, limit)) = clock.over(|| transfer.has_begun()) else { return Ok(false) };
    if clock.is_a_pause() {
        return Ok(true);
    }
    let (done, size) = transfer.progress();
    let (done, size) = (Bytes(done), Bytes(size));
    Err(Error::Deadline { attempt: transfer.attempt(), done, size, waited, limit })
}
