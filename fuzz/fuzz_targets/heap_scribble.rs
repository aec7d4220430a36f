//! Any words anywhere in the metadata of a shared heap, between any calls: each call must return,
//! with any result. This target never writes to blocks, because two callers may have the same
//! block.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use haul_heap::{Heap, Node, Pages, Request, Tag};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

/// Bytes of the heap's data. It is not a power of two, so that some addresses after the data do
/// not belong to the heap.
const DATA: u64 = 18 << 20;

/// Bytes of the header. A process checks the header when it attaches, and does not read it
/// afterwards.
const HEADER: u64 = 4096;

#[derive(Arbitrary, Debug)]
enum Step {
    Write { offset: u32, word: u64 },
    WriteSmall { offset: u16, word: u16 },
    Alloc { bytes: u32, align_bits: u8 },
    AllocSmall { bytes: u16 },
    Zalloc { bytes: u32 },
    Free { which: u8 },
    Realloc { which: u8, bytes: u32 },
    Inspect { how: u8 },
}

struct Victim {
    heap: Heap,
    file: File,
    /// Bytes of the file that do not contain data.
    metadata: u64,
    held: Vec<NonNull<u8>>,
}

impl Victim {
    fn new() -> Self {
        let builder = Heap::builder().limit(DATA).nodes(1).caches(8).pages(Pages::Plain);
        let heap = builder.shared_fd().expect("a small heap");
        let fd = heap.fd().expect("it is shared").try_clone_to_owned().expect("a descriptor");
        let file = File::from(fd);
        let metadata = file.metadata().expect("its size").len() - DATA.next_power_of_two();
        Self { heap, file, metadata, held: Vec::new() }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let end = self.metadata - HEADER - 8;
        self.file.write_at(bytes, HEADER + offset % end).expect("written");
    }

    fn keep(&mut self, block: Option<NonNull<u8>>) {
        if let Some(block) = block {
            // SAFETY: if damage gave the block two owners, neither owner writes to it.
            let _ = unsafe { self.heap.usable_size(block) };
            self.held.push(block);
        }
    }

    fn take(&mut self, which: u8) -> Option<NonNull<u8>> {
        let index = usize::from(which).checked_rem(self.held.len())?;
        Some(self.held.swap_remove(index))
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { offset, word } => self.write(u64::from(offset) * 8, &word.to_le_bytes()),
            Step::WriteSmall { offset, word } => self.write(offset.into(), &word.to_le_bytes()),
            Step::Alloc { bytes, align_bits } => {
                let bytes = bytes as usize % (4 << 20);
                self.keep(
                    self.heap.alloc(Request::new(bytes).aligned(1 << (align_bits % 23))).ok(),
                );
            }
            Step::AllocSmall { bytes } => {
                self.keep(self.heap.alloc(Request::new(bytes.into()).aligned(8)).ok());
            }
            Step::Zalloc { bytes } => {
                let bytes = bytes as usize % (1 << 20);
                self.keep(self.heap.zalloc(Request::new(bytes).aligned(8)).ok());
            }
            Step::Free { which } => {
                if let Some(block) = self.take(which) {
                    // SAFETY: no other thread uses the block.
                    let _ = unsafe { self.heap.free(block) };
                }
            }
            Step::Realloc { which, bytes } => {
                if let Some(block) = self.take(which) {
                    // SAFETY: no other thread uses the block.
                    let moved =
                        unsafe { self.heap.realloc(block, bytes as usize % DATA as usize, 8) };
                    self.keep(moved.ok());
                }
            }
            Step::Inspect { how } => self.inspect(how),
        }
    }

    fn inspect(&self, how: u8) {
        let mut seen = 0;
        match how % 8 {
            0 => self.heap.walk(|_| seen += 1),
            1 => self.heap.map(|_| seen += 1),
            2 => _ = self.heap.validate(),
            3 => _ = self.heap.stats(Node::ANY),
            4 => _ = (self.heap.tag("fuzzed"), self.heap.tag_name(Tag::NONE)),
            5 => _ = self.heap.reap(),
            6 => _ = self.heap.maintain(),
            _ => _ = self.heap.trim(),
        }
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let mut victim = Victim::new();
    steps.iter().take(300).for_each(|step| victim.step(step));
});
