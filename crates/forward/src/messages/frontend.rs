//! The front end's side: requests to a device, and the events that notify it.

use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend as Caller, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use crate::ring::{features, packed};
use haul_peer::descriptor::kept;
use haul_peer::guest::Described;

/// A ring as the front end describes it: addresses in its own process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingAt {
    pub(crate) size: u16,
    pub(crate) areas: [u64; 3],
}

/// The front end's side of a conversation.
pub(crate) struct Frontend(Caller);

/// How many queue pairs the back end has. A front end of the crate would use the answer as its
/// own number of rings from then on. Therefore a second front end asks, over the same socket.
fn queue_pairs(socket: &UnixStream) -> std::result::Result<u64, String> {
    let other = socket.try_clone().map_err(|error| error.to_string())?;
    let mut caller = Caller::from_stream(other, 2);
    let text = |error: vhost::Error| error.to_string();
    caller.get_features().map_err(text)?;
    let has = caller.get_protocol_features().map_err(text)?;
    if !has.contains(VhostUserProtocolFeatures::MQ) {
        return Ok(1);
    }
    caller.set_protocol_features(VhostUserProtocolFeatures::MQ).map_err(text)?;
    caller.get_queue_num().map_err(text)
}

impl Frontend {
    /// A front end, over a connected socket, of a device with `rings` rings.
    pub(crate) fn new(socket: UnixStream, rings: usize) -> Self {
        Self(Caller::from_stream(socket, rings as u64))
    }

    /// Negotiates the features of `wanted` that the back end has. The back end must have all
    /// features of `needed`, and `pairs` queue pairs; a second front end asks for their number
    /// over `socket`.
    ///
    /// # Errors
    /// The fault of the back end, or what it lacks.
    pub(crate) fn negotiate(
        &mut self,
        socket: &UnixStream,
        wanted: u64,
        needed: u64,
        pairs: u64,
    ) -> std::result::Result<u64, String> {
        let text = |error: vhost::Error| error.to_string();
        self.0.set_owner().map_err(text)?;
        let offered = self.0.get_features().map_err(text)?;
        if offered & needed & features::PACKED != needed & features::PACKED {
            return Err("the back end does not support packed rings: use split ones".to_owned());
        }
        if offered & needed != needed {
            return Err(format!(
                "the back end offers the features {offered:#x}, but {needed:#x} are needed: use \
                 one that supports virtio 1.0"
            ));
        }
        let mut has_pairs = 1;
        if offered & features::PROTOCOL_FEATURES != 0 {
            if pairs > 1 {
                has_pairs = queue_pairs(socket)?;
            }
            let has = self.0.get_protocol_features().map_err(|error| error.to_string())?;
            let wanted = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK;
            let agreed = has & wanted;
            self.0.set_protocol_features(agreed).map_err(|error| error.to_string())?;
            if agreed.contains(VhostUserProtocolFeatures::REPLY_ACK) {
                self.0.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
            }
        }
        if has_pairs < pairs {
            return Err(format!(
                "the back end has {} of the {pairs} requested queue pairs: raise its number, or \
                 lower that of this port",
                if has_pairs == 0 { "none".to_owned() } else { has_pairs.to_string() }
            ));
        }
        let agreed = offered & (wanted | features::PROTOCOL_FEATURES);
        self.0.set_features(agreed).map_err(text)?;
        Ok(agreed)
    }

    /// Shares the memory with the back end: regions, each with its file.
    ///
    /// # Errors
    /// The fault of the back end.
    pub(crate) fn share(
        &mut self,
        memory: &[(BorrowedFd<'_>, Described)],
    ) -> std::result::Result<(), String> {
        let regions = memory.iter().map(|(file, region)| VhostUserMemoryRegionInfo {
            guest_phys_addr: region.guest,
            memory_size: region.bytes,
            userspace_addr: region.peer,
            mmap_offset: region.offset,
            mmap_handle: file.as_raw_fd(),
        });
        let regions: Vec<_> = regions.collect();
        self.0.set_mem_table(&regions).map(drop).map_err(|error| error.to_string())
    }

    /// Starts rings, each from its beginning. Returns, for each ring, the event that notifies the
    /// back end.
    ///
    /// # Errors
    /// The fault of the back end.
    pub(crate) fn start(
        &mut self,
        rings: &[RingAt],
        features: u64,
    ) -> std::result::Result<Vec<Kick>, String> {
        let mut kicks = Vec::new();
        let text = |error: vhost::Error| error.to_string();
        let is_packed = features & features::PACKED != 0;
        let base = if is_packed { packed::Location::START.word() } else { 0 };
        for (index, ring) in rings.iter().enumerate() {
            let [descriptors, available, used] = ring.areas;
            let config = VringConfigData {
                queue_max_size: ring.size,
                queue_size: ring.size,
                flags: 0,
                desc_table_addr: descriptors,
                used_ring_addr: used,
                avail_ring_addr: available,
                log_addr: None,
            };
            self.0.set_vring_call(index, &event()?).map_err(text)?;
            self.0.set_vring_num(index, ring.size).map_err(text)?;
            self.0.set_vring_base(index, base).map_err(text)?;
            self.0.set_vring_addr(index, &config).map_err(text)?;
            let kick = event()?;
            self.0.set_vring_kick(index, &kick).map_err(text)?;
            kicks.push(Kick(kick));
        }
        if features & features::PROTOCOL_FEATURES != 0 {
            for index in 0..rings.len() {
                self.0.set_vring_enable(index, true).map_err(|error| error.to_string())?;
            }
        }
        Ok(kicks)
    }

    /// Stops a ring. The back end does not access it after the answer.
    ///
    /// # Errors
    /// The fault of the back end.
    pub(crate) fn stop(&mut self, ring: usize) -> std::result::Result<u32, String> {
        self.0.get_vring_base(ring).map_err(|error| error.to_string())
    }
}

/// An event for which a back end waits. The back end holds the event as well, so a
/// [`Caller`](haul_peer::caller::Caller) signals it.
#[derive(Debug)]
pub(crate) struct Kick(EventFd);

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the event is open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}

/// An event: the protocol requires one, even if both sides poll.
fn event() -> std::result::Result<EventFd, String> {
    let made = kept(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC));
    let event = made.map_err(|error| error.to_string())?;
    // SAFETY: an open event that only this value owns.
    Ok(unsafe { EventFd::from_raw_fd(event.into_raw_fd()) })
}
