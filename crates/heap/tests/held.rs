//! A thread that gives the memory of free slices back holds the slices for a moment. Other threads
//! get them nevertheless, and no block less fits into the heap.

mod support;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use haul_heap::{Heap, Pages, Request};

/// Five slices of 64 KiB.
const SIZE: usize = 5 << 16;

/// The slices of a page of 2 MiB.
const PAGE_SLICES: usize = 32;

/// The heap of the running test.
static HEAP: AtomicPtr<Heap> = AtomicPtr::new(std::ptr::null_mut());

fn current() -> &'static Heap {
    // SAFETY: `heap` stored it, and it is never dropped.
    unsafe { &*HEAP.load(SeqCst) }
}

/// A heap that a test fills, and the right to run: one test at a time.
fn heap() -> (&'static Heap, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || Heap::builder().limit(64 << 20).nodes(1).pages(Pages::Plain).build().unwrap();
    HEAP.store(Box::into_raw(Box::new(new())), SeqCst);
    (current(), turn)
}

fn fill(heap: &Heap) -> Vec<NonNull<u8>> {
    let mut blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(Request::new(SIZE)).ok()).collect();
    blocks.sort_unstable();
    blocks
}

fn free(heap: &Heap, block: NonNull<u8>) {
    // SAFETY: the tests free each block once, and use none.
    unsafe { heap.free(block) }.unwrap();
}

/// How many slices of a block are in its first page, if it is in two.
fn slices_in_first_page(heap: &Heap, block: NonNull<u8>) -> usize {
    let first = heap.offset(block).unwrap().bytes() as usize / (SIZE / 5);
    PAGE_SLICES - first % PAGE_SLICES
}

/// How many holds are left until the hook acts, in this one.
static HOLDS: AtomicUsize = AtomicUsize::new(0);
/// What another thread got while slices were held.
static GOT: AtomicUsize = AtomicUsize::new(0);
static OTHER: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

fn is_chosen_hold(label: &str) -> bool {
    let one_less = |left: usize| left.checked_sub(1);
    label == "resident.shed.before_discard" && HOLDS.fetch_update(SeqCst, SeqCst, one_less) == Ok(1)
}

/// While this thread holds slices, another thread allocates all that it gets.
fn fill_by_other_thread(label: &'static str) {
    if is_chosen_hold(label) {
        thread::spawn(|| GOT.store(fill(current()).len(), SeqCst)).join().unwrap();
    }
}

/// While this thread holds slices, another thread requests one block.
fn request_by_other_thread(label: &'static str) {
    if is_chosen_hold(label) {
        let request = || {
            let block = current().alloc(Request::new(SIZE));
            GOT.store(usize::from(block.is_ok()), SeqCst);
        };
        let (started, has_started) = mpsc::channel();
        let thread = thread::spawn(move || {
            started.send(()).unwrap();
            request();
        });
        *OTHER.lock().unwrap() = Some(thread);
        has_started.recv().unwrap();
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn hole_across_a_page_boundary_is_not_divided() {
    let (heap, _turn) = heap();
    let blocks = fill(heap);
    // The highest hole is two blocks, of which the first begins one to four slices before the end
    // of a page. Lower holes hold enough memory to make a request give some back.
    let is_divided = |index: &usize| (1..5).contains(&slices_in_first_page(heap, blocks[*index]));
    let high = (100..blocks.len() - 1).rev().find(is_divided).unwrap();
    let freed: Vec<_> = (0..60).chain(high..high + 2).map(|index| blocks[index]).collect();
    freed.iter().for_each(|block| free(heap, *block));
    haul_heap::step::set_hook(fill_by_other_thread);
    // The highest page is first: it has the end of the hole.
    HOLDS.store(2, SeqCst);
    let mine = fill(heap).len();
    assert_eq!(HOLDS.load(SeqCst), 0, "too few holds");
    assert_eq!(mine + GOT.load(SeqCst), freed.len());
}

#[test]
fn request_waits_for_slices_that_another_thread_holds() {
    let (heap, _turn) = heap();
    let mut blocks = fill(heap);
    // One request of this thread needs the lowest blocks, and gives memory of the highest back.
    let mut freed = blocks.split_off(blocks.len() - 6);
    freed.extend(blocks.drain(..10));
    freed.iter().for_each(|block| free(heap, *block));
    haul_heap::step::set_hook(request_by_other_thread);
    HOLDS.store(1, SeqCst);
    let wide = heap.alloc(Request::new(10 * SIZE)).unwrap();
    free(heap, wide);
    assert_eq!(HOLDS.load(SeqCst), 0, "too few holds");
    OTHER.lock().unwrap().take().unwrap().join().unwrap();
    assert_eq!(GOT.load(SeqCst), 1);
}
