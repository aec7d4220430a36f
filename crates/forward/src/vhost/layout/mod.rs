//! The layout of a ring, from the device's side: one contract, so that packets of every layout go
//! through the same passes and the same checks.
//!
//! haul's device uses chains in the order in which they were made available, each in one step. One
//! location therefore describes its progress.
//!
//! From the bottom up:
//!
//! - `split`: the split ring;
//! - `resume`: where a device resumes in a packed ring;
//! - `packed`: the packed ring;
//! - `ahead`: a ring whose chains are read ahead of those that it uses.

pub(super) mod ahead;
pub(super) mod packed;
mod resume;
pub(super) mod split;

use crate::ring::split::Descriptor;

/// The guest violated the protocol of the whole ring, or its memory was lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

/// The chain is invalid: it loops, is too long, lies outside the guest's memory, or has descriptors
/// of the wrong kind. The device returns it with no bytes written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad;

/// The first descriptor of a chain, as read once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct First {
    /// The driver's id of the chain, not checked yet.
    pub(super) id: u16,
    pub(super) flags: u16,
    pub(super) length: u32,
    pub(super) address: u64,
}

/// A used chain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    pub(super) id: u16,
    /// The number of its descriptors in the ring.
    pub(super) descriptors: u16,
}

/// The position of a walk along a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) id: u16,
    /// Where the next descriptor is, in the layout's numbering.
    pub(super) next: u16,
    /// The number of the ring's descriptors that the walk has visited.
    pub(super) count: u16,
    pub(super) descriptor: Descriptor,
}

/// A ring, from the device's side. Indices are masked or counted here: for any content that the
/// driver writes, every access is inside the ring, and each word is read once.
pub(super) trait Layout {
    /// A location between two chains.
    type Location: Copy;

    /// Whether the descriptors of an indirect table are consecutive and have no `next`.
    const HAS_PACKED_TABLES: bool;

    /// Descriptors of the ring.
    fn size(&self) -> u16;

    /// Whether `id` is a valid id of a chain.
    fn has_id(&self, id: u16) -> bool;

    /// Reads the first descriptors of the next chains into `firsts`, and returns how many are
    /// available, at most as many as fit. May stop early behind a chain of several descriptors.
    ///
    /// # Errors
    /// [`Broken`]: the driver reports more available chains than the ring can hold.
    fn poll(&mut self, firsts: &mut [First]) -> Result<usize, Broken>;

    /// The location of the next chain.
    fn location(&self) -> Self::Location;

    /// Begins a walk of the chain at a location; `None` if no chain is available there.
    ///
    /// # Errors
    /// See [`Layout::poll`].
    fn open(&mut self, location: Self::Location) -> Result<Option<Walk>, Broken>;

    /// Moves the walk to the next descriptor.
    ///
    /// # Errors
    /// [`Bad`]: the chain has no further descriptor.
    fn step(&self, walk: &mut Walk) -> Result<(), Bad>;

    /// Completes a walk from any position in its chain, and returns the chain and the location
    /// behind it.
    ///
    /// # Errors
    /// [`Broken`]: the chain has no end.
    fn close(
        &self,
        location: Self::Location,
        walk: &Walk,
    ) -> Result<(Chain, Self::Location), Broken>;

    /// Uses the next chain, with `written` bytes in it. The driver sees it after
    /// [`Layout::publish`].
    fn use_chain(&mut self, chain: Chain, written: u32);

    /// Publishes the used chains to the driver, and returns whether it wants a call.
    fn publish(&mut self) -> bool;

    /// The progress of the ring, as messages encode it.
    fn base(&self) -> u32;
}

/// A ring whose chains can be read ahead of those that the device uses.
pub(super) trait ReadAhead: Layout {
    /// The same ring, to read chains from here on. It must not use or publish any.
    fn reader(&self) -> Self;

    /// Moves a [`ReadAhead::reader`] behind the next chain.
    fn skip(&mut self, chain: Chain);
}
