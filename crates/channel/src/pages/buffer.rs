//! What `recv` gives: memory of this process alone, to read and to write.

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

/// A received message, or memory for one. Private: nothing that the sender does changes it (what
/// came by `lease`, or was built in place, it could, if it were not to be trusted), and nothing
/// done to it reaches the sender. After a fork both processes share such memory. Begins at a page,
/// unless it is smaller than 64 KiB; given back as it is dropped.
pub struct Buffer {
    base: NonNull<u8>,
    length: usize,
    memory: Memory,
    account: Account,
}

/// Below this a mapping and its faults cost more than zeroing.
const SMALL_BYTES: usize = 64 << 10;

/// Where it came from, and goes back to.
enum Memory {
    /// There is none.
    Nothing,
    /// Little, of the allocator: a mapping would cost more than the message.
    Small(#[expect(dead_code, reason = "it is kept for the memory that it owns")] Vec<u8>),
    /// A mapping of its own.
    Mapped,
    /// A part of the receiver's pool.
    Leased(#[expect(dead_code, reason = "it gives the memory back as it is dropped")] Lease),
}

// SAFETY: the memory belongs to this value alone, as a `Vec`'s does.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared reference gives shared access only.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeroed memory to receive into. Where a message stands in pages of its own already as
    /// [`recv_into`](crate::Receiver::recv_into) gets a page-aligned part of this memory,
    /// its pages take their place, without a copy.
    ///
    /// # Errors
    /// [`Error::System`] where there is not so much memory.
    pub fn new(length: usize) -> Result<Self, Error> {
        Self::zeroed(length)
    }

    /// Zeroed memory. Nothing is taken from the system before it is touched, so that a length that
    /// the peer lied about costs addresses, not memory.
    pub(crate) fn zeroed(length: usize) -> Result<Self, Error> {
        if length < SMALL_BYTES {
            return Ok(Self::small(length));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
        let base = base.map_err(Error::system("have memory for the message"))?;
        let base: NonNull<u8> =
            NonNull::new(base.cast()).expect("the kernel maps nothing at zero unasked");
        // SAFETY: advice about a mapping made here; huge pages spare most faults of a large one,
        // and where there are none the advice is ignored.
        let _ = unsafe {
            rustix::mm::madvise(base.as_ptr().cast(), length, rustix::mm::Advice::LinuxHugepage)
        };
        Ok(Self::mapped(base, length))
    }

    /// A private view of a memory file that can no longer be written: copied page by page, and
    /// only where it is written to.
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

    /// Memory of a file that nobody else reaches.
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

    /// Memory of a pool, of which the lease has `length` bytes at least.
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

    /// What the transfer took at this end.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Says that these bytes will be written to. What came sealed, from a peer without trust, is a
    /// view of which each page of 4 KiB is copied as it is first written to, by a page fault; told
    /// ahead, what is in this range is copied now, in huge pages where most of one will be written
    /// to: a quarter of the time for 2 MiB and more. Under 64 KiB, and of any other memory, nothing
    /// is done, and nothing ever changes in what the bytes are. The account counts what was copied.
    /// As the buffer is dropped, its huge pages wait for the next message that is announced: up to
    /// 64 MiB of them, and none as the process has no receiver any more. Undo before then what was
    /// done to the memory itself: locks, protection, a device's registration.
    ///
    /// Copies the whole of a huge page, 2 MiB, for 1 MiB of it or more: up to 1 MiB at either end.
    /// Say it before the memory is registered with a device: other pages come to be there. Whoever
    /// expects to announce more than 0.11 of a message keeps
    /// [`Settings::dirty_fraction`](crate::Settings) below that, or the sender makes no
    /// view of it.
    ///
    /// # Panics
    /// The range is not inside the buffer.
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

    /// Puts its bytes into a target of the same length: its whole pages themselves, where the
    /// target is of this process's own pages, else copies. What it holds afterwards is nothing.
    pub(crate) fn move_into(&mut self, target: &mut [u8]) {
        let mut placed = 0;
        if matches!(self.memory, Memory::Mapped) && registry::are_own(target) {
            let whole = self.length / registry::PAGE_BYTES * registry::PAGE_BYTES;
            // The old addresses stay mapped, so that nobody else can come to be there.
            let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
            let (from, to) = (self.base.as_ptr().cast(), target.as_mut_ptr().cast());
            let replaced = Replaced::mark(NonNull::from_mut(target).cast(), whole);
            let own = self.base.addr().get();
            let is_view = !registry::views(&(own..own + whole)).is_empty();
            // SAFETY: whole pages of this value's own mapping, to which there is no reference as it
            // is borrowed uniquely, take the place of whole pages of another such mapping, which
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
        // through a unique borrow of it; dangling and of length zero where there are none.
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

/// Takes a part of a mapping away that the caller owns and gives up.
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
    fn whole_pages_are_placed_and_the_rest_is_copied() {
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
            // What was placed is there no more, unless this kernel had to copy.
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
