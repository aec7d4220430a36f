//! A process with more threads than there are numbers and cache records: every thread can
//! allocate, the memory of the threads' caches is limited, and their blocks become free again.

mod support;

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use haul_heap::{Heap, Node, Pages, Request};

use support::child::{in_child, statm_bytes};

/// A number of threads above 4,096, the most that have a separate cache.
const MANY: usize = 5500;

/// The stack of a thread that only allocates, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// A block that a thread has filled with a mark.
struct Marked {
    block: NonNull<u8>,
    mark: u8,
    size: usize,
}

// SAFETY: the owner of the value owns the block.
unsafe impl Send for Marked {}

impl Marked {
    fn new(heap: &Heap, size: usize, mark: u8) -> Option<Self> {
        let block = heap.alloc(Request::new(size)).ok()?;
        // SAFETY: just allocated with this size.
        unsafe { block.write_bytes(mark, size) };
        Some(Self { block, mark, size })
    }

    /// Frees the block. Returns whether the block still contained its mark and the free
    /// succeeded.
    fn free(self, heap: &Heap) -> bool {
        // SAFETY: the value owns the block, which was written in this length.
        let bytes = unsafe { core::slice::from_raw_parts(self.block.as_ptr(), self.size) };
        let is_whole = bytes.iter().all(|byte| *byte == self.mark);
        // SAFETY: the value owns the block, and does not use it any more.
        is_whole && unsafe { heap.free(self.block) }.is_ok()
    }
}

/// Runs `work` in `count` threads that live at the same time. Returns the result of each thread.
fn in_threads<T: Send>(count: usize, work: impl Fn(usize, &Barrier) -> T + Sync) -> Vec<T> {
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

/// Every thread allocates at the same time, and frees its blocks after all have allocated.
fn allocate_together(heap: &Heap, count: usize, size: usize, count_each: usize) -> usize {
    let resident = Mutex::new([0; 2]);
    let note = |index: usize| resident.lock().unwrap()[index] = statm_bytes(1) as usize;
    let served = in_threads(count, |index, barrier| {
        if barrier.wait().is_leader() {
            note(0);
        }
        barrier.wait();
        let new = |block: usize| Marked::new(heap, size, (index * 31 + block) as u8);
        let blocks: Vec<_> = (0..count_each).map_while(new).collect();
        if barrier.wait().is_leader() {
            note(1);
        }
        barrier.wait();
        let has_all = blocks.len() == count_each;
        has_all && blocks.into_iter().all(|marked| marked.free(heap))
    });
    let refused = served.iter().filter(|is_served| !**is_served).count();
    assert_eq!(refused, 0, "of {count} threads");
    assert_eq!(heap.validate(), Ok(()));
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
    let [before, after] = *resident.lock().unwrap();
    after.saturating_sub(before) / count
}

/// A test that measures the memory of its threads holds this lock, because the threads of another
/// test would also use numbers.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn builder() -> haul_heap::Builder {
    Heap::builder().limit(8 << 30).nodes(1)
}

#[test]
fn thousands_of_threads_are_served_and_hold_little_memory() {
    let _alone = alone();
    let heap = builder().build().unwrap();
    let each = allocate_together(&heap, MANY, 64, 8);
    eprintln!("{each} bytes a thread, for 512 requested");
    // One slice per thread would be 64 KiB, and one page per thread 2 MiB.
    assert!(each < 24 << 10, "{each} bytes a thread");
}

#[test]
fn threads_with_large_blocks_do_not_open_a_page_each() {
    let _alone = alone();
    let heap = builder().build().unwrap();
    let (count, size) = (400, 150_000);
    let each = allocate_together(&heap, count, size, 1);
    eprintln!("{each} bytes a thread, for {size} requested");
    // Each of the first threads (64 on a machine with few CPUs) may use a separate page.
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
            allocate_together(&heap, 100, size, 3);
        }
    }
}

#[test]
fn debug_mode_and_nodes_serve_threads_without_a_cache() {
    let _alone = alone();
    let heap = builder().caches(4).debug(true).build().unwrap();
    allocate_together(&heap, 50, 700, 20);
    let heap = builder().caches(4).nodes(3).build().unwrap();
    allocate_together(&heap, 50, 700, 20);
}

/// Blocks of threads without a separate cache can be resized, freed by other threads, and
/// allocated again.
#[test]
fn threads_without_a_cache_exchange_blocks() {
    let _alone = alone();
    let heap = builder().caches(2).pages(Pages::Plain).build().unwrap();
    let given: Mutex<Vec<Marked>> = Mutex::default();
    let is_right = in_threads(64, |index, barrier| {
        let mut is_right = true;
        for round in 0..200 {
            let mark = (index + round) as u8;
            let Some(mut own) = Marked::new(&heap, 64 + 97 * (round % 50), mark) else {
                return false;
            };
            // SAFETY: this thread owns the block and replaces it with the returned block.
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

/// Each generation of threads gets the numbers of the previous generation.
#[test]
fn caches_of_ended_threads_are_reused() {
    let _alone = alone();
    let heap = builder().pages(Pages::Plain).build().unwrap();
    let owners: Mutex<BTreeSet<u16>> = Mutex::default();
    for _ in 0..10 {
        let is_right = in_threads(150, |index, barrier| {
            let marked = Marked::new(&heap, 200, index as u8);
            barrier.wait();
            let Some(marked) = marked else { return false };
            let block = marked.block;
            let is_freed = marked.free(&heap);
            // SAFETY: the block is free, so this call is an error and changes nothing.
            let misuse = unsafe { heap.free(block) }.unwrap_err();
            if let haul_heap::Owner::Cache(cache) = misuse.owner {
                owners.lock().unwrap().insert(cache);
            }
            is_freed
        });
        assert!(is_right.into_iter().all(|is_right| is_right));
    }
    // 1,500 threads have started and ended.
    let owners = owners.into_inner().unwrap();
    assert!((150..=400).contains(&owners.len()), "{} caches", owners.len());
}

/// Both processes have threads without a separate cache, because all caches are in use. One of
/// them dies.
#[test]
fn processes_without_free_cache_records_are_served_and_reaped() {
    let _alone = alone();
    let heap = builder().caches(8).pages(Pages::Plain).shared_fd().unwrap();
    allocate_together(&heap, 30, 300, 5);
    let status = in_child(|| {
        let is_served = in_threads(30, |_, barrier| {
            let marked = [(); 20].map(|()| Marked::new(&heap, 300, 1));
            barrier.wait();
            marked.iter().all(Option::is_some)
        });
        // The blocks of these threads stay live, because the child ends without dropping any
        // value.
        if is_served.into_iter().all(|is_served| is_served) { 0 } else { 1 }
    });
    assert_eq!(status, 0);
    let reaped = heap.reap();
    assert_eq!((reaped.processes, reaped.blocks), (1, 600));
    allocate_together(&heap, 30, 300, 5);
}

/// A child of fork has copies of the threads' blocks, and its thread can allocate.
#[test]
fn child_of_process_with_many_threads_is_served() {
    let _alone = alone();
    let heap = builder().caches(4).pages(Pages::Plain).build().unwrap();
    let status = in_threads(40, |index, barrier| {
        let marked = Marked::new(&heap, 300, 1);
        barrier.wait();
        let status = (index == 20).then(|| {
            in_child(|| {
                let blocks = [(); 50].map(|()| Marked::new(&heap, 300, 2));
                let are_allocated = blocks.iter().all(Option::is_some);
                let freed = blocks.into_iter().flatten().all(|marked| marked.free(&heap));
                if are_allocated && freed && heap.validate().is_ok() { 0 } else { 1 }
            })
        });
        barrier.wait();
        let is_freed = marked.is_some_and(|marked| marked.free(&heap));
        if is_freed { status.unwrap_or(0) } else { -1 }
    });
    assert!(status.iter().all(|status| *status == 0), "{status:?}");
}
