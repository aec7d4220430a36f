//! Which queues are attached, and which wait to be freed.

use core::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::dpdk::{self, EVENT_DESTROY, Functions, NAME_BYTES, RxCallback, TxCallback};
use crate::slot::{self, Slot};
use crate::threads::Suspects;

/// More ports than any build of DPDK has (RTE_MAX_ETHPORTS is 32 unless it is changed).
pub(crate) const PORTS_MAX: u16 = 1024;
/// Queues of a port at most (RTE_MAX_QUEUES_PER_PORT).
const QUEUES_MAX: u16 = 1024;
/// How long a detach waits for threads to leave; who has not left then is looked for again by the
/// next command.
const PATIENCE: Duration = Duration::from_millis(200);

/// Which way a queue's packets go.
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
    /// Each in its size, and one in some as a sample.
    Samples,
    /// Each as a sample.
    Exact,
    /// Not at all, to see what the call alone takes.
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
    /// The port's name as it was attached.
    pub(crate) name: String,
    pub(crate) slot: Arc<Slot>,
    /// DPDK's own structure of the callback.
    callback: *const c_void,
    /// Set when the port was released: the number may be another port's now.
    is_gone: Arc<AtomicBool>,
}

/// What was taken off, and may still be in use.
struct Retired {
    slot: Arc<Slot>,
    callback: *const c_void,
    suspects: Suspects,
}

/// All of it.
pub(crate) struct Ports {
    pub(crate) attached: Vec<Attached>,
    retired: Vec<Retired>,
    /// Callbacks that DPDK does not let us take off, as their port or queue is gone. It may still
    /// call them, should the number come back, so that they stay.
    stranded: Vec<Attached>,
}

// SAFETY: the pointers are DPDK's structures, which any thread may hand back to it.
unsafe impl Send for Ports {}

/// What an attach or a detach did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) ports: u64,
    pub(crate) queues: u64,
    /// Taken off and waiting for threads to leave.
    pub(crate) waiting: u64,
    /// Why DPDK refused the first one that it refused (`rte_errno`).
    pub(crate) refused: Option<c_int>,
}

static PORTS: Mutex<Ports> =
    Mutex::new(Ports { attached: Vec::new(), retired: Vec::new(), stranded: Vec::new() });

/// All ports, for one command at a time; what nobody uses any more is freed first.
pub(crate) fn lock(dpdk: &Functions) -> MutexGuard<'static, Ports> {
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    ports.free_what_was_left(dpdk);
    ports
}

impl Ports {
    /// Attaches to every queue that has no callback of ours yet, of one port or of all.
    pub(crate) fn attach(&mut self, dpdk: &Functions, only: Option<u16>, how: How) -> Done {
        self.set_aside_gone(dpdk);
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
                // SAFETY: the callback's type is DPDK's; the slot lives until it is taken off and
                // every thread has left it.
                Direction::Rx => unsafe { (dpdk.add_rx)(port, queue, received, user) },
                // SAFETY: as above.
                Direction::Tx => unsafe { (dpdk.add_tx)(port, queue, sending, user) },
            };
            if callback.is_null() {
                // Behind the last queue, for one; who attached nothing looks at the reason.
                done.refused = done.refused.or(dpdk::error_number());
                return;
            }
            let (name, is_gone) = (name.clone(), Arc::clone(&is_gone));
            self.attached.push(Attached { port, queue, direction, name, slot, callback, is_gone });
            done.queues += 1;
        }
    }

    /// A mark that is set when the port is released.
    fn watch(&self, dpdk: &Functions, port: u16) -> Arc<AtomicBool> {
        let known = self.attached.iter().find(|attached| attached.port == port);
        if let Some(known) = known {
            return Arc::clone(&known.is_gone);
        }
        let mark = Arc::new(AtomicBool::new(false));
        // Some bytes stay for each time that a port is attached: DPDK may call for good.
        let user = Arc::into_raw(Arc::clone(&mark)).cast::<c_void>().cast_mut();
        // SAFETY: the callback's type is DPDK's, and what it is given is never freed. Where DPDK
        // refuses, the port's name tells.
        unsafe { (dpdk.on_event)(port, EVENT_DESTROY, released, user) };
        mark
    }

    /// Takes callbacks off one port or all, and frees what no thread uses any more.
    pub(crate) fn detach(&mut self, dpdk: &Functions, only: Option<u16>) -> Done {
        let mut done = Done::default();
        let all = std::mem::take(&mut self.attached);
        let (off, kept): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|each| only.is_none_or(|only| only == each.port));
        self.attached = kept;
        done.queues = off.len() as u64;
        off.into_iter().for_each(|each| self.take_off(dpdk, each));
        let end = Instant::now() + PATIENCE;
        while !self.retired.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
            self.free_what_was_left(dpdk);
        }
        done.waiting = self.retired.len() as u64;
        done
    }

    fn take_off(&mut self, dpdk: &Functions, attached: Attached) {
        let Attached { port, queue, callback, .. } = attached;
        let result = match attached.direction {
            // SAFETY: DPDK compares the pointer with those that it has, and reads nothing of it.
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

    /// Sets aside what is attached to ports that are gone, or whose number another one has.
    fn set_aside_gone(&mut self, dpdk: &Functions) {
        for each in std::mem::take(&mut self.attached) {
            match each.is_there(dpdk) {
                true => self.attached.push(each),
                false => self.take_off(dpdk, each),
            }
        }
    }

    fn free_what_was_left(&mut self, dpdk: &Functions) {
        for mut retired in std::mem::take(&mut self.retired) {
            if retired.suspects.have_left() {
                // SAFETY: DPDK's own structure, which it gives to who took it off, to be freed when
                // no thread uses it, which holds now.
                unsafe { (dpdk.free)(retired.callback.cast_mut()) };
                drop(retired.slot);
            } else {
                self.retired.push(retired);
            }
        }
    }

    /// The slot of a queue.
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

/// What DPDK calls when a port is released.
unsafe extern "C" fn released(
    _port: u16,
    _event: c_int,
    mark: *mut c_void,
    _more: *mut c_void,
) -> c_int {
    // SAFETY: it was given with this function, and is never freed.
    let mark = unsafe { &*mark.cast_const().cast::<AtomicBool>() };
    mark.store(true, Ordering::Relaxed);
    0
}

pub(crate) fn is_port(dpdk: &Functions, port: u16) -> bool {
    // SAFETY: any number may be asked for.
    unsafe { (dpdk.is_port)(port) != 0 }
}

/// The port's name; `None` where there is no such port.
pub(crate) fn name(dpdk: &Functions, port: u16) -> Option<String> {
    let mut name = [0_u8; NAME_BYTES];
    // SAFETY: more room than the longest name takes.
    let result = unsafe { (dpdk.port_name)(port, name.as_mut_ptr().cast()) };
    let name = CStr::from_bytes_until_nul(&name).ok().filter(|_| result == 0)?;
    Some(name.to_string_lossy().into_owned())
}
