//! Several runs of one machine on one page are never compared with each other.

use haul_model::Line;
use haul_report::html;

use crate::{data, page_of, samples};

#[test]
fn newer_run_is_separate_and_comes_first() {
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

/// haul in one run and memory's limit, libc and a kernel in another.
#[test]
fn no_figure_and_no_table_combines_two_runs() {
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
    // The column with the share of the memory limit must be empty for haul's records.
    let row = |run: &str| {
        page.split("<tr>")
            .filter(|row| row.contains("<th scope=\"row\">haul</th>") && row.contains(run))
            .find(|row| row.contains(">1073741824</td>"))
            .map(|row| row.matches("<td class=\"n x\"></td>").count())
    };
    assert!(row("run-later").is_some_and(|empty| empty >= 1), "a share of another run's limit");
}
