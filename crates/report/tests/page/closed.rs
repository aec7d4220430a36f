//! A page is self-contained: text from records is escaped, and the page loads no other file.

use haul_model::Line;
use haul_report::html;

use crate::{data, page_of, samples};

#[test]
fn hostile_text_is_escaped() {
    let evil = "</script><script>alert(1)</script><!--\u{2028}'\"&<img src=x onerror=alert(1)>";
    let mut lines = vec![Line::from(samples::machine(evil, evil))];
    for experiment in ["copy.size", "copy.distribution", "memory.fault", evil] {
        let mut record = samples::record(evil, experiment, evil)
            .with("size_bytes", 64)
            .with("distribution", evil)
            .with("level", evil)
            .with("pages", evil)
            .with("note", evil)
            .with(evil, evil);
        record.run = evil.into();
        record.time = evil.into();
        record.samples = vec![1.0];
        record.comparison = Some(samples::against(evil, 0.5, 0.01, 0.01));
        lines.push(record.into());
    }
    let page = page_of("hostile", &lines);
    let plain = html(&samples::survey("m1", "Sample CPU"));
    for tag in ["<script", "</script", "<!--", "<img"] {
        let own = if tag.contains("script") { 4 } else { 0 };
        assert_eq!(plain.matches(tag).count(), own, "{tag} of our own");
        assert_eq!(page.matches(tag).count(), own, "{tag} of a stranger");
    }
    let embedded = data(&page, "records");
    assert_eq!(embedded[1]["subject"], evil, "and nothing of it is lost");
}

#[test]
fn page_loads_no_other_file() {
    let page = html(&samples::survey("m1", "Sample CPU"));
    for outside in ["src=", "@import", "url(", "fetch(", "XMLHttpRequest", "import("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for link in page.split("href=\"").skip(1) {
        assert!(
            link.starts_with('#') || link.starts_with("data:,"),
            "{}",
            &link[..link.len().min(60)]
        );
    }
    assert!(page.contains("default-src 'none'"), "and the browser holds us to it");
}
