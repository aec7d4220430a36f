//! A fake DSA: queues behind which threads execute real descriptors on the memory of this process,
//! and write real completion records. Whatever can go wrong in a device goes wrong on request.
//!
//! The fake follows the kernel's rules for user queues (Linux `drivers/dma/idxd/cdev.c`) for
//! `open`, `mmap`, `write` and `close`, with the same error numbers. It does not follow a device's
//! speed.
//!
//! From the bottom up:
//!
//! - [`settings`]: what the device is, and what goes wrong;
//! - `execute`: one descriptor;
//! - `device`: the queues and the threads;
//! - [`tree`]: the device as files, for programs.

pub mod settings;

mod device;
mod execute;

pub mod tree;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use haul_peer::fork::{Here, Thread};
use rustix::io::Errno;

use self::device::{Device, Life, Submitted};
use super::completion::RECORD_BYTES;
use super::descriptor::{DESCRIPTOR_BYTES, Descriptor, Opcode, flag};
use super::memory;
use super::sysfs::{Mode, QueueType};

pub use self::device::Counts;
pub use self::settings::{Event, Injection, QueueSettings, Settings, SettingsError, When};

/// A fake device of this process. Its threads end with it.
///
/// ```
/// use haul_engine::dsa::fake::{Fake, Settings};
/// use haul_engine::dsa::{Descriptor, Record, Status};
///
/// let fake = Fake::new(Settings::default())?;
/// let client = fake.open(0)?;
/// let (source, target, record) = ([7u8; 4096], [0u8; 4096], Record::new());
/// let addresses = (source.as_ptr().addr() as u64, (&raw const target).addr() as u64);
/// let copy = Descriptor::copy(addresses.0, addresses.1, 4096).record(record.address());
/// // SAFETY: the buffers and the record live until the record is written.
/// unsafe { client.write(copy.bytes())? };
/// let completion = loop {
///     if let Some(completion) = record.poll() {
///         break completion;
///     }
/// };
/// assert_eq!(completion.status, Status::Success);
/// assert_eq!(std::hint::black_box(&target)[4095], 7);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Fake {
    device: Arc<Device>,
    threads: Vec<Thread>,
    owner: Here,
}

/// An open queue of a fake device: what an open device file is to a program.
///
/// Dropping it waits until nothing that it submitted is pending, as `close` does. A wedged device
/// never comes to that; see [`Client::close_within`].
pub struct Client {
    device: Arc<Device>,
    queue: usize,
    id: u64,
    generation: u64,
    owner: Here,
    is_closed: bool,
}

impl Fake {
    /// Starts the threads of a device.
    ///
    /// # Errors
    /// The kernel refuses `process_vm_readv` to this process (a filter of system calls), or no
    /// thread could be started.
    pub fn new(settings: Settings) -> io::Result<Self> {
        memory::probe().map_err(|reason| {
            let text = "the fake copies by process_vm_readv, which is refused here";
            io::Error::new(io::Error::from(reason).kind(), format!("{text}: {reason}"))
        })?;
        let engines = settings.engines.max(1);
        let device = Arc::new(Device::new(settings));
        let mut fake = Self { device, threads: Vec::new(), owner: Here::now() };
        for _ in 0..engines {
            let device = Arc::clone(&fake.device);
            let thread = thread::Builder::new().name("haul-fake-dsa".into());
            fake.threads.push(Thread::new(thread.spawn(move || device.serve())?));
        }
        Ok(fake)
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.device.settings
    }

    /// Opens a queue, as `open` of its device file does.
    ///
    /// # Errors
    /// `ENXIO` if the queue does not exist or is not enabled for programs, `EOPNOTSUPP` without
    /// shared virtual addressing, `EBUSY` if the queue is dedicated and open, `ENODEV` after a
    /// removal.
    pub fn open(&self, queue: usize) -> io::Result<Client> {
        let settings = self.device.settings.queues.get(queue).ok_or(Errno::NXIO)?;
        if !settings.is_enabled || settings.queue_type != QueueType::User {
            return Err(Errno::NXIO.into());
        }
        if !self.device.settings.sva {
            return Err(Errno::OPNOTSUPP.into());
        }
        if matches!(self.device.life(), Life::Removed | Life::Halted) {
            return Err(Errno::NODEV.into());
        }
        let is_dedicated = settings.mode == Mode::Dedicated;
        let (id, generation) = self.device.open(queue, is_dedicated).ok_or(Errno::BUSY)?;
        let device = Arc::clone(&self.device);
        Ok(Client { device, queue, id, generation, owner: Here::now(), is_closed: false })
    }

    /// Removes the device: pending descriptors never complete, and submissions fail.
    pub fn remove(&self) {
        self.device.change(Life::Removed);
    }

    /// Halts the device: pending descriptors never complete, and submissions disappear. The device
    /// needs [`Fake::reset`].
    pub fn halt(&self) {
        self.device.change(Life::Halted);
    }

    /// Lets the device keep descriptors and execute none, until [`Fake::reset`].
    pub fn wedge(&self) {
        self.device.change(Life::Wedged);
    }

    /// Starts a halted, removed or wedged device again. Clients of a halted or removed one must
    /// open it again; a wedged one goes on with what it has.
    pub fn reset(&self) {
        self.device.change(Life::Running);
    }

    /// What the device has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.device.counts()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // A fork has not copied the threads, and one may have held the lock.
        if self.owner.is_here() {
            self.device.stop();
        }
        for thread in &mut self.threads {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

impl Client {
    /// Whether the queue is dedicated or shared.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.settings().mode
    }

    /// The queue's settings.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        &self.device.settings.queues[self.queue]
    }

    /// Whether the portal can be mapped, as `mmap` of the device file decides it.
    ///
    /// # Errors
    /// `EPERM` in a forked child, or if the device is not safe to map.
    pub fn check_map(&self) -> io::Result<()> {
        let is_allowed = self.is_owner() && self.device.settings.portal;
        if is_allowed { Ok(()) } else { Err(Errno::PERM.into()) }
    }

    /// Submits the descriptors in `bytes` in their order, as `write` on the device file does.
    /// Returns the bytes that were taken; the rest was not submitted.
    ///
    /// # Errors
    /// If none was submitted: `EPERM` in a forked child, `EINVAL` for a record that is not aligned
    /// or a batch on a device that refuses batches, `EAGAIN` if the queue is full, `ENODEV` if the
    /// device is gone.
    ///
    /// # Safety
    /// Each range and record that a descriptor names must stay valid until its record is written,
    /// and no Rust reference to a target may exist meanwhile. An address that is not mapped is an
    /// error in the record, as on a device.
    pub unsafe fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_owner() {
            return Err(Errno::PERM.into());
        }
        let mut taken = 0;
        for chunk in bytes.chunks_exact(DESCRIPTOR_BYTES) {
            let mut descriptor = [0; DESCRIPTOR_BYTES];
            descriptor.copy_from_slice(chunk);
            match self.write_one(Descriptor::from_bytes(descriptor)) {
                Ok(()) => taken += DESCRIPTOR_BYTES,
                Err(reason) if taken == 0 => return Err(reason.into()),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    /// Submits as MOVDIR64B on the portal of a dedicated queue does: nothing reports whether the
    /// queue accepts it, and a full queue loses it.
    ///
    /// # Safety
    /// As for [`Client::write`].
    pub unsafe fn store(&self, descriptor: &Descriptor) {
        if self.is_owner() {
            let _ = self.submit(*descriptor);
        }
    }

    /// Submits as ENQCMD on the portal of a shared queue does. Returns false if the queue is full
    /// or gone: "retry".
    ///
    /// # Safety
    /// As for [`Client::write`].
    #[must_use]
    pub unsafe fn enqueue(&self, descriptor: &Descriptor) -> bool {
        self.is_owner() && self.submit(*descriptor) == Submitted::Accepted
    }

    /// Whether the device still executes descriptors of this client.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let is_running = matches!(self.device.life(), Life::Running | Life::Wedged);
        is_running && self.generation == self.device.generation()
    }

    /// Closes the queue: waits until the device writes nothing of this client any more. Gives the
    /// client back if that takes longer than `bound`.
    ///
    /// # Errors
    /// The device is wedged, or too slow.
    pub fn close_within(mut self, bound: Duration) -> Result<(), Self> {
        self.is_closed = !self.is_owner() || self.device.close(self.queue, self.id, Some(bound));
        if self.is_closed { Ok(()) } else { Err(self) }
    }

    fn is_owner(&self) -> bool {
        self.owner.is_here()
    }

    fn write_one(&self, descriptor: Descriptor) -> Result<(), Errno> {
        let is_batch = descriptor.opcode() == Some(Opcode::Batch);
        let has_record = descriptor.flags() & flag::RECORD_VALID != 0;
        let is_aligned = descriptor.record_address().is_multiple_of(RECORD_BYTES as u64);
        if (is_batch && !self.device.settings.batches) || (has_record && !is_aligned) {
            return Err(Errno::INVAL);
        }
        match self.submit(descriptor) {
            Submitted::Accepted => Ok(()),
            // The kernel cannot see that a dedicated queue is full either.
            Submitted::Full if self.mode() == Mode::Dedicated => Ok(()),
            Submitted::Full => Err(Errno::AGAIN),
            Submitted::Gone => Err(Errno::NODEV),
        }
    }

    fn submit(&self, descriptor: Descriptor) -> Submitted {
        self.device.submit(self.queue, self.id, self.generation, descriptor)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.is_closed && self.is_owner() {
            self.device.close(self.queue, self.id, None);
        }
    }
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fake").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("queue", &self.queue).finish_non_exhaustive()
    }
}
