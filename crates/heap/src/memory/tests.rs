use std::time::Duration;

use super::*;
use crate::sync::Ordering::Release;
use crate::{Heap, Node, Pages};

#[test]
fn the_last_page_is_waited_for_while_another_maps_it() {
    let heap = Heap::builder().limit(4 << 20).nodes(1).pages(Pages::Plain).build().unwrap();
    let (pages, caches) = (heap.memory.tables.pages(), heap.memory.tables.caches());
    assert!(heap.memory.reserve(pages) && heap.memory.reserve(caches));
    // Of another thread's cache.
    caches[6].state.store(CacheWord::active(1, 0, 9).0, Release);
    pages.iter().for_each(|word| word.store(PageWord::mapping(7).0, Release));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            pages[0].store(PageWord::ABSENT.0, Release);
        });
        assert!(heap.alloc(1 << 20, 64, Node::ANY).is_ok());
    });
}

#[test]
fn a_wait_ends_when_nobody_is_at_it() {
    let looks = |is_at_it: &dyn Fn() -> bool| {
        let mut patience = Patience::default();
        (0..PATIENCE).find(|_| !patience.goes_on(is_at_it))
    };
    assert_eq!(looks(&|| false), Some(2 * GLANCE - 1));
    // Between two that are at it, there may be a moment in which nobody is.
    let turn = core::cell::Cell::new(false);
    assert_eq!(looks(&|| turn.replace(!turn.get())), None);
}
