//! The device of this process, its open files and its mapped portals.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use haul_engine::dsa::Descriptor;
use haul_engine::dsa::fake::{Client, Fake, tree};
use haul_peer::fork::{Here, Lock};

use crate::paths;

/// The size of a portal, in bytes.
pub(crate) const PORTAL_BYTES: usize = 4096;

/// An open queue. A file and its portals share it, as they share an open file of the kernel.
pub(crate) struct Open {
    client: Client,
    queue: usize,
    is_end_shown: AtomicBool,
}

/// What this process has. A child of fork keeps the files of its parent, and is refused on them.
struct Device {
    fake: Option<(Here, Arc<Fake>)>,
    files: BTreeMap<libc::c_int, Arc<Open>>,
    portals: BTreeMap<usize, Arc<Open>>,
}

static DEVICE: Lock<Device> =
    Lock::new(Device { fake: None, files: BTreeMap::new(), portals: BTreeMap::new() }, |_| {});

/// The largest number of a file on which a queue is open.
const FILES_MAX: usize = 1024;

/// Whether a queue is open on a file. Calls on other files, also in handlers of signals, take no
/// lock.
static IS_QUEUE: [AtomicBool; FILES_MAX] = [const { AtomicBool::new(false) }; FILES_MAX];

/// The number of mapped portals.
static PORTALS: AtomicUsize = AtomicUsize::new(0);

impl Open {
    /// Submits the descriptors in `bytes`, as `write` does.
    ///
    /// # Errors
    /// As for [`Client::write`].
    ///
    /// # Safety
    /// As for [`Client::write`].
    pub(crate) unsafe fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.check_folder();
        // SAFETY: the caller's promise.
        let written = unsafe { self.client.write(bytes) };
        self.show_end();
        written
    }

    /// Submits a descriptor, as MOVDIR64B does.
    ///
    /// # Safety
    /// As for [`Client::store`].
    pub(crate) unsafe fn store(&self, descriptor: &Descriptor) {
        self.check_folder();
        // SAFETY: the caller's promise.
        unsafe { self.client.store(descriptor) };
        self.show_end();
    }

    /// Submits a descriptor, as ENQCMD does. Returns false for "retry".
    ///
    /// # Safety
    /// As for [`Client::enqueue`].
    pub(crate) unsafe fn enqueue(&self, descriptor: &Descriptor) -> bool {
        self.check_folder();
        // SAFETY: the caller's promise.
        let is_accepted = unsafe { self.client.enqueue(descriptor) };
        self.show_end();
        is_accepted
    }

    /// Whether the portal can be mapped.
    ///
    /// # Errors
    /// As for [`Client::check_map`].
    pub(crate) fn check_map(&self) -> io::Result<()> {
        self.client.check_map()
    }

    /// A submission may have halted or removed the device. The program sees it in the state file: a
    /// queue that waits for records then waits no longer.
    fn show_end(&self) {
        if !self.client.is_alive() && !self.is_end_shown.swap(true, Ordering::Relaxed) {
            // Without its files, the device is removed anyway.
            let _ = paths::folder().map(tree::show_halt);
        }
    }

    /// The removal of the folder is the removal of the device.
    fn check_folder(&self) {
        let is_there = paths::folder().is_some_and(|folder| tree::has_queue(folder, self.queue));
        if let Some((_, fake)) = DEVICE.lock().fake.as_ref().filter(|_| !is_there) {
            fake.remove();
        }
    }
}

/// Opens a queue of the device, and starts the device before.
///
/// # Errors
/// As for [`Fake::open`], or the settings cannot be read.
pub(crate) fn open(folder: &Path, queue: usize) -> io::Result<Arc<Open>> {
    let mut device = DEVICE.lock();
    let fake = match &device.fake {
        Some((owner, fake)) if owner.is_here() => Arc::clone(fake),
        _ => {
            let fake = Arc::new(Fake::new(tree::read(folder)?)?);
            let fresh = (Here::now(), Arc::clone(&fake));
            // A parent's device has no threads here, so that nothing can end it.
            std::mem::forget(device.fake.replace(fresh));
            fake
        }
    };
    Ok(Arc::new(Open { client: fake.open(queue)?, queue, is_end_shown: AtomicBool::new(false) }))
}

/// Remembers an open file. Returns false if its number is too large.
pub(crate) fn add_file(file: libc::c_int, open: Arc<Open>) -> bool {
    let Some(is_queue) = is_queue(file) else { return false };
    DEVICE.lock().files.insert(file, open);
    is_queue.store(true, Ordering::Release);
    true
}

/// The queue that a file is open on.
pub(crate) fn file(file: libc::c_int) -> Option<Arc<Open>> {
    is_queue(file).filter(|is_queue| is_queue.load(Ordering::Acquire))?;
    DEVICE.lock().files.get(&file).cloned()
}

/// Forgets a file. The last owner of its queue waits for what is pending.
pub(crate) fn remove_file(file: libc::c_int) -> Option<Arc<Open>> {
    is_queue(file).filter(|is_queue| is_queue.swap(false, Ordering::AcqRel))?;
    DEVICE.lock().files.remove(&file)
}

/// Remembers a mapped portal.
pub(crate) fn add_portal(start: usize, open: Arc<Open>) {
    DEVICE.lock().portals.insert(start, open);
    PORTALS.fetch_add(1, Ordering::Release);
}

/// The queue whose portal contains an address.
pub(crate) fn portal(address: usize) -> Option<Arc<Open>> {
    let device = DEVICE.lock();
    let (start, open) = device.portals.range(..=address).next_back()?;
    (address - start < PORTAL_BYTES).then(|| Arc::clone(open))
}

/// Forgets a portal that begins at an address.
pub(crate) fn remove_portal(start: usize) -> Option<Arc<Open>> {
    if PORTALS.load(Ordering::Acquire) == 0 {
        return None;
    }
    let open = DEVICE.lock().portals.remove(&start)?;
    PORTALS.fetch_sub(1, Ordering::Release);
    Some(open)
}

fn is_queue(file: libc::c_int) -> Option<&'static AtomicBool> {
    IS_QUEUE.get(usize::try_from(file).ok()?)
}
