//! More threads than there are numbers and cache records: every one of them is served, what they
//! hold is bounded, and what they had comes back.

mod support;

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use haul_heap::{Heap, Node, Pages};

use support::child::{in_child, statm_bytes};

/// Threads beyond the 4,096 that have a cache of their own.
const MANY: usize = 5500;

/// For a thread that does nothing but allocate, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// A block that its thread marked.
struct Marked {
    block: NonNull<u8>,
    mark: u8,
    size: usize,
}

// SAFETY: the block belongs to whoever has the value.
unsafe impl Send for Marked {}

impl Marked {
    fn new(heap: &Heap, size: usize, mark: u8) -> Option<Self> {
        let block = heap.alloc(size, 64, Node::ANY).ok()?;
        // SAFETY: just allocated with this size.
        unsafe { block.write_bytes(mark, size) };
        Some(Self { block, mark, size })
    }

    /// Whether the block was nobody else's, and was freed.
    fn free(self, heap: &Heap) -> bool {
        // SAFETY: ours, and written in this length.
        let bytes = unsafe { core::slice::from_raw_parts(self.block.as_ptr(), self.size) };
        let is_whole = bytes.iter().all(|byte| *byte == self.mark);
        // SAFETY: ours, and not used any more.
        is_whole && unsafe { heap.free(self.block) }.is_ok()
    }
}

/// Runs so many threads that live at once; what `work` says of each.
fn at_once<T: Send>(count: usize, work: impl Fn(usize, &Barrier) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(count);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|index| {
                let (barrier, work) = (&barrier, &work);
                let builder = thread::Builder::new().stack_size(STACK_BYTES);
                builder.spawn_scoped(scope, move || work(index, barrier)).unwrap()
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Every thread allocates at one instant, and frees what it has when all have it: how many bytes
/// became resident meanwhile for each thread.
fn herd(heap: &Heap, count: usize, size: usize, blocks: usize) -> usize {
    let resident = Mutex::new([0; 2]);
    let note = |index: usize| resident.lock().unwrap()[index] = statm_bytes(1) as usize;
    let served = at_once(count, |index, barrier| {
        if barrier.wait().is_leader() {
            note(0);
        }
        barrier.wait();
        let new = |block: usize| Marked::new(heap, size, (index * 31 + block) as u8);
        let had: Vec<_> = (0..blocks).map_while(new).collect();
        if barrier.wait().is_leader() {
            note(1);
        }
        barrier.wait();
        let had_all = had.len() == blocks;
        had_all && had.into_iter().all(|marked| marked.free(heap))
    });
    let refused = served.iter().filter(|is_served| !**is_served).count();
    assert_eq!(refused, 0, "of {count} threads");
    assert_eq!(heap.validate(), Ok(()));
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
    let [before, after] = *resident.lock().unwrap();
    after.saturating_sub(before) / count
}

/// Held by a test that counts what its threads have: those of another would have numbers too.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn builder() -> haul_heap::Builder {
    Heap::builder().limit(8 << 30).nodes(1)
}

#[test]
fn thousands_of_threads_at_one_instant_are_served_and_hold_little() {
    let _alone = alone();
    let heap = builder().build().unwrap();
    let each = herd(&heap, MANY, 64, 8);
    eprintln!("{each} bytes a thread, for 512 asked for");
    // A slice for each thread would be 64 KiB, and a page for each 2 MiB.
    assert!(each < 24 << 10, "{each} bytes a thread");
}

#[test]
fn a_herd_that_asks_for_large_blocks_does_not_get_a_page_each() {
    let _alone = alone();
    let heap = builder().build().unwrap();
    let (count, size) = (400, 150_000);
    let each = herd(&heap, count, size, 1);
    eprintln!("{each} bytes a thread, for {size} asked for");
    // The first threads, of which few CPUs have 64, may have pages of their own.
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    if 4 * cpus <= 64 {
        assert!(each < 6 * size, "{each} bytes a thread");
    }
}

#[test]
fn few_cache_records_serve_many_threads() {
    let _alone = alone();
    for caches in [1, 16] {
        let heap = builder().caches(caches).pages(Pages::Plain).build().unwrap();
        for size in [64, 5000, 100_000, 1 << 20] {
            herd(&heap, 100, size, 3);
        }
    }
}

#[test]
fn debug_mode_and_nodes_serve_threads_without_a_cache() {
    let _alone = alone();
    let heap = builder().caches(4).debug(true).build().unwrap();
    herd(&heap, 50, 700, 20);
    let heap = builder().caches(4).nodes(3).build().unwrap();
    herd(&heap, 50, 700, 20);
}

/// Blocks of threads without a cache are resized, freed by other threads, and had again.
#[test]
fn blocks_of_threads_without_a_cache_change_hands() {
    let _alone = alone();
    let heap = builder().caches(2).pages(Pages::Plain).build().unwrap();
    let given: Mutex<Vec<Marked>> = Mutex::default();
    let is_right = at_once(64, |index, barrier| {
        let mut is_right = true;
        for round in 0..200 {
            let mark = (index + round) as u8;
            let Some(mut own) = Marked::new(&heap, 64 + 97 * (round % 50), mark) else {
                return false;
            };
            // SAFETY: the block is ours, and replaced by what is returned.
            let Ok(block) = (unsafe { heap.realloc(own.block, own.size * 2, 64) }) else {
                return false;
            };
            own.block = block;
            let mut given = given.lock().unwrap();
            given.push(own);
            let other = (given.len() > 200).then(|| given.swap_remove(round));
            drop(given);
            is_right &= other.is_none_or(|other| other.free(&heap));
        }
        barrier.wait();
        is_right
    });
    assert!(is_right.into_iter().all(|is_right| is_right));
    assert!(given.into_inner().unwrap().into_iter().all(|marked| marked.free(&heap)));
    assert_eq!(heap.validate(), Ok(()));
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
}

/// Generations of threads take the places of those before.
#[test]
fn places_of_threads_that_ended_are_had_again() {
    let _alone = alone();
    let heap = builder().pages(Pages::Plain).build().unwrap();
    let owners: Mutex<BTreeSet<u16>> = Mutex::default();
    for _ in 0..10 {
        let is_right = at_once(150, |index, barrier| {
            let marked = Marked::new(&heap, 200, index as u8);
            barrier.wait();
            let Some(marked) = marked else { return false };
            let block = marked.block;
            let is_freed = marked.free(&heap);
            // SAFETY: a block that is free: this is an error, and nothing changes.
            let misuse = unsafe { heap.free(block) }.unwrap_err();
            if let haul_heap::Owner::Cache(cache) = misuse.owner {
                owners.lock().unwrap().insert(cache);
            }
            is_freed
        });
        assert!(is_right.into_iter().all(|is_right| is_right));
    }
    // 1,500 threads came and went.
    let owners = owners.into_inner().unwrap();
    assert!((150..=400).contains(&owners.len()), "{} caches", owners.len());
}

/// Each has threads without a cache of their own, for all are taken; one dies at it.
#[test]
fn processes_whose_threads_took_every_record_are_served_and_reaped() {
    let _alone = alone();
    let heap = builder().caches(8).pages(Pages::Plain).shared_fd().unwrap();
    herd(&heap, 30, 300, 5);
    let status = in_child(|| {
        let is_served = at_once(30, |_, barrier| {
            let marked = [(); 20].map(|()| Marked::new(&heap, 300, 1));
            barrier.wait();
            marked.iter().all(Option::is_some)
        });
        // What these threads had stays behind: the child is ended, and nothing is dropped.
        if is_served.into_iter().all(|is_served| is_served) { 0 } else { 1 }
    });
    assert_eq!(status, 0);
    let reaped = heap.reap();
    assert_eq!((reaped.processes, reaped.blocks), (1, 600));
    herd(&heap, 30, 300, 5);
}

/// A child of fork has the threads' blocks, and its own threads are served.
#[test]
fn a_child_of_a_crowd_is_served() {
    let _alone = alone();
    let heap = builder().caches(4).pages(Pages::Plain).build().unwrap();
    let status = at_once(40, |index, barrier| {
        let marked = Marked::new(&heap, 300, 1);
        barrier.wait();
        let status = (index == 20).then(|| {
            in_child(|| {
                let blocks = [(); 50].map(|()| Marked::new(&heap, 300, 2));
                let is_had = blocks.iter().all(Option::is_some);
                let freed = blocks.into_iter().flatten().all(|marked| marked.free(&heap));
                if is_had && freed && heap.validate().is_ok() { 0 } else { 1 }
            })
        });
        barrier.wait();
        let is_freed = marked.is_some_and(|marked| marked.free(&heap));
        if is_freed { status.unwrap_or(0) } else { -1 }
    });
    assert!(status.iter().all(|status| *status == 0), "{status:?}");
}
