//! The interface of a mechanism at each end.
//!
//! A mechanism has two values for a message: the sender advances [`Sends`], the receiver advances
//! [`Receives`]. An end keeps `State` for a mechanism from one message to the next.

use crate::pages::buffer::Buffer;
use crate::shared::account::Account;
use crate::shared::beside::Copying;
use crate::shared::checksum::Sum;
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::source::Source;
use crate::shared::transfer::Step;

/// Why a mechanism that needs trust is not available.
pub(crate) const NO_TRUST: &str = "one of the two ends does not trust the other";

/// A message as the mechanism at the sender's end sees it.
#[derive(Debug)]
pub(crate) struct Outgoing<'m, 'a> {
    pub(crate) lane: &'m mut Lane,
    pub(crate) source: &'m mut Source<'a>,
    pub(crate) account: &'m mut Account,
    pub(crate) message: Message,
    /// The length in bytes, even if the bytes are not in the source.
    pub(crate) length: u64,
}

impl Outgoing<'_, '_> {
    /// Whether the receiver has reported that it cannot receive the whole message by this
    /// mechanism.
    pub(crate) fn is_refused(&self) -> bool {
        self.lane.is_refused(self.message)
    }
}

/// How the transfer of a message begins.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The receiver can read the whole message. The caller publishes the header with this detail.
    Whole { detail: u64 },
    /// The caller publishes the header, and the sender's part moves the bytes afterwards.
    Moving { detail: u64 },
    /// The caller publishes the header, and the receiver moves the bytes.
    Left { detail: u64 },
    /// A part of the work is done; the remainder must be done before the header is published.
    NotYet,
    /// The message cannot begin before another transfer is complete.
    Blocked,
    /// This mechanism cannot carry the message; no part of the message was published.
    Impossible,
}

/// What remains of a message when the sender's part is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// Nothing: the caller may reuse the bytes.
    Complete,
    /// The receiver's answer: that it has the whole message, or that it cannot receive all of the
    /// message by this mechanism.
    Answer,
}

/// The sender's part of a mechanism, for one message.
pub(crate) trait Sends: Sized {
    type State;

    /// Why this mechanism cannot carry any message to this peer.
    fn peer_obstacle(_link: &Link) -> Option<&'static str> {
        None
    }

    /// Why this mechanism cannot carry this message.
    fn obstacle(_source: &Source<'_>, _length: u64) -> Option<&'static str> {
        None
    }

    /// Does the work that is due before the header is published.
    fn begin(
        &mut self,
        state: &mut Self::State,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Begun, Error>;

    /// Moves a piece. Called only if [`begin`](Self::begin) returned [`Begun::Moving`].
    fn step(
        &mut self,
        _state: &mut Self::State,
        _out: &mut Outgoing<'_, '_>,
    ) -> Result<Step<Then>, Error> {
        unreachable!("this end moves nothing after the header is out")
    }

    /// Bytes that this end has moved since the header was published.
    fn progress(&self) -> u64 {
        0
    }

    /// The copy of an engine that must end before this end can move the next bytes.
    fn copying(&mut self) -> Option<&mut Copying> {
        None
    }

    /// Whether the checksum is computed while the bytes are moved.
    const SUMS: bool;

    /// Releases the resources that this mechanism held for the message. `has_arrived` is false if
    /// this mechanism did not complete the message.
    fn release(&mut self, _state: &mut Self::State, _has_arrived: bool) {}
}

/// A message as the mechanism at the receiver's end sees it.
#[derive(Debug)]
pub(crate) struct Incoming<'m> {
    pub(crate) lane: &'m mut Lane,
    pub(crate) account: &'m mut Account,
    pub(crate) message: Message,
    /// The checksum of the bytes that the processor moves; `None` for a message without a
    /// checksum.
    pub(crate) sum: Option<&'m mut Sum>,
    /// Whether a trusted peer may write to the target. If [`Receives::revoke`] returns false, the
    /// owner of the target must not reuse it.
    pub(crate) is_exposed: bool,
}

/// How much of a message arrived when the receiver's part is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// All bytes.
    Whole,
    /// This many bytes from the start of the message; this mechanism delivers no more.
    Part(usize),
}

/// Memory in which a message arrives, and which the receiver's caller gets without a copy.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) memory: Buffer,
    /// The memory already holds the whole message.
    pub(crate) is_whole: bool,
}

/// The receiver's part of a mechanism, for one message.
pub(crate) trait Receives: Sized {
    type State;

    /// Validates a header.
    ///
    /// # Errors
    /// [`Error::Protocol`], [`Error::Memory`], [`Error::System`].
    fn begin(state: &mut Self::State, header: &Header, lane: &mut Lane) -> Result<Self, Error>;

    /// Memory for the message, if the mechanism provides it.
    fn destination(
        &mut self,
        _state: &mut Self::State,
        _lane: &mut Lane,
        _length: usize,
    ) -> Result<Option<Destination>, Error> {
        Ok(None)
    }

    /// Moves a piece to its location in a target of the message's length.
    fn step(
        &mut self,
        state: &mut Self::State,
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error>;

    /// Bytes that this end has moved.
    fn progress(&self) -> u64 {
        0
    }

    /// Whether the checksum is computed while the bytes are moved.
    const SUMS: bool;

    /// Whether the checksum, if there is one, is in the header.
    const HAS_SUM_IN_HEADER: bool = false;

    /// Whether the bytes no longer change once the header is published, even if the sender later
    /// gives up or dies.
    const IS_FIXED: bool = false;

    /// Revokes the peer's access to the target. Returns false if the peer may still write to the
    /// target.
    fn revoke(
        &mut self,
        _state: &mut Self::State,
        _lane: &mut Lane,
        _message: Message,
        _target: &[u8],
    ) -> bool {
        true
    }

    /// Ends the transfer of a message that was received.
    fn end(self) {}
}
