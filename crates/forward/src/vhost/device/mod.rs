//! The device as its front end configures it, and the resulting rings.
//!
//! Two threads use a device: the thread of the conversation, and the worker of a queue. The
//! configuration belongs to the conversation; no worker locks it. Each ring has a lock that the
//! worker takes for a burst. The conversation takes this lock only to remove or to install the
//! ring, and does all slow work, above all reading a ring that another process writes, while no
//! worker can use the ring. A ring is active once it is completely configured. It then holds the
//! memory, which stays mapped until the last ring releases it. The answer to the front end's
//! "stop this ring" follows the worker's last access.
//!
//! - `configure`: the front end's requests, each of which changes the configuration.

mod configure;

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use super::last_conversation::LastConversation;
use super::vring::{Negotiated, Slot, Vring};
use crate::clock::now_ns;
use crate::contract::Agreement;
use crate::messages::{Backend, close};
use haul_peer::caller::Caller;

/// How many times a worker checks whether another worker has released a ring before it yields its
/// processor: a few microseconds, as long as a burst. The second constant is the longest wait in
/// all.
const SPINS: u32 = 256;
const WAIT_NS: u64 = 1_000_000;

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
        let socket = locked(&self.socket).take();
        socket.into_iter().for_each(close);
        self.reset();
        let was_wrong = wrong.is_some() || self.is_refused();
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
}
