//! The state of the receiving half: its lane, the next message, and the current one, whose header
//! was read once and validated.

use std::sync::Arc;

use haul_model::Bytes;

use crate::mechanism::dispatch::{AnyReceiving, ReceiverStates};
use crate::shared::account::{Account, Meter};
use crate::shared::checksum::Sum;
use crate::shared::closing;
use crate::shared::error::Error;
use crate::shared::header::{Header, SumState};
use crate::shared::lane::Lane;
use crate::shared::layout::{self, SLOTS};
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::names::Mechanism;
use crate::shared::transfer::Step;
use haul_peer::life::Life;
use haul_peer::region::Fetch;

/// The receiving half, without the target of a message.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) lane: Lane,
    /// The first message that is not consumed.
    pub(crate) consumed: Message,
    /// The first message that was not published when the fast path last read the count.
    pub(crate) published: Message,
    pub(crate) pending: Option<Pending>,
    /// The length of the last message, if it was inline: the next message is expected to have the
    /// same length.
    pub(crate) inline_before: usize,
    pub(crate) states: ReceiverStates,
}

/// A message whose header was read and validated.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) length: usize,
    pub(crate) by: AnyReceiving,
    /// Whether this process has begun to move the message's bytes.
    pub(crate) is_begun: bool,
    /// Whether every byte has arrived, so that only the checksum remains to be compared.
    pub(crate) is_moved: bool,
    /// Number of leading bytes that arrived by another mechanism before the ring carried the
    /// remainder.
    pub(crate) refused_at: usize,
    /// If the message has a checksum: the sum so far, and how many of the bytes that the processor
    /// did not copy were added.
    pub(crate) check: Option<(Sum, usize)>,
    pub(crate) account: Account,
    pub(crate) meter: Option<Meter>,
    pub(crate) calls_before: u64,
}

impl Inbox {
    pub(crate) fn new(link: Arc<Link>, index: usize, life: Life) -> Self {
        let lane = Lane::for_receiving(link, index, life);
        let (consumed, published) = (Message::default(), Message::default());
        let states = ReceiverStates::default();
        Self { lane, consumed, published, pending: None, inline_before: 0, states }
    }

    /// Begins a call, see [`Lane::enter`].
    ///
    /// # Errors
    /// The errors of [`Lane::enter`].
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<(), Error> {
        let consumed = self.consumed.index();
        let is_free = self.pending.as_ref().is_none_or(|pending| !pending.is_begun);
        let is_current = |lane: &Lane| is_free && lane.load(layout::CONSUMED) == consumed;
        if self.lane.enter(is_current)? {
            // The pools that an earlier process made belong to that process.
            self.states.retire();
        }
        Ok(())
    }

    /// Polls for a message. Reads the message's header once and validates it.
    pub(crate) fn poll_header(&mut self) -> Result<Step<usize>, Error> {
        if let Some(pending) = &self.pending {
            return Ok(Step::Done(pending.length));
        }
        let state = self.lane.state_word(layout::SENDER_STATE);
        let (state, reported) = closing::poll(state, || self.lane.load(layout::PUBLISHED));
        let consumed = self.consumed.index();
        if !(consumed..=consumed + SLOTS).contains(&reported) {
            return Err(Error::protocol("count of messages", reported, consumed + SLOTS));
        }
        if reported == consumed {
            return match state {
                layout::OPEN => Ok(Step::Blocked),
                layout::CLOSED => Err(Error::Closed),
                _ => Err(Error::GivenUp { done: Bytes(0), size: Bytes(0) }),
            };
        }
        let at = self.lane.slot(self.consumed);
        // Prefetches all lines at once, while the header is still in transfer, because the copy
        // has to wait for the header.
        self.lane.link.region.fetch(at, layout::HEADER_BYTES + self.inline_before, Fetch::ToRead);
        let pending = self.validate(self.lane.header(self.consumed))?;
        let length = pending.length;
        self.inline_before = if pending.by.is_inline() { length } else { 0 };
        self.pending = Some(pending);
        Ok(Step::Done(length))
    }

    fn validate(&mut self, header: Header) -> Result<Pending, Error> {
        if header.message != self.consumed.index() {
            let expected = self.consumed.index();
            return Err(Error::protocol("message number", header.message, expected));
        }
        let limit = self.lane.link.settings.size_max.min(isize::MAX as u64);
        if header.length > limit {
            return Err(Error::TooLong { size: Bytes(header.length), limit: Bytes(limit) });
        }
        let kinds = Mechanism::ALL.len() as u64;
        let mechanism = Mechanism::from_number(header.kind)
            .ok_or_else(|| Error::protocol("mechanism", header.kind, kinds))?;
        let calls_before = self.lane.system_calls;
        let meter = Meter::of(header.length);
        let by = AnyReceiving::begin(mechanism, &mut self.states, &header, &mut self.lane)?;
        let account = Account { mechanism, size_bytes: header.length, ..Account::default() };
        let check = (header.sum != SumState::None).then_some((Sum::default(), 0));
        let length = header.length as usize;
        let (is_begun, is_moved, refused_at) = (false, false, 0);
        Ok(Pending {
            length,
            by,
            is_begun,
            is_moved,
            refused_at,
            check,
            account,
            meter,
            calls_before,
        })
    }
}
