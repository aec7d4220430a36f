//! An open queue of the engine, and how it is opened, closed and opened again after a fork.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use haul_peer::fork::Here;

use super::Options;
use crate::dsa::descriptor::Descriptor;
use crate::dsa::fake::Fake;
use crate::dsa::portal::device::{DevicePortal, is_disabled};
use crate::dsa::portal::fake::FakePortal;
use crate::dsa::portal::{Portal, Unsubmitted};
use crate::dsa::sysfs::{Queue, Sysfs};

/// Where an engine opens its queue, again in each forked child.
#[derive(Debug)]
pub(super) enum Source {
    Device(Sysfs, Queue),
    /// A fake; a child starts its own with the same settings.
    Fake(Mutex<Arc<Fake>>, usize),
}

/// An open queue. A child of fork never uses the one of its parent.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) owner: Here,
    pub(super) portal: Mutex<Option<Box<dyn Portal>>>,
    /// What `portal` points to, while submissions are allowed.
    open: AtomicPtr<Box<dyn Portal>>,
    /// Threads between reading `open` and the end of their submission.
    submitting: AtomicU32,
    /// Operations that the device has.
    pub(super) pending: AtomicU32,
    pub(super) is_gone: AtomicBool,
    pub(super) silence: AtomicU32,
    pub(super) state_read: Mutex<Instant>,
}

impl Source {
    pub(super) fn open(&self, options: Options) -> io::Result<Box<dyn Portal>> {
        Ok(match self {
            Self::Device(sysfs, queue) => {
                Box::new(DevicePortal::open(sysfs, queue, options.only_write)?)
            }
            Self::Fake(fake, queue) => {
                let fake = fake.lock().unwrap_or_else(PoisonError::into_inner);
                Box::new(FakePortal::open(&fake, *queue, options.only_write)?)
            }
        })
    }
}

impl Source {
    /// Whether nothing that was submitted is executed any more, after the queue was closed. The
    /// close of a device's file says this only if no other process has a copy of the file.
    pub(super) fn has_stopped(&self) -> bool {
        match self {
            Self::Device(sysfs, queue) => is_disabled(sysfs, queue),
            Self::Fake(..) => true,
        }
    }
}

impl Lane {
    pub(super) fn over(portal: Box<dyn Portal>) -> Box<Self> {
        let lane = Box::new(Self {
            owner: Here::now(),
            portal: Mutex::new(Some(portal)),
            open: AtomicPtr::new(std::ptr::null_mut()),
            submitting: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            is_gone: AtomicBool::new(false),
            silence: AtomicU32::new(0),
            state_read: Mutex::new(Instant::now()),
        });
        // The lane does not move any more, and the portal stays in it until `take`.
        let mut portal = lane.portal.lock().unwrap_or_else(PoisonError::into_inner);
        lane.open.store(
            portal.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut),
            Ordering::Release,
        );
        drop(portal);
        lane
    }

    /// Submits, unless the queue was closed.
    ///
    /// # Safety
    /// As for [`Portal::submit`].
    pub(super) unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), Unsubmitted> {
        // SYNC: queue closed. `take` removes the pointer, and then waits for this count.
        self.submitting.fetch_add(1, Ordering::SeqCst);
        let portal = self.open.load(Ordering::SeqCst);
        let result = if portal.is_null() {
            Err(Unsubmitted::Gone)
        } else {
            // SAFETY: `take` frees the portal only after this thread has left the count.
            let portal = unsafe { &*portal };
            // SAFETY: the caller's promise.
            unsafe { portal.submit(descriptor) }
        };
        self.submitting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Takes the portal out, after the last submission; `None` if it was taken before.
    pub(super) fn take(&self) -> Option<Box<dyn Portal>> {
        // SYNC: queue closed.
        self.open.store(std::ptr::null_mut(), Ordering::SeqCst);
        while self.submitting.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        self.portal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
