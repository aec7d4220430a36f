//! The device file of a queue, with its portal mapped if this process may.
//!
//! The calls go through libc, so that a library that stands between can serve them: see
//! `haul engine fake`.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use haul_peer::descriptor;
use haul_peer::fork::{Here, Lock};
use rustix::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use rustix::io::Errno;

use super::{Mechanism, Portal, Unsubmitted};
use crate::dsa::descriptor::{DESCRIPTOR_BYTES, Descriptor};
use crate::dsa::instructions::{Answer, DirectStore, Enqueue};
use crate::dsa::sysfs::{Mode, Queue, Sysfs};

/// The size of a portal, in bytes. Every 64 bytes of it accept a descriptor.
const PORTAL_BYTES: usize = 4096;

/// How often an interrupted `write` is repeated.
const INTERRUPTIONS_MAX: u32 = 16;

/// The open files of this process. A child of fork closes its copies: a `close` of the parent
/// drains the queue only if it closes the last copy.
static FILES: Lock<Vec<libc::c_int>> = Lock::new(Vec::new(), |files| {
    for file in files.drain(..) {
        // SAFETY: the child has its own copy of the file, and no portal of the child uses it.
        unsafe { libc::close(file) };
    }
});

/// An open device file.
#[derive(Debug)]
pub(in crate::dsa) struct DevicePortal {
    file: libc::c_int,
    owner: Here,
    mapped: Option<Mapped>,
    sysfs: Sysfs,
    queue: Queue,
}

/// Whether the kernel says that a queue or its device is not enabled, so that the device does
/// nothing for it. Costs few system calls.
pub(in crate::dsa) fn is_disabled(sysfs: &Sysfs, queue: &Queue) -> bool {
    [&queue.device, &queue.name].into_iter().any(|name| sysfs.is_disabled(name))
}

/// A mapped portal and the instruction that submits to it.
#[derive(Debug)]
struct Mapped {
    start: NonNull<u8>,
    by: Instruction,
    /// Counts submissions: each goes to the next 64 bytes, so that two need no order.
    turn: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
enum Instruction {
    DirectStore(DirectStore),
    Enqueue(Enqueue),
}

// SAFETY: the portal is a device's register, which any thread may write at any time.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl DevicePortal {
    /// Opens a queue, and maps its portal unless `only_write` is set.
    ///
    /// # Errors
    /// The kernel's error of `open`.
    pub(in crate::dsa) fn open(sysfs: &Sysfs, queue: &Queue, only_write: bool) -> io::Result<Self> {
        let path = CString::new(queue.node.as_os_str().as_bytes())?;
        // A fork waits until the file is in the list, so that each child closes its copy.
        let mut files = FILES.lock();
        // SAFETY: the path is a C string that lives until the call returns.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the file was just opened, and nothing else closes it.
        let file = descriptor::keep(unsafe { OwnedFd::from_raw_fd(file) })?.into_raw_fd();
        files.push(file);
        drop(files);
        let mapped = if only_write { None } else { Mapped::new(file, queue.mode) };
        Ok(Self { file, owner: Here::now(), mapped, sysfs: sysfs.clone(), queue: queue.clone() })
    }

    fn write(&self, descriptor: &Descriptor) -> Result<(), Unsubmitted> {
        // The kernel copies the descriptor; the device must see the stores before it.
        fence(Ordering::SeqCst);
        let bytes = descriptor.bytes().as_ptr();
        for _ in 0..INTERRUPTIONS_MAX {
            // SAFETY: the bytes live until the call returns. What the device then does with the
            // addresses in them is the caller's promise.
            let count = unsafe { libc::write(self.file, bytes.cast(), DESCRIPTOR_BYTES) };
            match usize::try_from(count) {
                Ok(DESCRIPTOR_BYTES) => return Ok(()),
                // A short count means that nothing was submitted.
                Ok(_) => return Err(Unsubmitted::Full),
                Err(_) => {}
            }
            let error = io::Error::last_os_error();
            match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                Errno::INTR => {}
                reason => return Err(Unsubmitted::of(reason)),
            }
        }
        Err(Unsubmitted::Full)
    }
}

impl Portal for DevicePortal {
    fn mechanism(&self) -> Mechanism {
        match self.mapped.as_ref().map(|mapped| mapped.by) {
            Some(Instruction::DirectStore(_)) => Mechanism::DirectStore,
            Some(Instruction::Enqueue(_)) => Mechanism::Enqueue,
            None => Mechanism::Write,
        }
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), Unsubmitted> {
        let Some(mapped) = &self.mapped else { return self.write(descriptor) };
        let portal = mapped.next();
        match mapped.by {
            Instruction::DirectStore(instruction) => {
                // SAFETY: the portal is mapped and aligned; the rest is the caller's promise.
                unsafe { instruction.submit(portal, descriptor) };
                Ok(())
            }
            Instruction::Enqueue(instruction) => {
                // SAFETY: as above.
                match unsafe { instruction.submit(portal, descriptor) } {
                    Answer::Accepted => Ok(()),
                    Answer::Retry => Err(Unsubmitted::Full),
                }
            }
        }
    }

    fn is_alive(&self) -> bool {
        !is_disabled(&self.sysfs, &self.queue)
    }
}

impl Drop for DevicePortal {
    fn drop(&mut self) {
        // The kernel waits for pending descriptors when the last reference goes: the mapping first.
        let mapped = self.mapped.take();
        if !self.owner.is_here() {
            // A child has neither the mapping nor the file.
            std::mem::forget(mapped);
            return;
        }
        drop(mapped);
        // A fork waits for this close: a child with a copy of the file would let it return early.
        let mut files = FILES.lock();
        files.retain(|file| *file != self.file);
        // SAFETY: the file is this portal's own, and is used no more.
        unsafe { libc::close(self.file) };
        drop(files);
    }
}

impl Mapped {
    /// Maps the portal; `None` if the kernel refuses, or the processor lacks the instruction.
    fn new(file: libc::c_int, mode: Option<Mode>) -> Option<Self> {
        let by = match mode? {
            Mode::Dedicated => Instruction::DirectStore(DirectStore::new()?),
            Mode::Shared => Instruction::Enqueue(Enqueue::new()?),
        };
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PORTAL_BYTES,
                libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        Some(Self { start: NonNull::new(start.cast())?, by, turn: AtomicUsize::new(0) })
    }

    fn next(&self) -> *mut u8 {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let offset = turn * DESCRIPTOR_BYTES % PORTAL_BYTES;
        // SAFETY: the offset is within the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and is used no more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), PORTAL_BYTES) };
    }
}
