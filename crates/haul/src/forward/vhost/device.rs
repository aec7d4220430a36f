//! What the front end said of the device, and the rings that follow from it.
//!
//! Two threads meet here: the one that has the conversation, and the worker of a queue. Each ring
//! is behind a lock that the worker takes for a burst and never waits for. A ring is active when
//! all that it needs was said: then it holds the memory, which stays mapped until the last ring
//! gives it up. The front end's answer to "stop this ring" comes after the worker's last touch.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use rustix::fd::OwnedFd;

use super::super::clock::now_ns;
use super::super::contract::Agreement;
use super::super::messages::{AreaAt, Backend, Done, Refused, refuse};
use super::super::ring::{packed, split};
use super::inflight::Area;
use super::met::Met;
use super::vring::{Agreed, Vring, check_event};
use crate::peer::guest::{Described, Guest, said};

/// How often a worker looks whether another one has left a ring, before it gives its processor
/// away: some microseconds, as a burst takes; and how long it does.
const SPINS: u32 = 256;
const WAIT_NS: u64 = 1_000_000;

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

    /// The ring, for a burst to the guest. Another worker may have it for the time of its own
    /// burst, where the guest uses fewer rings than there are: that is waited for, up to a
    /// millisecond.
    #[inline]
    pub(super) fn ring_soon(&self, index: usize) -> Option<MutexGuard<'_, Vring>> {
        self.ring(index).or_else(|| self.wait_for_ring(index))
    }

    #[cold]
    fn wait_for_ring(&self, index: usize) -> Option<MutexGuard<'_, Vring>> {
        let start_ns = now_ns();
        loop {
            (0..SPINS).for_each(|_| std::hint::spin_loop());
            if let Some(ring) = self.ring(index) {
                return Some(ring);
            }
            if now_ns() - start_ns > WAIT_NS {
                return None;
            }
            // The other worker may wait for this processor.
            thread::yield_now();
        }
    }

    /// The ring to the guest that takes a queue pair's packets: its own, else one that the guest
    /// has enabled, of which the pairs without one have each in turn.
    #[inline]
    pub(super) fn ring_to_guest(&self, pair: u16) -> usize {
        let own = 2 * usize::from(pair);
        if self.is_active(own) { own } else { self.other_ring(pair).unwrap_or(own) }
    }

    #[cold]
    fn other_ring(&self, pair: u16) -> Option<usize> {
        let count = self.active_pairs();
        let active = (0..self.rings.len()).step_by(2).filter(|ring| self.is_active(*ring));
        active.cycle().nth(usize::from(pair).checked_rem(count)?)
    }

    /// How many rings to the guest packets go through.
    pub(super) fn active_pairs(&self) -> usize {
        (0..self.rings.len()).step_by(2).filter(|ring| self.is_active(*ring)).count()
    }

    /// What a person ought to know of a guest that is there.
    pub(super) fn notes(&self) -> Vec<String> {
        let (used, pairs) = (self.active_pairs(), self.pairs());
        let mut notes = Vec::new();
        if used > 0 && (used as u64) < pairs {
            notes.push(format!(
                "the guest uses {used} of {pairs} queue pairs: packets to it go there (ethtool -L \
                 in the guest enables more)"
            ));
        }
        let slow = locked(&self.agreed).memory.as_ref().and_then(|memory| memory.slow());
        notes.extend(slow.filter(|_| used > 0));
        notes
    }

    pub(super) fn pairs(&self) -> u64 {
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
        let is_gone = locked(&self.agreed).memory.as_ref().is_some_and(|memory| memory.is_broken());
        self.met.refused(match is_gone {
            true => {
                "its memory could not be read any more: the file was cut short, or is on a full \
                     disk"
            }
            false => "a ring of it held what no driver writes",
        });
        self.is_refused.store(true, Ordering::Relaxed);
        self.hang_up();
    }

    fn hang_up(&self) {
        if let Some(socket) = &*locked(&self.socket) {
            // It may be closed already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Who came may not be at the other end: why.
    pub(super) fn turned_away(&self, why: String) {
        self.met.turned_away(why);
    }

    /// A conversation begins; false where none may any more.
    pub(super) fn begin(&self, socket: UnixStream) -> bool {
        *locked(&self.socket) = Some(socket);
        self.is_refused.store(false, Ordering::Relaxed);
        self.met.begin();
        !self.is_stopped()
    }

    /// The conversation is over, for this reason if the front end said something wrong: the device
    /// is as it was before it.
    pub(super) fn end(&self, wrong: Option<String>) {
        if let Some(why) = &wrong {
            self.met.refused(why);
        }
        let was_wrong = wrong.is_some();
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
        self.refuse(self.try_change(index, change))
    }

    fn try_change(&self, index: u32, change: impl FnOnce(&mut Vring) -> Done) -> Done {
        let Some(place) = self.rings.get(index as usize) else {
            self.met.wanted(index, self.pairs());
            return refuse(format!("it spoke of ring {index}"));
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

    fn use_area(&self, area: Area) -> Done {
        let mut agreed = locked(&self.agreed);
        agreed.area = Some(Arc::new(area));
        self.restart(&agreed)
    }

    fn refuse<T>(&self, done: Done<T>) -> Done<T> {
        if let Err(Refused(why)) = &done {
            self.met.refused(why);
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
        let others = features & !self.offered;
        if others != 0 {
            return self
                .refuse(refuse(format!("it took features that were not offered, {others:#x}")));
        }
        self.met.agreed();
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
        self.met.shared();
        match Guest::map(&regions) {
            Ok(memory) => self.refuse(self.set_memory_to(Some(Arc::new(memory)))),
            Err(error) => self.refuse(refuse(said(&error))),
        }
    }

    fn set_size(&self, ring: u32, size: u32) -> Done {
        self.change(ring, |ring| {
            if size == 0 || size > split::SIZE_MAX.max(packed::SIZE_MAX) {
                return refuse(format!(
                    "a ring of {size} descriptors, of which it may have 32,768"
                ));
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
        let agreed = locked(&self.agreed);
        let ring = locked(&self.rings[ring as usize]);
        ring.forget(&agreed);
        Ok(ring.base)
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

    fn make_area(&self, rings: u16, size: u16) -> Done<(AreaAt, OwnedFd)> {
        let made = match usize::from(rings) <= self.rings.len() {
            true => Area::make(rings, size),
            false => refuse(format!("it wants an inflight area for {rings} rings")),
        };
        let (area, at, file) = self.refuse(made)?;
        self.refuse(self.use_area(area))?;
        Ok((at, file))
    }

    fn set_area(&self, at: AreaAt, file: OwnedFd) -> Done {
        self.refuse(Area::open(at, file).and_then(|area| self.use_area(area)))
    }

    fn reset(&self) {
        for (index, (place, is_active)) in self.rings.iter().zip(&self.is_active).enumerate() {
            *locked(place) = Vring::of(index);
            is_active.store(false, Ordering::Relaxed);
        }
        *locked(&self.agreed) = Agreed::default();
    }
}
