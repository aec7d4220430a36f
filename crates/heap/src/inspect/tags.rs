//! Names of tags, stored in the heap for all processes that share it.
//!
//! A name is four words of eight bytes. The lowest byte of the first word is the name's length. 0
//! means no name. 0xFF means that a process is writing the name; the next byte is this process's
//! slot. A process writes the first word last.

use core::fmt;

use crate::heap::Heap;
use crate::layout::TAG_BYTES;
use crate::protocol::step::step;
use crate::request::Tag;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys;

/// The most bytes of a tag's name; longer names are truncated.
pub const TAG_NAME_MAX: usize = TAG_BYTES - 1;

/// The first byte of a name that is being written.
const WRITING: u64 = 0xFF;

/// How often a name is read again while another process is writing it, before dead processes are
/// reaped.
const PATIENCE: usize = 1000;

/// A tag's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TagName([u8; TAG_BYTES]);

impl TagName {
    fn new(name: &str) -> Self {
        let mut end = name.len().min(TAG_NAME_MAX);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; TAG_BYTES];
        bytes[0] = end as u8;
        bytes[1..=end].copy_from_slice(&name.as_bytes()[..end]);
        Self(bytes)
    }

    /// The name; empty if the tag has none.
    pub fn as_str(&self) -> &str {
        let length = usize::from(self.0[0]).min(TAG_NAME_MAX);
        // Another process may have written bytes that are not a name.
        core::str::from_utf8(&self.0[1..=length]).unwrap_or("?")
    }

    fn words(&self) -> [u64; TAG_BYTES / 8] {
        let (words, _) = self.0.as_chunks();
        core::array::from_fn(|index| u64::from_le_bytes(words[index]))
    }

    fn from_words(words: [u64; TAG_BYTES / 8]) -> Self {
        let mut bytes = [0; TAG_BYTES];
        for (target, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *target = word.to_le_bytes();
        }
        Self(bytes)
    }
}

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Heap {
    /// The tag with this name. Creates the tag if it does not exist. Only the first
    /// [`TAG_NAME_MAX`] bytes of a name count. Returns [`Tag::NONE`] for an empty name, if 255
    /// names are in use, and in a child of fork that gets no slot in a shared heap. A call
    /// searches the names, so callers should store the tag.
    ///
    /// ```
    /// use haul_heap::{Heap, Node, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let rings = heap.tag("rings");
    /// heap.alloc(Request::new(4096).tagged(rings))?;
    /// assert_eq!(heap.stats(Node::ANY).tag(rings).blocks, 1);
    /// assert_eq!(heap.tag_name(rings).as_str(), "rings");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tag(&self, name: &str) -> Tag {
        let name = TagName::new(name);
        // The claim on a name contains this process's slot, so the process must have one.
        if name.as_str().is_empty() || self.ensure_joined().is_err() {
            return Tag::NONE;
        }
        // A free tag can have a lower number than the existing tag with this name, so the
        // existing tag is searched for first.
        let is_named = |number: &u8| self.tag_name(Tag(*number)) == name;
        let number = (1..=u8::MAX).find(is_named).or_else(|| self.give_name(&name));
        number.map_or(Tag::NONE, Tag)
    }

    /// The name of a tag; empty if the tag has none.
    pub fn tag_name(&self, tag: Tag) -> TagName {
        let words = &self.memory.tables.tags()[tag.0 as usize];
        let first = words[0].load(Acquire);
        if first & 0xFF == WRITING {
            return TagName::new("");
        }
        let rest: [u64; TAG_BYTES / 8] = core::array::from_fn(|index| words[index].load(Relaxed));
        TagName::from_words([first, rest[1], rest[2], rest[3]])
    }

    /// The first tag that has this name, or that this call can give the name.
    fn give_name(&self, name: &TagName) -> Option<u8> {
        (1..=u8::MAX).find(|number| self.has_name(*number, name))
    }

    /// Frees the tags that dead processes were naming when they died. `is_dead` says for each
    /// process slot whether its process is dead.
    pub(crate) fn forget_names(&self, is_dead: impl Fn(u8) -> bool) {
        for words in self.memory.tables.tags() {
            let word = words[0].load(Relaxed);
            if word & 0xFF == WRITING && is_dead((word >> 8) as u8) {
                let _ = words[0].compare_exchange(word, 0, AcqRel, Relaxed);
                step!("reap.tags.between");
            }
        }
    }

    /// Gives the tag `number` this name if it has none. Returns whether the tag now has this
    /// name.
    fn has_name(&self, number: u8, name: &TagName) -> bool {
        let words = &self.memory.tables.tags()[number as usize];
        let claim = WRITING | u64::from(self.process()) << 8;
        if words[0].compare_exchange(0, claim, AcqRel, Acquire).is_ok() {
            step!("tag.name.after_claim");
            let new = name.words();
            (1..new.len()).for_each(|index| words[index].store(new[index], Relaxed));
            step!("tag.name.before_first");
            words[0].store(new[0], Release);
            return true;
        }
        let is_written = || words[0].load(Acquire) & 0xFF == WRITING;
        let mut patience = PATIENCE;
        while is_written() && patience > 0 {
            sys::yield_now();
            patience -= 1;
        }
        // If the writing process died, reaping frees the tag.
        if is_written() && self.reap().processes > 0 && !is_written() {
            return self.has_name(number, name);
        }
        self.tag_name(Tag(number)) == *name
    }
}
