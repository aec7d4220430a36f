//! The profile of a program's copies: where the bytes go, by call site, by size and by thread.

use std::fmt::Write as _;

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Bytes, Record};

use crate::select::{field, runs};
use crate::text::escape;

/// The largest number of call sites and of threads that are drawn; the others are summed.
const ROWS_MAX: usize = 20;

pub(crate) const TITLE: &str = "The copies of a program";
pub(crate) const ABOUT: &str = "Where a program’s bytes are copied and filled: by call site, by size and by thread. The \
    figures are estimates from samples of the calls that the preloaded library sees.";

/// Draws the newest run of these records; `None` if they belong to another experiment.
pub(crate) fn html(experiment: &str, records: &[&Record]) -> Option<String> {
    if experiment != name::COPY_PROFILE {
        return None;
    }
    let newest = runs(records).into_iter().next_back()?;
    let mut programs: Vec<&str> = newest.iter().map(|record| record.subject.as_str()).collect();
    programs.dedup();
    Some(programs.iter().map(|program| of_program(program, &newest)).collect())
}

fn of_program(program: &str, records: &[&Record]) -> String {
    let of = |by: &str| -> Vec<&Record> {
        let is = |record: &&&Record| record.subject == program && record.text(key::BY) == Some(by);
        records.iter().filter(is).copied().collect()
    };
    let all = of("all");
    let whole: f64 = all.iter().filter_map(|record| record.median()).sum();
    let mut html = format!("<div class=\"bursts\"><h3>{}</h3>", escape(program));
    if let Some(first) = all.first() {
        let number = |key| first.count(key).unwrap_or(0);
        let _ = write!(
            html,
            "<p>Seen: {} calls with {}, of {} processes and {} threads, from {} samples.</p>",
            number(key::CALLS),
            Bytes(whole as u64).approximate(),
            number(key::PROCESSES),
            number(key::THREADS),
            number(key::SAMPLED)
        );
    }
    html += &sites(&of("site"), whole);
    html += &bars("Bytes by size", &of("size"), key::SIZE_CLASS, whole);
    html += &bars("Bytes by thread", &of("thread"), key::THREAD, whole);
    if let Some(note) = all.iter().find_map(|record| field(record, key::NOTE)) {
        let _ = write!(html, "<p class=\"about\">Note: {}.</p>", escape(&note));
    }
    html + "</div>"
}

fn share(record: &Record, whole: f64) -> f64 {
    let bytes = record.median().unwrap_or(0.0);
    if whole > 0.0 { (100.0 * bytes / whole).clamp(0.0, 100.0) } else { 0.0 }
}

fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.1 { "&lt; 0.1".into() } else { escape(&three_digits(share)) }
}

/// A table of the call sites.
fn sites(records: &[&Record], whole: f64) -> String {
    if records.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<p class=\"about\"><b>Call sites</b></p><div class=\"scroll\"><table class=\"sim\"><thead><tr><th>site</th>\
         <th>% of bytes</th><th>calls</th><th>half of the calls up to</th><th>% overlap</th><th>% less than 4 KiB \
         apart</th><th>% misaligned</th></tr></thead><tbody>",
    );
    for record in records.iter().take(ROWS_MAX) {
        let hundred = |key| record.number(key).map_or("–".into(), |it| percent(100.0 * it));
        let _ = write!(
            html,
            "<tr><td style=\"text-align:left\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td></tr>",
            escape(&field(record, key::SITE).unwrap_or_default()),
            percent(share(record, whole)),
            record.count(key::CALLS).unwrap_or(0),
            Bytes(record.count(key::SIZE_MEDIAN_BYTES).unwrap_or(0)).approximate(),
            hundred(key::OVERLAP),
            hundred(key::NEAR),
            hundred(key::MISALIGNED)
        );
    }
    html.push_str("</tbody></table></div>");
    html + &rest(records, "call sites", whole)
}

/// A line with a bar for each record.
fn bars(title: &str, records: &[&Record], name: &str, whole: f64) -> String {
    let line = |record: &&Record| {
        let (label, share) =
            (escape(&field(record, name).unwrap_or_default()), share(record, whole));
        format!(
            "<li title=\"{label}: {} calls\"><span style=\"width:13rem\">{label}</span>\
             <div><i style=\"width:{share:.2}%\"></i></div><span>{}%</span></li>",
            record.count(key::CALLS).unwrap_or(0),
            percent(share)
        )
    };
    let shown = if name == key::SIZE_CLASS { records.len() } else { records.len().min(ROWS_MAX) };
    let lines: String = records[..shown].iter().map(line).collect();
    if lines.is_empty() {
        return String::new();
    }
    let rest = if shown < records.len() { rest(records, "threads", whole) } else { String::new() };
    format!(
        "<p class=\"about\"><b>{title}</b>, in percent</p><ol class=\"bars\">{lines}</ol>{rest}"
    )
}

/// The records beyond those that are shown.
fn rest(records: &[&Record], what: &str, whole: f64) -> String {
    let Some(rest) = records.get(ROWS_MAX..).filter(|rest| !rest.is_empty()) else {
        return String::new();
    };
    let sum: f64 = rest.iter().map(|record| share(record, whole)).sum();
    format!("<p class=\"about\">{} other {what}: {}% of bytes.</p>", rest.len(), percent(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(by: &str, key: &str, name: &str, bytes: f64) -> Record {
        let mut record = Record::new("r", name::COPY_PROFILE, "sort", "bytes", "B")
            .with(key::BY, by)
            .with(key::CALLS, 7)
            .with(key, name);
        record.samples = vec![bytes];
        record
    }

    #[test]
    fn shares_are_of_all_bytes_and_the_tail_is_summed() {
        let mut records = vec![record("all", key::NOTE, "not seen: <inlined>", 4000.0)];
        records.extend((0..30).map(|at| record("site", key::SITE, &format!("s<+{at}"), 100.0)));
        records.push(record("size", key::SIZE_CLASS, "64-127", 3000.0));
        records.push(record("thread", key::THREAD, "sort 7, thread 0", 1.0));
        let html = html(name::COPY_PROFILE, &records.iter().collect::<Vec<_>>()).unwrap();
        for part in
            ["s&lt;+19", "10 other call sites: 25.0% of bytes", "64-127", "75.0%", "&lt; 0.1%"]
        {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("s&lt;+20") && !html.contains("<inlined>"), "{html}");
        assert!(super::html(name::COPY_SIZE, &[]).is_none());
    }
}
