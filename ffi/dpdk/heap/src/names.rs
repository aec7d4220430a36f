//! Maps the `type` of a call to a heap's tag.
//!
//! Programs pass string literals, so this module caches the tag of a pointer. But the pointer may
//! be a buffer that has changed, so the module compares the text each time.

use core::ffi::{CStr, c_char};
use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_heap::{Heap, TAG_NAME_MAX, Tag};

/// The number of cached pointers, a power of two. A program has some tens of types.
const ENTRIES: usize = 256;

/// The names that this process has used with one heap.
pub(crate) struct Names {
    /// The pointer in the upper 56 bits, the tag's number in the lower 8; 0 if the entry is
    /// empty.
    entries: [AtomicU64; ENTRIES],
    /// The tags and their names, by the tag's number.
    of_tag: [OnceLock<(Tag, CString)>; 256],
}

impl Names {
    pub(crate) fn new() -> Self {
        Self {
            entries: [const { AtomicU64::new(0) }; ENTRIES],
            of_tag: [const { OnceLock::new() }; 256],
        }
    }

    /// The tag of a call's type; the empty tag for NULL.
    ///
    /// # Safety
    ///
    /// `name` is NULL or a C string, as DPDK demands of its callers.
    #[inline]
    pub(crate) unsafe fn tag(&self, heap: &Heap, name: *const c_char) -> Tag {
        // SAFETY: as the caller promises.
        if let Some(tag) = unsafe { self.known(name) } {
            return tag;
        }
        // SAFETY: `name` is a C string.
        let tag = self.learn(heap, unsafe { CStr::from_ptr(name) });
        let address = name.addr() as u64;
        let entry = &self.entries[index(address)];
        entry.store(address << 8 | u64::from(tag.number()), Ordering::Relaxed);
        tag
    }

    /// The tag of a call's type, if [`Self::tag`] has returned it for this pointer before; the
    /// empty tag for NULL.
    ///
    /// # Safety
    ///
    /// The obligations of [`Self::tag`].
    #[inline]
    pub(crate) unsafe fn known(&self, name: *const c_char) -> Option<Tag> {
        if name.is_null() {
            return Some(Tag::NONE);
        }
        let address = name.addr() as u64;
        let found = self.entries[index(address)].load(Ordering::Relaxed);
        if found >> 8 == address
            && let Some((tag, text)) = self.of_tag[(found & 0xFF) as usize].get()
            // SAFETY: `name` is a C string.
            && unsafe { is_name(name, text) }
        {
            return Some(*tag);
        }
        None
    }

    #[cold]
    fn learn(&self, heap: &Heap, name: &CStr) -> Tag {
        let text = cut(name.to_bytes());
        let tag = heap.tag(&String::from_utf8_lossy(text));
        if tag != Tag::NONE {
            // A C string has no NUL before its end.
            let text = CString::new(text).unwrap_or_default();
            self.of_tag[usize::from(tag.number())].get_or_init(|| (tag, text));
        }
        tag
    }
}

/// The index of an address's entry. Literals are close together, so their low bits differ most.
fn index(address: u64) -> usize {
    (address ^ address >> 8) as usize % ENTRIES
}

/// The part of a name that a tag stores.
fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TAG_NAME_MAX)]
}

/// Whether a C string equals `expected`, as far as a tag stores it.
///
/// # Safety
///
/// `name` is a C string.
unsafe fn is_name(name: *const c_char, expected: &CStr) -> bool {
    // SAFETY: both are C strings, which strncmp reads at most up to their ends.
    unsafe { libc::strncmp(name, expected.as_ptr(), TAG_NAME_MAX) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_compared_as_far_as_tag_stores_it() {
        let is_name = |name: &CStr, expected: &CStr| {
            // SAFETY: a `CStr` is a C string.
            unsafe { is_name(name.as_ptr(), expected) }
        };
        assert!(is_name(c"ring", c"ring"));
        assert!(!is_name(c"ring", c"rin"));
        assert!(!is_name(c"rin", c"ring"));
        assert!(is_name(c"0123456789012345678901234567890+", c"0123456789012345678901234567890"));
        assert_eq!(cut(b"0123456789012345678901234567890+").len(), TAG_NAME_MAX);
    }

    #[test]
    fn changed_buffer_has_other_tag() {
        let heap = Heap::builder().limit(64 << 20).build().expect("a small heap is built");
        let names = Names::new();
        let mut buffer = *b"first\0";
        let mut tag = |text: &[u8; 6]| {
            buffer = *text;
            // SAFETY: the buffer ends with NUL.
            unsafe { names.tag(&heap, buffer.as_ptr().cast()) }
        };
        let first = tag(b"first\0");
        assert_eq!(tag(b"first\0"), first);
        assert_ne!(tag(b"other\0"), first);
        assert_eq!(tag(b"first\0"), first);
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { names.tag(&heap, core::ptr::null()) }, Tag::NONE);
    }
}
