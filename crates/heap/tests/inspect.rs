//! Compares the inspection of a heap with the calls that the test has made.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use haul_heap::{Heap, Node, Request, Tag};
use haul_heap::{PageState, SliceView};

fn heap() -> Heap {
    Heap::builder().limit(256 << 20).nodes(1).build().unwrap()
}

#[test]
fn walk_and_statistics_report_live_blocks() {
    let heap = heap();
    let tags = [Tag::NONE, heap.tag("rings"), heap.tag("mbufs")];
    let mut live: BTreeMap<NonNull<u8>, (usize, Tag)> = BTreeMap::new();
    for round in 0..20_000usize {
        let size = [64, 100, 4096, 10_000, 300_000][round % 5] + round % 7;
        let tag = tags[round % 3];
        if let Ok(block) = heap.alloc(Request::new(size).tagged(tag)) {
            // SAFETY: allocated right above.
            let bytes = unsafe { heap.usable_size(block) };
            live.insert(block, (bytes.unwrap(), tag));
        }
        if live.len() > 500 {
            let (block, _) = live.pop_first().unwrap();
            // SAFETY: allocated above, and not used again.
            unsafe { heap.free(block) }.unwrap();
        }
    }
    let mut seen = BTreeMap::new();
    heap.walk(|block| {
        assert!(seen.insert(block.address, (block.bytes, block.tag)).is_none());
    });
    assert_eq!(seen, live);
    let stats = heap.stats(Node::ANY);
    assert_eq!(stats.live.blocks, live.len() as u64);
    assert_eq!(stats.live.bytes, live.values().map(|(bytes, _)| *bytes as u64).sum::<u64>());
    for tag in tags {
        let blocks = live.values().filter(|(_, of)| *of == tag).count() as u64;
        assert_eq!(stats.tag(tag).blocks, blocks);
    }
    assert_eq!(stats, heap.stats(Node::new(0)));
    assert_eq!(heap.stats(Node::new(3)).live.blocks, 0);
    assert_eq!(heap.validate(), Ok(()));
    let mut text = String::new();
    heap.dump(&mut text).unwrap();
    assert!(text.contains(&format!("live: {} blocks", live.len())), "{text}");
    assert!(text.contains("tag mbufs: "), "{text}");
}

#[test]
fn name_maps_to_one_tag() {
    let heap = heap();
    let long = "a name that is longer than the room for a name";
    let tag = heap.tag("rings");
    assert_eq!(heap.tag("rings"), tag);
    assert_ne!(heap.tag("ring"), tag);
    assert_eq!(heap.tag_name(tag).as_str(), "rings");
    assert_eq!(heap.tag_name(heap.tag(long)).as_str(), &long[..31]);
    assert_eq!(heap.tag(""), Tag::NONE);
    assert_eq!(heap.tag_name(Tag::NONE).as_str(), "");
    let names: Vec<Tag> = (0..300).map(|number| heap.tag(&number.to_string())).collect();
    assert_eq!(names.iter().filter(|tag| **tag != Tag::NONE).count(), 252);
}

#[test]
fn map_shows_spans_and_large_blocks() {
    let heap = heap();
    for _ in 0..100 {
        heap.alloc(Request::new(4096).aligned(4096).tagged(heap.tag("frames"))).unwrap();
    }
    heap.alloc(Request::new(1 << 20)).unwrap();
    let (mut live, mut large_slices, mut large_bytes) = (0, 0, 0);
    heap.map(|page| {
        assert_eq!(page.state, PageState::Ready);
        for slice in page.slices {
            match slice {
                SliceView::Span { class_bytes, live: here, tag, .. } => {
                    assert_eq!(class_bytes, 4096);
                    assert!(here == 0 || heap.tag_name(tag).as_str() == "frames");
                    live += here;
                }
                SliceView::Large { bytes, .. } => {
                    large_slices += 1;
                    large_bytes += bytes;
                }
                _ => {}
            }
        }
    });
    assert_eq!((live, large_slices, large_bytes), (100, 16, 1 << 20));
}
