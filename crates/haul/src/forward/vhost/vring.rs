//! What the front end said of a ring, and the ring that packets go through once all that it needs
//! was said.

use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fd::{AsRawFd, OwnedFd};

use super::super::messages::{Done, Refused, refuse};
use super::super::ring::features;
use super::super::ring::packed::{self, Packed, Place};
use super::super::ring::split::{self, Split};
use super::inflight::{Area, Note};
use super::layout::Layout;
use super::layout::packed::PackedRing;
use super::layout::split::SplitRing;
use super::rest::Rest;
use crate::peer::guest::{Cached, Guest};

/// A ring that packets go through.
#[derive(Debug)]
pub(super) struct Active<L> {
    pub(super) ring: L,
    pub(super) memory: Arc<Guest>,
    /// The region that the last address was found in.
    pub(super) cached: Cached,
    pub(super) header_bytes: usize,
    pub(super) is_mergeable: bool,
    pub(super) has_indirect: bool,
    pub(super) rest: Rest,
}

/// One of either layout.
#[derive(Debug)]
pub(super) enum AnyActive {
    Split(Active<SplitRing>),
    Packed(Active<PackedRing>),
}

/// What was said of a ring.
#[derive(Debug, Default)]
pub(super) struct Vring {
    index: usize,
    pub(super) is_started: bool,
    pub(super) is_enabled: bool,
    pub(super) size: u32,
    pub(super) areas: Option<[u64; 3]>,
    pub(super) base: u32,
    pub(super) call: Option<OwnedFd>,
    pub(super) active: Option<AnyActive>,
    /// Packets of the guest's that a device before this one had taken and not shown, and that were
    /// not counted yet.
    pub(super) lost: u64,
}

/// What was said of the device as a whole.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    pub(super) features: u64,
    pub(super) memory: Option<Arc<Guest>>,
    /// Where it is noted how far the rings came.
    pub(super) area: Option<Arc<Area>>,
}

/// Only an event can be written to without waiting: a pipe, say, may be full.
pub(super) fn check_event(event: &OwnedFd) -> Done {
    let path = format!("/proc/self/fd/{}", event.as_raw_fd());
    let is_event =
        std::fs::read_link(path).is_ok_and(|kind| kind.ends_with("anon_inode:[eventfd]"));
    if !is_event {
        return refuse("it gave a descriptor that is no eventfd to be called by");
    }
    let done = rustix::io::ioctl_fionbio(event, true);
    done.map_err(|reason| Refused(format!("the event that it gave cannot be set up: {reason}")))
}

impl Vring {
    /// The ring of this number, of which nothing was said yet: odd ones come from the guest.
    pub(super) fn of(index: usize) -> Self {
        Self { index, ..Self::default() }
    }

    /// Whether the device reads its chains, and does not fill them.
    fn is_read(&self) -> bool {
        self.index % 2 == 1
    }

    /// Where it is noted how far the ring came, if the front end keeps that.
    fn note(&self, agreed: &Agreed) -> Done<Option<Note>> {
        let is_packed = agreed.features & features::PACKED != 0;
        let area = agreed.area.as_ref();
        area.map(|area| area.region(self.index, self.size, is_packed)).transpose()
    }

    /// Forgets what was noted: the front end has heard how far the ring came, and says it.
    pub(super) fn forget(&self, agreed: &Agreed) {
        if let Ok(Some(note)) = self.note(agreed) {
            note.forget();
        }
    }

    /// Starts the ring if all that it needs was said.
    pub(super) fn activate(&mut self, agreed: &Agreed) -> Done {
        let is_enabled = self.is_enabled || agreed.features & features::PROTOCOL_FEATURES == 0;
        let (Some(memory), Some(areas)) = (&agreed.memory, self.areas) else { return Ok(()) };
        if !self.is_started || !is_enabled || self.size == 0 {
            return Ok(());
        }
        let is_packed = agreed.features & features::PACKED != 0;
        let active = if is_packed {
            let (ring, lost) = self.packed(memory, areas, agreed)?;
            if self.is_read() {
                self.lost += lost;
            }
            AnyActive::Packed(Active::new(ring, memory, agreed))
        } else {
            AnyActive::Split(Active::new(self.split(memory, areas, agreed)?, memory, agreed))
        };
        self.active = Some(active);
        // A back end that was killed may have shown what it used, and not have called.
        self.call.iter().for_each(signal);
        Ok(())
    }

    fn split(&self, memory: &Guest, areas: [u64; 3], agreed: &Agreed) -> Done<SplitRing> {
        if !self.size.is_power_of_two() || self.base > u16::MAX.into() {
            let Self { index, size, base, .. } = self;
            return refuse(format!(
                "split ring {index} has {size} descriptors and begins at {base}"
            ));
        }
        let bytes = split::area_bytes(self.size);
        let places = find(memory, areas, bytes, split::AREA_ALIGNS)?;
        // SAFETY: the areas were just found in the memory, with their length and alignment; it is
        // kept beside the ring, and the size was checked as it came, and above.
        let ring = unsafe { Split::new(places, self.size) };
        let note = self.note(agreed)?;
        // The used ring says the same, and is right in any case: what is noted is only checked.
        note.as_ref().map(|note| note.read(self.size)).transpose()?;
        Ok(SplitRing::new(ring, agreed.features & features::EVENT_INDEX != 0, note))
    }

    fn packed(&self, memory: &Guest, areas: [u64; 3], agreed: &Agreed) -> Done<(PackedRing, u64)> {
        // What is available and what was used are one place here: the upper half, of used ones, is
        // of front ends that know better.
        let Self { index, size, base, .. } = self;
        let cannot_be = || Refused(format!("packed ring {index} of {size} begins at {base:#x}"));
        let base = Place::of(*base as u16, *size).ok_or_else(cannot_be)?;
        let bytes = packed::area_bytes(self.size);
        let places = find(memory, areas, bytes, packed::AREA_ALIGNS)?;
        // SAFETY: as above.
        let ring = unsafe { Packed::new(places, self.size) };
        let has_events = agreed.features & features::EVENT_INDEX != 0;
        let shows_last = self.is_read() && agreed.features & features::IN_ORDER != 0;
        let note = self.note(agreed)?;
        let noted = note.as_ref().map(|note| note.read(self.size)).transpose()?.flatten();
        Ok(PackedRing::new(ring, (noted, base), has_events, shows_last, note))
    }

    pub(super) fn deactivate(&mut self) {
        if let Some(active) = self.active.take() {
            self.base = active.base();
        }
    }

    /// Shows the driver what was used, once for a burst, and calls it if it waits to be called.
    #[inline]
    pub(super) fn publish(&mut self) {
        let wants_call = match &mut self.active {
            Some(AnyActive::Split(active)) => active.ring.publish(),
            Some(AnyActive::Packed(active)) => active.ring.publish(),
            None => false,
        };
        if wants_call && let Some(call) = &self.call {
            signal(call);
        }
    }
}

impl<L> Active<L> {
    fn new(ring: L, memory: &Arc<Guest>, agreed: &Agreed) -> Self {
        Self {
            ring,
            memory: memory.clone(),
            cached: Cached::default(),
            header_bytes: features::header_bytes(agreed.features),
            is_mergeable: agreed.features & features::MERGEABLE != 0,
            has_indirect: agreed.features & features::INDIRECT != 0,
            rest: Rest::new(),
        }
    }
}

impl AnyActive {
    fn base(&self) -> u32 {
        match self {
            Self::Split(active) => active.ring.base(),
            Self::Packed(active) => active.ring.base(),
        }
    }
}

/// Where a ring's areas are.
fn find(
    memory: &Guest,
    areas: [u64; 3],
    bytes: [u64; 3],
    aligns: [usize; 3],
) -> Done<[NonNull<u8>; 3]> {
    let mut places = [NonNull::dangling(); 3];
    for (index, place) in places.iter_mut().enumerate() {
        let found = memory.at_peer(areas[index], bytes[index], aligns[index]);
        let at = areas[index];
        *place = found.ok_or_else(|| {
            Refused(format!(
                "a ring at {at:#x} is not in the guest\u{2019}s memory, or not aligned"
            ))
        })?;
    }
    Ok(places)
}

/// Adds one to an event, unless that would wait.
#[cold]
fn signal(event: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut ready = [PollFd::new(event, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ready, Some(&now)).is_ok_and(|count| count == 1) {
        // One that is full has been signalled already.
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
    }
}
