//! A device, as its front end uses it.

use rustix::fd::OwnedFd;

use haul_peer::guest::Described;

/// A request that cannot be fulfilled and ends the conversation. Holds the reason, for an operator.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) String);

/// Refuses a request of the front end.
pub(crate) fn refuse<T>(why: impl Into<String>) -> RequestResult<T> {
    Err(Refusal(why.into()))
}

/// The result of a request.
pub(crate) type RequestResult<T = ()> = Result<T, Refusal>;

/// The inflight area, from which a back end's successor recovers the locations of its rings: the
/// message's "inflight description".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaAt {
    pub(crate) bytes: u64,
    /// Offset of the area in its file.
    pub(crate) offset: u64,
    pub(crate) rings: u16,
    /// The number of descriptors in the largest ring.
    pub(crate) size: u16,
}

/// A device, as its front end uses it. Rings are counted from 0: even rings carry packets to the
/// guest, odd rings from the guest. All values come from the peer and are untrusted.
pub(crate) trait Backend: Send + Sync {
    fn features(&self) -> u64;
    fn set_features(&self, features: u64) -> RequestResult;
    /// The number of queue pairs.
    fn queue_pairs(&self) -> u64;
    fn set_memory(&self, regions: Vec<(Described, OwnedFd)>) -> RequestResult;
    fn add_memory(&self, region: Described, file: OwnedFd) -> RequestResult;
    fn remove_memory(&self, region: Described) -> RequestResult;
    fn set_size(&self, ring: u32, size: u32) -> RequestResult;
    /// Addresses of the descriptors, the available and the used ring in the peer's process.
    fn set_addresses(&self, ring: u32, areas: [u64; 3]) -> RequestResult;
    fn set_base(&self, ring: u32, base: u32) -> RequestResult;
    /// Stops the ring, and returns its progress.
    fn stop_ring(&self, ring: u32) -> RequestResult<u32>;
    /// Starts the ring. The kick event is not used, because rings are polled.
    fn start_ring(&self, ring: u32) -> RequestResult;
    fn set_call(&self, ring: u32, event: Option<OwnedFd>) -> RequestResult;
    fn set_enabled(&self, ring: u32, is_enabled: bool) -> RequestResult;
    /// Creates an area for `rings` rings of this size, and uses it.
    fn make_area(&self, rings: u16, size: u16) -> RequestResult<(AreaAt, OwnedFd)>;
    /// Uses an area that the front end has kept.
    fn set_area(&self, at: AreaAt, file: OwnedFd) -> RequestResult;
    /// Resets the device as if the front end had disconnected.
    fn reset(&self);
}
