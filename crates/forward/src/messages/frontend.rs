//! The front end's side: a device that is asked, and the events that call it.

use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend as Caller, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use super::super::ring::{features, packed};
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

/// How many queue pairs the back end has. The crate takes the answer for the number of rings from
/// then on: so another one of its callers asks, over the same socket.
fn queue_pairs(socket: &UnixStream) -> std::result::Result<u64, String> {
    let other = socket.try_clone().map_err(|error| error.to_string())?;
    let mut caller = Caller::from_stream(other, 2);
    let said = |error: vhost::Error| error.to_string();
    caller.get_features().map_err(said)?;
    let has = caller.get_protocol_features().map_err(said)?;
    if !has.contains(VhostUserProtocolFeatures::MQ) {
        return Ok(1);
    }
    caller.set_protocol_features(VhostUserProtocolFeatures::MQ).map_err(said)?;
    caller.get_queue_num().map_err(said)
}

impl Frontend {
    /// Speaks over a connected socket about a device of so many rings.
    pub(crate) fn new(socket: UnixStream, rings: usize) -> Self {
        Self(Caller::from_stream(socket, rings as u64))
    }

    /// Agrees on features: those of `wanted` that the back end has. It has to have all of `needed`,
    /// and so many queue pairs, which are asked for by the same socket.
    ///
    /// # Errors
    /// What the back end did wrong, or has not.
    pub(crate) fn agree(
        &mut self,
        socket: &UnixStream,
        wanted: u64,
        needed: u64,
        pairs: u64,
    ) -> std::result::Result<u64, String> {
        let said = |error: vhost::Error| error.to_string();
        self.0.set_owner().map_err(said)?;
        let offered = self.0.get_features().map_err(said)?;
        if offered & needed & features::PACKED != needed & features::PACKED {
            return Err("the back end has no packed rings: have split ones".to_owned());
        }
        if offered & needed != needed {
            return Err(format!(
                "the back end offers the features {offered:#x}, and {needed:#x} are needed: it is \
                 older than virtio 1.0"
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
                "the back end has {} of the {pairs} queue pairs that are wanted: give it as many, \
                 or have fewer",
                if has_pairs == 0 { "none".to_owned() } else { has_pairs.to_string() }
            ));
        }
        let agreed = offered & (wanted | features::PROTOCOL_FEATURES);
        self.0.set_features(agreed).map_err(said)?;
        Ok(agreed)
    }

    /// Shows the back end the memory: regions, each with its file.
    ///
    /// # Errors
    /// What it did wrong.
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

    /// Starts rings, each from its beginning, and gives the event for each with which the back end
    /// is called.
    ///
    /// # Errors
    /// What the back end did wrong.
    pub(crate) fn start(
        &mut self,
        rings: &[RingAt],
        features: u64,
    ) -> std::result::Result<Vec<Kick>, String> {
        let mut kicks = Vec::new();
        let said = |error: vhost::Error| error.to_string();
        let is_packed = features & features::PACKED != 0;
        let base = if is_packed { packed::Place::START.word() } else { 0 };
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
            self.0.set_vring_call(index, &event()?).map_err(said)?;
            self.0.set_vring_num(index, ring.size).map_err(said)?;
            self.0.set_vring_base(index, base).map_err(said)?;
            self.0.set_vring_addr(index, &config).map_err(said)?;
            let kick = event()?;
            self.0.set_vring_kick(index, &kick).map_err(said)?;
            kicks.push(Kick(kick));
        }
        if features & features::PROTOCOL_FEATURES != 0 {
            for index in 0..rings.len() {
                self.0.set_vring_enable(index, true).map_err(|error| error.to_string())?;
            }
        }
        Ok(kicks)
    }

    /// Stops a ring. The back end has touched it for the last time when it answers.
    ///
    /// # Errors
    /// What it did wrong.
    pub(crate) fn stop(&mut self, ring: usize) -> std::result::Result<u32, String> {
        self.0.get_vring_base(ring).map_err(|error| error.to_string())
    }
}

/// An event that a back end waits for, and has itself: a [`Caller`](haul_peer::caller::Caller)
/// signals it.
#[derive(Debug)]
pub(crate) struct Kick(EventFd);

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the event is open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}

/// An event of the kernel's: the protocol asks for one, also where both sides poll.
fn event() -> std::result::Result<EventFd, String> {
    let made = kept(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC));
    let event = made.map_err(|error| error.to_string())?;
    // SAFETY: an event of the kernel's, open, that this value alone has.
    Ok(unsafe { EventFd::from_raw_fd(event.into_raw_fd()) })
}
