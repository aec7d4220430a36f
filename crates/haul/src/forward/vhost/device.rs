//! What the front end said of the device, and the rings that follow from it.
//!
//! Two threads meet here: the one that has the conversation, and the worker of a queue. Each ring
//! is behind a lock that the worker takes for a burst and never waits for. A ring is active when
//! all that it needs was said: then it holds the memory, which stays mapped until the last ring
//! gives it up. The front end's answer to "stop this ring" comes after the worker's last touch.

use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use rustix::fd::{AsRawFd, OwnedFd};

use super::super::contract::Agreement;
use super::super::messages::{Backend, Done, Refused};
use super::super::ring::features;
use super::super::ring::packed::{self, Packed, Place};
use super::super::ring::split::{self, Split};
use super::layout::Layout;
use super::layout::packed::PackedRing;
use super::layout::split::SplitRing;
use super::met::Met;
use super::rest::Rest;
use crate::peer::guest::{Cached, Described, Guest};

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
    /// Whether the device reads its chains, and does not fill them.
    is_read: bool,
    is_started: bool,
    is_enabled: bool,
    size: u32,
    areas: Option<[u64; 3]>,
    base: u32,
    call: Option<OwnedFd>,
    pub(super) active: Option<AnyActive>,
}

/// What was said of the device as a whole.
#[derive(Debug, Default)]
struct Agreed {
    features: u64,
    memory: Option<Arc<Guest>>,
}

/// A device of several queue pairs, for one front end at a time.
#[derive(Debug)]
pub(super) struct Device {
    rings: Vec<Mutex<Vring>>,
    is_active: Vec<AtomicBool>,
    agreed: Mutex<Agreed>,
    offered: u64,
    /// The conversation's socket, so that another thread can end it.
    socket: Mutex<Option<UnixStream>>,
    is_stopped: AtomicBool,
    is_refused: AtomicBool,
    resets: AtomicU64,
    met: Met,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    pub(super) fn new(queue_pairs: u16, offered: u64) -> Self {
        let rings = 2 * usize::from(queue_pairs);
        Self {
            rings: (0..rings).map(|index| Mutex::new(Vring::of(index))).collect(),
            is_active: (0..rings).map(|_| AtomicBool::new(false)).collect(),
            agreed: Mutex::default(),
            offered,
            socket: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            met: Met::default(),
        }
    }

    /// The ring, for a burst; `None` where the front end changes it at the moment.
    #[inline]
    pub(super) fn ring(&self, index: usize) -> Option<MutexGuard<'_, Vring>> {
        match self.rings[index].try_lock() {
            Ok(ring) => Some(ring),
            Err(TryLockError::Poisoned(ring)) => Some(ring.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn pairs(&self) -> u64 {
        self.rings.len() as u64 / 2
    }

    /// Whether packets go through the ring.
    pub(super) fn is_active(&self, index: usize) -> bool {
        self.is_active[index].load(Ordering::Relaxed)
    }

    /// What was agreed on, as far as this ring is concerned; `None` where nothing was.
    pub(super) fn agreement(&self, index: usize) -> Option<Agreement> {
        let features = locked(&self.agreed).features;
        let ring_size = locked(&self.rings[index]).size;
        (features != 0 && ring_size != 0).then_some(Agreement { features, ring_size })
    }

    /// Times that a front end was left because of what it did.
    pub(super) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Why nobody is there, where somebody came.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.met.obstacle()
    }

    /// Leaves the front end, which did what it may not: it has to connect again.
    #[cold]
    pub(super) fn break_off(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
        self.hang_up();
    }

    fn hang_up(&self) {
        if let Some(socket) = &*locked(&self.socket) {
            // It may be closed already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// A conversation begins; false where none may any more.
    pub(super) fn begin(&self, socket: UnixStream) -> bool {
        *locked(&self.socket) = Some(socket);
        self.is_refused.store(false, Ordering::Relaxed);
        self.met.begin();
        !self.is_stopped()
    }

    /// The conversation is over: the device is as it was before it.
    pub(super) fn end(&self, was_wrong: bool) {
        *locked(&self.socket) = None;
        self.reset();
        let was_wrong = was_wrong || self.is_refused();
        if was_wrong {
            self.resets.fetch_add(1, Ordering::Relaxed);
        }
        self.met.end(was_wrong, self.pairs());
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Ends the conversation, and lets none begin.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.hang_up();
    }

    /// Changes what was said of a ring, and starts or stops it as follows from that.
    fn change(&self, index: u32, change: impl FnOnce(&mut Vring) -> Done) -> Done {
        let result = self.try_change(index, change);
        if result.is_err() {
            self.is_refused.store(true, Ordering::Relaxed);
        }
        result
    }

    fn try_change(&self, index: u32, change: impl FnOnce(&mut Vring) -> Done) -> Done {
        let Some(place) = self.rings.get(index as usize) else {
            self.met.wanted(index, self.pairs());
            return Err(Refused);
        };
        let agreed = locked(&self.agreed);
        let mut ring = locked(place);
        ring.deactivate();
        let result = change(&mut ring).and_then(|()| ring.activate(&agreed));
        self.is_active[index as usize].store(ring.active.is_some(), Ordering::Relaxed);
        if ring.active.is_some() {
            self.met.started();
        }
        result
    }

    fn set_memory_to(&self, memory: Option<Arc<Guest>>) -> Done {
        let mut agreed = locked(&self.agreed);
        agreed.memory = memory;
        self.restart(&agreed)
    }

    /// Starts every ring anew, with what is agreed now.
    fn restart(&self, agreed: &Agreed) -> Done {
        let mut result = Ok(());
        for (place, is_active) in self.rings.iter().zip(&self.is_active) {
            let mut ring = locked(place);
            ring.deactivate();
            result = result.and(ring.activate(agreed));
            is_active.store(ring.active.is_some(), Ordering::Relaxed);
            if ring.active.is_some() {
                self.met.started();
            }
        }
        result
    }

    fn refuse(&self, done: Done) -> Done {
        if done.is_err() {
            self.is_refused.store(true, Ordering::Relaxed);
        }
        done
    }
}

impl Backend for Device {
    fn features(&self) -> u64 {
        self.offered
    }

    fn set_features(&self, features: u64) -> Done {
        let mut agreed = locked(&self.agreed);
        if features & !self.offered != 0 {
            return self.refuse(Err(Refused));
        }
        agreed.features = features;
        self.refuse(self.restart(&agreed))
    }

    fn queue_pairs(&self) -> u64 {
        self.met.asked();
        self.pairs()
    }

    fn set_memory(&self, regions: Vec<(Described, OwnedFd)>) -> Done {
        // Mapped before anything is given up, so that a refusal leaves nothing half done; it ends
        // the conversation anyway.
        match Guest::map(&regions) {
            Ok(memory) => self.refuse(self.set_memory_to(Some(Arc::new(memory)))),
            Err(_) => self.refuse(Err(Refused)),
        }
    }

    fn set_size(&self, ring: u32, size: u32) -> Done {
        self.change(ring, |ring| {
            if size == 0 || size > split::SIZE_MAX.max(packed::SIZE_MAX) {
                return Err(Refused);
            }
            ring.size = size;
            Ok(())
        })
    }

    fn set_addresses(&self, ring: u32, areas: [u64; 3]) -> Done {
        self.change(ring, |ring| {
            ring.areas = Some(areas);
            Ok(())
        })
    }

    fn set_base(&self, ring: u32, base: u32) -> Done {
        self.change(ring, |ring| {
            ring.base = base;
            Ok(())
        })
    }

    fn stop_ring(&self, ring: u32) -> Done<u32> {
        self.change(ring, |ring| {
            ring.is_started = false;
            ring.call = None;
            Ok(())
        })?;
        Ok(locked(&self.rings[ring as usize]).base)
    }

    fn start_ring(&self, ring: u32) -> Done {
        self.change(ring, |ring| {
            ring.is_started = true;
            Ok(())
        })
    }

    fn set_call(&self, ring: u32, event: Option<OwnedFd>) -> Done {
        self.change(ring, |ring| {
            if let Some(event) = &event {
                check_event(event)?;
            }
            ring.call = event;
            Ok(())
        })
    }

    fn set_enabled(&self, ring: u32, is_enabled: bool) -> Done {
        self.change(ring, |ring| {
            ring.is_enabled = is_enabled;
            Ok(())
        })
    }

    fn reset(&self) {
        for (index, (place, is_active)) in self.rings.iter().zip(&self.is_active).enumerate() {
            *locked(place) = Vring::of(index);
            is_active.store(false, Ordering::Relaxed);
        }
        *locked(&self.agreed) = Agreed::default();
    }
}

/// Only an event can be written to without waiting: a pipe, say, may be full.
fn check_event(event: &OwnedFd) -> Done {
    let path = format!("/proc/self/fd/{}", event.as_raw_fd());
    let is_event =
        std::fs::read_link(path).is_ok_and(|kind| kind.ends_with("anon_inode:[eventfd]"));
    if !is_event {
        return Err(Refused);
    }
    rustix::io::ioctl_fionbio(event, true).map_err(|_| Refused)
}

impl Vring {
    /// The ring of this number, of which nothing was said yet: odd ones come from the guest.
    fn of(index: usize) -> Self {
        Self { is_read: index % 2 == 1, ..Self::default() }
    }

    /// Starts the ring if all that it needs was said.
    fn activate(&mut self, agreed: &Agreed) -> Done {
        let is_enabled = self.is_enabled || agreed.features & features::PROTOCOL_FEATURES == 0;
        let (Some(memory), Some(areas)) = (&agreed.memory, self.areas) else { return Ok(()) };
        if !self.is_started || !is_enabled || self.size == 0 {
            return Ok(());
        }
        let is_packed = agreed.features & features::PACKED != 0;
        let active = if is_packed {
            AnyActive::Packed(Active::new(self.packed(memory, areas, agreed)?, memory, agreed))
        } else {
            AnyActive::Split(Active::new(self.split(memory, areas, agreed)?, memory, agreed))
        };
        self.active = Some(active);
        Ok(())
    }

    fn split(&self, memory: &Guest, areas: [u64; 3], agreed: &Agreed) -> Done<SplitRing> {
        if !self.size.is_power_of_two() || self.base > u16::MAX.into() {
            return Err(Refused);
        }
        let bytes = split::area_bytes(self.size);
        let places = find(memory, areas, bytes, split::AREA_ALIGNS)?;
        // SAFETY: the areas were just found in the memory, with their length and alignment; it is
        // kept beside the ring, and the size was checked as it came, and above.
        let ring = unsafe { Split::new(places, self.size) };
        Ok(SplitRing::new(ring, agreed.features & features::EVENT_INDEX != 0))
    }

    fn packed(&self, memory: &Guest, areas: [u64; 3], agreed: &Agreed) -> Done<PackedRing> {
        // What is available and what was used are one place here: the upper half, of used ones, is
        // of front ends that know better.
        let base = Place::of(self.base as u16, self.size).ok_or(Refused)?;
        let bytes = packed::area_bytes(self.size);
        let places = find(memory, areas, bytes, packed::AREA_ALIGNS)?;
        // SAFETY: as above.
        let ring = unsafe { Packed::new(places, self.size) };
        let has_events = agreed.features & features::EVENT_INDEX != 0;
        let shows_last = self.is_read && agreed.features & features::IN_ORDER != 0;
        Ok(PackedRing::new(ring, base, has_events, shows_last))
    }

    fn deactivate(&mut self) {
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
        *place = found.ok_or(Refused)?;
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
