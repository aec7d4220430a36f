use std::time::Duration;

use super::*;
use crate::{Heap, Node, Pages};

#[test]
fn the_last_page_is_waited_for_while_another_maps_it() {
    let heap = Heap::builder().limit(4 << 20).nodes(1).pages(Pages::Plain).build().unwrap();
    let (pages, caches) = (heap.memory.tables.pages(), heap.memory.tables.caches());
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
