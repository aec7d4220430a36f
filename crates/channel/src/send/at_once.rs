//! The fast path of a small message whose slot is free.
//!
//! Most inline messages use this path. This path does the work of [`Sending`], without the state
//! for messages that wait, use another mechanism or fail. On Cascade Lake a message of 64 B
//! needed 890 instructions on the slow path. The fast path leaves every other case to the slow
//! path, without side effects.
//!
//! [`Sending`]: crate::Sending

use haul_model::Bytes;

use super::outbox::Outbox;
use crate::mechanism::inline::{self, account};
use crate::shared::account::Account;
use crate::shared::error::Error;
use crate::shared::header::{Header, SumState};
use crate::shared::layout::{self, HEADER_BYTES};
use crate::shared::names::Mechanism;
use crate::shared::transfer::poll;
use crate::shared::waiting::polls_before_asking;

impl Outbox {
    /// Sends an inline message, if a slot is free within a microsecond. Returns `None` if this
    /// call did nothing.
    ///
    /// # Errors
    /// [`Error::Memory`] if the receiver removed shared memory; [`Error::PeerGone`] if the receiver
    /// died before it consumed the message. This path checks both conditions last, so that the
    /// receiver does not wait for the checks.
    #[inline]
    pub(crate) fn send_at_once(&mut self, bytes: &[u8]) -> Option<Result<Account, Error>> {
        if self.longest_at_once.is_none_or(|longest| bytes.len() > longest) {
            return None;
        }
        self.enter().ok().filter(|()| !self.is_closed())?;
        poll(polls_before_asking(&self.lane), || self.has_slot().ok().filter(|has| *has))?;
        let calls_before = self.lane.system_calls;
        let length = bytes.len() as u64;
        let at = self.lane.slot(self.next);
        self.lane.link.region.write(
            at + HEADER_BYTES,
            bytes,
            inline::hint(&self.lane, bytes.len()),
        );
        let (message, kind, sum) = (self.next.index(), Mechanism::Inline.number(), SumState::None);
        self.lane.put_header(Header { message, kind, length, detail: 0, sum });
        self.next = self.next.next();
        self.lane.signal(layout::PUBLISHED, self.next.index());
        self.fetch_slots(bytes.len());
        if let Err(error) = self.lane.link.check_memory() {
            return Some(Err(error));
        }
        if self.lane.is_known_gone() && self.lane.load(layout::CONSUMED) != self.next.index() {
            return Some(Err(gone(length)));
        }
        let extra_memory_bytes = layout::SLOTS_BYTES as u64;
        let account = account(length, self.lane.system_calls - calls_before);
        Some(Ok(Account { extra_memory_bytes, ..account }))
    }
}

/// The error for a message of this length to a receiver that is gone.
#[cold]
pub(crate) fn gone(length: u64) -> Error {
    Error::PeerGone { attempt: "send", done: Bytes(0), size: Bytes(length) }
}
