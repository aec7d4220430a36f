//! How a ring is laid out, from the device's side: one contract, so that packets go through every
//! layout by the same passes and the same checks.
//!
//! A device of haul's uses chains in the order in which they were made available: a chain is taken
//! and given back in one step, and one place says how far both came.
//!
//! From the bottom up:
//!
//! - `split`: the split ring;
//! - `resume`: where a device goes on in a packed ring;
//! - `packed`: the packed ring.

pub(super) mod packed;
mod resume;
pub(super) mod split;

use super::super::ring::split::Descriptor;

/// The guest did what it may not with the ring as a whole, or its memory has gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

/// The chain is no good: it loops, is too long, lies outside the guest's memory, or has descriptors
/// of the wrong kind. What the guest gets back of it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad;

/// The first descriptor of a chain, as it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct First {
    /// By which the driver knows the chain: checked by nobody yet.
    pub(super) id: u16,
    pub(super) flags: u16,
    pub(super) length: u32,
    pub(super) address: u64,
}

/// A chain that is given back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    pub(super) id: u16,
    /// Descriptors of the ring that it has.
    pub(super) descriptors: u16,
}

/// A chain on the way through it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) id: u16,
    /// Where the next descriptor is, as the layout counts.
    pub(super) next: u16,
    /// Descriptors of the ring so far.
    pub(super) count: u16,
    pub(super) descriptor: Descriptor,
}

/// A ring, from the device's side. Indices are masked or counted here: whatever the driver wrote,
/// every access is inside the ring, and each word is read once.
pub(super) trait Layout {
    /// A place between two chains.
    type Place: Copy;

    /// Whether the descriptors of an indirect table follow each other, and have no numbers of the
    /// next.
    const HAS_PACKED_TABLES: bool;

    /// Descriptors of the ring.
    fn size(&self) -> u16;

    /// Whether a chain can have this id.
    fn has_id(&self, id: u16) -> bool;

    /// Reads the first descriptors of the next chains, and says how many are available, up to as
    /// many as there is room for. Behind a chain of several descriptors it may end early.
    ///
    /// # Errors
    /// [`Broken`]: the driver says that more are available than can be.
    fn look(&mut self, firsts: &mut [First]) -> Result<usize, Broken>;

    /// The place of the next chain.
    fn place(&self) -> Self::Place;

    /// Begins the chain at a place; `None` where none is available there.
    ///
    /// # Errors
    /// As [`Layout::look`].
    fn open(&mut self, place: Self::Place) -> Result<Option<Walk>, Broken>;

    /// Goes on to the next descriptor.
    ///
    /// # Errors
    /// [`Bad`]: there is none.
    fn step(&self, walk: &mut Walk) -> Result<(), Bad>;

    /// Ends the chain, wherever in it one is, and gives the place behind it.
    ///
    /// # Errors
    /// [`Broken`]: it has no end.
    fn close(&self, place: Self::Place, walk: &Walk) -> Result<(Chain, Self::Place), Broken>;

    /// Takes the next chain, and gives it back with so many bytes written; not seen by the driver
    /// before [`Layout::publish`].
    fn use_chain(&mut self, chain: Chain, written: u32);

    /// Shows the driver what was used, and says whether it wants to be called for it.
    fn publish(&mut self) -> bool;

    /// How far it came, as messages have it.
    fn base(&self) -> u32;
}
