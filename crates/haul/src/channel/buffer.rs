//! What `recv` gives: memory of this process alone, to read and to write.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags};

use super::account::Account;
use super::error::Error;
use super::region;

/// A received message. Private: nothing that the sender does changes it, and nothing done to it
/// reaches the sender. Page-aligned, given back as it is dropped.
pub struct Buffer {
    base: NonNull<u8>,
    length: usize,
    account: Account,
}

// SAFETY: the memory belongs to this value alone, as a `Vec`'s does.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared reference gives shared access only.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeroed memory. Nothing is taken from the system before it is touched, so that a length that
    /// the peer lied about costs addresses, not memory.
    pub(super) fn zeroed(length: usize) -> Result<Self, Error> {
        if length == 0 {
            return Ok(Self::empty());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
        let base = base.map_err(Error::system("have memory for the message"))?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at zero unasked");
        let buffer = Self { base, length, account: Account::default() };
        // SAFETY: advice about a mapping made here; huge pages spare most faults of a large one,
        // and where there are none the advice is ignored.
        let _ = unsafe {
            rustix::mm::madvise(base.as_ptr().cast(), length, rustix::mm::Advice::LinuxHugepage)
        };
        Ok(buffer)
    }

    /// A private view of a memory file that can no longer be written: copied page by page, and
    /// only where it is written to.
    pub(super) fn view(file: BorrowedFd<'_>, length: usize) -> Result<Self, Error> {
        if length == 0 {
            return Ok(Self::empty());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let base = region::map_file(file, length, protection, MapFlags::PRIVATE)?;
        Ok(Self { base, length, account: Account::default() })
    }

    fn empty() -> Self {
        Self { base: NonNull::dangling(), length: 0, account: Account::default() }
    }

    /// What the transfer took at this end.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    pub(super) fn with(mut self, account: Account) -> Self {
        self.account = account;
        self
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
        if self.length > 0 {
            region::unmap(self.base, self.length);
        }
    }
}
