//! `inline`: the bytes of a small message are in its slot, behind the header.
//!
//! Most of these messages use the fast path of `send::at_once` and `receive::at_once` instead.

use haul_copy::Hint;

use super::contract::{Begun, Incoming, Outgoing, Receives, Sends, Taken};
use super::window;
use crate::shared::account::Account;
use crate::shared::checksum::Sum;
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::layout::{self, CELL_BYTES, HEADER_BYTES, INLINE_BYTES_MAX};
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::names::Mechanism;
use crate::shared::source::Source;
use crate::shared::transfer::Step;

/// The sender's part: the bytes are in the slot before the message is published.
#[derive(Debug)]
pub(crate) struct Sending;

impl Sends for Sending {
    type State = ();

    const SUMS: bool = true;

    fn obstacle(_source: &Source<'_>, length: u64) -> Option<&'static str> {
        (length > INLINE_BYTES_MAX as u64).then_some("the message is over 8 KiB")
    }

    fn begin(&mut self, _: &mut (), out: &mut Outgoing<'_, '_>) -> Result<Begun, Error> {
        write(out.lane, out.message, out.source, out.length as usize);
        out.account.copied_bytes = out.length;
        out.account.extra_memory_bytes = layout::SLOTS_BYTES as u64;
        Ok(Begun::Whole { detail: 0 })
    }
}

/// The receiver's part.
#[derive(Debug)]
pub(crate) struct Receiving;

impl Receives for Receiving {
    type State = ();

    const SUMS: bool = true;
    const IS_FIXED: bool = true;

    fn begin(_: &mut (), header: &Header, _lane: &mut Lane) -> Result<Self, Error> {
        let limit = INLINE_BYTES_MAX as u64;
        match header.length <= limit {
            true => Ok(Self),
            false => Err(Error::protocol("length of an inline message", header.length, limit)),
        }
    }

    fn step(
        &mut self,
        _: &mut (),
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        read(incoming.lane, incoming.message, target, incoming.sum.as_deref_mut());
        incoming.account.copied_bytes = target.len() as u64;
        Ok(Step::Done(Taken::Whole))
    }
}

/// Copies the message into its slot.
fn write(lane: &Lane, message: Message, source: &mut Source<'_>, length: usize) {
    let at = lane.slot(message) + HEADER_BYTES;
    source.write_to(&lane.link.region, at, length, hint(lane, length), None);
}

/// The hint for the copy into a slot: how the slot's cache lines are used next. The hint is the
/// same as for the smallest messages of `ring`.
pub(crate) fn hint(lane: &Lane, length: usize) -> Hint {
    match length >= CELL_BYTES && lane.distance.is_far() {
        true => Hint::Streamed,
        false => Hint::Unknown,
    }
}

/// How many bytes of a slot are prefetched before a message of this length is written to the
/// slot: the whole message, but only the header if the bytes bypass the caches.
pub(crate) fn bytes_to_fetch(lane: &Lane, length: usize) -> usize {
    match hint(lane, length) {
        Hint::Streamed => HEADER_BYTES,
        _ => HEADER_BYTES + length,
    }
}

/// Copies the message out of its slot, and adds it to the checksum.
fn read(lane: &Lane, message: Message, target: &mut [u8], sum: Option<&mut Sum>) {
    let at = lane.slot(message) + HEADER_BYTES;
    match sum {
        Some(sum) => sum.read(0, (&lane.link.region, at), target, false),
        None => lane.link.region.read(at, target, Hint::Unknown),
    }
}

/// The longest message that may use the fast path on this channel; `None` if no message may.
pub(crate) fn longest_at_once(link: &Link) -> Option<usize> {
    let settings = &link.settings;
    let is_plain = matches!(settings.mechanism, None | Some(Mechanism::Inline));
    let most = match settings.mechanism {
        None => window::inline_bytes_max(true),
        Some(_) => INLINE_BYTES_MAX,
    };
    let longest = settings.size_max.min(most as u64) as usize;
    (is_plain && !settings.integrity).then_some(longest)
}

/// The account of a message that was sent in its slot, at either end.
pub(crate) fn account(length: u64, system_calls: u64) -> Account {
    Account {
        mechanism: Mechanism::Inline,
        size_bytes: length,
        copied_bytes: length,
        system_calls,
        ..Account::default()
    }
}
