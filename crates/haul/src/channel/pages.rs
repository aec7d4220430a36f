//! Which pages of this process haul has mapped for messages: private, anonymous or a view of sealed
//! memory, each mapping owned by one [`Buffer`](super::Buffer). Into these, and into no others,
//! pages can be placed: what a caller has behind a slice of its own is not haul's to unmap.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::views::Views;

/// The page of every machine that haul is built for; where pages are larger nothing is placed,
/// because the kernel refuses it.
pub(super) const PAGE_BYTES: usize = 4096;

/// A mapping: its length, and the addresses in it that are views of sealed memory, where a page that is
/// written to is copied first.
#[derive(Debug)]
struct Mapping {
    length: usize,
    views: Views,
}

/// Each mapping by its start.
static OWN: Mutex<BTreeMap<usize, Mapping>> = Mutex::new(BTreeMap::new());

fn own() -> MutexGuard<'static, BTreeMap<usize, Mapping>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn register(base: NonNull<u8>, length: usize) {
    own().insert(base.as_ptr().addr(), Mapping { length, views: Views::default() });
}

pub(super) fn forget(base: NonNull<u8>) {
    own().remove(&base.as_ptr().addr());
}

/// Whether a target begins at a page and stands wholly inside one such mapping.
pub(super) fn are_own(target: &[u8]) -> bool {
    let start = target.as_ptr().addr();
    if !start.is_multiple_of(PAGE_BYTES) || target.len() < PAGE_BYTES {
        return false;
    }
    with_mapping(start, |base, mapping| {
        let offset = start - base;
        offset < mapping.length && target.len() <= mapping.length - offset
    })
    .unwrap_or(false)
}

/// These addresses of a mapping are a view of sealed memory from now on.
pub(super) fn note_view(addresses: Range<usize>) {
    with_mapping(addresses.start, |_, mapping| mapping.views.add(addresses.clone()));
}

/// These addresses of a mapping are pages of this process alone from now on.
pub(super) fn note_private(addresses: Range<usize>) {
    with_mapping(addresses.start, |_, mapping| mapping.views.cut(&addresses));
}

/// Which of these addresses of a mapping are views of sealed memory, and how far each view reaches.
pub(super) fn views(addresses: &Range<usize>) -> Vec<Range<usize>> {
    with_mapping(addresses.start, |_, mapping| mapping.views.around(addresses)).unwrap_or_default()
}

/// What is done with the mapping that begins at this address or before.
fn with_mapping<T>(start: usize, act: impl FnOnce(usize, &mut Mapping) -> T) -> Option<T> {
    let mut own = own();
    own.range_mut(..=start).next_back().map(|(base, mapping)| act(*base, mapping))
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
