//! The terms of a packet workload: the bytes of each on the link, the sums, the limiting direction,
//! and changes that would let the link carry more; or the terms that differ between two workloads.

use std::fmt::Write as _;

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Record};

use crate::select::field;
use crate::text::{self, escape};

/// A value above every possible rate on a link.
const MOST: f64 = 1e18;
/// Limit of terms of one workload, beyond which a list is not usable.
const TERMS_MAX: usize = 64;

/// The sums with their names for the reader.
const SUMS: [(&str, &str); 5] = [
    ("inbound_read", "inbound read"),
    ("inbound_write", "inbound write"),
    ("outbound_read", "outbound read"),
    ("outbound_write", "outbound write"),
    ("outbound_write_by_packets", "outbound write, batches weighted by packets"),
];

/// One line of a list, with a bar below it.
struct Row {
    title: String,
    about: String,
    value: String,
    /// The lengths of the bar's parts, in the same unit in all rows.
    parts: [f64; 2],
}

/// Draws the newest run of these records; `None` if they belong to another experiment, or if
/// there are several workloads.
pub(crate) fn html(experiment: &str, records: &[&Record]) -> Option<String> {
    let last = records
        .last()
        .filter(|_| experiment == name::PCIE_ESTIMATE || experiment == name::PCIE_EXPLAIN)?;
    let newest: Vec<&Record> =
        records.iter().filter(|record| record.run == last.run).copied().collect();
    let of = |metric: &str| -> Vec<&Record> {
        newest.iter().filter(|record| record.metric == metric).copied().collect()
    };
    let (terms, differences) = (of("transaction"), of("difference"));
    if terms.len().max(differences.len()) > TERMS_MAX || of("rate_max").len() > 1 {
        return None;
    }
    let body = match differences.is_empty() {
        true => workload(&newest, &terms, &of("advice"))?,
        false => list(&rows(&differences, difference)),
    };
    Some(format!("<div class=\"sim terms\">{body}</div>"))
}

fn workload(newest: &[&Record], terms: &[&Record], advised: &[&Record]) -> Option<String> {
    let mut rows = rows(terms, term);
    if rows.is_empty() {
        return None;
    }
    rows.sort_by(|a, b| b.parts.iter().sum::<f64>().total_cmp(&a.parts.iter().sum()));
    let mut html = format!("<p><b>{}</b></p>", escape(&sentence(newest, terms[0])));
    html.push_str("<h3>Bytes a second of each transaction, in both directions of the link</h3>");
    html.push_str(&list(&rows));
    html.push_str(
        "<p class=\"about\"><i style=\"background:var(--s0)\"></i>data \
         <i style=\"background:var(--s1)\"></i>headers, framing and requests</p>",
    );
    html.push_str(&sums(newest));
    if !advised.is_empty() {
        html.push_str(
            "<h3>Changes that would let the link carry more: packets a second at which it would be \
             full, by the same estimate</h3>",
        );
        html.push_str(&list(&self::rows(advised, advice)));
    }
    if let Some(note) = newest.iter().find_map(|record| field(record, key::NOTE)) {
        let _ = write!(html, "<p class=\"about\">Note: {}.</p>", escape(&note));
    }
    Some(html)
}

/// The workload, and the free capacity of the link.
fn sentence(newest: &[&Record], of: &Record) -> String {
    let said = |name| field(of, name).unwrap_or_default();
    let rate = number(of, key::RATE_PACKETS_PER_S).map_or(String::new(), count);
    let sizes = said(key::SIZES_BYTES);
    let size = sizes.strip_suffix(":1").unwrap_or(&sizes);
    let mut text = format!(
        "{rate} packets/s of {size} B in batches of {} (packets:polls), {} by the rules of {} in mode \
         {}, on {}",
        said(key::RX_BATCHES),
        said(key::NIC),
        said(key::DRIVER_RULES),
        said(key::MODE),
        said(key::LINK)
    );
    let share = |way: &str| {
        let record = newest.iter().find(|record| record.metric == way)?;
        let share = value(record)? / number(record, key::USABLE_BYTES_PER_S)?;
        share.is_finite().then(|| text::percent(share))
    };
    if let (Some(to_host), Some(to_device)) = (share("to_host"), share("to_device")) {
        let _ = write!(text, ": {to_host} of it is used to the host and {to_device} to the device");
    }
    let full = newest.iter().find(|record| record.metric == "rate_max");
    if let Some((record, rate)) = full.and_then(|record| Some((record, value(record)?))) {
        let way = field(record, key::BINDS).unwrap_or_default().replace("to_", "to the ");
        let _ = write!(text, "; it is full {way} at {} packets/s", count(rate));
    }
    text + "."
}

/// The sums by direction; empty if there are none.
fn sums(newest: &[&Record]) -> String {
    let rows: String = SUMS
        .iter()
        .filter_map(|(metric, title)| {
            let record = newest.iter().find(|record| record.metric == *metric)?;
            let headers = number(record, key::HEADER_BYTES_PER_S);
            let rate = |bytes: f64| BytesPerSecond(bytes).to_string();
            Some(format!(
                "<tr><td style=\"text-align:left;white-space:normal\">{title}</td><td>{}</td><td>{}</td></tr>",
                rate(value(record)?),
                headers.map_or("–".into(), rate)
            ))
        })
        .collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h3>Sums, as a processor’s counters show them</h3><div class=\"scroll\"><table class=\"sim\"><thead><tr>\
         <th></th><th>data</th><th>headers</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

fn term(record: &Record) -> Option<Row> {
    let each = [number(record, key::PAYLOAD_BYTES)?, number(record, key::HEADER_BYTES)?];
    let often = number(record, key::COUNT_PER_S)?;
    let parts = each.map(|bytes| bytes * often);
    Some(Row {
        title: field(record, key::WHAT)?,
        about: format!(
            "{}: {} a second, {} B of data and {} B of headers each",
            field(record, key::DIRECTION)?.replace('_', " "),
            count(often),
            bytes(each[0]),
            bytes(each[1])
        ),
        value: BytesPerSecond(parts[0] + parts[1]).to_string(),
        parts,
    })
}

fn advice(record: &Record) -> Option<Row> {
    let full = value(record)?;
    let way = field(record, key::BINDS).unwrap_or_default().replace("to_", "to the ");
    let more = number(record, key::RATE_MAX_RATIO).map_or(0.0, |ratio| (ratio - 1.0) * 100.0);
    let mut about = format!("full {way} then, {}% more packets", three_digits(more));
    if let Some(term) = field(record, key::WHAT) {
        let _ = write!(about, ", most of it in {term}");
    }
    let writes = number(record, key::SAVED_WRITES_PER_S).filter(|writes| *writes >= 1.0);
    if let Some(writes) = writes {
        let _ = write!(about, "; {} fewer writes to the device a second", count(writes));
    }
    let _ = write!(about, ". {}", field(record, key::HOW).unwrap_or_default());
    Some(Row {
        title: field(record, key::CHANGE)?,
        about,
        value: format!("{} packets/s", count(full)),
        parts: [full, 0.0],
    })
}

fn difference(record: &Record) -> Option<Row> {
    let more = record.samples.first().copied().filter(|more| more.abs() < MOST)?;
    let counts = [key::COUNT_PER_S_BEFORE, key::COUNT_PER_S].map(|name| number(record, name));
    let counts = counts.map(|often| often.map_or("–".into(), count));
    let sign = if more < 0.0 { "−" } else { "+" };
    Some(Row {
        title: field(record, key::WHAT)?,
        about: format!(
            "{}, by its {}: {} a second, then {}",
            field(record, key::DIRECTION)?.replace('_', " "),
            field(record, key::CAUSE).unwrap_or_default(),
            counts[0],
            counts[1]
        ),
        value: format!("{sign}{}", BytesPerSecond(more.abs())),
        parts: [more.abs(), 0.0],
    })
}

fn rows(records: &[&Record], of: impl Fn(&Record) -> Option<Row>) -> Vec<Row> {
    records.iter().filter_map(|record| of(record)).collect()
}

fn list(rows: &[Row]) -> String {
    let most = rows.iter().map(|row| row.parts.iter().sum::<f64>()).fold(0.0, f64::max);
    let wide = |part: f64| if most > 0.0 { part / most * 100.0 } else { 0.0 };
    let items: String = rows
        .iter()
        .map(|row| {
            let bars: String = (0..2)
                .filter(|part| row.parts[*part] > 0.0)
                .map(|part| {
                    let (wide, colour) = (wide(row.parts[part]), part);
                    format!("<i style=\"width:{wide:.2}%;background:var(--s{colour})\"></i>")
                })
                .collect();
            format!(
                "<li><b>{}</b><span>{}</span><small>{}</small><div class=\"bar\">{bars}</div></li>",
                escape(&row.title),
                escape(&row.value),
                escape(&row.about)
            )
        })
        .collect();
    format!("<ol>{items}</ol>")
}

/// `64`, `17.5`.
fn bytes(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { three_digits(number) }
}

/// `10.0 M`, `312 k`.
fn count(number: f64) -> String {
    let (divisor, unit) = match number {
        1e9.. => (1e9, " G"),
        1e6.. => (1e6, " M"),
        1e3.. => (1e3, " k"),
        _ => (1.0, ""),
    };
    format!("{}{unit}", three_digits(number / divisor))
}

fn value(record: &Record) -> Option<f64> {
    record.samples.first().copied().filter(|value| (0.0..MOST).contains(value))
}

fn number(record: &Record, name: &str) -> Option<f64> {
    let number = record.number(name)?;
    Some(number).filter(|number| (0.0..MOST).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(experiment: &str, metric: &str, sample: f64) -> Record {
        let mut record = Record::new("r", experiment, "haul", metric, "bytes/s")
            .with(key::NIC, "<b>ice")
            .with(key::RATE_PACKETS_PER_S, 1e7)
            .with(key::SIZES_BYTES, "64:1")
            .with(key::LINK, "gen3x8");
        record.samples = vec![sample];
        record
    }

    fn term_of(experiment: &str, what: &str, bytes: f64) -> Record {
        record(experiment, "transaction", 1e7 * bytes)
            .with(key::WHAT, what)
            .with(key::DIRECTION, "inbound_write")
            .with(key::COUNT_PER_S, 1e7)
            .with(key::PAYLOAD_BYTES, bytes)
            .with(key::HEADER_BYTES, 24.0)
    }

    fn drawn(experiment: &str, records: &[Record]) -> Option<String> {
        html(experiment, &records.iter().collect::<Vec<_>>())
    }

    #[test]
    fn estimate_shows_ordered_terms_sums_and_limit() {
        let of = name::PCIE_ESTIMATE;
        let records = [
            term_of(of, "rx write-back", 32.0),
            term_of(of, "rx packet", 64.0),
            record(of, "inbound_write", 9.6e8).with(key::HEADER_BYTES_PER_S, 4.8e8),
            record(of, "to_host", 2e9).with(key::USABLE_BYTES_PER_S, 8e9),
            record(of, "to_device", 1e9).with(key::USABLE_BYTES_PER_S, 8e9),
            record(of, "rate_max", 4e7).with(key::BINDS, "to_host").with(key::NOTE, "a <note>"),
        ];
        let html = drawn(of, &records).unwrap();
        assert!(html.find("rx packet").unwrap() < html.find("rx write-back").unwrap(), "{html}");
        for part in [
            "10.0 M packets/s of 64 B",
            "25% of it is used to the host and 12% to the device",
            "full to the host at 40.0 M packets/s",
            "880 MB/s",
            "width:72.73%",
            "<td>960 MB/s</td><td>480 MB/s</td>",
            "a &lt;note&gt;",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("<b>ice"), "{html}");
        // Several sizes make a plot, not a list.
        let twice = [&records[..], &records[5..]].concat();
        assert!(drawn(of, &twice).is_none());
        assert!(drawn(name::PCIE_SWEEP, &records).is_none());
    }

    #[test]
    fn explanation_shows_advice_or_differences() {
        let of = name::PCIE_EXPLAIN;
        let advice = record(of, "advice", 2.42e7)
            .with(key::CHANGE, "batch 4 -> 16")
            .with(key::HOW, "let packets gather")
            .with(key::BINDS, "to_device")
            .with(key::WHAT, "tx doorbell")
            .with(key::SAVED_WRITES_PER_S, 1.88e6)
            .with(key::RATE_MAX_RATIO, 1.133);
        let full = record(of, "rate_max", 2.14e7).with(key::BINDS, "to_device");
        let html = drawn(of, &[term_of(of, "rx packet", 64.0), full, advice]).unwrap();
        for part in [
            "full to the device at 21.4 M packets/s",
            "24.2 M packets/s",
            "1.88 M fewer writes",
            "13.3% more packets",
            "let packets",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let difference = record(of, "difference", -6.1e7)
            .with(key::WHAT, "tx doorbell")
            .with(key::DIRECTION, "outbound_write")
            .with(key::CAUSE, "count")
            .with(key::COUNT_PER_S_BEFORE, 2.5e6)
            .with(key::COUNT_PER_S, 312_500.0);
        let html = drawn(of, &[difference]).unwrap();
        assert!(
            html.contains("−61.0 MB/s") && html.contains("2.50 M a second, then 312 k"),
            "{html}"
        );
    }

    #[test]
    fn malformed_or_too_many_terms_draw_nothing() {
        let of = name::PCIE_ESTIMATE;
        assert!(drawn(of, &[]).is_none());
        let mut term = term_of(of, "x", 1.0);
        term.parameters.remove(key::WHAT);
        assert!(drawn(of, &[term]).is_none());
        assert!(drawn(of, &[term_of(of, "x", -1.0), term_of(of, "y", f64::NAN)]).is_none());
        let many: Vec<Record> = (0..100).map(|_| term_of(of, "x", 1.0)).collect();
        assert!(drawn(of, &many).is_none());
    }
}
