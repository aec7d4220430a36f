//! The attached queues, and the removed callbacks that wait to be freed.

use core::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::dpdk::{self, EVENT_DESTROY, Functions, NAME_BYTES, RxCallback, TxCallback};
use crate::slot::{self, Slot};
use crate::threads::Suspects;

/// A number of ports that exceeds any build's limit (RTE_MAX_ETHPORTS is 32 unless it is
/// changed).
pub(crate) const PORTS_MAX: u16 = 1024;
/// The largest number of queues per port (RTE_MAX_QUEUES_PER_PORT).
const QUEUES_MAX: u16 = 1024;
/// How long a detach waits for threads to leave. The next command checks the remaining threads
/// again.
const PATIENCE: Duration = Duration::from_millis(200);

/// The direction of a queue's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Rx,
    Tx,
}

impl Direction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
        }
    }
}

/// How bursts are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Counts every burst by its size, and samples some of them.
    Samples,
    /// Samples every burst.
    Exact,
    /// Counts nothing, to measure the call alone.
    Nothing,
}

impl How {
    fn callbacks(self) -> (RxCallback, TxCallback) {
        match self {
            Self::Samples | Self::Exact => (slot::received, slot::sending),
            Self::Nothing => (slot::nothing_received, slot::nothing_sending),
        }
    }
}

/// A queue with its callback.
pub(crate) struct Attached {
    pub(crate) port: u16,
    pub(crate) queue: u16,
    pub(crate) direction: Direction,
    /// The port's name when it was attached.
    pub(crate) name: String,
    pub(crate) slot: Arc<Slot>,
    /// DPDK's structure of the callback.
    callback: *const c_void,
    /// Set when the port is released, because another port may get its number.
    is_gone: Arc<AtomicBool>,
}

/// A removed callback that a thread may still use.
struct Retired {
    slot: Arc<Slot>,
    callback: *const c_void,
    suspects: Suspects,
}

/// All attached queues and removed callbacks.
pub(crate) struct Ports {
    pub(crate) attached: Vec<Attached>,
    retired: Vec<Retired>,
    /// Callbacks that DPDK refused to remove because their port or queue is gone. These callbacks
    /// stay, because DPDK may still call them if another port gets the number.
    stranded: Vec<Attached>,
}

// SAFETY: the pointers lead to DPDK's structures, which any thread may return to DPDK.
unsafe impl Send for Ports {}

/// The result of an attach or a detach.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) ports: u64,
    pub(crate) queues: u64,
    /// Removed callbacks that wait for threads to leave.
    pub(crate) waiting: u64,
    /// The reason for DPDK's first refusal (`rte_errno`).
    pub(crate) refused: Option<c_int>,
}

static PORTS: Mutex<Ports> =
    Mutex::new(Ports { attached: Vec::new(), retired: Vec::new(), stranded: Vec::new() });

/// All ports, for one command at a time. Frees the removed callbacks that no thread uses.
pub(crate) fn lock(dpdk: &Functions) -> MutexGuard<'static, Ports> {
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    ports.free_unused(dpdk);
    ports
}

impl Ports {
    /// Attaches to every queue that has no callback of the probe yet, of one port or of all
    /// ports.
    pub(crate) fn attach(&mut self, dpdk: &Functions, only: Option<u16>, how: How) -> Done {
        self.remove_gone(dpdk);
        let mut done = Done::default();
        for port in (0..PORTS_MAX).filter(|port| only.is_none_or(|only| only == *port)) {
            if !is_port(dpdk, port) {
                continue;
            }
            let before = done.queues;
            for direction in [Direction::Rx, Direction::Tx] {
                self.attach_queues(dpdk, (port, direction), how, &mut done);
            }
            done.ports += u64::from(done.queues > before);
        }
        done
    }

    fn attach_queues(
        &mut self,
        dpdk: &Functions,
        (port, direction): (u16, Direction),
        how: How,
        done: &mut Done,
    ) {
        let Some(name) = name(dpdk, port) else { return };
        let is_gone = self.watch(dpdk, port);
        for queue in 0..QUEUES_MAX {
            if self.find(port, queue, direction).is_some() {
                continue;
            }
            let slot = Arc::new(Slot::new(how == How::Exact));
            let user = Arc::as_ptr(&slot).cast::<c_void>().cast_mut();
            let (received, sending) = how.callbacks();
            let callback = match direction {
                // SAFETY: the callback's type is DPDK's; the slot lives until the callback is
                // removed and every thread has left it.
                Direction::Rx => unsafe { (dpdk.add_rx)(port, queue, received, user) },
                // SAFETY: as above.
                Direction::Tx => unsafe { (dpdk.add_tx)(port, queue, sending, user) },
            };
            if callback.is_null() {
                // Usually DPDK refuses because there are no more queues. The caller uses the
                // reason only if nothing was attached.
                done.refused = done.refused.or(dpdk::error_number());
                return;
            }
            let (name, is_gone) = (name.clone(), Arc::clone(&is_gone));
            self.attached.push(Attached { port, queue, direction, name, slot, callback, is_gone });
            done.queues += 1;
        }
    }

    /// Returns a mark that is set when the port is released.
    fn watch(&self, dpdk: &Functions, port: u16) -> Arc<AtomicBool> {
        let known = self.attached.iter().find(|attached| attached.port == port);
        if let Some(known) = known {
            return Arc::clone(&known.is_gone);
        }
        let mark = Arc::new(AtomicBool::new(false));
        // Each attached port leaks some bytes, because DPDK may call the function at any later
        // time.
        let user = Arc::into_raw(Arc::clone(&mark)).cast::<c_void>().cast_mut();
        // SAFETY: the callback's type is DPDK's, and its argument is never freed. If DPDK refuses,
        // the port's name shows whether the port is gone.
        unsafe { (dpdk.on_event)(port, EVENT_DESTROY, released, user) };
        mark
    }

    /// Removes the callbacks of one port or of all ports, and frees those that no thread uses.
    pub(crate) fn detach(&mut self, dpdk: &Functions, only: Option<u16>) -> Done {
        let mut done = Done::default();
        let all = std::mem::take(&mut self.attached);
        let (off, kept): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|each| only.is_none_or(|only| only == each.port));
        self.attached = kept;
        done.queues = off.len() as u64;
        off.into_iter().for_each(|each| self.remove(dpdk, each));
        let end = Instant::now() + PATIENCE;
        while !self.retired.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
            self.free_unused(dpdk);
        }
        done.waiting = self.retired.len() as u64;
        done
    }

    fn remove(&mut self, dpdk: &Functions, attached: Attached) {
        let Attached { port, queue, callback, .. } = attached;
        let result = match attached.direction {
            // SAFETY: DPDK compares the pointer with its own and does not dereference it.
            Direction::Rx => unsafe { (dpdk.remove_rx)(port, queue, callback) },
            // SAFETY: as above.
            Direction::Tx => unsafe { (dpdk.remove_tx)(port, queue, callback) },
        };
        match result {
            0 => {
                let suspects = Suspects::all();
                self.retired.push(Retired { slot: attached.slot, callback, suspects });
            }
            _ => self.stranded.push(attached),
        }
    }

    /// Removes the callbacks of ports that are gone, including those whose number another port
    /// now has.
    fn remove_gone(&mut self, dpdk: &Functions) {
        for each in std::mem::take(&mut self.attached) {
            match each.is_there(dpdk) {
                true => self.attached.push(each),
                false => self.remove(dpdk, each),
            }
        }
    }

    fn free_unused(&mut self, dpdk: &Functions) {
        for mut retired in std::mem::take(&mut self.retired) {
            if retired.suspects.have_left() {
                // SAFETY: the caller of the removal owns DPDK's structure and must free it when no
                // thread uses it any more, which is the case now.
                unsafe { (dpdk.free)(retired.callback.cast_mut()) };
                drop(retired.slot);
            } else {
                self.retired.push(retired);
            }
        }
    }

    /// Finds an attached queue.
    pub(crate) fn find(&self, port: u16, queue: u16, direction: Direction) -> Option<&Attached> {
        let is_it = |each: &&Attached| {
            each.port == port && each.queue == queue && each.direction == direction
        };
        self.attached.iter().find(is_it)
    }
}

impl Attached {
    /// Whether the port is still the one that was attached.
    pub(crate) fn is_there(&self, dpdk: &Functions) -> bool {
        !self.is_gone.load(Ordering::Relaxed)
            && name(dpdk, self.port).is_some_and(|name| name == self.name)
    }
}

/// DPDK calls this when a port is released.
unsafe extern "C" fn released(
    _port: u16,
    _event: c_int,
    mark: *mut c_void,
    _more: *mut c_void,
) -> c_int {
    // SAFETY: the mark was registered with this function and is never freed.
    let mark = unsafe { &*mark.cast_const().cast::<AtomicBool>() };
    mark.store(true, Ordering::Relaxed);
    0
}

pub(crate) fn is_port(dpdk: &Functions, port: u16) -> bool {
    // SAFETY: the function accepts any number.
    unsafe { (dpdk.is_port)(port) != 0 }
}

/// The port's name; `None` if the port does not exist.
pub(crate) fn name(dpdk: &Functions, port: u16) -> Option<String> {
    let mut name = [0_u8; NAME_BYTES];
    // SAFETY: the buffer is larger than the longest name.
    let result = unsafe { (dpdk.port_name)(port, name.as_mut_ptr().cast()) };
    let name = CStr::from_bytes_until_nul(&name).ok().filter(|_| result == 0)?;
    Some(name.to_string_lossy().into_owned())
}
