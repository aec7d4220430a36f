//! The mechanism of a message, and every call to it: the one place that knows all of them.

use rustix::fd::OwnedFd;

use super::contract::{Begun, Incoming, Outgoing, Place, Receives, Sends, Taken, Then};
use super::sealed::{Building, HandOver, TakeOver};
use super::{double, inline, lease, pull, ring, staged, vmsplice};
use crate::pages::pool::Pools;
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::names::Mechanism;
use crate::shared::source::Source;
use crate::shared::transfer::Step;

/// What a sender keeps for its mechanisms from one message to the next.
#[derive(Debug, Default)]
pub(crate) struct SenderKeeps {
    pub(crate) ring: ring::Filled,
    /// Pools of the receiver's.
    lease: lease::Mapped,
    vmsplice: Option<vmsplice::Pipe>,
    nothing: (),
}

/// What a receiver keeps for them.
#[derive(Debug, Default)]
pub(crate) struct ReceiverKeeps {
    /// Cells emptied.
    ring: u64,
    /// Memory that a trusted sender copies into.
    lease: Pools,
    /// What a trusted sender's pages come out of.
    vmsplice: Option<OwnedFd>,
    nothing: (),
}

impl ReceiverKeeps {
    /// Lets memory go that no message has come to for a while.
    pub(crate) fn retire(&mut self) {
        self.lease.retire();
    }
}

/// A message on its way out, by its mechanism.
#[derive(Debug)]
pub(crate) enum SendingBy {
    Inline(inline::Put),
    Ring(ring::Fill),
    Staged(staged::CopyIn),
    Pull(pull::Offer),
    Sealed(HandOver),
    Double(double::Push),
    Lease(lease::Lay),
    Vmsplice(vmsplice::Pour),
}

/// A message on its way in, by its mechanism.
#[derive(Debug)]
pub(crate) enum ReceivingBy {
    Inline(inline::Take),
    Ring(ring::Drain),
    Staged(staged::CopyOut),
    Pull(pull::Pull),
    Sealed(TakeOver),
    Double(double::Draw),
    Lease(lease::Let),
    Vmsplice(vmsplice::Drain),
}

/// The same call to whichever mechanism it is, with what its end keeps for it.
macro_rules! each {
    ($by:expr, $keeps:expr, |$one:ident, $kept:ident| $call:expr) => {
        each!(@ $by, $keeps, $one, $kept, $call;
            Inline nothing, Ring ring, Staged nothing, Pull nothing, Sealed nothing, Double nothing,
            Lease lease, Vmsplice vmsplice)
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
            Self::Vmsplice($one) => $call,
        }
    };
    (@ $by:expr, $keeps:expr, $one:ident, $kept:ident, $call:expr; $($way:ident $of:ident),*) => {
        match $by {
            $(Self::$way($one) => {
                let $kept = &mut $keeps.$of;
                $call
            })*
        }
    };
}

/// The same call to the sender's type of a mechanism.
macro_rules! of_sender {
    ($mechanism:expr, $function:ident($($argument:expr),*)) => {
        match $mechanism {
            Mechanism::Inline => inline::Put::$function($($argument),*),
            Mechanism::Ring => ring::Fill::$function($($argument),*),
            Mechanism::Staged => staged::CopyIn::$function($($argument),*),
            Mechanism::Pull => pull::Offer::$function($($argument),*),
            Mechanism::Sealed => HandOver::$function($($argument),*),
            Mechanism::Double => double::Push::$function($($argument),*),
            Mechanism::Lease => lease::Lay::$function($($argument),*),
            Mechanism::Vmsplice => vmsplice::Pour::$function($($argument),*),
        }
    };
}

/// Whether a mechanism can be used to send to this peer.
pub(crate) fn offers(link: &Link, mechanism: Mechanism) -> bool {
    of_sender!(mechanism, peer_obstacle(link)).is_none()
}

/// What keeps a message from going this way.
pub(crate) fn obstacle(
    mechanism: Mechanism,
    link: &Link,
    source: &Source<'_>,
    length: u64,
) -> Option<&'static str> {
    of_sender!(mechanism, peer_obstacle(link))
        .or_else(|| of_sender!(mechanism, obstacle(source, length)))
}

impl SendingBy {
    pub(crate) fn new(mechanism: Mechanism, link: &Link, length: u64) -> Self {
        match mechanism {
            Mechanism::Inline => Self::Inline(inline::Put),
            Mechanism::Ring => Self::Ring(ring::Fill::new(link, length)),
            Mechanism::Staged => Self::Staged(staged::CopyIn::default()),
            Mechanism::Pull => Self::Pull(pull::Offer::default()),
            Mechanism::Sealed => Self::Sealed(HandOver::default()),
            Mechanism::Double => Self::Double(double::Push::new(length)),
            Mechanism::Lease => Self::Lease(lease::Lay::new(length)),
            Mechanism::Vmsplice => Self::Vmsplice(vmsplice::Pour::new(length)),
        }
    }

    /// What was built in place.
    pub(crate) fn built(building: Building) -> Self {
        Self::Sealed(HandOver::new(building))
    }

    /// The rest of a message from `offset` on, which the receiver cannot take the way it came.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn rest(
        keeps: &mut SenderKeeps,
        out: &mut Outgoing<'_, '_>,
        offset: u64,
    ) -> Result<Self, Error> {
        ring::Fill::rest(&mut keeps.ring, out, offset).map(Self::Ring)
    }

    pub(crate) fn begin(
        &mut self,
        keeps: &mut SenderKeeps,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Begun, Error> {
        each!(self, keeps, |one, kept| one.begin(kept, out))
    }

    pub(crate) fn step(
        &mut self,
        keeps: &mut SenderKeeps,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Step<Then>, Error> {
        each!(self, keeps, |one, kept| one.step(kept, out))
    }

    pub(crate) fn progress(&self) -> u64 {
        each!(self, |one| one.progress())
    }

    pub(crate) fn sums(&self) -> bool {
        each!(self, |one| sender_sums(one))
    }

    pub(crate) fn settle(&mut self, keeps: &mut SenderKeeps, has_arrived: bool) {
        each!(self, keeps, |one, kept| one.settle(kept, has_arrived));
    }
}

fn sender_sums<T: Sends>(_: &T) -> bool {
    T::SUMS
}

impl ReceivingBy {
    /// Believes of a header what can be true.
    ///
    /// # Errors
    /// As [`Receives::begin`].
    pub(crate) fn begin(
        mechanism: Mechanism,
        keeps: &mut ReceiverKeeps,
        header: &Header,
        lane: &mut Lane,
    ) -> Result<Self, Error> {
        let none = &mut keeps.nothing;
        Ok(match mechanism {
            Mechanism::Inline => Self::Inline(Receives::begin(none, header, lane)?),
            _ if header.length == 0 => {
                return Err(Error::protocol("length of a large message", 0, 1));
            }
            Mechanism::Ring => Self::Ring(Receives::begin(&mut keeps.ring, header, lane)?),
            Mechanism::Staged => Self::Staged(Receives::begin(none, header, lane)?),
            Mechanism::Pull => Self::Pull(Receives::begin(none, header, lane)?),
            Mechanism::Sealed => Self::Sealed(Receives::begin(none, header, lane)?),
            Mechanism::Double => Self::Double(Receives::begin(none, header, lane)?),
            Mechanism::Lease => Self::Lease(Receives::begin(&mut keeps.lease, header, lane)?),
            Mechanism::Vmsplice => {
                Self::Vmsplice(Receives::begin(&mut keeps.vmsplice, header, lane)?)
            }
        })
    }

    /// The rest of a message from `offset` on, which cannot be taken the way it came.
    pub(crate) fn rest(link: &Link, offset: u64, length: u64) -> Self {
        Self::Ring(ring::Drain::rest(link, offset, length))
    }

    pub(crate) fn place(
        &mut self,
        keeps: &mut ReceiverKeeps,
        lane: &mut Lane,
        length: usize,
    ) -> Result<Option<Place>, Error> {
        each!(self, keeps, |one, kept| one.place(kept, lane, length))
    }

    pub(crate) fn step(
        &mut self,
        keeps: &mut ReceiverKeeps,
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        each!(self, keeps, |one, kept| one.step(kept, incoming, target))
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

    pub(crate) fn comes_summed(&self) -> bool {
        each!(self, |one| comes_summed(one))
    }

    pub(crate) fn is_inline(&self) -> bool {
        matches!(self, Self::Inline(_))
    }

    pub(crate) fn settle(
        &mut self,
        keeps: &mut ReceiverKeeps,
        lane: &mut Lane,
        message: Message,
        target: &[u8],
    ) -> bool {
        each!(self, keeps, |one, kept| one.settle(kept, lane, message, target))
    }

    pub(crate) fn end(self) {
        each!(self, |one| one.end());
    }
}

fn receiver_sums<T: Receives>(_: &T) -> bool {
    T::SUMS
}

fn comes_summed<T: Receives>(_: &T) -> bool {
    T::COMES_SUMMED
}

fn is_fixed<T: Receives>(_: &T) -> bool {
    T::IS_FIXED
}
