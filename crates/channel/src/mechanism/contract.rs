//! What a mechanism does at each end.
//!
//! Each has two values for a message: one that the sender moves on, [`Sends`], and one that the
//! receiver does, [`Receives`]. What an end keeps for a mechanism from one message to the next is
//! its `State`.

use crate::pages::buffer::Buffer;
use crate::shared::account::Account;
use crate::shared::checksum::Sum;
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::source::Source;
use crate::shared::transfer::Step;

/// Why a mechanism that asks for trust cannot be used.
pub(crate) const NO_TRUST: &str = "one of the two ends does not trust the other";

/// A message as a mechanism sees it at the sender's end.
#[derive(Debug)]
pub(crate) struct Outgoing<'m, 'a> {
    pub(crate) lane: &'m mut Lane,
    pub(crate) source: &'m mut Source<'a>,
    pub(crate) account: &'m mut Account,
    pub(crate) message: Message,
    /// Its bytes, also where they are not in the source.
    pub(crate) length: u64,
}

impl Outgoing<'_, '_> {
    /// Whether the receiver has said that it cannot take all of it this way.
    pub(crate) fn is_refused(&self) -> bool {
        self.lane.is_refused(self.message)
    }
}

/// How a message begins.
#[derive(Debug)]
pub(crate) enum Begun {
    /// All of it is where the receiver finds it. The header goes out, with this detail.
    Whole { detail: u64 },
    /// The header goes out, and the mechanism goes on from there.
    Moving { detail: u64 },
    /// The header goes out, and the rest is the receiver's to do.
    Left { detail: u64 },
    /// Something was done, and more is to be done before the header goes out.
    NotYet,
    /// It cannot begin before somebody else has moved.
    Blocked,
    /// It cannot go this way: nothing of it is out.
    Impossible,
}

/// What is left of a message as the sender's part is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// Nothing: its bytes are the caller's again.
    Complete,
    /// The receiver says that it has all of it, or that it cannot take all of it this way.
    Answer,
}

/// A mechanism at the sender's end, for one message.
pub(crate) trait Sends: Sized {
    type State;

    /// What keeps any message from going this way to this peer.
    fn peer_obstacle(_link: &Link) -> Option<&'static str> {
        None
    }

    /// What keeps this one from it.
    fn obstacle(_source: &Source<'_>, _length: u64) -> Option<&'static str> {
        None
    }

    /// Does what is to be done before the receiver knows of the message.
    fn begin(
        &mut self,
        state: &mut Self::State,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Begun, Error>;

    /// Moves a piece. Only where [`begin`](Self::begin) said that there is something to be moved.
    fn step(
        &mut self,
        _state: &mut Self::State,
        _out: &mut Outgoing<'_, '_>,
    ) -> Result<Step<Then>, Error> {
        unreachable!("this end moves nothing after the header is out")
    }

    /// Bytes that this end has moved since the header went out.
    fn progress(&self) -> u64 {
        0
    }

    /// Whether the checksum is made as the bytes are moved.
    const SUMS: bool;

    /// Gives back what it had for the message, which has arrived this way or has not.
    fn release(&mut self, _state: &mut Self::State, _has_arrived: bool) {}
}

/// A message as a mechanism sees it at the receiver's end.
#[derive(Debug)]
pub(crate) struct Incoming<'m> {
    pub(crate) lane: &'m mut Lane,
    pub(crate) account: &'m mut Account,
    pub(crate) message: Message,
    /// The checksum of what is moved by the processor, where the message has one.
    pub(crate) sum: Option<&'m mut Sum>,
    /// Whether a trusted peer may be let write to the target: who owns the target keeps it where
    /// [`Receives::revoke`] says no.
    pub(crate) is_exposed: bool,
}

/// What became of a message as the receiver's part is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// Every byte is in its place.
    Whole,
    /// So many bytes from the first on are, and no more come this way.
    Part(usize),
}

/// Memory that a message comes in, and that its owner gets as it is.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) memory: Buffer,
    /// All of it is there.
    pub(crate) is_whole: bool,
}

/// A mechanism at the receiver's end, for one message.
pub(crate) trait Receives: Sized {
    type State;

    /// Believes of a header what can be true.
    ///
    /// # Errors
    /// [`Error::Protocol`], [`Error::Memory`], [`Error::System`].
    fn begin(state: &mut Self::State, header: &Header, lane: &mut Lane) -> Result<Self, Error>;

    /// Memory for it where it comes in some of its own.
    fn destination(
        &mut self,
        _state: &mut Self::State,
        _lane: &mut Lane,
        _length: usize,
    ) -> Result<Option<Destination>, Error> {
        Ok(None)
    }

    /// Moves a piece to its place in a target of the message's length.
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

    /// Whether the checksum is made as the bytes are moved.
    const SUMS: bool;

    /// Whether a checksum, where there is one, comes with the header at the latest.
    const HAS_SUM_IN_HEADER: bool = false;

    /// Whether the bytes are what they will be as the header comes: a sender that gives up later,
    /// or dies, takes nothing back.
    const IS_FIXED: bool = false;

    /// Makes sure that the peer writes no more to the target; false where that is not sure.
    fn revoke(
        &mut self,
        _state: &mut Self::State,
        _lane: &mut Lane,
        _message: Message,
        _target: &[u8],
    ) -> bool {
        true
    }

    /// The message was taken.
    fn end(self) {}
}
