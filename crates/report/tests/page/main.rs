//! The page as a whole: its required and its forbidden contents.

mod closed;
mod figures;
mod map;
mod runs;
#[path = "../samples/mod.rs"]
mod samples;
mod size;

use haul_model::{Line, Record};
use haul_report::html;

fn page_of(name: &str, lines: &[Line]) -> String {
    let page = html(lines);
    // Kept so that a person can open it.
    std::fs::write(format!("{}/{name}.html", env!("CARGO_TARGET_TMPDIR")), &page)
        .expect("the page is written");
    page
}

fn records(lines: &[Line]) -> impl Iterator<Item = &Record> {
    lines.iter().filter_map(|line| match line {
        Line::Record(record) => Some(record),
        Line::Machine(_) => None,
    })
}

/// The text of a data element: `<script type="application/json" id="...">`.
fn data(page: &str, id: &str) -> serde_json::Value {
    let start = format!("<script type=\"application/json\" id=\"{id}\">");
    let after = page.split_once(&start).expect("the element is there").1;
    serde_json::from_str(after.split_once("</script>").expect("it ends").0).expect("it is JSON")
}

#[test]
fn survey_page_has_every_figure() {
    let lines = samples::survey("m1", "Sample CPU 9000");
    let page = page_of("survey", &lines);
    for title in [
        "Copy by size",
        "Copies as services make them",
        "Copies by size class",
        "Memory bandwidth by threads",
        "What a page fault costs",
        "What tuning changed",
        "channel.send",
        "pcie.estimate",
    ] {
        assert!(page.contains(title), "{title}");
    }
    let plots = data(&page, "plots");
    assert_eq!(plots.as_object().expect("an object").len(), 6);
    for id in plots.as_object().expect("an object").keys() {
        assert!(page.contains(&format!("data-figure=\"{id}\"")), "{id} has a place");
        assert_eq!(page.matches(&format!(" id=\"{id}\"")).count(), 1, "{id} is unique");
    }
    assert!(
        page.contains("Sample CPU 9000")
            && page.contains("62.7 GiB")
            && page.contains("glibc 2.36")
    );
    // In this order: the advice, the machine in one line, and the rest folded.
    let places: Vec<usize> = [
        "<table class=\"verdicts\">",
        "<div class=\"missing\">",
        "<details class=\"machine-facts\"><summary>8 processors · L1 32.0 KiB",
        "<details class=\"all\"><summary>All that the records say: ",
        "<nav class=\"contents\"",
        "<section class=\"figure\"",
    ]
    .iter()
    .map(|part| page.find(part).unwrap_or_else(|| panic!("{part}")))
    .collect();
    assert!(places.is_sorted(), "{places:?}");
    // A loss is never below a gain and never has the mark of a gain.
    let table = page.split("<table class=\"verdicts\">").nth(1).expect("a table");
    let table = table.split("</table>").next().expect("its rows");
    let rows: Vec<&str> = table.split("<tr class=\"").skip(1).collect();
    let class = |row: &str| row.split('"').next().unwrap_or_default().to_owned();
    let order: Vec<usize> = rows
        .iter()
        .map(|row| ["worse", "better", "same", "fact"].iter().position(|c| *c == class(row)))
        .map(|place| place.expect("a class that is known"))
        .collect();
    assert!(order.len() > 3 && order.is_sorted(), "{order:?}");
    for row in rows.iter().filter(|row| row.contains("more time than")) {
        assert_eq!(class(row), "worse", "{row}");
    }
    // A row links to its figure.
    assert!(page.contains("<td class=\"course\"><a href=\"#m0-0-copy-size\""));
    assert!(page.contains("<svg class=\"spark\""));
}

#[test]
fn every_record_is_in_the_page_and_in_a_table() {
    let lines = samples::survey("m1", "Sample CPU");
    let page = page_of("numbers", &lines);
    let embedded = data(&page, "records");
    let embedded = embedded.as_array().expect("an array");
    assert_eq!(embedded.len(), lines.len());
    for (line, value) in lines.iter().zip(embedded) {
        let found = Line::parse(&value.to_string()).expect("a line");
        let (Line::Record(found), Line::Record(record)) = (&found, line) else {
            assert_eq!(&found, line);
            continue;
        };
        assert_eq!((&found.subject, &found.comparison), (&record.subject, &record.comparison));
        let (median, own) = (found.median().expect("samples"), record.median().expect("samples"));
        assert!((median / own - 1.0).abs() < 1e-3, "{median} for {own}");
    }
    assert_eq!(page.matches("<th scope=\"row\">").count(), records(&lines).count());
    for record in records(&lines) {
        let median = record.median().expect("samples");
        assert!(
            page.contains(&format!("data-v=\"{median}\"")),
            "{median} of {}",
            record.experiment
        );
        if let Some(c) = &record.comparison {
            for value in [c.ratio, c.ratio_low, c.ratio_high, c.floor] {
                assert!(
                    page.contains(&format!("data-v=\"{value}\"")),
                    "{value} of {}",
                    record.experiment
                );
            }
        }
    }
}

#[test]
fn page_without_records_names_the_command_to_run() {
    let page = page_of("empty", &[]);
    assert!(page.contains("<code>haul survey</code>") && page.contains("No records yet"));
    let alone = page_of("machine-only", &[Line::from(samples::machine("m1", "Sample CPU"))]);
    assert!(alone.contains("Sample CPU") && alone.contains("contain no comparison"));
}

#[test]
fn records_without_plot_are_in_the_table() {
    let mut lines = Vec::new();
    for (size, samples) in
        [(serde_json::json!("big"), vec![1.0]), (serde_json::json!(0), vec![2.0])]
    {
        let mut record = Record::new("r", "copy.size", "odd", "time", "ns");
        record.parameters.insert("size_bytes".into(), size);
        record.samples = samples;
        lines.push(Line::from(record));
    }
    lines.push(
        Record::new("r", "copy.size", "no-samples", "time", "ns").with("size_bytes", 64).into(),
    );
    let mut zero = Record::new("r", "copy.size", "zero", "time", "ns").with("size_bytes", 64);
    zero.samples = vec![0.0, f64::NAN, f64::INFINITY];
    lines.push(zero.into());
    let page = page_of("odd", &lines);
    assert!(!page.contains("class=\"plot\""));
    assert_eq!(page.matches("<th scope=\"row\">").count(), lines.len());
    for word in ["big", "no-samples", "zero"] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn each_machine_has_its_own_section() {
    let mut lines = samples::survey("m1", "First CPU");
    lines.extend(samples::survey("m2", "Second CPU"));
    let mut stray = samples::record("m3", "copy.size", "haul").with("size_bytes", 64);
    stray.samples = vec![3.0];
    lines.push(stray.into());
    let page = page_of("machines", &lines);
    assert_eq!(page.matches("<section class=\"machine\"").count(), 3);
    for option in [
        "<option value=\"m0\">First CPU",
        "<option value=\"m1\">Second CPU",
        "<option value=\"m2\">machine m3",
    ] {
        assert!(page.contains(option), "{option}");
    }
}

#[test]
fn same_records_give_the_same_page() {
    let lines = samples::survey("m1", "Sample CPU");
    assert_eq!(html(&lines), html(&lines));
}

#[test]
fn csv_has_one_row_per_record() {
    let mut lines = samples::survey("m1", "Sample CPU");
    let mut odd = samples::record("m1", "copy.size", "a \"b\",\nc").with("size_bytes", 64);
    odd.samples = vec![1.0, 2.5];
    lines.push(odd.into());
    let csv = haul_report::csv(&lines);
    assert!(csv.contains("\"a \"\"b\"\",\nc\""));
    assert_eq!(
        csv.lines().count(),
        records(&lines).count() + 2,
        "a header, and a line break inside quotes"
    );
    let header: Vec<&str> = csv.lines().next().expect("a header").split(',').collect();
    assert!(header.contains(&"parameters.size_bytes") && header.ends_with(&["samples"]));
    assert!(csv.trim_end().ends_with("1 2.5"));
}

#[test]
fn svg_contains_every_plot() {
    let plots = haul_report::svg(&samples::survey("m1", "Sample CPU"));
    let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "copy.size",
        "copy.distribution",
        "copy.size_class",
        "memory.bandwidth",
        "memory.fault",
        "copy.tune",
    ];
    assert_eq!(names, expected);
    for (name, svg) in &plots {
        std::fs::write(format!("{}/{name}.svg", env!("CARGO_TARGET_TMPDIR")), svg)
            .expect("the picture is written");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
    }
}
