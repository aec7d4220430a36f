//! Fork: a child of a private heap has a copy of it; a child of a shared heap joins as a separate
//! process.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use haul_heap::{Heap, Node, Request};

use crate::support::child::{exit, in_child, start, wait};
use crate::{assert_whole, builder};

/// Waits for a byte in a pipe. Returns false at the pipe's end.
pub(crate) fn read_byte(end: i32) -> bool {
    let mut byte = 0_u8;
    // SAFETY: the call writes one local byte.
    unsafe { libc::read(end, (&raw mut byte).cast(), 1) == 1 }
}

pub(crate) fn write_byte(end: i32) {
    // SAFETY: the call reads one byte of a static string.
    unsafe { libc::write(end, c"x".as_ptr().cast(), 1) };
}

/// Allocates and frees all memory of the heap, twice.
fn use_all(heap: &Heap) -> bool {
    (0..2).all(|_| {
        let mut blocks = [None; 4096];
        for slot in &mut blocks {
            *slot = heap.alloc(Request::new(16 << 10)).ok();
        }
        let count = blocks.iter().flatten().count();
        // SAFETY: allocated above, and not used.
        count > 1000 && blocks.into_iter().flatten().all(|b| unsafe { heap.free(b) }.is_ok())
    })
}

#[test]
fn child_of_private_heap_has_a_copy() {
    let heap = builder().build().unwrap();
    let block = heap.alloc(Request::new(4096).aligned(4096)).unwrap();
    // SAFETY: just allocated with this size.
    unsafe { block.write_bytes(7, 4096) };
    let status = in_child(|| {
        // SAFETY: the child owns its copy of the block.
        let is_copied = unsafe { block.read() } == 7;
        // SAFETY: as above; not used again.
        let is_freed = unsafe { heap.free(block) }.is_ok();
        // SAFETY: the pointer names no live block any more.
        let is_double = unsafe { heap.usable_size(block) }.is_err();
        is_copied && is_freed && is_double && use_all(&heap) && heap.validate().is_ok()
    });
    assert_eq!(status, 0);
    // SAFETY: the parent still owns its block.
    assert_eq!(unsafe { block.read() }, 7);
    // SAFETY: not used again.
    unsafe { heap.free(block) }.unwrap();
    assert_whole(&heap);
}

#[test]
fn child_gives_back_caches_of_other_threads() {
    let heap = builder().build().unwrap();
    // From now on this thread has a number, so it does not take over the caches of another
    // thread.
    heap.maintain();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2_usize {
            let (heap, stop) = (&heap, &stop);
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    let block = heap.alloc(Request::new(64 << (seed + 3))).unwrap();
                    // SAFETY: allocated just now and not used.
                    unsafe { heap.free(block) }.unwrap();
                }
            });
        }
        for _ in 0..20 {
            let status = in_child(|| {
                let is_usable = use_all(&heap) && heap.validate().is_ok();
                let stats = heap.stats(Node::ANY);
                // If a thread held a block at the fork, the child's copy of the block is live.
                is_usable && stats.live.blocks <= 2
            });
            assert_eq!(status, 0);
        }
        stop.store(true, SeqCst);
    });
    // The threads' caches contain no live blocks, but they keep pages in use.
    while heap.stats(Node::ANY).cached.blocks > 0 {
        heap.maintain();
    }
    assert_whole(&heap);
}

#[test]
fn child_of_shared_heap_joins_as_its_own_process() {
    let heap = builder().shared_fd().unwrap();
    let ours = heap.alloc(Request::new(640)).unwrap();
    let status = in_child(|| {
        let theirs = heap.alloc(Request::new(640));
        let (mut parents, mut own) = (0, 0);
        heap.walk(|block| if block.process == 0 { parents += 1 } else { own += 1 });
        theirs.is_ok() && (parents, own) == (1, 1)
    });
    assert_eq!(status, 0);
    assert_eq!(heap.stats(Node::ANY).live.blocks, 2);
    let reaped = heap.reap();
    assert_eq!((reaped.processes, reaped.blocks, reaped.bytes), (1, 1, 640), "{reaped:?}");
    assert_eq!(heap.stats(Node::ANY).live.blocks, 1);
    // SAFETY: not used again.
    unsafe { heap.free(ours) }.unwrap();
    assert_whole(&heap);
}

/// Which threads of a process use the heap, and which thread forks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Forker {
    /// The thread that forks uses the heap before and after the fork.
    User,
    /// The thread that forks does not use the heap; other threads do.
    Idler,
    /// A new thread forks each time, and uses the heap only before the fork.
    Passing,
}

/// Generations of forks: each uses [`THREADS`] numbers. Together they would need twice as many
/// numbers as exist.
const GENERATIONS: u8 = 200;

/// How many threads of each generation use the heap at once.
const THREADS: usize = 41;

#[test]
fn generations_of_forks_do_not_exhaust_thread_numbers() {
    for forker in [Forker::User, Forker::Idler, Forker::Passing] {
        // The heap is not on a stack, because in a child of fork, libc reuses the stacks of
        // threads that no longer exist for new threads.
        let heap = Box::new(builder().build().unwrap());
        let heap = &*heap;
        let failed = in_child(|| i32::from(generation(heap, GENERATIONS, forker)));
        // How many generations were left at the first failure.
        assert_eq!(failed, 0, "{forker:?}");
    }
}

/// Uses the heap in threads, and forks the next generation. Returns how many generations were
/// left at the first failure.
fn generation(heap: &Heap, left: u8, forker: Forker) -> u8 {
    let barrier = std::sync::Barrier::new(THREADS);
    let is_served = std::thread::scope(|scope| {
        let serve = || {
            let is_served = can_use(heap);
            barrier.wait();
            is_served
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(serve)).collect();
        threads.into_iter().all(|thread| thread.join().unwrap())
    });
    if !is_served || (forker == Forker::User && !can_use(heap)) {
        return left;
    }
    match forker {
        _ if left == 1 => 0,
        Forker::Passing => std::thread::scope(|scope| {
            // The closure captures nothing by reference, because libc may reuse this stack.
            let pass =
                move || if can_use(heap) { fork_generation(heap, left, forker) } else { left };
            scope.spawn(pass).join().unwrap()
        }),
        _ => fork_generation(heap, left, forker),
    }
}

fn fork_generation(heap: &Heap, left: u8, forker: Forker) -> u8 {
    // the child may use libc's malloc.
    let failed = in_child(|| i32::from(generation(heap, left - 1, forker)));
    u8::try_from(failed).unwrap_or(left)
}

fn can_use(heap: &Heap) -> bool {
    // SAFETY: allocated here and not used.
    heap.alloc(Request::new(64)).is_ok_and(|block| unsafe { heap.free(block) }.is_ok())
}

/// More processes than there are slots attach one after the other. No test code reaps; the heap
/// itself reaps when all slots are in use.
#[test]
fn slots_of_dead_processes_are_reused() {
    let heap = builder().shared_fd().unwrap();
    for _ in 0..300 {
        assert_eq!(in_child(|| heap.alloc(Request::new(64)).is_ok()), 0);
    }
    heap.reap();
    assert_whole(&heap);
}

#[test]
fn grandchildren_join_too() {
    let heap = builder().shared_fd().unwrap();
    let status = in_child(|| {
        let is_allocated = heap.alloc(Request::new(64)).is_ok();
        is_allocated && in_child(|| heap.alloc(Request::new(64)).is_ok()) == 0
    });
    assert_eq!(status, 0);
    assert_eq!(heap.reap().processes, 2);
    assert_whole(&heap);
}

/// The process died right after it attached, so it had no cache, and no live process does upkeep.
#[test]
fn slots_of_dead_processes_without_a_cache_are_reused() {
    let heap = builder().shared_fd().unwrap();
    for round in 0..300 {
        let status = in_child(|| Heap::builder().attach_fd(heap.fd().unwrap()).is_ok());
        assert_eq!(status, 0, "round {round}");
    }
    heap.reap();
    assert_whole(&heap);
}

/// Bytes of the stack for a thread that only waits.
const STACK: usize = 64 << 10;

/// The second thread of a process whose first thread ended: it waits for the end of the pipe that
/// it gets.
extern "C" fn outlive(pipe: *mut c_void) -> i32 {
    let mut byte = 0_u8;
    // SAFETY: the call writes one local byte.
    unsafe { libc::read(pipe.addr() as i32, (&raw mut byte).cast(), 1) };
    exit(0)
}

/// Starts another thread, which runs until `pipe` ends. Then ends this thread, which is the first
/// thread of the process.
fn leave_to_another_thread(pipe: i32) -> ! {
    let (protection, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses an unused address.
    let stack = unsafe { libc::mmap(std::ptr::null_mut(), STACK, protection, kind, -1, 0) };
    assert_ne!(stack, libc::MAP_FAILED);
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    // A stack grows down from its end, which is a multiple of 16.
    let end = stack.wrapping_byte_add(STACK);
    let argument = std::ptr::without_provenance_mut(pipe as usize);
    // SAFETY: `end` is the end of a mapping that has no other user and is never unmapped;
    // `outlive` needs no more stack than this mapping, and only makes system calls.
    let thread = unsafe { libc::clone(outlive, end, flags, argument) };
    assert!(thread > 0);
    // SAFETY: the call ends only this thread, which has no more work.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the thread continued after its exit");
}

/// The state of a process, from `/proc`.
fn state_of(process: i32) -> char {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    text.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// If the first thread of a process has ended, the kernel reports the process as a zombie, even
/// if its other threads run.
#[test]
fn process_whose_first_thread_ended_counts_as_alive() {
    let heap = builder().shared_fd().unwrap();
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let child = start(|| -> bool {
        if heap.alloc(Request::new(640)).is_err() {
            exit(1);
        }
        // SAFETY: the child owns the descriptor, and no code here uses it.
        unsafe { libc::close(ends[1]) };
        leave_to_another_thread(ends[0])
    });
    let begun = std::time::Instant::now();
    while state_of(child) != 'Z' {
        assert!(begun.elapsed().as_secs() < 60, "the child's first thread still runs");
        std::thread::yield_now();
    }
    let reaped = heap.reap();
    assert_eq!((reaped.processes, heap.stats(Node::ANY).live.blocks), (0, 1), "{reaped:?}");
    for end in ends {
        // SAFETY: opened above and not used again. The child's thread then reads the end of the
        // pipe.
        unsafe { libc::close(end) };
    }
    assert_eq!((wait(child), heap.reap().processes), (0, 1));
    assert_whole(&heap);
}
