//! The sending half.

use std::io::IoSlice;
use std::sync::Arc;

use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd};

use super::sending::{Before, Sending, Stage};
use crate::channel::mechanism::lease::Mapped;
use crate::channel::mechanism::ring::Rests;
use crate::channel::mechanism::sealed::{Building, Built};
use crate::channel::mechanism::vmsplice::Pipe;
use crate::channel::mechanism::{choose, inline, window};
use crate::channel::shared::account::{Account, Meter};
use crate::channel::shared::error::Error;
use crate::channel::shared::lane::Lane;
use crate::channel::shared::layout::{self, SLOTS};
use crate::channel::shared::link::Link;
use crate::channel::shared::names::Mechanism;
use crate::channel::shared::pace::{PIECE_BYTES_MIN, Pace};
use crate::channel::shared::source::Source;
use crate::peer::process::Identity;
use crate::peer::region::Fetch;

/// The end that messages go into.
#[derive(Debug)]
pub struct Sender {
    pub(crate) lane: Lane,
    /// Messages published.
    pub(crate) next: u64,
    /// Messages that the receiver took, as last known.
    pub(crate) consumed: u64,
    /// Cells filled.
    pub(crate) filled: u64,
    /// Cells that the receiver emptied, as last known.
    pub(crate) drained: u64,
    /// Cells of the ring that have pages, from the first on.
    pub(crate) cells: u64,
    pub(crate) rests: Rests,
    /// See `inline::longest_at_once`.
    pub(crate) longest_at_once: Option<usize>,
    /// Pools of the receiver's.
    pub(crate) mapped: Mapped,
    pub(crate) pipe: Option<Pipe>,
}

impl Sender {
    pub(crate) fn new(link: Arc<Link>, index: usize) -> Self {
        let longest_at_once = inline::longest_at_once(&link);
        let lane = Lane::for_sending(link, index);
        let (rests, mapped, pipe) = (Rests::default(), Mapped::default(), None);
        let (next, consumed, filled, drained, cells) = (0, 0, 0, 0, 0);
        Self { lane, next, consumed, filled, drained, cells, rests, longest_at_once, mapped, pipe }
    }

    /// How the receiver keeps up, for a message of so many bytes that begins now.
    pub(crate) fn pace(&mut self, length: u64) -> Pace {
        let is_small = self.rests.is_awake() && window::is_small_better();
        // A look costs what a line takes from there to here, and matters to what would be cut up.
        let is_cut = length > PIECE_BYTES_MIN as u64;
        let is_behind = is_cut && self.lane.load(layout::DRAINED) != self.filled;
        Pace { is_small, is_behind }
    }

    /// Sends a message and returns as the bytes are the caller's again: nothing that is written to
    /// them afterwards is ever seen by the receiver. Whether the receiver has the message by then
    /// depends on the mechanism: small ones and the last chunks may still be in shared memory.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Unavailable`]: nothing happened. [`Error::Deadline`] with
    /// nothing moved: the receiver takes nothing, the message can be sent again. Everything else
    /// ends the channel.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Account, Error> {
        if let Some(account) = self.send_at_once(bytes) {
            return Ok(account);
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

    /// Hands over what was built in place, without a copy.
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
        self.lane.link.check_whole()?;
        let limit = self.lane.link.settings.size_max;
        let length = building.as_ref().map_or_else(|| source.length(), |b| b.len() as u64);
        if length > limit {
            return Err(Error::TooLong { size: Bytes(length), limit: Bytes(limit) });
        }
        let calls_before = self.lane.system_calls;
        let meter = Meter::of(length);
        if meter.is_some() {
            self.lane.look_around();
        }
        if self.lane.link.settings.integrity {
            source.begin_sum();
        }
        let mechanism = match building {
            // Which of them shows as it is given up.
            Some(_) => Mechanism::Sealed,
            None => {
                self.rests.note(self.lane.sleeps);
                let longest_inline = window::inline_bytes_max(self.rests.is_awake());
                choose::choose(&self.lane, &source, length, longest_inline)?
            }
        };
        let account = Account { mechanism, size_bytes: length, ..Account::default() };
        let (stage, readable, before) = (Stage::Slot, None, Before::default());
        Ok(Sending {
            sender: self,
            source,
            length,
            stage,
            built: building.map(Built::new),
            making: None,
            file: None,
            account,
            meter,
            readable,
            before,
            calls_before,
        })
    }

    /// What to poll for reading before [`Sending::advance`] is called again.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.lane.link.as_fd()
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> Identity {
        self.lane.link.peer.identity
    }

    /// Whether the mechanism can be used to send to this peer, as it was tried when they met.
    #[must_use]
    pub fn offers(&self, mechanism: Mechanism) -> bool {
        self.lane.link.offers(mechanism)
    }

    /// Asks for the next slot, where it is free, as far as a message as long as the last one
    /// reaches. As it is written to, its lines would have to come from the receiver's cache; now
    /// nobody waits.
    pub(crate) fn fetch_slot(&mut self, length: usize) {
        // What the receiver said wrongly is found, and told, as the slot is needed.
        if matches!(self.has_slot(), Ok(true)) {
            let at = self.lane.slot(self.next);
            let bytes = inline::bytes_to_fetch(&self.lane, length);
            self.lane.link.region.fetch(at, bytes, Fetch::ToWrite);
        }
    }

    /// Whether there is room for one more message.
    pub(crate) fn has_slot(&mut self) -> Result<bool, Error> {
        if self.next - self.consumed < SLOTS {
            return Ok(true);
        }
        let told = self.lane.load_timed(layout::CONSUMED, self.consumed);
        if !(self.consumed..=self.next).contains(&told) {
            return Err(Error::protocol("count of messages taken", told, self.next));
        }
        self.consumed = told;
        Ok(self.next - told < SLOTS)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.lane.state(layout::SENDER_STATE) == layout::OPEN {
            self.lane.set_state(layout::SENDER_STATE, layout::CLOSED);
        }
    }
}
