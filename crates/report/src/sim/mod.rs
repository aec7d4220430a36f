//! The simulated server's tables and figures: the paper's, with haul's results beside them.
//!
//! From the bottom up:
//!
//! - `chart`: bars and lines as SVG;
//! - `table2`: table 2, the paper's results beside haul's;
//! - `oddities`: oddities of the paper's numbers;
//! - `trace`: a traced window of cycles.

mod chart;
mod oddities;
mod table2;
mod trace;

use std::fmt::Write as _;

use haul_model::Record;
use haul_model::experiment::{key, name};

use crate::select::field;
use crate::text::escape;
use chart::{Bar, Group};

/// The heading of a figure that is drawn here.
pub(crate) struct Heading {
    pub title: &'static str,
    pub about: &'static str,
}

/// Colours of BASE and the engines, in the order of [`MODES`].
const MODES: [&str; 4] = ["BASE", "SYNC_NLB", "SYNC_WLB", "ASYNC"];

/// Both calibrations, in the order in which they are shown.
const CALIBRATIONS: [(&str, &str); 2] = [
    (
        "none",
        "the machine as docs/sim.md describes it, with the three numbers that it calls fitted, and the two readings",
    ),
    ("one-knob", "compute per packet fitted to BASE’s copy shares in order, and to nothing else"),
];

/// The rank of an experiment on the page: the paper's tables first, the runs behind them last, and
/// experiments that are not of the simulator before all.
pub(crate) fn place(experiment: &str) -> usize {
    const ORDER: [&str; 11] = [
        name::SIM_TABLE2,
        name::SIM_FIGURE7,
        name::SIM_FIGURE8,
        name::SIM_TIERS,
        name::SIM_COPY_SHARE,
        name::SIM_TRACE,
        name::SIM_SWEEP,
        name::SIM_WORKERS,
        name::SIM_PROGRAM,
        name::SIM_SPEED,
        name::SIM_RUN,
    ];
    ORDER.iter().position(|each| *each == experiment).map_or(0, |place| place + 1)
}

/// The heading of an experiment that is drawn here.
pub(crate) fn heading(experiment: &str) -> Option<Heading> {
    let (title, about) = match experiment {
        name::SIM_TABLE2 => (
            "The paper’s Table 2 and Figure 6: execution time reduction",
            "The time that a packet saves when an engine copies it, in percent of BASE, and its parts: faster copies \
             (the savings without any overlap) and overlap. Each with the paper’s value, haul’s value, and the error \
             in points. Rows with a star are disputed and count in no error.",
        ),
        name::SIM_FIGURE7 => (
            "The paper’s Figure 7: memory bandwidth",
            "Execution time of 1 KB packets, out of order, in percent of BASE at 3.2 GB/s, with one memory channel \
             and with two. The paper prints no numbers: all four must improve.",
        ),
        name::SIM_FIGURE8 => (
            "The paper’s Figure 8: memory latency",
            "Execution time of 1 KB packets, out of order, in percent of BASE at 110 ns. Circles are values from the \
             paper’s text.",
        ),
        name::SIM_TIERS => (
            "The criteria of the reproduction",
            "Tier A: every ordering and trend. Tier B: Table 2’s 16 undisputed rows within 5 points in order and 8 out \
             of order, 4 in the mean. Tier C: the values that the text gives for Figure 8 within 2 points.",
        ),
        name::SIM_COPY_SHARE => (
            "What BASE spends on copying, in order",
            "From a line through BASE’s time over the payload. The paper’s shares follow from its rows without bypass; \
             the knob is fitted to these shares alone.",
        ),
        name::SIM_SPEED => (
            "How fast the simulator is",
            "Instructions simulated a second on one core, with the whole memory system, and the total time. These \
             figures are measured; all others here are modelled.",
        ),
        name::SIM_RUN => ("Every simulated run", "Cycles of a packet on each machine."),
        name::SIM_SWEEP => (
            "A sweep",
            "Cycles of every task of a plan; the varied settings are columns of the table.",
        ),
        name::SIM_TRACE => (
            "A window of cycles",
            "The stages of each instruction and each memory transaction. Time goes from left to right; the end of a \
             row names the transactions for which it waited. A number links to that row.",
        ),
        name::SIM_WORKERS => (
            "A sweep by several workers",
            "Seconds from the call to the last record, and efficiency: the time of one worker over the number of \
             workers times theirs. “processes” are independent of each other and show the machine’s own limit.",
        ),
        name::SIM_PROGRAM => ("A simulated program", "Cycles and every counter."),
        _ => return None,
    };
    Some(Heading { title, about })
}

/// An experiment's own drawing as HTML; `None` if it has only a table.
pub(crate) fn html(experiment: &str, records: &[&Record]) -> Option<String> {
    let draw: fn(&[&Record]) -> String = match experiment {
        name::SIM_TABLE2 => table_2,
        name::SIM_FIGURE7 => figure_7,
        name::SIM_FIGURE8 => figure_8,
        name::SIM_TIERS => tiers,
        name::SIM_COPY_SHARE => copy_share,
        name::SIM_TRACE => trace::html,
        _ => return None,
    };
    let newest = newest_run(records);
    let drawn = draw(&newest);
    (!drawn.is_empty()).then_some(drawn)
}

/// The records of the last run, because figures of two runs would overlap.
fn newest_run<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let Some(last) = records.last() else {
        return Vec::new();
    };
    records.iter().filter(|record| record.run == last.run).copied().collect()
}

fn of_calibration<'a>(records: &[&'a Record], calibration: &str) -> Vec<&'a Record> {
    let is = |record: &&&Record| text(record, key::CALIBRATION) == calibration;
    records.iter().filter(is).copied().collect()
}

/// For each calibration with records, a heading and its drawing. A drawing that equals the previous
/// one is replaced by a sentence.
fn each(records: &[&Record], draw: impl Fn(&[&Record]) -> String) -> String {
    let mut html = String::from("<div class=\"sim\">");
    let mut before = String::new();
    for (name, meaning) in CALIBRATIONS {
        let mine = of_calibration(records, name);
        if mine.is_empty() {
            continue;
        }
        let drawn = draw(&mine);
        let shown = match !before.is_empty() && drawn == before {
            true => "<p>Its figures are the same as above.</p>",
            false => &drawn,
        };
        let meaning = escape(meaning);
        let _ = write!(
            html,
            "<div><h3>Calibration: {name}</h3><p class=\"about\">{meaning}</p>{shown}</div>"
        );
        before = drawn;
    }
    html + "</div>"
}

fn table_2(records: &[&Record]) -> String {
    each(records, |mine| table2::html(mine) + &figure_6(mine)) + &oddities::html(records)
}

fn figure_6(records: &[&Record]) -> String {
    let mut groups: Vec<Group> = Vec::new();
    let overall = records.iter().filter(|record| record.metric == "overall");
    for record in overall {
        let name = format!("{} B {}", text(record, key::PAYLOAD_BYTES), text(record, key::CORE));
        let value = |metric: &str| table2::sibling(records, record, metric);
        let faster = value("faster_copies").unwrap_or(0.0);
        let total = record.median().unwrap_or(0.0);
        let bar = Bar {
            name: text(record, key::MODE),
            parts: vec![(faster, 0), ((total - faster).max(0.0), 1)],
            mark: record.number(key::BASELINE_VALUE),
        };
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.bars.push(bar),
            None => groups.push(Group { name, bars: vec![bar] }),
        }
    }
    chart::bars(
        "Reduction of execution time in percent",
        &groups,
        &["faster copies", "overlap"],
        "the paper’s whole",
    )
}

fn figure_7(records: &[&Record]) -> String {
    each(records, |mine| {
        let groups = MODES.map(|mode| {
            let of_mode = mine.iter().filter(|record| text(record, key::MODE) == mode);
            let bar = |record: &&Record| Bar {
                name: format!("{} GB/s", text(record, key::BANDWIDTH_GB_PER_S)),
                parts: vec![(record.median().unwrap_or(0.0), 0)],
                mark: None,
            };
            Group { name: mode.into(), bars: of_mode.map(bar).collect() }
        });
        chart::bars("Execution time in percent of BASE at 3.2 GB/s", &groups, &["time"], "")
    })
}

fn figure_8(records: &[&Record]) -> String {
    each(records, |mine| {
        let lines: Vec<chart::Line> = MODES
            .iter()
            .map(|mode| {
                let of_mode = || mine.iter().filter(|record| text(record, key::MODE) == *mode);
                let point =
                    |record: &&Record| Some((record.number(key::LATENCY_NS)?, record.median()?));
                let paper = |record: &&Record| {
                    Some((record.number(key::LATENCY_NS)?, record.number(key::BASELINE_VALUE)?))
                };
                chart::Line {
                    name: (*mode).into(),
                    points: of_mode().filter_map(point).collect(),
                    marks: of_mode().filter_map(paper).collect(),
                }
            })
            .collect();
        chart::lines("Execution time in percent of BASE at 110 ns", "memory latency in ns", &lines)
    })
}

fn tiers(records: &[&Record]) -> String {
    each(records, |mine| {
        let mut html = String::from("<ul class=\"tiers\">");
        for tier in mine.iter().filter(|record| record.metric == "tier") {
            let name = text(tier, key::TIER);
            let of_tier =
                |record: &&&Record| record.metric == "check" && text(record, key::TIER) == name;
            let checks: Vec<&&Record> = mine.iter().filter(of_tier).collect();
            let (passed, failed): (Vec<_>, Vec<_>) =
                checks.into_iter().partition(|check| check.median() == Some(1.0));
            let (class, word) =
                if failed.is_empty() { ("better", "pass") } else { ("worse", "fail") };
            let _ = write!(
                html,
                "<li class=\"{class}\"><strong>Tier {}: {word}</strong>, {} of {} checks hold",
                escape(&name),
                passed.len(),
                passed.len() + failed.len()
            );
            for check in failed {
                let (what, value) = (text(check, key::WHAT), text(check, key::VALUE));
                let _ = write!(html, "<br>fails: {} ({})", escape(&what), escape(&value));
            }
            html.push_str("</li>");
        }
        html + "</ul>"
    })
}

fn copy_share(records: &[&Record]) -> String {
    each(records, |mine| {
        let mut html = String::from(
            "<div class=\"scroll\"><table class=\"sim\"><thead><tr><th>payload</th><th>paper</th><th>ours</th><th>error</th>\
             <th>compute a packet</th><th>copy a line</th></tr></thead><tbody>",
        );
        for record in mine {
            let _ = write!(
                html,
                "<tr><td>{} B</td><td>{}%</td><td>{:.1}%</td><td>{:+.1}</td><td>{} cycles</td><td>{} cycles</td></tr>",
                escape(&text(record, key::PAYLOAD_BYTES)),
                escape(&text(record, key::BASELINE_VALUE)),
                record.median().unwrap_or(0.0),
                record.number(key::ERROR_POINTS).unwrap_or(0.0),
                escape(&text(record, key::COMPUTE_CYCLES)),
                escape(&text(record, key::CYCLES_PER_LINE)),
            );
        }
        html + "</tbody></table></div>"
    })
}

/// A parameter as text; empty if it is absent.
fn text(record: &Record, name: &str) -> String {
    field(record, name).unwrap_or_default()
}
