//! The memory that `recv` returns: private to this process, to read and to write.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use super::pool::Lease;
use super::registry::{self, Replaced};
use super::{announced, huge, spares};
use crate::shared::account::Account;
use crate::shared::error::Error;
use haul_peer::memory;

/// A received message, or memory for one. A buffer is private: the sender cannot change it, and
/// the sender does not see changes to it. The exceptions are messages that a trusted sender sent
/// by `lease` or handed over unsealed: an untrustworthy sender could change those, and after a
/// fork both processes share their memory. A buffer begins at a page boundary unless it is
/// smaller than 64 KiB. The memory is freed when the buffer is dropped.
pub struct Buffer {
    base: NonNull<u8>,
    length: usize,
    memory: Memory,
    account: Account,
}

/// Below this size, a mapping and its faults cost more than zeroing allocated memory.
const SMALL_BYTES: usize = 64 << 10;

/// The origin of the memory, which decides how it is freed.
enum Memory {
    /// No memory.
    Nothing,
    /// A small message, from the allocator: a mapping would cost more than the message.
    Small(#[expect(dead_code, reason = "it owns the memory")] Vec<u8>),
    /// A separate mapping.
    Mapped,
    /// A part of the receiver's pool.
    Leased(#[expect(dead_code, reason = "it frees the memory when it is dropped")] Lease),
}

// SAFETY: the memory belongs to this value alone, as a `Vec`'s does.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared reference gives shared access only.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeroed memory to receive into. If [`recv_into`](crate::Receiver::recv_into) gets a
    /// page-aligned part of this memory, and the message is already in separate pages, these pages
    /// replace the target's, without a copy.
    ///
    /// # Errors
    /// [`Error::System`] if there is not enough memory.
    pub fn new(length: usize) -> Result<Self, Error> {
        Self::zeroed(length)
    }

    /// Zeroed memory. The system allocates pages at the first access, so a false length from the
    /// peer costs addresses, not memory.
    pub(crate) fn zeroed(length: usize) -> Result<Self, Error> {
        if length < SMALL_BYTES {
            return Ok(Self::small(length));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
        let base = base.map_err(Error::system("allocate memory for the message"))?;
        let base: NonNull<u8> =
            NonNull::new(base.cast()).expect("the kernel maps nothing at zero unasked");
        // SAFETY: advice about a mapping made here. Huge pages avoid most faults of a large
        // mapping; a kernel without them ignores the advice.
        let _ = unsafe {
            rustix::mm::madvise(base.as_ptr().cast(), length, rustix::mm::Advice::LinuxHugepage)
        };
        Ok(Self::mapped(base, length))
    }

    /// A private view of a memory file that can no longer change. A write to a page copies that
    /// page.
    pub(crate) fn view(file: BorrowedFd<'_>, length: usize) -> Result<Self, Error> {
        if length == 0 {
            return Ok(Self::small(0));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let address = huge::aligned_address(length);
        let base = memory::map_file_at(address, file, length, protection, MapFlags::PRIVATE)?;
        let view = Self::mapped(base, length);
        let start = base.addr().get();
        registry::note_view(start..start + length);
        memory::fill_holes(base, length)?;
        Ok(view)
    }

    /// A shared mapping of a file that no other process reaches.
    pub(crate) fn whole(file: BorrowedFd<'_>, length: usize) -> Result<Self, Error> {
        if length == 0 {
            return Ok(Self::small(0));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let address = huge::aligned_address(length);
        let base = memory::map_file_at(address, file, length, protection, MapFlags::SHARED)?;
        let whole = Self::mapped(base, length);
        memory::fill_holes(base, length)?;
        Ok(whole)
    }

    /// Leased memory of a pool. The lease has at least `length` bytes.
    pub(crate) fn leased(lease: Lease, length: usize) -> Self {
        let base = lease.base();
        Self { base, length, memory: Memory::Leased(lease), account: Account::default() }
    }

    fn mapped(base: NonNull<u8>, length: usize) -> Self {
        registry::register(base, length);
        Self { base, length, memory: Memory::Mapped, account: Account::default() }
    }

    fn small(length: usize) -> Self {
        if length == 0 {
            let base = NonNull::dangling();
            return Self { base, length, memory: Memory::Nothing, account: Account::default() };
        }
        let mut bytes = vec![0; length];
        let base = NonNull::new(bytes.as_mut_ptr()).expect("a vector's pointer is not null");
        Self { base, length, memory: Memory::Small(bytes), account: Account::default() }
    }

    /// The cost of the transfer at this end.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Announces writes to these bytes. A message that arrived sealed, from a peer without trust,
    /// is a view: the first write to each page of 4 KiB causes a page fault and a copy. This call
    /// copies the range now, and copies into a huge page where the range covers at least half of
    /// that page. For 2 MiB and more, that takes a quarter of the time. The call leaves ranges
    /// under 64 KiB, and other memory, unchanged. The content of the buffer does not change. The
    /// account counts the bytes copied. When the buffer is dropped, haul keeps the buffer's huge
    /// pages for the next announcement: up to 64 MiB, as long as the process has a receiver.
    /// Before you drop the buffer, undo changes to the memory itself: locks, protection, a
    /// device's registration.
    ///
    /// If the range covers 1 MiB or more of a huge page, this call copies all 2 MiB of that page:
    /// up to 1 MiB more at either end of the range. Announce before you register the memory with
    /// a device, because the pages are replaced. To announce more than 0.11 of a message, keep
    /// [`Settings::dirty_fraction`](crate::Settings) below 0.11; otherwise the receiver copies
    /// the whole message instead.
    ///
    /// # Panics
    /// Panics if the range is not inside the buffer.
    pub fn will_write(&mut self, range: Range<usize>) {
        let (start, end) = (range.start, range.end);
        assert!(
            start <= end && end <= self.length,
            "bytes {start} to {end} are not inside a buffer of {}",
            self.length
        );
        if matches!(self.memory, Memory::Mapped) {
            self.account.copied_bytes += announced::make_private(self.base, range) as u64;
        }
    }

    pub(crate) fn with(mut self, account: Account) -> Self {
        self.account = account;
        self
    }

    /// Moves the buffer's bytes into a target of the same length. If the target is haul's own
    /// mapping, whole pages are moved, and the remainder is copied. Afterwards the buffer's
    /// content is undefined.
    pub(crate) fn move_into(&mut self, target: &mut [u8]) {
        let mut placed = 0;
        if matches!(self.memory, Memory::Mapped) && registry::are_own(target) {
            let whole = self.length / registry::PAGE_BYTES * registry::PAGE_BYTES;
            // The old addresses stay mapped, so that no other mapping can get them.
            let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
            let (from, to) = (self.base.as_ptr().cast(), target.as_mut_ptr().cast());
            let replaced = Replaced::mark(NonNull::from_mut(target).cast(), whole);
            let own = self.base.addr().get();
            let is_view = !registry::views(&(own..own + whole)).is_empty();
            // SAFETY: whole pages of this value's own mapping, to which there is no reference
            // because it is borrowed uniquely, replace whole pages of another such mapping, which
            // are borrowed uniquely as well; both stay mapped, readable and writable.
            let moved = unsafe { rustix::mm::mremap_fixed(from, whole, whole, flags, to) };
            match moved {
                Ok(_) => {
                    placed = whole;
                    let start = target.as_ptr().addr();
                    match is_view {
                        true => registry::note_view(start..start + whole),
                        false => registry::note_private(start..start + whole),
                    }
                }
                Err(_) => replaced.keep_mapped(),
            }
        }
        haul_copy::copy(&mut target[placed..], &self[placed..]);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` initialised bytes that live as long as `self` and are written only
        // through a unique borrow of it; dangling and of length zero for an empty buffer.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if matches!(self.memory, Memory::Mapped) {
            let (base, end) = (self.base, self.base.addr().get() + self.length);
            let at = |address: usize| base.with_addr(address.try_into().expect("mapped, not zero"));
            let mut done = base.addr().get();
            for huge in registry::forget(base) {
                unmap_between(at(done), huge.start);
                spares::give(at(huge.start), huge.len());
                done = huge.end;
            }
            unmap_between(at(done), end);
        }
    }
}

/// Unmaps a part of a mapping that the caller owns and gives up.
fn unmap_between(start: NonNull<u8>, end: usize) {
    let bytes = end - start.addr().get();
    if bytes > 0 {
        memory::unmap(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn move_into_moves_whole_pages_and_copies_remainder() {
        let length = 30 * registry::PAGE_BYTES + 100;
        for (start, is_placed) in [(0, true), (registry::PAGE_BYTES, true), (1, false)] {
            let mut target = Buffer::new(50 * registry::PAGE_BYTES).unwrap();
            target.fill(9);
            let mut source = Buffer::new(length).unwrap();
            for (index, byte) in source.iter_mut().enumerate() {
                *byte = (index * 7) as u8;
            }
            let expected = source.to_vec();
            source.move_into(&mut target[start..start + length]);
            assert_eq!(target[start..start + length], expected);
            let outside = target[..start].iter().chain(&target[start + length..]);
            assert!(outside.into_iter().all(|byte| *byte == 9), "{start}");
            // The moved pages are no longer in the source, unless this kernel had to copy.
            let has_gone = source[..registry::PAGE_BYTES].iter().all(|byte| *byte == 0);
            assert!(is_placed || !has_gone, "{start}");
            target.fill(1);
        }
        let mut target = vec![0; length];
        let mut source = Buffer::new(length).unwrap();
        source.fill(3);
        source.move_into(&mut target);
        assert!(target.iter().all(|byte| *byte == 3));
    }
}
