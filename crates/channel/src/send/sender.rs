//! The sending half, for who sends.

use std::io::IoSlice;
use std::sync::Arc;

use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd};

use super::at_once::gone;
use super::outbox::Outbox;
use super::sending::Sending;
use crate::mechanism::choose::Reason;
use crate::mechanism::dispatch::{self, AnySending};
use crate::mechanism::sealed::Building;
use crate::mechanism::{choose, window};
use crate::shared::account::{Account, Meter};
use crate::shared::error::Error;
use crate::shared::link::Link;
use crate::shared::names::Mechanism;
use crate::shared::source::Source;
use haul_peer::life::Life;
use haul_peer::process::Identity;

/// What a message would go by, see [`Sender::explain`].
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Why it is this one.
    pub reason: Reason,
    /// Whether both ends trust each other.
    pub is_trusted: bool,
    /// Whether a table of what was measured on this machine is in force.
    pub is_measured: bool,
    /// Each mechanism, and what keeps this message from it.
    pub obstacles: Vec<(Mechanism, Option<&'static str>)>,
}

/// The end that messages go into.
#[derive(Debug)]
pub struct Sender {
    pub(crate) outbox: Outbox,
}

impl Sender {
    pub(crate) fn new(link: Arc<Link>, index: usize, life: Life) -> Self {
        Self { outbox: Outbox::new(link, index, life) }
    }

    /// Sends a message and returns as the bytes are the caller's again: nothing that is written to
    /// them afterwards is ever seen by the receiver. Whether the receiver has the message by then
    /// depends on the mechanism: small ones and the last chunks may still be in shared memory.
    ///
    /// # Errors
    /// [`Error::PeerGone`] at once where the receiver closed, or died 0.1 ms ago or more;
    /// [`Error::TakenOver`] where a fork gave the channel to another process.
    /// [`Error::TooLong`], [`Error::Unavailable`]: nothing happened. [`Error::Deadline`] with
    /// nothing moved: the receiver takes nothing, the message can be sent again. Everything else
    /// ends the channel.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Account, Error> {
        if let Some(sent) = self.outbox.send_at_once(bytes) {
            return sent;
        }
        self.start_send(bytes)?.finish()
    }

    /// Sends several slices as one message, see [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<Account, Error> {
        self.start(Source::many(parts), None)?.finish()
    }

    /// Hands over what was built in place, without a copy. Where a process that another thread
    /// forked has that memory until its exec, waits for it, for 0.1 s at most.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`Error::System`] where the memory cannot be handed over.
    pub fn send_built(&mut self, building: Building) -> Result<Account, Error> {
        self.start(Source::one(&[]), Some(building))?.finish()
    }

    /// Begins to send, and does what can be done without waiting.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn start_send<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Sending<'a>, Error> {
        self.start(Source::one(bytes), None)
    }

    fn start<'a>(
        &'a mut self,
        mut source: Source<'a>,
        building: Option<Building>,
    ) -> Result<Sending<'a>, Error> {
        let outbox = &mut self.outbox;
        outbox.enter()?;
        let limit = outbox.lane.link.settings.size_max;
        let length = building.as_ref().map_or_else(|| source.length(), |b| b.len() as u64);
        if length > limit {
            return Err(Error::TooLong { size: Bytes(length), limit: Bytes(limit) });
        }
        if outbox.is_closed() || outbox.lane.is_known_gone() {
            return Err(gone(length));
        }
        let calls_before = outbox.lane.system_calls;
        let meter = Meter::of(length);
        if meter.is_some() {
            outbox.lane.refresh_affinity();
        }
        if outbox.lane.link.settings.integrity {
            source.begin_sum();
        }
        let (mechanism, by) = match building {
            // Whether it is sealed shows as it is given up.
            Some(building) => (Mechanism::Sealed, AnySending::built(building)),
            None => {
                let sleeps = outbox.lane.sleeps;
                outbox.sleep_history().note(sleeps);
                let longest_inline = window::inline_bytes_max(outbox.sleep_history().is_awake());
                let mechanism = choose::choose(&outbox.lane, &source, length, longest_inline)?;
                (mechanism, AnySending::new(mechanism, &outbox.lane.link, length))
            }
        };
        let account = Account { mechanism, size_bytes: length, ..Account::default() };
        Ok(Sending::new(outbox, source, by, account, (meter, calls_before)))
    }

    /// Which mechanism a message of so many bytes, in one piece, would go by now, and why. What
    /// that stands on may have changed by the next message: the load, and the receiver's memory.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Unavailable`], and what ended the channel before.
    pub fn explain(&mut self, length: u64) -> Result<Explanation, Error> {
        let outbox = &mut self.outbox;
        outbox.enter()?;
        let limit = outbox.lane.link.settings.size_max;
        if length > limit {
            return Err(Error::TooLong { size: Bytes(length), limit: Bytes(limit) });
        }
        outbox.lane.refresh_affinity();
        // How many pieces there are is all that a mechanism asks of the source.
        let mut source = Source::one(&[]);
        if outbox.lane.link.settings.integrity {
            source.begin_sum();
        }
        let longest_inline = window::inline_bytes_max(outbox.sleep_history().is_awake());
        let lane = &outbox.lane;
        let (mechanism, reason) =
            choose::choose_with_reason(lane, &source, length, longest_inline)?;
        let obstacle = |other| dispatch::obstacle(other, &lane.link, &source, length);
        Ok(Explanation {
            mechanism,
            reason,
            is_trusted: lane.link.is_trusted,
            is_measured: choose::is_measured(),
            obstacles: Mechanism::ALL.into_iter().map(|other| (other, obstacle(other))).collect(),
        })
    }

    /// What to poll for reading before [`Sending::advance`] is called again.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.outbox.lane.link.as_fd()
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> Identity {
        self.outbox.lane.peer().identity
    }

    /// Whether the mechanism can be used to send to this peer, as it was tried when they met.
    #[must_use]
    pub fn offers(&self, mechanism: Mechanism) -> bool {
        dispatch::offers(&self.outbox.lane.link, mechanism)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.outbox.lane.close();
    }
}
