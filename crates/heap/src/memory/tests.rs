use std::time::Duration;

use super::*;
use crate::sync::Ordering::Release;
use crate::{Heap, Pages, Request};

#[test]
fn request_waits_for_last_page_while_another_thread_maps_it() {
    // A wait ends after some tenths of a second, and the other thread may lose the processor.
    assert!((0..20).any(|_| is_served_after_mapping()));
}

fn is_served_after_mapping() -> bool {
    let heap = Heap::builder().limit(4 << 20).nodes(1).pages(Pages::Plain).build().unwrap();
    let (pages, caches) = (heap.memory.tables.pages(), heap.memory.tables.caches());
    assert!(heap.memory.reserve(pages) && heap.memory.reserve(caches));
    // The cache of another thread.
    caches[6].state.store(CacheWord::active(1, 0, 9).0, Release);
    pages.iter().for_each(|word| word.store(PageWord::mapping(7).0, Release));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            pages[0].store(PageWord::ABSENT.0, Release);
        });
        heap.alloc(Request::new(1 << 20)).is_ok()
    })
}

#[test]
fn wait_ends_when_no_thread_works_on_the_page() {
    let polls = |is_worked_on: &dyn Fn() -> bool| {
        let mut patience = Patience::default();
        (0..PATIENCE).find(|_| !patience.poll(is_worked_on))
    };
    assert_eq!(polls(&|| false), Some(2 * POLLS_PER_CHECK - 1));
    // Between the work of two threads on the page, there may be a moment in which no thread works
    // on it.
    let turn = core::cell::Cell::new(false);
    assert_eq!(polls(&|| turn.replace(!turn.get())), None);
}
