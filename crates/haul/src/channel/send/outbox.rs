//! What the sending half keeps: its lane, which message is next, and what mechanisms keep.

use std::sync::Arc;

use crate::channel::mechanism::dispatch::SenderKeeps;
use crate::channel::mechanism::{inline, ring};
use crate::channel::shared::error::Error;
use crate::channel::shared::lane::Lane;
use crate::channel::shared::layout::{self, SLOTS};
use crate::channel::shared::link::Link;
use crate::channel::shared::message::Message;
use crate::peer::region::Fetch;

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
    pub(crate) keeps: SenderKeeps,
}

impl Outbox {
    pub(crate) fn new(link: Arc<Link>, index: usize) -> Self {
        let longest_at_once = inline::longest_at_once(&link);
        let lane = Lane::for_sending(link, index);
        let (next, consumed) = (Message::default(), Message::default());
        Self { lane, next, consumed, longest_at_once, keeps: SenderKeeps::default() }
    }

    /// Whether the sender keeps going, or has slept of late.
    pub(crate) fn rests(&mut self) -> &mut ring::Rests {
        &mut self.keeps.ring.rests
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
        let (next, consumed) = (self.next.index(), self.consumed.index());
        if next - consumed < SLOTS {
            return Ok(true);
        }
        let told = self.lane.load_timed(layout::CONSUMED, consumed);
        if !(consumed..=next).contains(&told) {
            return Err(Error::protocol("count of messages taken", told, next));
        }
        self.consumed = Message::after(told);
        Ok(next - told < SLOTS)
    }
}
