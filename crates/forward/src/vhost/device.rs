//! What the front end said of the device, and the rings that follow from it.
//!
//! Two threads meet here: the one that has the conversation, and the worker of a queue. What was
//! said is the conversation's alone, behind a lock that no worker takes. Each ring is behind a lock
//! that the worker takes for a burst, and the conversation for as long as it takes to take the ring
//! away or to put it there: what is slow, above all to read a ring that another process writes, it
//! does while it has the ring for itself. A ring is active when all that it needs was said: then it
//! holds the memory, which stays mapped until the last ring gives it up. The front end's answer to
//! "stop this ring" comes after the worker's last touch.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};

use super::super::clock::now_ns;
use super::super::contract::Agreement;
use super::super::messages::{AreaAt, Backend, Done, Refused, leave, refuse};
use super::super::ring::{packed, split};
use super::inflight::Area;
use super::met::Met;
use super::vring::{Agreed, Slot, Vring};
use haul_peer::caller::{Caller, is_event};
use haul_peer::guest::{Described, Guest, said};

/// How often a worker looks whether another one has left a ring, before it gives its processor
/// away: some microseconds, as a burst takes; and how long it does.
const SPINS: u32 = 256;
const WAIT_NS: u64 = 1_000_000;

/// How long a message may wait, in all, for drivers that write the rings that it starts; and how
/// long between two looks at one.
const PATIENCE: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_micros(100);

/// A ring, as workers see it.
#[derive(Debug, Default)]
struct Ring {
    slot: Mutex<Slot>,
    is_active: AtomicBool,
    /// Descriptors; 0 where that was not said.
    size: AtomicU32,
}

/// What was said, which is the conversation's alone.
#[derive(Debug)]
struct Said {
    agreed: Agreed,
    rings: Vec<Vring>,
}

/// A device of several queue pairs, for one front end at a time.
#[derive(Debug)]
pub(super) struct Device {
    rings: Vec<Ring>,
    said: Mutex<Said>,
    /// Of what was said, for workers: the features, and what makes the memory slow.
    features: AtomicU64,
    slow: Mutex<Option<String>>,
    offered: u64,
    /// For calls as rings are started; each worker has its own.
    caller: Caller,
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
    pub(super) fn new(queue_pairs: u16, offered: u64, caller: Caller) -> Self {
        let rings = 2 * usize::from(queue_pairs);
        let said = Said { agreed: Agreed::default(), rings: (0..rings).map(Vring::of).collect() };
        Self {
            rings: (0..rings).map(|_| Ring::default()).collect(),
            said: Mutex::new(said),
            features: AtomicU64::new(0),
            slow: Mutex::default(),
            offered,
            caller,
            socket: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            met: Met::default(),
        }
    }

    /// The ring, for a burst; `None` where another thread has it at the moment.
    #[inline]
    pub(super) fn ring(&self, index: usize) -> Option<MutexGuard<'_, Slot>> {
        match self.rings[index].slot.try_lock() {
            Ok(slot) => Some(slot),
            Err(TryLockError::Poisoned(slot)) => Some(slot.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The ring, for a burst to the guest. Another worker may have it for the time of its own
    /// burst, where the guest uses fewer rings than there are: that is waited for, up to a
    /// millisecond.
    #[inline]
    pub(super) fn ring_soon(&self, index: usize) -> Option<MutexGuard<'_, Slot>> {
        self.ring(index).or_else(|| self.wait_for_ring(index))
    }

    #[cold]
    fn wait_for_ring(&self, index: usize) -> Option<MutexGuard<'_, Slot>> {
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
        if used > 0 {
            notes.extend(locked(&self.slow).clone());
        }
        notes
    }

    pub(super) fn pairs(&self) -> u64 {
        self.rings.len() as u64 / 2
    }

    /// Whether packets go through the ring.
    pub(super) fn is_active(&self, index: usize) -> bool {
        self.rings[index].is_active.load(Ordering::Relaxed)
    }

    /// What was agreed on, as far as this ring is concerned; `None` where nothing was.
    pub(super) fn agreement(&self, index: usize) -> Option<Agreement> {
        let features = self.features.load(Ordering::Relaxed);
        let ring_size = self.rings[index].size.load(Ordering::Relaxed);
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

    /// Leaves the front end, which did what it may not, or whose memory has gone: it has to connect
    /// again.
    #[cold]
    pub(super) fn break_off(&self, is_gone: bool) {
        self.met.refused(if is_gone {
            "its memory could not be read any more: the file was cut short, or is on a full disk"
        } else {
            "a ring of it held what no driver writes"
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
        let before = locked(&self.socket).replace(socket);
        before.into_iter().for_each(leave);
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
        let socket = locked(&self.socket).take();
        socket.into_iter().for_each(leave);
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
        let mut said = locked(&self.said);
        let Said { agreed, rings } = &mut *said;
        let Some(vring) = rings.get_mut(index as usize) else {
            self.met.wanted(index, self.pairs());
            return refuse(format!("it spoke of ring {index}"));
        };
        self.restart_one(vring, change, agreed, &mut self.patience())
    }

    /// Waits a little, as long as that is not too long.
    fn patience(&self) -> impl FnMut() -> bool {
        let start = Instant::now();
        move || {
            let has_time = !self.is_stopped() && start.elapsed() < PATIENCE;
            if has_time {
                thread::sleep(PAUSE);
            }
            has_time
        }
    }

    /// Takes a ring away, changes what was said of it, and starts it again if it can be.
    fn restart_one(
        &self,
        vring: &mut Vring,
        change: impl FnOnce(&mut Vring) -> Done,
        agreed: &Agreed,
        pause: &mut dyn FnMut() -> bool,
    ) -> Done {
        let ring = &self.rings[vring.index];
        let [active, left] = locked(&ring.slot).take();
        if let Some(active) = &active {
            vring.has_stopped(active);
        }
        // Memory that goes with them goes while nobody waits for it.
        drop((active, left));
        let started = change(vring).and_then(|()| vring.activate(agreed, pause));
        let (started, done) = match started {
            Ok(started) => (started, Ok(())),
            Err(refused) => (None, Err(refused)),
        };
        let is_active = started.is_some();
        let before = locked(&ring.slot).put(started, vring.call.clone());
        drop(before);
        ring.is_active.store(is_active, Ordering::Relaxed);
        ring.size.store(vring.size, Ordering::Relaxed);
        if is_active {
            self.met.started();
            // A back end that was killed may have shown what it used, and not have called.
            vring.call.iter().for_each(|call| self.caller.call(call.as_fd()));
        }
        done
    }

    fn set_memory_to(&self, memory: Guest) -> Done {
        *locked(&self.slow) = memory.slow();
        let mut said = locked(&self.said);
        // Unmapped as its last ring is stopped.
        said.agreed.memory = Some(Arc::new(memory));
        self.restart(&mut said)
    }

    /// Starts every ring anew, with what is agreed now.
    fn restart(&self, Said { agreed, rings }: &mut Said) -> Done {
        let mut pause = self.patience();
        let restarted =
            rings.iter_mut().map(|vring| self.restart_one(vring, |_| Ok(()), agreed, &mut pause));
        // All are, whatever becomes of one.
        restarted.fold(Ok(()), Done::and)
    }

    fn use_area(&self, area: Area) -> Done {
        let mut said = locked(&self.said);
        said.agreed.area = Some(Arc::new(area));
        self.restart(&mut said)
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
        let mut said = locked(&self.said);
        let others = features & !self.offered;
        if others != 0 {
            return self
                .refuse(refuse(format!("it took features that were not offered, {others:#x}")));
        }
        self.met.agreed();
        said.agreed.features = features;
        self.features.store(features, Ordering::Relaxed);
        self.refuse(self.restart(&mut said))
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
            Ok(memory) => self.refuse(self.set_memory_to(memory)),
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
            ring.set_base(base);
            Ok(())
        })
    }

    fn stop_ring(&self, ring: u32) -> Done<u32> {
        self.change(ring, |ring| {
            ring.is_started = false;
            ring.call = None;
            Ok(())
        })?;
        let said = locked(&self.said);
        let ring = &said.rings[ring as usize];
        ring.forget(&said.agreed);
        Ok(ring.base())
    }

    fn start_ring(&self, ring: u32) -> Done {
        self.change(ring, |ring| {
            ring.is_started = true;
            Ok(())
        })
    }

    fn set_call(&self, ring: u32, event: Option<OwnedFd>) -> Done {
        self.change(ring, |ring| {
            if event.as_ref().is_some_and(|event| !is_event(event)) {
                return refuse("it gave a descriptor that is no eventfd to be called by");
            }
            ring.call = event.map(Arc::new);
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
        let mut said = locked(&self.said);
        said.agreed = Agreed::default();
        self.features.store(0, Ordering::Relaxed);
        *locked(&self.slow) = None;
        // Nothing is active, of which nothing was agreed.
        let _ = self.restart(&mut said);
        said.rings.iter_mut().for_each(|vring| *vring = Vring::of(vring.index));
        for (ring, vring) in self.rings.iter().zip(&said.rings) {
            drop(locked(&ring.slot).put(None, None));
            ring.size.store(vring.size, Ordering::Relaxed);
        }
    }
}
