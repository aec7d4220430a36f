//! What the front end said of a ring, and the ring that packets go through once all that it needs
//! was said.

use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fd::OwnedFd;

use super::super::messages::{Done, Refused, refuse};
use super::super::ring::features;
use super::super::ring::packed::{self, Packed, Place};
use super::super::ring::split::{self, Split};
use super::inflight::{Area, Note, Noted};
use super::layout::Layout;
use super::layout::packed::PackedRing;
use super::layout::split::SplitRing;
use super::rest::Rest;
use haul_peer::guest::{Cached, Guest};

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
    /// Descriptors that were followed in this call.
    pub(super) followed: usize,
}

/// One of either layout.
#[derive(Debug)]
pub(super) enum AnyActive {
    Split(Active<SplitRing>),
    Packed(Active<PackedRing>),
}

/// A ring, as its worker has it for a burst.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) active: Option<AnyActive>,
    /// Whether the front end is changing it: packets wait meanwhile, and no worker does.
    pub(super) is_changing: bool,
    pub(super) call: Option<Arc<OwnedFd>>,
    /// Packets of the guest's that a device before this one had taken and not shown, and that were
    /// not counted yet.
    pub(super) lost: u64,
    /// One that no packets go through any more. To give its memory back takes time, which is not
    /// the worker's.
    left: Option<AnyActive>,
}

/// What was said of a ring: the conversation's alone.
#[derive(Debug, Default)]
pub(super) struct Vring {
    pub(super) index: usize,
    pub(super) is_started: bool,
    pub(super) is_enabled: bool,
    pub(super) size: u32,
    pub(super) areas: Option<[u64; 3]>,
    base: u32,
    /// Whether that is where this device was, and not the front end's word alone.
    is_base_own: bool,
    pub(super) call: Option<Arc<OwnedFd>>,
}

/// What was said of the device as a whole.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    pub(super) features: u64,
    pub(super) memory: Option<Arc<Guest>>,
    /// Where it is noted how far the rings came.
    pub(super) area: Option<Arc<Area>>,
}

/// A ring that was started, and packets that were lost with the device before this one.
pub(super) type Started = (AnyActive, u64);

impl Slot {
    /// Shows the driver what was used, once for a burst; the event to call it by, if it waits to
    /// be called. That is for when nobody waits for the ring any more.
    #[inline]
    pub(super) fn publish(&mut self) -> Option<Arc<OwnedFd>> {
        let wants_call = match &mut self.active {
            Some(AnyActive::Split(active)) => active.ring.publish(),
            Some(AnyActive::Packed(active)) => active.ring.publish(),
            None => false,
        };
        if wants_call { self.call.clone() } else { None }
    }

    /// Leaves the ring, which the guest has broken; whether memory of its was gone.
    #[cold]
    pub(super) fn leave(&mut self) -> bool {
        self.left = self.active.take();
        self.left.as_ref().is_some_and(|left| left.memory().is_broken())
    }

    /// Takes the ring away, for as long as it is changed; and one that was left.
    pub(super) fn take(&mut self) -> [Option<AnyActive>; 2] {
        self.is_changing = true;
        [self.active.take(), self.left.take()]
    }

    /// Puts it there as it was changed; the event that it had, to be closed.
    pub(super) fn put(
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

    /// The front end says how far the ring came.
    pub(super) fn set_base(&mut self, base: u32) {
        self.is_base_own &= base == self.base;
        self.base = base;
    }

    /// How far it came.
    pub(super) fn base(&self) -> u32 {
        self.base
    }

    /// The ring was stopped.
    pub(super) fn has_stopped(&mut self, active: &AnyActive) {
        (self.base, self.is_base_own) = (active.base(), true);
    }

    /// The ring, started if all that it needs was said. One that has to be read for that may be
    /// written meanwhile: `pause` waits a little, and says whether there is time to wait.
    pub(super) fn activate(
        &self,
        agreed: &Agreed,
        pause: &mut dyn FnMut() -> bool,
    ) -> Done<Option<Started>> {
        let is_enabled = self.is_enabled || agreed.features & features::PROTOCOL_FEATURES == 0;
        let (Some(memory), Some(areas)) = (&agreed.memory, self.areas) else { return Ok(None) };
        if !self.is_started || !is_enabled || self.size == 0 {
            return Ok(None);
        }
        if agreed.features & features::PACKED == 0 {
            let active = Active::new(self.split(memory, areas, agreed)?, memory, agreed);
            return Ok(Some((AnyActive::Split(active), 0)));
        }
        let (ring, lost) = self.packed(memory, areas, agreed, pause)?;
        let lost = if self.is_read() { lost } else { 0 };
        Ok(Some((AnyActive::Packed(Active::new(ring, memory, agreed)), lost)))
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

    fn packed(
        &self,
        memory: &Guest,
        areas: [u64; 3],
        agreed: &Agreed,
        pause: &mut dyn FnMut() -> bool,
    ) -> Done<(PackedRing, u64)> {
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
        let own = self.is_base_own.then_some(Noted { shown: base, shows: base });
        let places = (noted.or(own), base);
        Ok(PackedRing::new(ring, places, (has_events, shows_last), note, pause))
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
            followed: 0,
        }
    }
}

impl AnyActive {
    fn memory(&self) -> &Guest {
        match self {
            Self::Split(active) => &active.memory,
            Self::Packed(active) => &active.memory,
        }
    }

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
