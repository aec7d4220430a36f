//! Table 2: the paper's results beside haul's.

use std::fmt::Write as _;

use haul_model::Record;
use haul_model::experiment::key;

use super::text;
use crate::text::escape;

const METRICS: [(&str, &str); 3] =
    [("overall", "overall"), ("faster_copies", "faster copies"), ("overlap", "overlap")];

/// One calibration's table, with the mean error below.
pub(super) fn html(records: &[&Record]) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"sim\"><thead><tr><th rowspan=\"2\">payload</th><th rowspan=\"2\">mode</th>\
         <th rowspan=\"2\">core</th>",
    );
    for (_, title) in METRICS {
        let _ = write!(html, "<th colspan=\"3\">{title} (%)</th>");
    }
    html.push_str("</tr><tr>");
    for _ in METRICS {
        html.push_str("<th>paper</th><th>ours</th><th>error</th>");
    }
    html.push_str("</tr></thead><tbody>");
    for row in records.iter().filter(|record| record.metric == "overall") {
        html.push_str(&line(records, row));
    }
    html.push_str("</tbody></table></div>");
    for record in records.iter().filter(|record| record.metric == "mean_absolute_error") {
        let _ = write!(
            html,
            "<p>Mean absolute error of the whole over {} undisputed rows: <strong>{:.2} points</strong>.</p>",
            escape(&text(record, key::ROWS)),
            record.median().unwrap_or(0.0)
        );
    }
    html
}

fn line(records: &[&Record], row: &Record) -> String {
    let disputed = text(row, key::DISPUTED);
    let star = if disputed.is_empty() { String::new() } else { star(&disputed) };
    let mut html = format!(
        "<tr><td>{} B</td><td>{}{star}</td><td>{}</td>",
        escape(&text(row, key::PAYLOAD_BYTES)),
        escape(&text(row, key::MODE)),
        escape(&text(row, key::CORE)),
    );
    for (metric, _) in METRICS {
        let cell = records.iter().find(|record| record.metric == metric && same_row(record, row));
        let Some(cell) = cell else {
            html.push_str("<td colspan=\"3\"></td>");
            continue;
        };
        let error = cell.number(key::ERROR_POINTS).unwrap_or(0.0);
        /// Points from which an error is highlighted: the limit for in-order cores.
        const MARKED: f64 = 5.0;
        let class =
            if error.abs() > MARKED && disputed.is_empty() { " class=\"worse\"" } else { "" };
        let _ = write!(
            html,
            "<td>{}</td><td>{:.1}</td><td{class}>{error:+.1}</td>",
            escape(&text(cell, key::BASELINE_VALUE)),
            cell.median().unwrap_or(0.0),
        );
    }
    html + "</tr>"
}

fn star(why: &str) -> String {
    format!("<abbr title=\"{}\">*</abbr>", escape(why))
}

/// Another figure of the same row.
pub(super) fn sibling(records: &[&Record], row: &Record, metric: &str) -> Option<f64> {
    let is = |record: &&&Record| record.metric == metric && same_row(record, row);
    records.iter().find(is)?.median()
}

fn same_row(one: &Record, other: &Record) -> bool {
    [key::PAYLOAD_BYTES, key::MODE, key::CORE, key::CALIBRATION]
        .iter()
        .all(|name| one.parameters.get(*name) == other.parameters.get(*name))
}
