//! `sealed`: the sender builds the message in shared memory, seals it and hands it over; the
//! receiver maps it as private. Only pages that the receiver writes to are copied.
//!
//! The kernel grants the seal against writing only while no process can write, so the seal is a
//! proof and the receiver needs no trust. Sealed memory cannot be reused, so each message is
//! built in new memory. The pages of new memory cost as much as half a copy into warm memory if
//! they are huge (see `huge`), otherwise as much as three copies. So this mechanism is for a
//! producer that builds the message once, in place.
//!
//! If both ends trust each other and no other process reaches the memory ([`exclusive`]), the
//! sender hands it over unsealed. The receiver maps the memory shared, with its huge pages, and
//! writes copy no page. A seal would also prove that no pages are pinned, but a seal cannot be
//! removed.
//!
//! The first write to a page of a view costs a fault and a copy of 4 KiB, huge page or not: 2.5
//! to 3.2 us on Zen 4 under KVM. Writing to one page in ten costs 0.6 to 0.9 times as much as a
//! warm copy of all pages. A receiver that knows beforehand where it will write can announce its
//! writes, see `announced`. Writing to an announced tenth of the message, in one piece, then
//! costs 0.08 to 0.2 times as much as a warm copy, from the second message on; the first message
//! also pays for the huge pages.

use std::io::ErrorKind;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::contract::{Begun, Destination, Incoming, Outgoing, Receives, Sends, Taken};
use super::staged;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::names::Mechanism;
use crate::shared::settings::Settings;
use crate::shared::source::Source;
use crate::shared::transfer::Step;
use crate::table;
use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::pages::buffer::Buffer;
use crate::pages::registry::{self, Replaced};
use crate::pages::{exclusive, huge};
use crate::shared::checksum::{SUM_BYTES, Sum};
use crate::shared::error::Error;
use haul_peer as peer;
use haul_peer::memory::{self, Sealed};

/// If the receiver writes to this part of the pages, copy-on-write of 4 KiB pages costs as much
/// as one warm copy of all pages, as the reference measured it.
const DIRTY_MAX: f64 = 0.11;

/// How often this end tries to seal memory that another process may still write to, and the pause
/// between two tries.
const SEAL_TRIES: u32 = 100;
const SEAL_PAUSE: Duration = Duration::from_millis(1);

/// Whether a message that was built in place is handed over, or copied by the receiver. Memory that
/// is handed over unsealed is never copied, however much of it the receiver will write to.
fn mechanism(settings: &Settings, is_whole: bool) -> Mechanism {
    let measured = table::installed().and_then(|table| table.sealed_dirty_max);
    let limit = measured.unwrap_or(DIRTY_MAX);
    if is_whole || settings.dirty_fraction <= limit { Mechanism::Sealed } else { Mechanism::Staged }
}

/// The sender's part: first the message that was built in place, then the memory that this end
/// has given up.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    built: Option<Built>,
    file: Option<OwnedFd>,
}

impl Sending {
    pub(crate) fn new(building: Building) -> Self {
        Self { built: Some(Built::new(building)), file: None }
    }

    /// Adds a piece of the message to the checksum. Once the whole message is added, gives the
    /// memory up.
    fn give_up(&mut self, mut built: Built, out: &mut Outgoing<'_, '_>) -> Result<(), Error> {
        let link = Arc::clone(&out.lane.link);
        if link.settings.integrity {
            if !built.sum_some() {
                self.built = Some(built);
                return Ok(());
            }
            out.source.set_sum(built.sum);
        }
        let (file, is_whole) = built.building.give_up(out.lane.may_give_memory())?;
        out.account.mechanism = mechanism(&link.settings, is_whole);
        self.file = Some(file);
        Ok(())
    }
}

impl Sends for Sending {
    type State = ();

    const SUMS: bool = true;

    fn obstacle(_source: &Source<'_>, _length: u64) -> Option<&'static str> {
        Some("its memory must be built by Building: call send_built")
    }

    fn begin(&mut self, _: &mut (), out: &mut Outgoing<'_, '_>) -> Result<Begun, Error> {
        if let Some(built) = self.built.take() {
            self.give_up(built, out)?;
            return Ok(Begun::NotYet);
        }
        let file = self.file.as_ref().expect("it was built, and given up");
        match staged::hand_over(file, out) {
            Ok(begun) => {
                self.file = None;
                Ok(begun)
            }
            Err(Errno::AGAIN) => Ok(Begun::Blocked),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                let (done, size) = (Bytes(0), Bytes(out.length));
                Err(Error::PeerGone { attempt: "send", done, size })
            }
            Err(reason) => Err(Error::system("hand memory over")(reason)),
        }
    }
}

/// The receiver's part.
#[derive(Debug)]
pub(crate) struct Receiving(staged::Receiving);

impl Receives for Receiving {
    type State = ();

    const SUMS: bool = staged::Receiving::SUMS;
    const HAS_SUM_IN_HEADER: bool = staged::Receiving::HAS_SUM_IN_HEADER;
    const IS_FIXED: bool = staged::Receiving::IS_FIXED;

    fn begin(state: &mut (), header: &Header, lane: &mut Lane) -> Result<Self, Error> {
        staged::Receiving::begin(state, header, lane).map(Self)
    }

    /// The memory that was handed over is itself the destination.
    fn destination(
        &mut self,
        _: &mut (),
        lane: &mut Lane,
        length: usize,
    ) -> Result<Option<Destination>, Error> {
        let memory = map_message(self.0.file.as_fd(), length, lane.link.is_trusted)?;
        lane.system_calls += staged::CALLS_TO_CHECK + 1;
        Ok(Some(Destination { memory, is_whole: true }))
    }

    /// Replaces the target's pages with those that the sender handed over, or copies a piece of
    /// them.
    fn step(
        &mut self,
        _: &mut (),
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        let Self(copy) = self;
        if copy.is_new() {
            incoming.lane.system_calls += staged::CALLS_TO_CHECK;
            let is_trusted = incoming.lane.link.is_trusted;
            let ownership = Ownership::of(copy.file.as_fd(), target.len(), is_trusted)?;
            if let Some(copied) = put_into(copy.file.as_fd(), target, ownership)? {
                incoming.account.copied_bytes = copied as u64;
                return Ok(Step::Done(Taken::Whole));
            }
        }
        copy.copy_next(incoming, target)
    }

    fn progress(&self) -> u64 {
        self.0.progress()
    }

    fn end(self) {
        self.0.end();
    }
}

/// How the receiver owns the memory of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// A private view of memory that can never change.
    View,
    /// Exclusive memory, to read and to write. A trusted sender gave the memory up, and no other
    /// process reaches it.
    Whole,
}

impl Ownership {
    /// Checks the memory and returns its ownership. If a trusted sender gave the memory up but
    /// another process may still reach it, this function seals it.
    ///
    /// # Errors
    /// [`Error::Memory`] if the memory is neither sealed nor exclusive, [`Error::System`].
    fn of(file: BorrowedFd<'_>, length: usize, is_trusted: bool) -> Result<Self, Error> {
        if is_trusted && !memory::is_sealed(file, Sealed::Bytes) {
            if exclusive::is_exclusive(file) {
                memory::check(file, length, Sealed::Handover)?;
                return Ok(Self::Whole);
            }
            // If the kernel refuses the seal, the check fails.
            let _ = memory::seal(file, Sealed::Bytes);
        }
        memory::check(file, length, Sealed::Bytes)?;
        Ok(Self::View)
    }

    fn map(self, file: BorrowedFd<'_>, length: usize) -> Result<Buffer, Error> {
        match self {
            Self::View => Buffer::view(file, length),
            Self::Whole => Buffer::whole(file, length),
        }
    }
}

/// Maps the message as the receiver's own memory.
///
/// # Errors
/// The errors of [`Ownership::of`].
fn map_message(file: BorrowedFd<'_>, length: usize, is_trusted: bool) -> Result<Buffer, Error> {
    Ownership::of(file, length, is_trusted)?.map(file, length)
}

/// Replaces whole pages of a target, which must be haul's own mapping, with the pages of the
/// message, and copies the remainder. Returns the number of bytes copied, or `None` if the
/// replacement is not possible; then the target is unchanged.
///
/// # Errors
/// [`Error::Memory`] if the memory is not safe to map, [`Error::System`].
fn put_into(
    file: BorrowedFd<'_>,
    target: &mut [u8],
    ownership: Ownership,
) -> Result<Option<usize>, Error> {
    if !registry::are_own(target) {
        return Ok(None);
    }
    let view = ownership.map(file, target.len())?;
    let whole = target.len() / registry::PAGE_BYTES * registry::PAGE_BYTES;
    let (address, protection) = (target.as_mut_ptr().cast(), ProtFlags::READ | ProtFlags::WRITE);
    let sharing = match ownership {
        Ownership::View => MapFlags::PRIVATE,
        Ownership::Whole => MapFlags::SHARED,
    };
    let flags = sharing | MapFlags::FIXED;
    let replaced = Replaced::mark(NonNull::from_mut(target).cast(), whole);
    // SAFETY: whole pages of a mapping that haul made, borrowed uniquely, are replaced by pages
    // of the same length, readable and writable, of a file that was checked to be constant or
    // exclusive to this process.
    let mapped = unsafe { rustix::mm::mmap(address, whole, protection, flags, file, 0) };
    if mapped.is_err() {
        replaced.keep_mapped();
        return Ok(None);
    }
    let start = target.as_ptr().addr();
    match ownership {
        Ownership::View => registry::note_view(start..start + whole),
        Ownership::Whole => registry::note_private(start..start + whole),
    }
    haul_copy::copy(&mut target[whole..], &view[whole..]);
    Ok(Some(target.len() - whole))
}

/// Memory to build a message in: zeroed and writable until
/// [`send_built`](crate::Sender::send_built) hands it over.
#[derive(Debug)]
pub struct Building {
    file: OwnedFd,
    /// Whether the kernel counts this description, see `exclusive`.
    is_counted: bool,
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, as a `Vec`'s memory does.
unsafe impl Send for Building {}
// SAFETY: as above; a shared reference gives shared access only.
unsafe impl Sync for Building {}

impl Building {
    /// Memory for a message of this length, with its pages allocated: huge pages if the kernel
    /// has any. Costs ten system calls, and one more per 2 MiB.
    ///
    /// # Errors
    /// [`Error::System`] if there is not enough memory, and for a length of zero: send an empty
    /// slice instead.
    pub fn new(length: usize) -> Result<Self, Error> {
        let made = memory::create_file(length)?;
        let counted = exclusive::open_anew(made.as_fd());
        let is_counted = counted.is_some();
        let file = counted.unwrap_or(made);
        let base = huge::map_whole(file.as_fd(), length)?;
        Ok(Self { file, is_counted, base, length })
    }

    /// Drops this process's access. If `may_be_whole` and no other process reaches the memory,
    /// the receiver may write to it, and the second returned value is true. Otherwise the memory
    /// is sealed, and therefore constant.
    fn give_up(self, may_be_whole: bool) -> Result<(OwnedFd, bool), Error> {
        if may_be_whole
            && self.is_counted
            && let Some(file) = exclusive::open_anew(self.file.as_fd())
        {
            drop(self);
            let is_whole = exclusive::is_exclusive(file.as_fd());
            return seal(file, is_whole);
        }
        let file = self.file.try_clone().map_err(Error::system("hand memory over"))?;
        drop(self);
        seal(file, false)
    }
}

/// A message that was built in place, while it is added to a checksum.
#[derive(Debug)]
struct Built {
    building: Building,
    /// The checksum of the first `summed` bytes.
    sum: Sum,
    summed: usize,
}

impl Built {
    fn new(building: Building) -> Self {
        Self { building, sum: Sum::default(), summed: 0 }
    }

    /// Adds the next bytes, which is about 0.1 ms of work. Returns whether all bytes are added.
    fn sum_some(&mut self) -> bool {
        let rest = &self.building[self.summed..];
        let next = &rest[..rest.len().min(SUM_BYTES)];
        self.sum.add(self.summed as u64, next);
        self.summed += next.len();
        self.summed == self.building.len()
    }
}

/// Seals the memory's size, and also its bytes unless the receiver gets the memory for writing.
/// If another thread forks, the child has this process's memory until its exec, for some
/// milliseconds.
fn seal(file: OwnedFd, is_whole: bool) -> Result<(OwnedFd, bool), Error> {
    let contract = if is_whole { Sealed::Handover } else { Sealed::Bytes };
    let mut tries = 1;
    loop {
        match memory::seal(&file, contract) {
            Err(peer::error::Error::System { reason, .. })
                if reason.kind() == ErrorKind::ResourceBusy && tries < SEAL_TRIES =>
            {
                tries += 1;
            }
            result => {
                result?;
                return Ok((file, is_whole));
            }
        }
        std::thread::sleep(SEAL_PAUSE);
    }
}

impl Deref for Building {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a mapping of this length that belongs to this value and is borrowed with it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl DerefMut for Building {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        memory::unmap(self.base, self.length);
    }
}
