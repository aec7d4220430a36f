//! The device as its front end configures it, and the resulting rings.
//!
//! Two threads use a device: the thread of the conversation, and the worker of a queue. The
//! configuration belongs to the conversation; no worker locks it. Each ring has a lock that the
//! worker takes for a burst. The conversation takes this lock only to remove or to install the
//! ring, and does all slow work, above all reading a ring that another process writes, while no
//! worker can use the ring. A ring is active once it is completely configured. It then holds the
//! memory, which stays mapped until the last ring releases it. The answer to the front end's
//! "stop this ring" follows the worker's last access.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};

use super::inflight::Area;
use super::last_conversation::LastConversation;
use super::vring::{Negotiated, Slot, Vring};
use crate::clock::now_ns;
use crate::contract::Agreement;
use crate::messages::{AreaAt, Backend, Refusal, RequestResult, close, refuse};
use crate::ring::{packed, split};
use haul_peer::caller::{Caller, is_event};
use haul_peer::guest::{Described, Guest, said};

/// How many times a worker checks whether another worker has released a ring before it yields its
/// processor: a few microseconds, as long as a burst. The second constant is the longest wait in
/// all.
const SPINS: u32 = 256;
const WAIT_NS: u64 = 1_000_000;

/// How long a message may wait, in all, while drivers write the rings that it starts, and the
/// pause between two reads of such a ring.
const PATIENCE: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_micros(100);

/// A ring, as workers see it.
#[derive(Debug, Default)]
struct Ring {
    slot: Mutex<Slot>,
    is_active: AtomicBool,
    /// Descriptors; 0 if unknown.
    size: AtomicU32,
}

/// The configuration, which belongs to the conversation.
#[derive(Debug)]
struct Configuration {
    negotiated: Negotiated,
    rings: Vec<Vring>,
}

/// A device of several queue pairs, for one front end at a time.
#[derive(Debug)]
pub(super) struct Device {
    rings: Vec<Ring>,
    configuration: Mutex<Configuration>,
    /// Parts of the configuration for workers: the features, and why the memory is slow.
    features: AtomicU64,
    slow: Mutex<Option<String>>,
    offered: u64,
    /// Calls the guest when rings are started; each worker has a caller of its own.
    caller: Caller,
    /// The conversation's socket, through which another thread can end it.
    socket: Mutex<Option<UnixStream>>,
    /// Whether an engine copies packets to the guest.
    is_beside: bool,
    is_stopped: AtomicBool,
    is_refused: AtomicBool,
    resets: AtomicU64,
    last: LastConversation,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    pub(super) fn new(queue_pairs: u16, offered: u64, caller: Caller, is_beside: bool) -> Self {
        let rings = 2 * usize::from(queue_pairs);
        let configuration = Configuration {
            negotiated: Negotiated::default(),
            rings: (0..rings).map(Vring::of).collect(),
        };
        Self {
            rings: (0..rings).map(|_| Ring::default()).collect(),
            configuration: Mutex::new(configuration),
            features: AtomicU64::new(0),
            slow: Mutex::default(),
            offered,
            caller,
            socket: Mutex::default(),
            is_beside,
            is_stopped: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            last: LastConversation::default(),
        }
    }

    /// Locks the ring for a burst; `None` if another thread holds it at the moment.
    #[inline]
    pub(super) fn ring(&self, index: usize) -> Option<MutexGuard<'_, Slot>> {
        match self.rings[index].slot.try_lock() {
            Ok(slot) => Some(slot),
            Err(TryLockError::Poisoned(slot)) => Some(slot.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the ring for a burst to the guest. If the guest uses only some of the rings, another
    /// worker may hold the ring during its burst. This call waits for that worker, up to a
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
            // The other worker may need this processor.
            thread::yield_now();
        }
    }

    /// The ring to the guest for a queue pair's packets: the pair's own ring if it is active,
    /// otherwise another active ring. Pairs whose own ring is not active are spread over the
    /// active rings in turn.
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

    /// How many rings to the guest are active.
    pub(super) fn active_pairs(&self) -> usize {
        (0..self.rings.len()).step_by(2).filter(|ring| self.is_active(*ring)).count()
    }

    /// What an operator should know of a connected guest.
    pub(super) fn notes(&self) -> Vec<String> {
        let (used, pairs) = (self.active_pairs(), self.pairs());
        let mut notes = Vec::new();
        if used > 0 && (used as u64) < pairs {
            notes.push(format!(
                "the guest uses {used} of {pairs} queue pairs: all packets to it go through them \
                 (ethtool -L in the guest enables more)"
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

    /// Whether packets pass through the ring.
    pub(super) fn is_active(&self, index: usize) -> bool {
        self.rings[index].is_active.load(Ordering::Relaxed)
    }

    /// What was negotiated, for this ring; `None` without a negotiation.
    pub(super) fn agreement(&self, index: usize) -> Option<Agreement> {
        let features = self.features.load(Ordering::Relaxed);
        let ring_size = self.rings[index].size.load(Ordering::Relaxed);
        (features != 0 && ring_size != 0).then_some(Agreement { features, ring_size })
    }

    /// The features that were negotiated; 0 without a negotiation.
    pub(super) fn negotiated(&self) -> u64 {
        self.features.load(Ordering::Relaxed)
    }

    /// How often a fault of a front end ended its conversation.
    pub(super) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Why there is no link, if a front end has connected before.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.last.obstacle()
    }

    /// Disconnects the front end after a fault, or because its memory was lost. It must reconnect.
    #[cold]
    pub(super) fn disconnect_after_fault(&self, is_memory_lost: bool) {
        self.last.record_refusal(if is_memory_lost {
            "its memory can no longer be read: the file was truncated, or its disk is full"
        } else {
            "one of its rings held values that no driver writes"
        });
        self.is_refused.store(true, Ordering::Relaxed);
        self.disconnect();
    }

    fn disconnect(&self) {
        if let Some(socket) = &*locked(&self.socket) {
            // The socket may be closed already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Records that a process at the other end was rejected, with the reason.
    pub(super) fn record_rejected(&self, why: String) {
        self.last.record_rejected(why);
    }

    /// Begins a conversation; false if the device was stopped.
    pub(super) fn begin(&self, socket: UnixStream) -> bool {
        let before = locked(&self.socket).replace(socket);
        before.into_iter().for_each(close);
        self.is_refused.store(false, Ordering::Relaxed);
        self.last.begin();
        !self.is_stopped()
    }

    /// Ends the conversation, with the fault of the front end if there was one, and resets the
    /// device.
    pub(super) fn end(&self, wrong: Option<String>) {
        if let Some(why) = &wrong {
            self.last.record_refusal(why);
        }
        let was_wrong = wrong.is_some();
        let socket = locked(&self.socket).take();
        socket.into_iter().for_each(close);
        self.reset();
        let was_wrong = was_wrong || self.is_refused();
        if was_wrong {
            self.resets.fetch_add(1, Ordering::Relaxed);
        }
        self.last.end(was_wrong, self.pairs());
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Ends the conversation, and lets no other begin.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.disconnect();
    }

    /// Changes the configuration of a ring, and starts or stops the ring accordingly.
    fn change(
        &self,
        index: u32,
        change: impl FnOnce(&mut Vring) -> RequestResult,
    ) -> RequestResult {
        self.refuse(self.try_change(index, change))
    }

    fn try_change(
        &self,
        index: u32,
        change: impl FnOnce(&mut Vring) -> RequestResult,
    ) -> RequestResult {
        let mut configuration = locked(&self.configuration);
        let Configuration { negotiated, rings } = &mut *configuration;
        let Some(vring) = rings.get_mut(index as usize) else {
            self.last.record_missing_ring(index, self.pairs());
            return refuse(format!("it named ring {index}, which does not exist"));
        };
        self.restart_one(vring, change, negotiated, &mut self.patience())
    }

    /// Returns a function that pauses briefly and returns true, or returns false once the time is
    /// over.
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

    /// Removes a ring, changes its configuration, and starts it again if it is complete.
    fn restart_one(
        &self,
        vring: &mut Vring,
        change: impl FnOnce(&mut Vring) -> RequestResult,
        negotiated: &Negotiated,
        pause: &mut dyn FnMut() -> bool,
    ) -> RequestResult {
        let ring = &self.rings[vring.index];
        let [mut active, abandoned] = locked(&ring.slot).remove();
        if let Some(active) = &mut active {
            // Packets on their way arrive before the ring stops, and before its memory goes.
            if active.complete() {
                vring.call.iter().for_each(|call| self.caller.call(call.as_fd()));
            }
            vring.record_stop(active);
        }
        // The drop may release memory, which takes time. No worker waits meanwhile.
        drop((active, abandoned));
        let started = change(vring).and_then(|()| vring.activate(negotiated, pause));
        let (started, done) = match started {
            Ok(started) => (started, Ok(())),
            Err(refused) => (None, Err(refused)),
        };
        let is_to_guest = vring.index.is_multiple_of(2);
        let started = started.map(|(active, lost)| {
            (if self.is_beside && is_to_guest { active.ahead() } else { active }, lost)
        });
        let is_active = started.is_some();
        let before = locked(&ring.slot).install(started, vring.call.clone());
        drop(before);
        ring.is_active.store(is_active, Ordering::Relaxed);
        ring.size.store(vring.size, Ordering::Relaxed);
        if is_active {
            self.last.record_ring_start();
            // A back end that was killed may have published used chains without a call.
            vring.call.iter().for_each(|call| self.caller.call(call.as_fd()));
        }
        done
    }

    fn set_memory_to(&self, memory: Guest) -> RequestResult {
        *locked(&self.slow) = memory.slow();
        let mut configuration = locked(&self.configuration);
        // The old memory is unmapped when its last ring is stopped.
        configuration.negotiated.memory = Some(Arc::new(memory));
        self.restart(&mut configuration)
    }

    /// Restarts every ring with the present configuration.
    fn restart(&self, Configuration { negotiated, rings }: &mut Configuration) -> RequestResult {
        let mut pause = self.patience();
        let restarted = rings
            .iter_mut()
            .map(|vring| self.restart_one(vring, |_| Ok(()), negotiated, &mut pause));
        // Restarts all rings, even if one fails.
        restarted.fold(Ok(()), RequestResult::and)
    }

    fn use_area(&self, area: Area) -> RequestResult {
        let mut configuration = locked(&self.configuration);
        configuration.negotiated.area = Some(Arc::new(area));
        self.restart(&mut configuration)
    }

    fn refuse<T>(&self, done: RequestResult<T>) -> RequestResult<T> {
        if let Err(Refusal(why)) = &done {
            self.last.record_refusal(why);
            self.is_refused.store(true, Ordering::Relaxed);
        }
        done
    }
}

impl Backend for Device {
    fn features(&self) -> u64 {
        self.offered
    }

    fn set_features(&self, features: u64) -> RequestResult {
        let mut configuration = locked(&self.configuration);
        let others = features & !self.offered;
        if others != 0 {
            return self
                .refuse(refuse(format!("it set features that were not offered, {others:#x}")));
        }
        self.last.record_features();
        configuration.negotiated.features = features;
        self.features.store(features, Ordering::Relaxed);
        self.refuse(self.restart(&mut configuration))
    }

    fn queue_pairs(&self) -> u64 {
        self.last.record_queue_query();
        self.pairs()
    }

    fn set_memory(&self, regions: Vec<(Described, OwnedFd)>) -> RequestResult {
        // Maps the memory before anything is released, so that a refusal leaves no partial state. A
        // refusal ends the conversation anyway.
        self.last.record_memory();
        match Guest::map(&regions) {
            Ok(memory) => {
                locked(&self.configuration).negotiated.has_removed_memory = false;
                self.refuse(self.set_memory_to(memory))
            }
            Err(error) => self.refuse(refuse(said(&error))),
        }
    }

    fn add_memory(&self, region: Described, file: OwnedFd) -> RequestResult {
        self.last.record_memory();
        let present = locked(&self.configuration).negotiated.memory.clone().unwrap_or_default();
        match present.with(region, file) {
            Ok(memory) => self.refuse(self.set_memory_to(memory)),
            Err(error) => self.refuse(refuse(said(&error))),
        }
    }

    fn remove_memory(&self, region: Described) -> RequestResult {
        let memory = {
            let negotiated = &mut locked(&self.configuration).negotiated;
            negotiated.has_removed_memory = true;
            negotiated.memory.as_ref().and_then(|memory| memory.without(region))
        };
        match memory {
            Some(memory) => self.refuse(self.set_memory_to(memory)),
            None => self.refuse(refuse(format!(
                "it removed memory at {:#x}, which it had not added",
                region.guest
            ))),
        }
    }

    fn set_size(&self, ring: u32, size: u32) -> RequestResult {
        self.change(ring, |ring| {
            if size == 0 || size > split::SIZE_MAX.max(packed::SIZE_MAX) {
                return refuse(format!(
                    "it gave a ring {size} descriptors; 1 to 32,768 are possible"
                ));
            }
            ring.size = size;
            Ok(())
        })
    }

    fn set_addresses(&self, ring: u32, areas: [u64; 3]) -> RequestResult {
        self.change(ring, |ring| {
            ring.areas = Some(areas);
            Ok(())
        })
    }

    fn set_base(&self, ring: u32, base: u32) -> RequestResult {
        self.change(ring, |ring| {
            ring.set_base(base);
            Ok(())
        })
    }

    fn stop_ring(&self, ring: u32) -> RequestResult<u32> {
        self.change(ring, |ring| {
            ring.is_started = false;
            ring.call = None;
            Ok(())
        })?;
        let configuration = locked(&self.configuration);
        let ring = &configuration.rings[ring as usize];
        ring.clear_record(&configuration.negotiated);
        Ok(ring.base())
    }

    fn start_ring(&self, ring: u32) -> RequestResult {
        self.change(ring, |ring| {
            ring.is_started = true;
            Ok(())
        })
    }

    fn set_call(&self, ring: u32, event: Option<OwnedFd>) -> RequestResult {
        self.change(ring, |ring| {
            if event.as_ref().is_some_and(|event| !is_event(event)) {
                return refuse("its call descriptor is not an eventfd");
            }
            ring.call = event.map(Arc::new);
            Ok(())
        })
    }

    fn set_enabled(&self, ring: u32, is_enabled: bool) -> RequestResult {
        self.change(ring, |ring| {
            ring.is_enabled = is_enabled;
            Ok(())
        })
    }

    fn make_area(&self, rings: u16, size: u16) -> RequestResult<(AreaAt, OwnedFd)> {
        let made = match usize::from(rings) <= self.rings.len() {
            true => Area::make(rings, size),
            false => refuse(format!("it requested an inflight area for {rings} rings")),
        };
        let (area, at, file) = self.refuse(made)?;
        self.refuse(self.use_area(area))?;
        Ok((at, file))
    }

    fn set_area(&self, at: AreaAt, file: OwnedFd) -> RequestResult {
        self.refuse(Area::open(at, file).and_then(|area| self.use_area(area)))
    }

    fn reset(&self) {
        let mut configuration = locked(&self.configuration);
        configuration.negotiated = Negotiated::default();
        self.features.store(0, Ordering::Relaxed);
        *locked(&self.slow) = None;
        // No ring can be active without a configuration.
        let _ = self.restart(&mut configuration);
        configuration.rings.iter_mut().for_each(|vring| *vring = Vring::of(vring.index));
        for (ring, vring) in self.rings.iter().zip(&configuration.rings) {
            drop(locked(&ring.slot).install(None, None));
            ring.size.store(vring.size, Ordering::Relaxed);
        }
    }
}
