//! The state of the sending half: its lane, the next message, and the state of the mechanisms.

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

/// Number of slots that are prefetched ahead of the next message, for short messages. Messages of
/// 64 B move at 0.83 GB/s on Emerald Rapids, and at 0.59 if only one slot is prefetched.
/// Additional pauses between two polls of the other end do not help.
const FETCH_AHEAD: u64 = 4;
/// Up to this length, header included, a message is short: a core can fetch the lines of that many
/// slots at once.
const FETCH_SEVERAL_BYTES_MAX: usize = 192;

/// The sending half, without a message in transit.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) lane: Lane,
    /// The next message to publish.
    pub(crate) next: Message,
    /// The first message that the receiver had not consumed at the last read.
    pub(crate) consumed: Message,
    /// See `inline::longest_at_once`.
    pub(crate) longest_at_once: Option<usize>,
    /// The number of messages whose slots were prefetched.
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

    /// Begins a call, see [`Lane::enter`].
    ///
    /// # Errors
    /// The errors of [`Lane::enter`].
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<(), Error> {
        let next = self.next.index();
        self.lane.enter(|lane| lane.load(layout::PUBLISHED) == next).map(drop)
    }

    /// Whether the receiver is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.lane.state(layout::RECEIVER_STATE) != layout::OPEN
    }

    /// The sender's recent sleeps.
    pub(crate) fn sleep_history(&mut self) -> &mut ring::SleepHistory {
        &mut self.states.ring.sleep_history
    }

    /// Prefetches the next free slots, for messages of the same length as the last message. A
    /// later write would wait for the lines from the receiver's cache; a prefetch does not wait.
    /// For short messages it prefetches several slots, because a line's transfer takes longer
    /// than such a message.
    pub(crate) fn fetch_slots(&mut self, length: usize) {
        // An impossible count from the receiver is reported later, when the slot is needed.
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
            return Err(Error::protocol("count of consumed messages", reported, next));
        }
        self.consumed = Message::after(reported);
        Ok(next - reported < SLOTS)
    }
}
