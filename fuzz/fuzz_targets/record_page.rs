//! Any text as a record file, from which a page is generated. The page, the table and the
//! pictures contain nothing from the text that a browser would run, and every record is in the
//! table.
#![no_main]

use haul_model::Line;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (lines, _) = haul_model::file::parse_what_can_be(text);
    let records = lines.iter().filter(|line| matches!(line, Line::Record(_))).count();
    let page = haul_report::html(&lines);
    assert!(page.ends_with("</html>\n"));
    assert_eq!(page.matches("<script").count(), 4, "only the page's own scripts");
    assert_eq!(page.matches("<th scope=\"row\">").count(), records);
    for (name, svg) in haul_report::svg(&lines) {
        assert!(!svg.contains("NaN") && !svg.contains("<script"), "{name}");
    }
    for finding in haul_report::findings(&lines) {
        assert!(!finding.text.is_empty());
    }
    let csv = haul_report::csv(&lines);
    assert!(csv.lines().count() > records);
    for line in lines {
        if let Line::Record(record) = line
            && let Some(slices) = record.text("slices")
            && let Some(slices) = haul_model::picture::parse(slices)
        {
            let text = haul_model::picture::text(&slices);
            assert_eq!(haul_model::picture::parse(&text), Some(slices), "{text}");
        }
    }
});
