//! The page as a whole: what must be in it, and what must never be.

mod samples;

use std::time::Instant;

use haul_model::{Line, Record};
use haul_report::html;

fn page_of(name: &str, lines: &[Line]) -> String {
    let page = html(lines);
    // Left where a person can open it.
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
fn a_survey_becomes_a_page_with_every_figure() {
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
    // In this order: what to do, the machine in a line, and the rest behind a click.
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
    // A loss never stands below a gain, nor has its mark.
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
    // A row leads to its figure.
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
fn a_plot_holds_the_numbers_of_its_records() {
    let lines = samples::survey("m1", "Sample CPU");
    let plots = data(&html(&lines), "plots");
    let plot = &plots["m0-0-copy-size"];
    assert_eq!(plot["guides"].as_array().map(Vec::len), Some(3), "three caches");
    let view = &plot["views"][0];
    assert_eq!(view["x"].as_array().map(Vec::len), Some(25));
    let series = |name: &str| {
        view["series"]
            .as_array()
            .expect("series")
            .iter()
            .find(|s| s["name"] == name)
            .expect(name)
            .clone()
    };
    for subject in ["haul", "libc", "avx2"] {
        let own = records(&lines).find(|r| {
            r.experiment == "copy.size"
                && r.subject == subject
                && r.parameters["size_bytes"] == 4096
        });
        let median = own.and_then(Record::median).expect("measured");
        let place =
            view["x"].as_array().expect("x").iter().position(|x| x == 4096.0).expect("4 KiB");
        let drawn = series(subject)["y"][1][place].as_f64().expect("a time");
        assert!((drawn / median - 1.0).abs() < 1e-5, "{subject}: {drawn} for {median}");
        let rate = series(subject)["y"][0][place].as_f64().expect("a rate");
        assert!((rate * median / 4096.0 - 1.0).abs() < 1e-5, "{subject}: {rate} GB/s");
    }
    let limit = records(&lines)
        .filter(|r| r.subject == "stream_avx2")
        .find(|r| {
            r.parameters.get("operation").is_some_and(|o| o == "copy")
                && r.parameters["threads"] == 1
        })
        .and_then(Record::median)
        .expect("a limit");
    assert!(
        (series("memory limit")["y"][0][0].as_f64().expect("a limit") / limit - 1.0).abs() < 1e-5
    );
    let place = 24;
    let fastest = samples::KERNELS
        .iter()
        .filter_map(|kernel| series(kernel)["y"][1][place].as_f64())
        .fold(f64::INFINITY, f64::min);
    assert_eq!(series("best kernel")["y"][1][place].as_f64(), Some(fastest));
    assert_eq!(series("best kernel")["remark"][0][place], "stream_avx2");
}

#[test]
fn controls_stand_where_records_would_fall_on_one_another() {
    let lines = samples::survey("m1", "Sample CPU");
    let plots = data(&html(&lines), "plots");
    let labels = |id: &str| -> Vec<String> {
        let controls = plots[id]["controls"].as_array().expect("controls");
        controls.iter().map(|c| c["label"].as_str().expect("a label").to_string()).collect()
    };
    assert_eq!(labels("m0-0-copy-size"), [""; 0]);
    assert_eq!(labels("m0-1-copy-distribution"), ["function", "threads"]);
    assert_eq!(labels("m0-5-copy-tune"), ["phase"]);
    assert_eq!(labels("m0-3-memory-bandwidth"), [""; 0], "the best of all ways");
    assert_eq!(
        plots["m0-3-memory-bandwidth"]["views"][0]["series"][0]["remark"][0][0],
        "stream_avx2"
    );
    let views = plots["m0-1-copy-distribution"]["views"].as_array().expect("views").len();
    assert_eq!(views, 6, "three functions with one and two threads");
}

#[test]
fn a_second_run_is_told_from_the_first_and_comes_first() {
    let mut lines = samples::survey("m1", "Sample CPU");
    let again: Vec<Line> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Record(record) if record.experiment == "copy.size" => {
                let mut again = record.clone();
                again.run = "run-later".into();
                again = again.with("cpu_ns", 77.0).with("operations_per_sample", 7);
                again.time = "2026-02-02T03:04:05Z".into();
                Some(Line::from(again))
            }
            _ => None,
        })
        .collect();
    lines.extend(again);
    let plots = data(&html(&lines), "plots");
    let control = &plots["m0-0-copy-size"]["controls"][0];
    assert_eq!(plots["m0-0-copy-size"]["controls"].as_array().map(Vec::len), Some(1));
    assert_eq!(control["label"], "run");
    assert_eq!(control["values"][0], "run-later");
}

#[test]
fn the_same_subject_called_in_two_ways_is_two_lines() {
    let mut lines = samples::survey("m1", "Sample CPU");
    let inlined: Vec<Line> = records(&lines)
        .filter(|record| record.experiment == "copy.distribution" && record.subject == "haul")
        .map(|record| Line::from(record.clone().with("call", "inline")))
        .collect();
    assert!(!inlined.is_empty());
    lines.extend(inlined);
    let plots = data(&html(&lines), "plots");
    let controls = plots["m0-1-copy-distribution"]["controls"].as_array().unwrap();
    let call = controls.iter().find(|control| control["label"] == "call").unwrap();
    assert_eq!(call["values"], serde_json::json!(["inline", "not said"]));
}

#[test]
fn hostile_text_stays_text() {
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
fn nothing_is_asked_of_any_other_file() {
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

#[test]
fn the_page_itself_is_small() {
    let empty = html(&[]).len();
    assert!(empty < 150_000, "{empty} bytes before any data");
}

#[test]
fn a_page_of_long_runs_stays_small() {
    let mut lines = samples::survey("m1", "Sample CPU");
    for line in &mut lines {
        if let Line::Record(record) = line {
            let own = record.samples.clone();
            record.samples = own.iter().cycle().take(1000).copied().collect();
        }
    }
    let page = html(&lines).len();
    let records = lines.len();
    assert!(page < 150_000 + records * 3_000, "{page} bytes for {records} records");
}

/// Whether two values are the same, numbers to eleven digits.
fn are_near(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().expect("finite"), b.as_f64().expect("finite"));
            (a - b).abs() <= 1e-11 * a.abs()
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_near(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| are_near(a, b)))
        }
        _ => a == b,
    }
}

/// A page of compact records differs from that of the full ones in the records that it carries.
#[test]
fn compact_records_make_the_same_page() {
    let mut lines = samples::survey("m1", "Sample CPU");
    for line in &mut lines {
        if let Line::Record(record) = line {
            let own = record.samples.clone();
            // Not a decimal, so that no value lies between two that a plot may round it to.
            let step = std::f64::consts::E * 1e-5;
            let drift = |(round, sample): (u32, f64)| sample * (1.0 + step * f64::from(round));
            record.samples = (0..101).zip(own.into_iter().cycle()).map(drift).collect();
        }
    }
    let compact = haul_report::compact(lines.clone());
    assert!(records(&compact).all(|record| record.samples.len() == 5));
    let (page, of_compact) = (html(&lines), html(&compact));
    assert!(are_near(&data(&page, "plots"), &data(&of_compact, "plots")), "the plots differ");
    // What is read; a cell's `data-v` is what it is sorted by.
    let text = |page: &str| {
        let shown = page.split("<script type=\"application/json\"").next().expect("one part");
        let cells =
            shown.split(" data-v=\"").map(|cell| cell.split_once('"').map_or(cell, |c| c.1));
        cells.collect::<String>()
    };
    assert!(text(&page) == text(&of_compact), "the pages differ");
    assert_eq!(haul_report::findings(&lines), haul_report::findings(&compact));
}

/// What makes the record of a number differ from the others.
type Change = fn(&mut Record, u64);

/// So many records of copies of 4 KiB, each changed by its number.
fn many(count: u64, change: Change) -> Vec<Line> {
    let record = |number: u64| {
        let mut record = samples::record("m", "copy.size", "haul").with("size_bytes", 4096);
        record.samples = vec![number as f64 + 1.0];
        change(&mut record, number);
        Line::from(record)
    };
    (0..count).map(record).collect()
}

fn a_parameter_each(record: &mut Record, number: u64) {
    record.parameters.insert(format!("own{number}"), number.into());
}

/// With a column for each name these were a page of 173 MB.
#[test]
fn a_parameter_name_each_makes_no_column_each() {
    let page = page_of("names", &many(3000, a_parameter_each));
    assert!(page.len() < 16 << 20, "{} B", page.len());
    assert!(page.contains("more parameters</th>"), "nothing says what has no column");
    for number in [0, 1500, 2999] {
        let (column, together) = (format!(">own{number}</th>"), format!("own{number}={number}"));
        assert!(page.contains(&column) || page.contains(&together), "{number} is not in the table");
    }
}

/// Eight times the records take some eight times as long: sixty-four, and a merge of many hosts'
/// surveys would never be a page.
#[test]
fn a_page_of_eight_times_the_records_takes_far_less_than_their_square() {
    let changes: [(&str, Change); 4] = [
        ("the same again", |_, _| {}),
        ("a parameter each", a_parameter_each),
        ("another experiment each", |record, number| record.experiment = format!("e{number}")),
        ("memory's limit again and again", |record, number| {
            if number % 2 == 0 {
                record.experiment = "memory.bandwidth".into();
                (record.metric, record.unit) = ("throughput".into(), "GB/s".into());
                record.parameters.insert("operation".into(), "copy".into());
            }
        }),
    ];
    for (what, change) in changes {
        let seconds = |count| {
            let lines = many(count, change);
            let start = Instant::now();
            assert!(html(&lines).ends_with("</html>\n"));
            start.elapsed().as_secs_f64()
        };
        // The other work of a busy machine may fall on one of the two.
        let is_fair = |_| seconds(4000) / seconds(500) < 24.0;
        assert!((0..5).any(is_fair), "{what}: eight times the records took 24 times as long");
    }
}

#[test]
fn no_records_say_what_to_run() {
    let page = page_of("empty", &[]);
    assert!(page.contains("<code>haul survey</code>") && page.contains("No records yet"));
    let alone = page_of("machine-only", &[Line::from(samples::machine("m1", "Sample CPU"))]);
    assert!(alone.contains("Sample CPU") && alone.contains("compared with anything"));
}

#[test]
fn records_that_no_plot_can_take_are_in_the_table() {
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
fn machines_have_sections_of_their_own() {
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
fn the_same_records_give_the_same_page() {
    let lines = samples::survey("m1", "Sample CPU");
    assert_eq!(html(&lines), html(&lines));
}

#[test]
fn csv_has_a_row_a_record() {
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
fn svg_holds_every_plot() {
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

#[test]
fn heaps_are_drawn_round_by_round_and_pairs_by_size() {
    let mut lines = Vec::new();
    for (subject, step) in [("libc", 0.0), ("dpdk", 40_000.0), ("haul", 0.0)] {
        for round in 1..=5_u32 {
            let mut record = samples::record("m", "heap.growth", subject)
                .with("size_bytes", 4096)
                .with("round", round)
                .with("version", format!("of {subject}"));
            record.metric = "alloc_time".into();
            record.samples = vec![50.0 + step * f64::from(round)];
            lines.push(Line::from(record));
        }
        let mut pair = samples::record("m", "heap.pairs", subject).with("size_bytes", 64);
        pair.samples = vec![9.0, 10.0, 11.0];
        lines.push(pair.into());
    }
    let page = page_of("heap", &lines);
    assert!(page.contains("Allocation as the heap grows") && page.contains("A block and its free"));
    let plots = data(&page, "plots");
    let plot_of = |part: &str| {
        let plots = plots.as_object().expect("an object");
        let found = plots.iter().find(|(id, _)| id.contains(part)).expect("it is drawn");
        assert_eq!(found.1["controls"], serde_json::json!([]), "no reader has to choose");
        found.1["views"][0].clone()
    };
    let growth = plot_of("growth");
    assert_eq!(growth["x"], serde_json::json!([1.0, 2.0, 3.0, 4.0, 5.0]));
    assert_eq!(growth["labels"][1], "2 rounds");
    let dpdk = growth["series"].as_array().expect("series").iter().find(|s| s["name"] == "dpdk");
    assert_eq!(dpdk.expect("dpdk")["y"][0][4], 200_050.0);
    assert_eq!(plot_of("pairs")["labels"], serde_json::json!(["64 B"]));
}

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
fn a_map_is_drawn_with_its_classes_and_tags() {
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
    // The text of slices is drawn and not tabled.
    assert!(!page.contains("<th scope=\"col\" class=\"t\">slices"));
}

#[test]
fn a_replay_is_one_line_a_heap_with_time_and_footprint_as_modes() {
    let mut lines = Vec::new();
    for subject in ["libc", "haul", "asked for"] {
        for (done, metric, unit) in [
            (10, "footprint", "MiB"),
            (10, "time", "ns"),
            (20, "footprint", "MiB"),
            (20, "time", "ns"),
        ] {
            let mut record = Record::new("run-1", "heap.replay", subject, metric, unit)
                .with("trace", "sort.trace")
                .with("threads", 1)
                .with("at_ms", done as f64 / 7.0)
                .with("operations_done", done);
            record.samples = vec![f64::from(done), f64::from(done) + 1.0];
            lines.push(Line::from(record));
        }
    }
    let page = page_of("replay", &lines);
    let plots = data(&page, "plots");
    let plot = plots.as_object().expect("an object").values().next().expect("a plot");
    assert_eq!(plot["controls"].as_array().expect("controls").len(), 0);
    assert_eq!(plot["modes"].as_array().expect("modes").len(), 2);
    let series = plot["views"][0]["series"].as_array().expect("series");
    let roles: Vec<&str> = series.iter().filter_map(|series| series["role"].as_str()).collect();
    assert_eq!(roles, ["haul", "baseline", "limit"]);
    for series in series {
        assert!(!series["y"].to_string().contains("null"), "{series}");
    }
}

#[test]
fn a_calibration_that_changes_nothing_is_not_drawn_again() {
    let bar = |calibration: &str, ours: f64| {
        let mut record = samples::record("m1", "sim.figure7", "haul")
            .with("calibration", calibration)
            .with("mode", "BASE")
            .with("bandwidth_gb_per_s", "3.2");
        (record.kind, record.samples) = (haul_model::Kind::Modelled, vec![ours]);
        Line::from(record)
    };
    let drawings = |knob: f64| {
        let page = html(&[bar("none", 100.0), bar("one-knob", knob)]);
        assert!(page.contains("A simulated server, by"));
        (page.matches("Execution time in percent").count(), page.contains("nothing to add"))
    };
    let (once, is_told) = drawings(100.0);
    let (twice, is_told_twice) = drawings(90.0);
    assert!(once < twice && is_told && !is_told_twice, "{once} and {twice}");
}

/// Figure of transfers: a way that moves a quarter of the baseline's bytes a second and answers in
/// a seventh of its time.
fn transfers_with_verdicts() -> Vec<Line> {
    let at = |size: u64, (metric, unit, value, ratio, floor): (&str, &str, f64, f64, f64)| {
        let mut record = Record::new("run-1", "channel.transfer", "haul:ring", metric, unit)
            .with("size_bytes", size)
            .with("target", "warm")
            .with("busy_core", 0);
        record.machine = "m1".into();
        record.samples = vec![value];
        record.comparison = Some(samples::against("pipe", ratio, 0.004, floor));
        Line::from(record)
    };
    let all = [
        ("throughput", "GB/s", 1.9, 0.22, 0.03),
        ("cpu", "s/GB", 0.9, 1.5, 0.02),
        ("latency", "ns", 800.0, 0.15, 0.01),
    ];
    [1 << 16, 1 << 17].into_iter().flat_map(|size| all.map(|figure| at(size, figure))).collect()
}

#[test]
fn each_mode_tells_the_verdict_of_its_own_metric() {
    let lines = transfers_with_verdicts();
    for lines in [lines.clone(), lines.into_iter().rev().collect()] {
        let plots = data(&page_of("verdicts", &lines), "plots");
        let series = &plots["m0-0-channel-transfer"]["views"][0]["series"][0];
        let remarks: Vec<&str> =
            (0..3).map(|mode| series["remark"][mode][0].as_str().expect("a verdict")).collect();
        assert_eq!(
            remarks,
            [
                "78% less throughput than pipe",
                "50% more cpu than pipe",
                "85% less latency than pipe"
            ]
        );
        let floors: Vec<f64> =
            (0..3).map(|mode| series["floor"][mode][0].as_f64().expect("a floor")).collect();
        assert_eq!(floors, [0.03, 0.02, 0.01]);
    }
}

/// haul in one run and memory's limit, libc and a kernel in another.
#[test]
fn no_figure_and_no_table_joins_two_runs() {
    let mut lines = samples::survey("m1", "Sample CPU");
    for line in &mut lines {
        if let Line::Record(record) = line
            && record.subject == "haul"
        {
            record.run = "run-later".into();
            record.time = "2026-02-02T03:04:05Z".into();
        }
    }
    let page = page_of("two-runs", &lines);
    let plots = data(&page, "plots");
    let plot = &plots["m0-0-copy-size"];
    assert_eq!(plot["controls"][0]["label"], "run");
    for view in plot["views"].as_array().expect("views") {
        let names: Vec<&str> = view["series"]
            .as_array()
            .expect("series")
            .iter()
            .map(|series| series["name"].as_str().expect("a name"))
            .collect();
        let has_haul = names.contains(&"haul");
        let others = ["libc", "avx2", "best kernel", "memory limit"];
        assert!(!has_haul || !others.iter().any(|other| names.contains(other)), "{names:?}");
    }
    // The share of memory's limit is a column; of haul's records it has to be empty.
    let row = |run: &str| {
        page.split("<tr>")
            .filter(|row| row.contains("<th scope=\"row\">haul</th>") && row.contains(run))
            .find(|row| row.contains(">1073741824</td>"))
            .map(|row| row.matches("<td class=\"n x\"></td>").count())
    };
    assert!(row("run-later").is_some_and(|empty| empty >= 1), "a share of another run's limit");
}
