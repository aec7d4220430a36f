//! Every record as a row of comma-separated values.

use std::borrow::Cow;
use std::collections::BTreeSet;

use haul_model::{Line, Record};

use crate::stats::quantile;
use crate::text;

/// Every record as one row, in the order of the lines, below a row of column names. Machines are
/// left out.
///
/// Quoted as RFC 4180 requires, with `\n` line ends. Columns: the record's fields, each parameter
/// as `parameters.NAME` (empty where a record lacks it), `median`, `quartile_low`, `quartile_high`,
/// the comparison (always as a ratio of time or cost, so that below 1 is better), and all
/// `samples` separated by spaces (if they are quantiles, `quantiles_of` gives the number of
/// samples). Numbers are written so that they read back exactly. Text that a spreadsheet would
/// evaluate as a formula is prefixed with an apostrophe.
///
/// ```
/// use haul_model::{Line, Record};
/// let mut record = Record::new("r", "copy.size", "a,b", "time", "ns").with("size_bytes", 64);
/// record.samples = vec![1.0, 3.0];
/// let csv = haul_report::csv(&[Line::from(record)]);
/// assert!(csv.starts_with("run,time,machine,kind,experiment,subject,metric,unit,parameters.size_bytes,median,"));
/// assert!(csv.contains(r#","a,b",time,ns,64,2,"#));
/// ```
#[must_use]
pub fn csv(lines: &[Line]) -> String {
    let records: Vec<&Record> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Record(record) => Some(record),
            Line::Machine(_) => None,
        })
        .collect();
    let parameters: BTreeSet<&str> =
        records.iter().flat_map(|record| record.parameters.keys().map(String::as_str)).collect();
    let mut header: Vec<String> =
        ["run", "time", "machine", "kind", "experiment", "subject", "metric", "unit"]
            .map(String::from)
            .to_vec();
    header.extend(parameters.iter().map(|name| format!("parameters.{name}")));
    header.extend(
        [
            "median",
            "quartile_low",
            "quartile_high",
            "baseline",
            "ratio",
            "ratio_low",
            "ratio_high",
            "floor",
        ]
        .map(String::from),
    );
    header.extend(["quantiles_of", "samples"].map(String::from));
    let mut csv = row(&header);
    for record in records {
        csv.push_str(&row(&cells(record, &parameters)));
    }
    csv
}

fn cells(record: &Record, parameters: &BTreeSet<&str>) -> Vec<String> {
    let exact = |number: Option<f64>| number.map(|n| n.to_string()).unwrap_or_default();
    let kind = text::kind(record.kind);
    let mut cells: Vec<String> = [
        record.run.as_str(),
        &record.time,
        &record.machine,
        kind,
        &record.experiment,
        &record.subject,
        &record.metric,
        &record.unit,
    ]
    .map(String::from)
    .to_vec();
    cells.extend(parameters.iter().map(|name| record.shown(name).unwrap_or_default()));
    cells.extend([
        exact(record.median()),
        exact(quantile(&record.samples, 0.25)),
        exact(quantile(&record.samples, 0.75)),
    ]);
    let c = record.cost();
    let c = c.as_ref();
    cells.push(c.map(|c| c.baseline.clone()).unwrap_or_default());
    cells.extend([
        exact(c.map(|c| c.ratio)),
        exact(c.map(|c| c.ratio_low)),
        exact(c.map(|c| c.ratio_high)),
        exact(c.map(|c| c.floor)),
    ]);
    cells.push(record.quantiles_of.map(|count| count.to_string()).unwrap_or_default());
    cells.push(record.samples.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
    cells
}

fn row(cells: &[String]) -> String {
    let quoted: Vec<String> = cells
        .iter()
        .map(|cell| {
            let cell = guarded(cell);
            if cell.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.into_owned()
            }
        })
        .collect();
    quoted.join(",") + "\n"
}

/// Text that no spreadsheet evaluates as a formula, because a record from elsewhere must not run
/// code in a spreadsheet that opens it. Numbers, and lists of them, stay as they are.
fn guarded(cell: &str) -> Cow<'_, str> {
    let is_number = || cell.split(' ').all(|part| part.parse::<f64>().is_ok());
    if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && !is_number() {
        return Cow::Owned(format!("'{cell}"));
    }
    Cow::Borrowed(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formula_becomes_text_and_number_stays_number() {
        for formula in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-"] {
            assert_eq!(guarded(formula), format!("'{formula}"));
        }
        for plain in ["-0.5", "1e-9", "-1 2.5 -3", "+4", "", "memcpy", "0-16", "a=b"] {
            assert_eq!(guarded(plain), plain);
        }
        assert_eq!(row(&["=HYPERLINK(\"x\",1)".into()]), "\"'=HYPERLINK(\"\"x\"\",1)\"\n");
    }
}
