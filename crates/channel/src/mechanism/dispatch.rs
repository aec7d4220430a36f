//! Calls to the mechanism of a message. Only this module knows all mechanisms.

use super::contract::{Begun, Destination, Incoming, Outgoing, Receives, Sends, Taken, Then};
use super::sealed::Building;
use super::{double, inline, lease, pull, ring, sealed, staged};
use crate::pages::pool::Pools;
use crate::shared::beside::Copying;
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::names::Mechanism;
use crate::shared::source::Source;
use crate::shared::transfer::Step;

/// The state that a sender keeps for its mechanisms from one message to the next.
#[derive(Debug, Default)]
pub(crate) struct SenderStates {
    pub(crate) ring: ring::SenderState,
    /// The receiver's pools.
    lease: lease::MappedPools,
    nothing: (),
}

/// The state that a receiver keeps for its mechanisms from one message to the next.
#[derive(Debug, Default)]
pub(crate) struct ReceiverStates {
    /// Number of ring cells that this end has emptied.
    ring: u64,
    /// Pools that a trusted sender copies into.
    lease: Pools,
    nothing: (),
}

impl ReceiverStates {
    /// Drops the pools.
    pub(crate) fn retire(&mut self) {
        self.lease.retire();
    }
}

/// The sender's part of any mechanism.
#[derive(Debug)]
pub(crate) enum AnySending {
    Inline(inline::Sending),
    Ring(ring::Sending),
    Staged(staged::Sending),
    Pull(pull::Sending),
    Sealed(sealed::Sending),
    Double(double::Sending),
    Lease(lease::Sending),
}

/// The receiver's part of any mechanism.
#[derive(Debug)]
pub(crate) enum AnyReceiving {
    Inline(inline::Receiving),
    Ring(ring::Receiving),
    Staged(staged::Receiving),
    Pull(pull::Receiving),
    Sealed(sealed::Receiving),
    Double(double::Receiving),
    Lease(lease::Receiving),
}

/// Calls a method of the message's mechanism, with the state that this end keeps for the
/// mechanism.
macro_rules! each {
    ($by:expr, $states:expr, |$one:ident, $state:ident| $call:expr) => {
        each!(@ $by, $states, $one, $state, $call;
            Inline nothing, Ring ring, Staged nothing, Pull nothing, Sealed nothing, Double nothing,
            Lease lease)
    };
    ($by:expr, |$one:ident| $call:expr) => {
        match $by {
            Self::Inline($one) => $call,
            Self::Ring($one) => $call,
            Self::Staged($one) => $call,
            Self::Pull($one) => $call,
            Self::Sealed($one) => $call,
            Self::Double($one) => $call,
            Self::Lease($one) => $call,
        }
    };
    (@ $by:expr, $states:expr, $one:ident, $state:ident, $call:expr; $($way:ident $of:ident),*) => {
        match $by {
            $(Self::$way($one) => {
                let $state = &mut $states.$of;
                $call
            })*
        }
    };
}

/// Calls a function of a mechanism's `Sending` type.
macro_rules! of_sender {
    ($mechanism:expr, $function:ident($($argument:expr),*)) => {
        match $mechanism {
            Mechanism::Inline => inline::Sending::$function($($argument),*),
            Mechanism::Ring => ring::Sending::$function($($argument),*),
            Mechanism::Staged => staged::Sending::$function($($argument),*),
            Mechanism::Pull => pull::Sending::$function($($argument),*),
            Mechanism::Sealed => sealed::Sending::$function($($argument),*),
            Mechanism::Double => double::Sending::$function($($argument),*),
            Mechanism::Lease => lease::Sending::$function($($argument),*),
        }
    };
}

/// Whether a mechanism is available for messages to this peer.
pub(crate) fn offers(link: &Link, mechanism: Mechanism) -> bool {
    of_sender!(mechanism, peer_obstacle(link)).is_none()
}

/// Why a mechanism cannot carry a message.
pub(crate) fn obstacle(
    mechanism: Mechanism,
    link: &Link,
    source: &Source<'_>,
    length: u64,
) -> Option<&'static str> {
    of_sender!(mechanism, peer_obstacle(link))
        .or_else(|| of_sender!(mechanism, obstacle(source, length)))
}

impl AnySending {
    pub(crate) fn new(mechanism: Mechanism, link: &Link, length: u64) -> Self {
        match mechanism {
            Mechanism::Inline => Self::Inline(inline::Sending),
            Mechanism::Ring => Self::Ring(ring::Sending::new(link, length)),
            Mechanism::Staged => Self::Staged(staged::Sending::default()),
            Mechanism::Pull => Self::Pull(pull::Sending::default()),
            Mechanism::Sealed => Self::Sealed(sealed::Sending::default()),
            Mechanism::Double => Self::Double(double::Sending::new(length)),
            Mechanism::Lease => Self::Lease(lease::Sending::new(length)),
        }
    }

    /// The sender's part for a message that was built in place.
    pub(crate) fn built(building: Building) -> Self {
        Self::Sealed(sealed::Sending::new(building))
    }

    /// Uses the ring for the remainder of a message, from `offset` on, which the receiver cannot
    /// receive by the message's first mechanism.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn remainder(
        states: &mut SenderStates,
        out: &mut Outgoing<'_, '_>,
        offset: u64,
    ) -> Result<Self, Error> {
        ring::Sending::remainder(&mut states.ring, out, offset).map(Self::Ring)
    }

    pub(crate) fn begin(
        &mut self,
        states: &mut SenderStates,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Begun, Error> {
        each!(self, states, |one, state| one.begin(state, out))
    }

    pub(crate) fn step(
        &mut self,
        states: &mut SenderStates,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Step<Then>, Error> {
        each!(self, states, |one, state| one.step(state, out))
    }

    pub(crate) fn progress(&self) -> u64 {
        each!(self, |one| one.progress())
    }

    pub(crate) fn copying(&mut self) -> Option<&mut Copying> {
        each!(self, |one| one.copying())
    }

    pub(crate) fn sums(&self) -> bool {
        each!(self, |one| sender_sums(one))
    }

    pub(crate) fn release(&mut self, states: &mut SenderStates, has_arrived: bool) {
        each!(self, states, |one, state| one.release(state, has_arrived));
    }
}

fn sender_sums<T: Sends>(_: &T) -> bool {
    T::SUMS
}

impl AnyReceiving {
    /// Validates a header.
    ///
    /// # Errors
    /// The errors of [`Receives::begin`].
    pub(crate) fn begin(
        mechanism: Mechanism,
        states: &mut ReceiverStates,
        header: &Header,
        lane: &mut Lane,
    ) -> Result<Self, Error> {
        let none = &mut states.nothing;
        Ok(match mechanism {
            Mechanism::Inline => Self::Inline(Receives::begin(none, header, lane)?),
            _ if header.length == 0 => {
                return Err(Error::protocol("length of a large message", 0, 1));
            }
            Mechanism::Ring => Self::Ring(Receives::begin(&mut states.ring, header, lane)?),
            Mechanism::Staged => Self::Staged(Receives::begin(none, header, lane)?),
            Mechanism::Pull => Self::Pull(Receives::begin(none, header, lane)?),
            Mechanism::Sealed => Self::Sealed(Receives::begin(none, header, lane)?),
            Mechanism::Double => Self::Double(Receives::begin(none, header, lane)?),
            Mechanism::Lease => Self::Lease(Receives::begin(&mut states.lease, header, lane)?),
        })
    }

    /// Uses the ring for the remainder of a message, from `offset` on, which this end cannot
    /// receive by the message's first mechanism.
    pub(crate) fn remainder(link: &Link, offset: u64, length: u64) -> Self {
        Self::Ring(ring::Receiving::remainder(link, offset, length))
    }

    pub(crate) fn destination(
        &mut self,
        states: &mut ReceiverStates,
        lane: &mut Lane,
        length: usize,
    ) -> Result<Option<Destination>, Error> {
        each!(self, states, |one, state| one.destination(state, lane, length))
    }

    pub(crate) fn step(
        &mut self,
        states: &mut ReceiverStates,
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        each!(self, states, |one, state| one.step(state, incoming, target))
    }

    pub(crate) fn progress(&self) -> u64 {
        each!(self, |one| one.progress())
    }

    pub(crate) fn sums(&self) -> bool {
        each!(self, |one| receiver_sums(one))
    }

    pub(crate) fn is_fixed(&self) -> bool {
        each!(self, |one| is_fixed(one))
    }

    pub(crate) fn has_sum_in_header(&self) -> bool {
        each!(self, |one| has_sum_in_header(one))
    }

    pub(crate) fn is_inline(&self) -> bool {
        matches!(self, Self::Inline(_))
    }

    pub(crate) fn revoke(
        &mut self,
        states: &mut ReceiverStates,
        lane: &mut Lane,
        message: Message,
        target: &[u8],
    ) -> bool {
        each!(self, states, |one, state| one.revoke(state, lane, message, target))
    }

    pub(crate) fn end(self) {
        each!(self, |one| one.end());
    }
}

fn receiver_sums<T: Receives>(_: &T) -> bool {
    T::SUMS
}

fn has_sum_in_header<T: Receives>(_: &T) -> bool {
    T::HAS_SUM_IN_HEADER
}

fn is_fixed<T: Receives>(_: &T) -> bool {
    T::IS_FIXED
}
