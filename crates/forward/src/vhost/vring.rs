//! A ring's configuration, which the front end sets, and the active ring that results once the
//! configuration is complete.

use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fd::OwnedFd;

use super::back_off::BackOff;
use super::inflight::{Area, Progress, Region};
use super::layout::ahead::Ahead;
use super::layout::packed::PackedRing;
use super::layout::split::SplitRing;
use super::layout::{Broken, Layout};
use super::moderation::Moderation;
use crate::messages::{Refusal, RequestResult, refuse};
use crate::offloads::Offloads;
use crate::packets::GuestMemory;
use crate::ring::features;
use crate::ring::packed::{self, Location, Packed};
use crate::ring::split::{self, Split};
use haul_peer::guest::Guest;

/// A ring through which packets pass.
#[derive(Debug)]
pub(super) struct Active<L, M: GuestMemory> {
    pub(super) ring: L,
    pub(super) memory: Arc<M>,
    /// The region in which the last address was found.
    pub(super) cached: M::Cached,
    pub(super) header_bytes: usize,
    pub(super) is_mergeable: bool,
    pub(super) has_indirect: bool,
    /// The work that the guest may leave to the device.
    pub(super) may_leave: Offloads,
    /// The work that the guest takes with a packet.
    pub(super) takes: Offloads,
    pub(super) back_off: BackOff,
    /// The number of descriptors that were followed in this call.
    pub(super) followed: usize,
}

/// An active ring of either layout.
#[derive(Debug)]
pub(super) enum AnyActive {
    Split(Active<SplitRing, Guest>),
    Packed(Active<PackedRing, Guest>),
    /// Rings to the guest to which an engine copies packets.
    SplitAhead(Active<Ahead<SplitRing>, Guest>),
    PackedAhead(Active<Ahead<PackedRing>, Guest>),
}

/// A ring, as its worker locks it for a burst.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) active: Option<AnyActive>,
    /// Whether the front end is changing the ring: packets wait meanwhile, but no worker does.
    pub(super) is_changing: bool,
    pub(super) call: Option<Arc<OwnedFd>>,
    /// Of a ring from the guest.
    pub(super) moderation: Moderation,
    /// The number of the guest's packets that the previous device had read but not published, and
    /// that were not counted yet.
    pub(super) lost: u64,
    /// A ring that is no longer used. Releasing its memory takes time, so the worker leaves that
    /// to the conversation.
    abandoned: Option<AnyActive>,
}

/// The configuration of a ring, which belongs to the conversation.
#[derive(Debug, Default)]
pub(super) struct Vring {
    pub(super) index: usize,
    pub(super) is_started: bool,
    pub(super) is_enabled: bool,
    pub(super) size: u32,
    pub(super) areas: Option<[u64; 3]>,
    base: u32,
    /// Whether `base` is where this device stopped, and not only a value of the front end.
    is_base_own: bool,
    pub(super) call: Option<Arc<OwnedFd>>,
}

/// The configuration of the device as a whole.
#[derive(Debug, Default)]
pub(super) struct Negotiated {
    pub(super) features: u64,
    pub(super) memory: Option<Arc<Guest>>,
    /// Whether the front end has removed a region. It may add the region again in another form, so
    /// that a ring there waits.
    pub(super) has_removed_memory: bool,
    /// Where the progress of the rings is recorded.
    pub(super) area: Option<Arc<Area>>,
}

/// A ring that was started, and the number of packets that were lost with the previous device.
pub(super) type Started = (AnyActive, u64);

impl Slot {
    /// Publishes the used chains to the driver, once for a burst. Returns the event to signal if
    /// the driver wants a call; signal it after the lock is released.
    #[inline]
    pub(super) fn publish(&mut self) -> Option<Arc<OwnedFd>> {
        if self.publish_only() { self.call.clone() } else { None }
    }

    /// As [`publish`](Self::publish), for a ring from the guest: the driver may be called later,
    /// when this is called again.
    #[inline]
    pub(super) fn publish_moderated(&mut self) -> Option<Arc<OwnedFd>> {
        let (chains, size) = match &self.active {
            Some(AnyActive::Split(active)) => (active.ring.unpublished(), active.ring.size()),
            Some(AnyActive::Packed(active)) => (active.ring.unpublished(), active.ring.size()),
            Some(AnyActive::SplitAhead(_) | AnyActive::PackedAhead(_)) | None => (0, 0),
        };
        let wants_call = self.publish_only();
        let chains = self.moderation.pass(wants_call, chains, size)?;
        let wants_call = match &self.active {
            Some(AnyActive::Split(active)) => active.ring.wants_call(chains),
            Some(AnyActive::Packed(active)) => active.ring.wants_call(chains),
            Some(AnyActive::SplitAhead(_) | AnyActive::PackedAhead(_)) | None => false,
        };
        if wants_call { self.call.clone() } else { None }
    }

    /// The event of a driver whose call waits. The wait ends.
    pub(super) fn take_waiting_call(&mut self) -> Option<Arc<OwnedFd>> {
        if self.moderation.end() { self.call.clone() } else { None }
    }

    #[inline]
    fn publish_only(&mut self) -> bool {
        match &mut self.active {
            Some(AnyActive::Split(active)) => active.ring.publish(),
            Some(AnyActive::Packed(active)) => active.ring.publish(),
            Some(AnyActive::SplitAhead(_) | AnyActive::PackedAhead(_)) | None => false,
        }
    }

    /// Gives up the ring after a fault of the guest. Returns whether memory was lost.
    #[cold]
    pub(super) fn abandon(&mut self) -> bool {
        self.abandoned = self.active.take();
        self.abandoned.as_ref().is_some_and(|abandoned| abandoned.memory().is_broken())
    }

    /// Removes the ring while its configuration changes, and a ring that was given up.
    pub(super) fn remove(&mut self) -> [Option<AnyActive>; 2] {
        self.is_changing = true;
        [self.active.take(), self.abandoned.take()]
    }

    /// Installs the changed ring. Returns the previous event, to be closed.
    pub(super) fn install(
        &mut self,
        started: Option<Started>,
        call: Option<Arc<OwnedFd>>,
    ) -> Option<Arc<OwnedFd>> {
        if let Some((active, lost)) = started {
            self.active = Some(active);
            self.lost += lost;
        }
        self.is_changing = false;
        std::mem::replace(&mut self.call, call)
    }
}

impl Vring {
    /// The unconfigured ring of this index. Odd rings carry packets from the guest.
    pub(super) fn of(index: usize) -> Self {
        Self { index, ..Self::default() }
    }

    /// Whether the device reads the chains of this ring.
    fn is_read(&self) -> bool {
        self.index % 2 == 1
    }

    /// The region that records the ring's progress, if the front end keeps it.
    fn region(&self, negotiated: &Negotiated) -> RequestResult<Option<Region>> {
        let is_packed = negotiated.features & features::PACKED != 0;
        let area = negotiated.area.as_ref();
        area.map(|area| area.region(self.index, self.size, is_packed)).transpose()
    }

    /// Clears the record: the front end has read the progress, and will report it.
    pub(super) fn clear_record(&self, negotiated: &Negotiated) {
        if let Ok(Some(region)) = self.region(negotiated) {
            region.clear();
        }
    }

    /// Sets the progress that the front end reports.
    pub(super) fn set_base(&mut self, base: u32) {
        self.is_base_own &= base == self.base;
        self.base = base;
    }

    /// The progress of the ring.
    pub(super) fn base(&self) -> u32 {
        self.base
    }

    /// Records where the ring was stopped.
    pub(super) fn record_stop(&mut self, active: &AnyActive) {
        (self.base, self.is_base_own) = (active.base(), true);
    }

    /// Starts the ring if its configuration is complete. To start a packed ring, the device must
    /// read it, and the driver may write to it meanwhile: `pause` pauses briefly, and returns
    /// false once the time is over.
    pub(super) fn activate(
        &self,
        negotiated: &Negotiated,
        pause: &mut dyn FnMut() -> bool,
    ) -> RequestResult<Option<Started>> {
        let is_enabled = self.is_enabled || negotiated.features & features::PROTOCOL_FEATURES == 0;
        let (Some(memory), Some(areas)) = (&negotiated.memory, self.areas) else { return Ok(None) };
        if !self.is_started || !is_enabled || self.size == 0 {
            return Ok(None);
        }
        let is_packed = negotiated.features & features::PACKED != 0;
        if negotiated.has_removed_memory && !self.is_in(memory, areas, is_packed) {
            return Ok(None);
        }
        if !is_packed {
            let ring = self.split(memory, areas, negotiated)?;
            let active = Active::new(ring, memory.clone(), negotiated.features);
            return Ok(Some((AnyActive::Split(active), 0)));
        }
        let (ring, lost) = self.packed(memory, areas, negotiated, pause)?;
        let lost = if self.is_read() { lost } else { 0 };
        let active = Active::new(ring, memory.clone(), negotiated.features);
        Ok(Some((AnyActive::Packed(active), lost)))
    }

    /// Whether the memory has the ring's areas.
    fn is_in(&self, memory: &Guest, areas: [u64; 3], is_packed: bool) -> bool {
        let (bytes, aligns) = if is_packed {
            (packed::area_bytes(self.size), packed::AREA_ALIGNS)
        } else {
            (split::area_bytes(self.size), split::AREA_ALIGNS)
        };
        look_up(memory, areas, bytes, aligns).is_ok()
    }

    fn split(
        &self,
        memory: &Guest,
        areas: [u64; 3],
        negotiated: &Negotiated,
    ) -> RequestResult<SplitRing> {
        if !self.size.is_power_of_two() || self.base > u16::MAX.into() {
            let Self { index, size, base, .. } = self;
            return refuse(format!(
                "split ring {index} cannot have {size} descriptors and begin at {base}"
            ));
        }
        let bytes = split::area_bytes(self.size);
        let addresses = look_up(memory, areas, bytes, split::AREA_ALIGNS)?;
        // SAFETY: the areas were just found in the memory, with their length and alignment; the
        // memory is kept together with the ring. The size was checked when it was set, and above.
        let ring = unsafe { Split::new(addresses, self.size) };
        let region = self.region(negotiated)?;
        // The used index says the same as the record, and is always correct. The record is
        // therefore only checked.
        region.as_ref().map(|region| region.read(self.size)).transpose()?;
        Ok(SplitRing::new(ring, negotiated.features & features::EVENT_INDEX != 0, region))
    }

    fn packed(
        &self,
        memory: &Guest,
        areas: [u64; 3],
        negotiated: &Negotiated,
        pause: &mut dyn FnMut() -> bool,
    ) -> RequestResult<(PackedRing, u64)> {
        // One location describes available and used chains here. The upper half, for used chains,
        // belongs to other back ends.
        let Self { index, size, base, .. } = self;
        let impossible =
            || Refusal(format!("packed ring {index} of {size} cannot begin at {base:#x}"));
        let base = Location::of(*base as u16, *size).ok_or_else(impossible)?;
        let bytes = packed::area_bytes(self.size);
        let addresses = look_up(memory, areas, bytes, packed::AREA_ALIGNS)?;
        // SAFETY: as above.
        let ring = unsafe { Packed::new(addresses, self.size) };
        let has_events = negotiated.features & features::EVENT_INDEX != 0;
        let shows_last = self.is_read() && negotiated.features & features::IN_ORDER != 0;
        let region = self.region(negotiated)?;
        let recorded = region.as_ref().map(|region| region.read(self.size)).transpose()?.flatten();
        let own = self.is_base_own.then_some(Progress { published: base, publishing: base });
        let progress = (recorded.or(own), base);
        Ok(PackedRing::new(ring, progress, (has_events, shows_last), region, pause))
    }
}

impl<L, M: GuestMemory> Active<L, M> {
    pub(super) fn new(ring: L, memory: Arc<M>, features: u64) -> Self {
        Self {
            ring,
            memory,
            cached: M::Cached::default(),
            header_bytes: features::header_bytes(features),
            is_mergeable: features & features::MERGEABLE != 0,
            has_indirect: features & features::INDIRECT != 0,
            may_leave: features::from_driver(features),
            takes: features::to_driver(features),
            back_off: BackOff::new(),
            followed: 0,
        }
    }

    /// The same ring in another form.
    pub(super) fn map_ring<R>(self, form: impl FnOnce(L) -> R) -> Active<R, M> {
        let Self { ring, memory, cached, header_bytes, is_mergeable, .. } = self;
        let Self { has_indirect, may_leave, takes, back_off, followed, .. } = self;
        Active {
            ring: form(ring),
            memory,
            cached,
            header_bytes,
            is_mergeable,
            has_indirect,
            may_leave,
            takes,
            back_off,
            followed,
        }
    }
}

impl AnyActive {
    fn memory(&self) -> &Guest {
        match self {
            Self::Split(active) => &active.memory,
            Self::Packed(active) => &active.memory,
            Self::SplitAhead(active) => &active.memory,
            Self::PackedAhead(active) => &active.memory,
        }
    }

    fn base(&self) -> u32 {
        match self {
            Self::Split(active) => active.ring.base(),
            Self::Packed(active) => active.ring.base(),
            Self::SplitAhead(active) => active.ring.base(),
            Self::PackedAhead(active) => active.ring.base(),
        }
    }

    /// The ring in the form to which an engine can copy packets.
    pub(super) fn ahead(self) -> Self {
        match self {
            Self::Split(active) => Self::SplitAhead(active.map_ring(Ahead::new)),
            Self::Packed(active) => Self::PackedAhead(active.map_ring(Ahead::new)),
            ahead => ahead,
        }
    }

    /// See [`Ahead::publish_ended`].
    pub(super) fn publish_ended(&mut self) -> Result<bool, Broken> {
        match self {
            Self::SplitAhead(Active { ring, memory, .. }) => ring.publish_ended(memory),
            Self::PackedAhead(Active { ring, memory, .. }) => ring.publish_ended(memory),
            Self::Split(_) | Self::Packed(_) => Ok(false),
        }
    }

    /// See [`Ahead::complete`].
    pub(super) fn complete(&mut self) -> bool {
        match self {
            Self::SplitAhead(Active { ring, memory, .. }) => ring.complete(memory),
            Self::PackedAhead(Active { ring, memory, .. }) => ring.complete(memory),
            Self::Split(_) | Self::Packed(_) => false,
        }
    }
}

/// Looks up the addresses of a ring's areas.
fn look_up(
    memory: &Guest,
    areas: [u64; 3],
    bytes: [u64; 3],
    aligns: [usize; 3],
) -> RequestResult<[NonNull<u8>; 3]> {
    let mut addresses = [NonNull::dangling(); 3];
    for (index, address) in addresses.iter_mut().enumerate() {
        let found = memory.at_peer(areas[index], bytes[index], aligns[index]);
        let at = areas[index];
        *address = found.ok_or_else(|| {
            Refusal(format!(
                "its ring at {at:#x} is not in the guest\u{2019}s memory, or not aligned"
            ))
        })?;
    }
    Ok(addresses)
}
