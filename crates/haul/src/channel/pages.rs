//! Which pages of this process haul has mapped for messages: private, anonymous or a view of sealed
//! memory, each mapping owned by one [`Buffer`](super::Buffer). Into these, and into no others,
//! pages can be placed: what a caller has behind a slice of its own is not haul's to unmap.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// The page of every machine that haul is built for; where pages are larger nothing is placed,
/// because the kernel refuses it.
pub(super) const PAGE_BYTES: usize = 4096;

/// Start and length of each mapping.
static OWN: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

pub(super) fn register(base: NonNull<u8>, length: usize) {
    OWN.lock().unwrap_or_else(PoisonError::into_inner).insert(base.as_ptr().addr(), length);
}

pub(super) fn forget(base: NonNull<u8>) {
    OWN.lock().unwrap_or_else(PoisonError::into_inner).remove(&base.as_ptr().addr());
}

/// Whether a target begins at a page and stands wholly inside one such mapping.
pub(super) fn are_own(target: &[u8]) -> bool {
    let start = target.as_ptr().addr();
    if !start.is_multiple_of(PAGE_BYTES) || target.len() < PAGE_BYTES {
        return false;
    }
    let own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let around = own.range(..=start).next_back();
    around.is_some_and(|(&base, &length)| {
        let offset = start - base;
        offset < length && target.len() <= length - offset
    })
}

/// Sees to it that pages of haul's own are mapped after a call that was to put others in their place
/// failed. Kernels have unmapped the target by then in some cases (mremap(2): before 6.17; mmap(2):
/// before 6.12), and what is written there next would be lost or somebody else's. What the pages hold
/// is nothing. Where they cannot be had, nothing sound is left to do.
pub(super) fn keep_mapped(start: NonNull<u8>, length: usize) {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let place = start.as_ptr().cast();
    // SAFETY: nothing that is mapped is replaced, so this touches only what was haul's and has gone.
    match unsafe { rustix::mm::mmap_anonymous(place, length, protection, flags) } {
        Ok(there) if there == place => {}
        Err(Errno::EXIST) => {}
        _ => std::process::abort(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::region;

    #[test]
    fn what_was_unmapped_is_there_again_and_what_was_not_stays() {
        let length = 3 * PAGE_BYTES;
        let mut buffer = super::super::Buffer::new(64 << 10).unwrap();
        buffer.fill(7);
        let start = NonNull::new(buffer.as_mut_ptr()).unwrap();
        keep_mapped(start, length);
        assert!(buffer.iter().all(|byte| *byte == 7));
        region::unmap(start, length);
        keep_mapped(start, length);
        assert!(buffer[..length].iter().all(|byte| *byte == 0));
        assert!(buffer[length..].iter().all(|byte| *byte == 7));
    }
}
