//! Sixteen threads use one heap, which is so small that it is sometimes full. The threads check
//! blocks and send them to other threads, which resize and free them. At the end no block is
//! left.

mod support;

use std::ptr::NonNull;
use std::sync::Mutex;
use std::thread;

use haul_heap::{AllocError, Heap, Node, Pages, Request};

use support::random::Random;

/// A block that one thread sends to another.
struct Parcel {
    block: NonNull<u8>,
    size: usize,
    mark: u8,
}

// SAFETY: the owner of the parcel owns the block.
unsafe impl Send for Parcel {}

impl Parcel {
    fn new(heap: &Heap, random: &mut Random) -> Result<Self, AllocError> {
        let (size, mark) = (random.size(), random.index(256) as u8);
        let align = 1 << random.index(13);
        let block = heap.alloc(Request::new(size).aligned(align))?;
        assert!(block.as_ptr().addr().is_multiple_of(align));
        // SAFETY: the block is new and has this many bytes.
        unsafe { block.write_bytes(mark, size) };
        Ok(Self { block, size, mark })
    }

    fn check(&self) {
        // SAFETY: the parcel owns the block, and this many bytes were written.
        let bytes = unsafe { std::slice::from_raw_parts(self.block.as_ptr(), self.size) };
        assert!(bytes.iter().all(|byte| *byte == self.mark));
    }

    fn resize(&mut self, heap: &Heap, size: usize) {
        // SAFETY: the parcel owns the block and replaces it with the returned block.
        let Ok(block) = (unsafe { heap.realloc(self.block, size, 64) }) else { return };
        let kept = Self { block, size: size.min(self.size), mark: self.mark };
        kept.check();
        // SAFETY: the block has this many bytes now.
        unsafe { block.write_bytes(self.mark, size) };
        *self = Self { size, ..kept };
    }

    fn free(self, heap: &Heap) {
        self.check();
        // SAFETY: the parcel owns the block, which is not used any more.
        unsafe { heap.free(self.block) }.unwrap();
    }
}

fn run(heap: &Heap, seed: u64, mailboxes: &[Mutex<Vec<Parcel>>]) -> usize {
    let mut random = Random::new(seed);
    let mut held: Vec<Parcel> = Vec::new();
    let mut refused = 0;
    for _ in 0..6000 {
        match random.index(8) {
            0..3 => match Parcel::new(heap, &mut random) {
                Ok(parcel) => held.push(parcel),
                Err(AllocError::Exhausted) => refused += 1,
                Err(error) => panic!("{error}"),
            },
            3 if !held.is_empty() => {
                let at = random.index(held.len());
                let size = random.size();
                held[at].resize(heap, size);
            }
            4 if !held.is_empty() => {
                let parcel = held.swap_remove(random.index(held.len()));
                mailboxes[random.index(mailboxes.len())].lock().unwrap().push(parcel);
            }
            5 => {
                let parcels = std::mem::take(&mut *mailboxes[seed as usize].lock().unwrap());
                parcels.into_iter().for_each(|parcel| parcel.free(heap));
            }
            _ if !held.is_empty() => held.swap_remove(random.index(held.len())).free(heap),
            _ => {}
        }
        // Frees many blocks at once, so that the heap does not stay empty or full for long.
        if held.len() > 120 {
            held.drain(..100).for_each(|parcel| parcel.free(heap));
        }
    }
    held.into_iter().for_each(|parcel| parcel.free(heap));
    refused
}

fn soak(heap: &Heap) {
    let mailboxes: Vec<Mutex<Vec<Parcel>>> = (0..16).map(|_| Mutex::default()).collect();
    let refused: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|seed| {
                let mailboxes = &mailboxes;
                scope.spawn(move || run(heap, seed, mailboxes))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    eprintln!("{refused} requests refused");
    mailboxes
        .into_iter()
        .flat_map(|mailbox| mailbox.into_inner().unwrap())
        .for_each(|parcel| parcel.free(heap));
    assert_eq!(heap.validate(), Ok(()));
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
}

#[test]
fn sixteen_threads_share_a_large_heap() {
    let builder = Heap::builder().limit(1 << 30).nodes(1).pages(Pages::Plain);
    soak(&builder.build().unwrap());
}

#[test]
fn sixteen_threads_share_a_small_heap() {
    let builder = Heap::builder().limit(48 << 20).nodes(1).pages(Pages::Plain);
    soak(&builder.build().unwrap());
}

#[test]
fn sixteen_threads_share_three_nodes() {
    let builder = Heap::builder().limit(192 << 20).nodes(3).pages(Pages::Plain);
    soak(&builder.build().unwrap());
}

#[test]
fn sixteen_threads_share_a_debug_heap() {
    let builder = Heap::builder().limit(512 << 20).nodes(1).pages(Pages::Plain);
    soak(&builder.debug(true).build().unwrap());
}
