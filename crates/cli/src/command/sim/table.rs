//! The results of `haul sim reproduce`, as text for a person.

use std::fmt::Write as _;
use std::path::Path;

use haul_model::Record;
use haul_model::experiment::{key, name};

/// Table 2 side by side, the copy shares, the tiers and the speed.
pub(super) fn text<'a>(records: impl Iterator<Item = &'a Record>, page: &Path) -> String {
    let records: Vec<&Record> = records.collect();
    let mut text = String::new();
    for calibration in ["none", "one-knob"] {
        let of = |record: &&&Record| field(record, key::CALIBRATION) == calibration;
        let mine: Vec<&Record> = records.iter().filter(of).copied().collect();
        if mine.iter().any(|record| record.experiment == name::SIM_TABLE2) {
            calibrated(&mut text, calibration, &mine);
        }
    }
    for record in records.iter().filter(|record| record.metric == "simulated_mips") {
        let median = record.median().unwrap_or(0.0);
        let core = field(record, key::CORE);
        let _ =
            writeln!(text, "speed {core}: {median:.1} million instructions per second on a core");
    }
    let _ = write!(text, "page: {}", page.display());
    text
}

fn calibrated(text: &mut String, calibration: &str, records: &[&Record]) {
    let _ = writeln!(text, "Table 2, calibration {calibration}: paper, ours, error in points");
    let _ = writeln!(
        text,
        "{:>7} {:>9} {:>13} {:>20} {:>20} {:>20}",
        "payload", "mode", "core", "overall", "faster copies", "overlap"
    );
    let metric = |of: &Record, metric: &str| {
        let same = |other: &&&Record| {
            other.experiment == name::SIM_TABLE2
                && other.metric == metric
                && [key::PAYLOAD_BYTES, key::MODE, key::CORE]
                    .iter()
                    .all(|name| field(other, name) == field(of, name))
        };
        records.iter().find(same).map_or_else(String::new, |record| beside(record))
    };
    for row in records.iter().filter(|r| r.experiment == name::SIM_TABLE2 && r.metric == "overall")
    {
        let disputed = if field(row, key::DISPUTED).is_empty() { "" } else { "  *" };
        let _ = writeln!(
            text,
            "{:>7} {:>9} {:>13} {:>20} {:>20} {:>20}{disputed}",
            field(row, key::PAYLOAD_BYTES),
            field(row, key::MODE),
            field(row, key::CORE),
            beside(row),
            metric(row, "faster_copies"),
            metric(row, "overlap"),
        );
    }
    for record in records.iter().filter(|record| record.metric == "mean_absolute_error") {
        let error = record.median().unwrap_or(0.0);
        let rows = field(record, key::ROWS);
        let _ =
            writeln!(text, "mean absolute error over {rows} undisputed rows: {error:.2} points");
    }
    for record in records.iter().filter(|record| record.experiment == name::SIM_COPY_SHARE) {
        let payload = field(record, key::PAYLOAD_BYTES);
        let _ = writeln!(text, "BASE in order copies at {payload} B: {} %", beside(record));
    }
    for record in records.iter().filter(|r| r.experiment == name::SIM_FIGURE8) {
        let time = record.median().unwrap_or(0.0);
        let paper = field(record, key::BASELINE_VALUE);
        let paper = if paper.is_empty() { paper } else { format!(", paper {paper}") };
        let (mode, latency) = (field(record, key::MODE), field(record, key::LATENCY_NS));
        let _ = writeln!(text, "Figure 8 {mode} {latency} ns: {time:.1}% of BASE at 110{paper}");
    }
    for record in records.iter().filter(|r| r.experiment == name::SIM_FIGURE7) {
        let time = record.median().unwrap_or(0.0);
        let (mode, speed) = (field(record, key::MODE), field(record, key::BANDWIDTH_GB_PER_S));
        let _ = writeln!(text, "Figure 7 {mode} {speed} GB/s: {time:.1}% of BASE at 3.2");
    }
    for record in records.iter().filter(|record| record.metric == "tier") {
        let passes = if record.median() == Some(1.0) { "pass" } else { "FAIL" };
        let _ = writeln!(text, "tier {}: {passes}", field(record, key::TIER));
    }
    for record in records.iter().filter(|r| r.metric == "check" && r.median() == Some(0.0)) {
        let (what, value) = (field(record, key::WHAT), field(record, key::VALUE));
        let _ = writeln!(text, "  fails {}: {what} ({value})", field(record, key::TIER));
    }
    text.push('\n');
}

/// `42.5  43.1  +0.6`.
fn beside(record: &Record) -> String {
    let number = |name: &str| record.number(name).unwrap_or(f64::NAN);
    let ours = record.median().unwrap_or(f64::NAN);
    format!("{:5.1} {ours:5.1} {:+6.1}", number(key::BASELINE_VALUE), number(key::ERROR_POINTS))
}

/// A parameter as text; empty if it is missing.
fn field(record: &Record, name: &str) -> String {
    record.shown(name).unwrap_or_default()
}
