//! Any words in the header of a shared heap to which a process attaches: the result is an error, or
//! a heap whose calls return.
#![no_main]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use haul_heap::{Heap, Node, Pages, Request};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

/// Bytes of the heap's data.
const DATA: u64 = 4 << 20;

/// Words of the header.
const WORDS: u8 = 16;

/// A change of one word in the header.
#[derive(Arbitrary, Debug)]
enum Change {
    /// Sets a word to any value.
    To { word: u8, value: u64 },
    /// Sets a word to a value close to its valid value.
    By { word: u8, more: i8 },
    /// Flips a bit.
    Flip { word: u8, bit: u8 },
}

fn change(file: &File, change: &Change) {
    let (Change::To { word, .. } | Change::By { word, .. } | Change::Flip { word, .. }) = *change;
    let offset = u64::from(word % WORDS) * 8;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, offset).expect("a header");
    let old = u64::from_le_bytes(bytes);
    let new = match *change {
        Change::To { value, .. } => value,
        Change::By { more, .. } => old.wrapping_add_signed(more.into()),
        Change::Flip { bit, .. } => old ^ 1 << (bit % 64),
    };
    file.write_all_at(&new.to_le_bytes(), offset).expect("written");
}

fuzz_target!(|changes: Vec<Change>| {
    let builder = || Heap::builder().pages(Pages::Plain);
    let heap = builder().limit(DATA).nodes(1).caches(8).shared_fd().expect("a small heap");
    let fd = heap.fd().expect("it is shared").try_clone_to_owned().expect("a descriptor");
    let file = File::from(fd);
    changes.iter().take(8).for_each(|each| change(&file, each));
    let Ok(other) = builder().attach_fd(file.as_fd()) else { return };
    if let Ok(block) = other.alloc(Request::new(100).aligned(8)) {
        // SAFETY: no other thread uses the block.
        let _ = unsafe { other.free(block) };
    }
    let _ = (other.stats(Node::ANY), other.trim());
});
