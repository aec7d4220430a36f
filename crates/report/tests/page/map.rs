//! The map of a heap.

use haul_model::{Line, Record};

use crate::page_of;

/// A map of a heap with a page of each kind.
fn map_lines() -> Vec<Line> {
    let record = |by: &str, metric: &str, bytes: f64| {
        let mut record = Record::new("run-1", "heap.map", "haul", metric, "B")
            .with("by", by)
            .with("trace", "sort</svg><script>alert(1)</script>.trace")
            .with("program", "sort")
            .with("operations_done", 1234)
            .with("at_ms", 35.25);
        record.samples = vec![bytes];
        record
    };
    let class = |metric: &str, bytes: f64| {
        record("class", metric, bytes)
            .with("class", "4 KiB")
            .with("class_bytes", 4096)
            .with("blocks", 22)
    };
    let tag = |name: &str, number: u8| {
        record("tag", "live", 45056.0)
            .with("tag", name)
            .with("tag_number", number)
            .with("blocks", 11)
    };
    let page = |number: u64, state: &str, slices: &str| {
        let page = record("page", "live", 45056.0).with("page", number).with("state", state);
        page.with("backing", "plain pages").with("slices", slices)
    };
    let records = vec![
        record("heap", "ready", 4_194_304.0).with("pages", 2),
        record("heap", "live", 1_048_576.0),
        record("heap", "cached", 65536.0),
        record("heap", "free_in_spans", 131_072.0),
        record("heap", "free_slices", 2_949_120.0),
        record("heap", "asked_for", 1_000_000.0),
        record("heap", "rounding", 48_576.0),
        class("live", 90112.0),
        class("cached", 4096.0),
        class("free", 36864.0),
        tag("untagged", 0),
        tag("<b>mbuf</b>", 1),
        page(0, "ready", "4096:11+1+4@1 3*4096:0+0+16@0 L327680@1 4*= ~ ! 21*-"),
        page(1, "absent", "32*-"),
        page(2, "ready", "\"><script>alert(2)</script>"),
    ];
    records.into_iter().map(Line::from).collect()
}

#[test]
fn map_is_drawn_with_its_classes_and_tags() {
    let page = page_of("map", &map_lines());
    assert!(page.contains("What the heap holds"));
    assert!(page.contains("after 1,234 operations, 35.25 ms"));
    assert!(!page.contains("<script>alert"), "a stranger's text is inert");
    let pages = page.split_once("<div class=\"pages\"").expect("pages").1;
    let pages = pages.split_once("<p class=\"key\">").expect("a key").0;
    assert_eq!(pages.matches("<div class=\"page\">").count(), 3);
    // A span, its cached and its live slots; three equal spans as one; a large block as one.
    let first = pages.split("<div class=\"page\">").nth(1).expect("a page");
    assert_eq!(first.matches("<rect").count(), 3 + 1 + 1 + 2, "{first}");
    assert!(first.contains("class=\"live t1\"") && first.contains("height=\"11.0\""), "{first}");
    assert!(first.contains("width=\"50\" height=\"16.0\""), "the large block: {first}");
    assert!(pages.contains("class=\"absent\""));
    assert!(page.contains("&lt;b&gt;mbuf&lt;/b&gt;"));
    assert!(page.contains("rounded up to the class"));
    // The text of slices is drawn, but is not in the table.
    assert!(!page.contains("<th scope=\"col\" class=\"t\">slices"));
}
