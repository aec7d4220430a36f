//! Which pages of this process haul has mapped for messages: private, anonymous or a view of sealed
//! memory, each mapping owned by one [`Buffer`](super::Buffer). Into these, and into no others,
//! pages can be placed: what a caller has behind a slice of its own is not haul's to unmap.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

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
