//! What the sending half keeps: its lane, which message is next, and what mechanisms keep.

use std::sync::Arc;

use crate::mechanism::dispatch::SenderStates;
use crate::mechanism::{inline, ring};
use crate::shared::error::Error;
use crate::shared::lane::Lane;
use crate::shared::layout::{self, SLOTS};
use crate::shared::link::Link;
use crate::shared::message::Message;
use haul_peer::life::Life;
use haul_peer::region::Fetch;

/// So many slots ahead of the next message are asked for, where they are short: messages of 64 B go
/// at 0.83 GB/s on Emerald Rapids, at 0.59 where one is. An end that looks away for a moment as it
/// finds nothing adds nothing to that.
const FETCH_AHEAD: u64 = 4;
/// What counts as short: the lines of so many slots are those that a core asks for at once.
const FETCH_SEVERAL_BYTES_MAX: usize = 192;

/// The sending half, but for a message on its way.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) lane: Lane,
    /// The next message to be published.
    pub(crate) next: Message,
    /// The first one that the receiver has not taken, as last known.
    pub(crate) consumed: Message,
    /// See `inline::longest_at_once`.
    pub(crate) longest_at_once: Option<usize>,
    /// Messages whose slots were asked for.
    fetched: u64,
    pub(crate) states: SenderStates,
}

impl Outbox {
    pub(crate) fn new(link: Arc<Link>, index: usize, life: Life) -> Self {
        let longest_at_once = inline::longest_at_once(&link);
        let lane = Lane::for_sending(link, index, life);
        let (next, consumed) = (Message::default(), Message::default());
        let states = SenderStates::default();
        Self { lane, next, consumed, longest_at_once, fetched: 0, states }
    }

    /// A call begins, see [`Lane::enter`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<(), Error> {
        let next = self.next.index();
        self.lane.enter(|lane| lane.load(layout::PUBLISHED) == next).map(drop)
    }

    /// Whether the receiver takes nothing more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lane.state(layout::RECEIVER_STATE) != layout::OPEN
    }

    /// Whether the sender keeps going, or has slept of late.
    pub(crate) fn sleep_history(&mut self) -> &mut ring::SleepHistory {
        &mut self.states.ring.sleep_history
    }

    /// Asks for the next slots, as many as are free, as far as a message as long as the last one
    /// reaches. As they are written to, their lines would have to come from the receiver's cache;
    /// now nobody waits. Of short messages several, for a line takes longer than such a message.
    pub(crate) fn fetch_slots(&mut self, length: usize) {
        // What the receiver said wrongly is found, and told, as the slot is needed.
        if !matches!(self.has_slot(), Ok(true)) {
            return;
        }
        let bytes = inline::bytes_to_fetch(&self.lane, length);
        let ahead = if bytes <= FETCH_SEVERAL_BYTES_MAX { FETCH_AHEAD } else { 1 };
        let next = self.next.index();
        let end = (next + ahead).min(self.consumed.index() + SLOTS);
        for index in self.fetched.max(next)..end {
            let at = self.lane.slot(Message::after(index));
            self.lane.link.region.fetch(at, bytes, Fetch::ToWrite);
        }
        self.fetched = self.fetched.max(end);
    }

    /// Whether there is room for one more message.
    pub(crate) fn has_slot(&mut self) -> Result<bool, Error> {
        let (next, consumed) = (self.next.index(), self.consumed.index());
        if next - consumed < SLOTS {
            return Ok(true);
        }
        let reported = self.lane.load_timed(layout::CONSUMED, consumed);
        if !(consumed..=next).contains(&reported) {
            return Err(Error::protocol("count of messages taken", reported, next));
        }
        self.consumed = Message::after(reported);
        Ok(next - reported < SLOTS)
    }
}
