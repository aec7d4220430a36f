//! Names of tags, kept in the heap for all that share it.
//!
//! A name is four words of eight bytes; the lowest byte of the first is its length. Zero: no name.
//! 0xFF there: a process, whose slot is the next byte, writes the name. The first word comes last.

use core::fmt;

use crate::heap::Heap;
use crate::layout::TAG_BYTES;
use crate::request::Tag;
use crate::step::step;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys;

/// Bytes of a tag's name; what is beyond is cut off.
pub const TAG_NAME_MAX: usize = TAG_BYTES - 1;

/// In the first byte of a name that is being written.
const WRITING: u64 = 0xFF;

/// How often a name that another writes is looked at before it is passed over: it may have died.
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

    /// The name; empty for a tag that has none.
    pub fn as_str(&self) -> &str {
        let length = usize::from(self.0[0]).min(TAG_NAME_MAX);
        // Another process may have written anything.
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
    /// The tag of this name, made if there is none. Of a name longer than [`TAG_NAME_MAX`] bytes the
    /// start counts. [`Tag::NONE`] for an empty name, and when 255 names are taken. Looks through the
    /// names, so a tag is worth keeping.
    pub fn tag(&self, name: &str) -> Tag {
        let name = TagName::new(name);
        if name.as_str().is_empty() {
            return Tag::NONE;
        }
        for number in 1..=255 {
            if self.has_name(number, &name) {
                return Tag(number);
            }
        }
        Tag::NONE
    }

    /// The name of a tag: empty for one that has none.
    pub fn tag_name(&self, tag: Tag) -> TagName {
        let words = &self.memory.tables.tags()[tag.0 as usize];
        let first = words[0].load(Acquire);
        if first & 0xFF == WRITING {
            return TagName::new("");
        }
        let rest: [u64; TAG_BYTES / 8] = core::array::from_fn(|index| words[index].load(Relaxed));
        TagName::from_words([first, rest[1], rest[2], rest[3]])
    }

    /// Whether the tag `number` has this name, or could be given it now.
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
        let mut patience = PATIENCE;
        while words[0].load(Acquire) & 0xFF == WRITING && patience > 0 {
            sys::give_way();
            patience -= 1;
        }
        self.tag_name(Tag(number)) == *name
    }
}
