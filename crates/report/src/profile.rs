//! The profile of a program's copies: where the bytes go, by call site, by size and by thread.

use std::fmt::Write as _;

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Bytes, Record};

use crate::select::{field, runs};
use crate::text::{self, escape};

/// The largest number of call sites and of threads that are drawn; the others are summed.
const ROWS_MAX: usize = 20;

/// Below this processor time in seconds, the kernel's ticks of 0.01 s make a share of it too
/// uncertain.
const CPU_S_MIN: f64 = 0.2;

pub(crate) const TITLE: &str = "The copies of a program";
pub(crate) const ABOUT: &str = "Where a program’s bytes are copied and filled: by call site, by size and by thread. The \
    figures are estimates from samples of the calls that the preloaded library sees. The time is that of the calls of \
    each size, times the measured time of one whose bytes are in a cache, with libc’s functions and with haul’s; what haul saves \
    is shown in percent of this time and of the program’s processor time. Half of a site’s calls have at most the \
    size shown; near are copies whose source and target are less than 4 KiB apart.";

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
        let number = |key| first.count(key).unwrap_or(0) as usize;
        let processes = match number(key::PROCESSES) {
            1 => "1 process".to_owned(),
            several => format!("{} processes", text::grouped(several)),
        };
        let _ = write!(
            html,
            "<p>Seen: {} with {}, of {processes} and {}, from {}.</p>",
            text::count(number(key::CALLS), "call"),
            Bytes(whole as u64).approximate(),
            text::count(number(key::THREADS), "thread"),
            text::count(number(key::SAMPLED), "sample")
        );
        html += &time(first).map_or(String::new(), |text| {
            format!("<p>Time of these calls: {}.</p>", escape(&text))
        });
    }
    html += &sites(&of("site"), whole, cpu_s(&all));
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

/// The program's processor time, if it is known and long enough for a share of it.
fn cpu_s(all: &[&Record]) -> Option<f64> {
    let cpu_s = all.first()?.number(key::PROGRAM_CPU_S)?;
    (cpu_s >= CPU_S_MIN && cpu_s.is_finite()).then_some(cpu_s)
}

/// The time of all calls, with libc's functions and with haul's, in words. `None` if the record,
/// that of a whole profile, has no times.
///
/// ```
/// use haul_model::Record;
/// let record = Record::new("r", "copy.profile", "sort", "bytes", "B")
///     .with("libc_s", 0.5).with("haul_s", 0.4).with("program_cpu_s", 10.0);
/// assert_eq!(
///     haul_report::profile::time(&record).unwrap(),
///     "about 0.500 s with libc's functions, 0.400 s with haul's; 5.0% and 4.0% of \
///      the program's processor time, 10.0 s"
/// );
/// ```
#[must_use]
pub fn time(record: &Record) -> Option<String> {
    let (libc_s, haul_s) = (record.number(key::LIBC_S)?, record.number(key::HAUL_S)?);
    let share = match cpu_s(&[record]) {
        Some(cpu_s) => format!(
            "; {} and {} of the program's processor time, {} s",
            text::percent(libc_s / cpu_s),
            text::percent(haul_s / cpu_s),
            three_digits(cpu_s)
        ),
        None => String::new(),
    };
    Some(format!(
        "about {} s with libc's functions, {} s with haul's{share}",
        three_digits(libc_s),
        three_digits(haul_s)
    ))
}

/// What a site would gain, in three cells: the time with libc's functions, the gain in it, and the
/// gain in percent of the program's processor time.
fn gain(record: &Record, cpu_s: Option<f64>) -> String {
    let times = record.number(key::LIBC_S).zip(record.number(key::HAUL_S));
    let Some((libc_s, haul_s)) = times.filter(|(libc_s, _)| *libc_s > 0.0) else {
        return "<td>–</td><td>–</td><td>–</td>".into();
    };
    let saved_s = libc_s - haul_s;
    let of_program = cpu_s.map_or("–".into(), |cpu_s| signed(100.0 * saved_s / cpu_s));
    let of_time = signed(100.0 * saved_s / libc_s);
    format!("<td>{}</td><td>{of_time}</td><td>{of_program}</td>", three_digits(1e3 * libc_s))
}

/// A percentage with a minus sign for a loss.
fn signed(percent: f64) -> String {
    let shown = format!("{:.1}", percent.abs());
    match percent < 0.0 && shown != "0.0" {
        true => format!("−{shown}"),
        false => shown,
    }
}

/// A table of the call sites.
fn sites(records: &[&Record], whole: f64, cpu_s: Option<f64>) -> String {
    if records.is_empty() {
        return String::new();
    }
    let has_times = records.iter().any(|record| record.number(key::LIBC_S).is_some());
    let times = match has_times {
        true => "<th>ms with libc</th><th>% saved</th><th>% of the program</th>",
        false => "",
    };
    let mut html = format!(
        "<p class=\"about\"><b>Call sites</b></p><div class=\"scroll\"><table class=\"sim\"><thead><tr><th>site</th>\
         <th>% of bytes</th>{times}<th>calls</th><th>half up to</th><th>% overlap</th>\
         <th>% near</th><th>% misaligned</th></tr></thead><tbody>",
    );
    for record in records.iter().take(ROWS_MAX) {
        let hundred = |key| record.number(key).map_or("–".into(), |it| percent(100.0 * it));
        let _ = write!(
            html,
            "<tr><td style=\"text-align:left\">{}</td><td>{}</td>{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td></tr>",
            escape(&field(record, key::SITE).unwrap_or_default()),
            percent(share(record, whole)),
            if has_times { gain(record, cpu_s) } else { String::new() },
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
        assert!(!html.contains("ms with libc"), "these records have no times");
        assert!(super::html(name::COPY_SIZE, &[]).is_none());
    }

    #[test]
    fn gain_of_a_site_is_of_its_time_and_of_the_programs() {
        let timed = |record: Record, libc_s: f64, haul_s: f64| {
            record.with(key::LIBC_S, libc_s).with(key::HAUL_S, haul_s)
        };
        let all = timed(record("all", key::NOTE, "n", 100.0), 0.3, 0.2);
        let records = [
            all.with(key::PROGRAM_CPU_S, 2.0),
            timed(record("site", key::SITE, "gains", 60.0), 0.2, 0.05),
            timed(record("site", key::SITE, "loses", 40.0), 0.1, 0.15),
            record("site", key::SITE, "unknown", 0.0),
        ];
        let of = |records: &[Record]| {
            html(name::COPY_PROFILE, &records.iter().collect::<Vec<_>>()).unwrap()
        };
        let drawn = of(&records);
        for part in [
            "15% and 10% of the program&#39;s processor time, 2.00 s",
            "<td>200</td><td>75.0</td><td>7.5</td>",
            "<td>100</td><td>−50.0</td><td>−2.5</td>",
            "<td>–</td><td>–</td><td>–</td>",
        ] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        let mut hostile = records;
        hostile[0] = hostile[0].clone().with(key::PROGRAM_CPU_S, 0.0).with(key::LIBC_S, -1.0);
        let drawn = of(&hostile);
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }
}
