//! The cycles of a packet, the ledger of lost packets, and the receipt of the measurement.

use std::fmt::Write as _;

use haul_model::experiment::key;
use haul_model::units::three_digits;
use haul_model::{Bytes, Record};

use super::run::{size, who};
use crate::select::{bytes, field};
use crate::text::{self, escape};

/// The stages in a packet's order, each with its name for the reader.
const STAGES: [(&str, &str); 6] = [
    ("generator", "generator"),
    ("switch_in", "switch in"),
    ("vhost_full", "ring full"),
    ("guest", "guest"),
    ("switch_out", "switch out"),
    ("unaccounted", "unaccounted"),
];

/// Parameters that get a column if a record has them.
const RECEIPT: [(&str, &str); 19] = [
    (key::VERSION, "version"),
    (key::GUEST, "guest"),
    (key::GUEST_VERSION, "its version"),
    (key::GUEST_KERNEL, "its kernel"),
    (key::ACCELERATOR, "run by"),
    (key::GUEST_RX, "receives by"),
    (key::GUEST_TX, "sends by"),
    (key::LAYOUT, "rings"),
    (key::BUFFERS, "buffers of a packet"),
    (key::QUEUES, "queues"),
    (key::THREADS, "threads of a side"),
    (key::RING_SIZE, "descriptors"),
    (key::FEATURES, "features"),
    (key::PAGE_BYTES, "pages of"),
    (key::TRAFFIC, "packets from"),
    (key::SIMD_BITS, "testpmd’s vectors"),
    (key::OVS_PORT, "its port to the guest"),
    (key::LIBRARY, "its library"),
    (key::SERVED, "which served"),
];

/// The cycles of a copy: the cycles of the ring minus the cycles of a ring that copies nothing.
const COPY: &str = "cycles_copy";

/// The cycles per packet at each place. The cycles in the guest limit every switch.
const CYCLES: [(&str, &str); 3] =
    [("cycles_ring", "at the ring"), (COPY, "of these copying"), ("cycles_guest", "in the guest")];

/// The cycles per packet at each place; empty if no cycles were counted.
pub(super) fn cycles(records: &[&Record]) -> String {
    let of = |subject: &Record, metric: &str| {
        let is_it = |record: &&&Record| {
            record.metric == metric && (size(record), who(record)) == (size(subject), who(subject))
        };
        let found = records.iter().find(is_it)?;
        // The result of a subtraction is shown only if it is distinguishable from 0.
        if metric == COPY { found.above_zero() } else { found.median() }
    };
    let mut rows = String::new();
    for record in records.iter().filter(|record| record.metric == "rate_peak") {
        let all = CYCLES.map(|(metric, _)| of(record, metric));
        if all.iter().all(Option::is_none) {
            continue;
        }
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |it| format!("{it:.0}"));
        let cells = all.map(|value| format!("<td>{}</td>", cell(value))).concat();
        let most = of(record, "guest_ceiling");
        let most = most.map_or("-".to_owned(), |it| format!("{} Mpps", three_digits(it / 1e6)));
        let _ = write!(
            rows,
            "<tr><td>{} B</td><td>{}</td>{cells}<td>{most}</td></tr>",
            size(record),
            escape(&who(record))
        );
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads = CYCLES.map(|(_, head)| format!("<th>{head}</th>")).concat();
    format!(
        "<h3>Cycles of a packet</h3><p class=\"about\">In calls of the switch at the guest’s ring in both directions; of \
         these, the part of the copy, which is the difference to a ring that copies nothing (a dash if it is not \
         distinguishable from 0); and in the guest while it has packets. The last column is the rate of a guest that \
         never waits, which no switch exceeds.</p><div class=\"scroll\">\
         <table class=\"sim\"><thead><tr><th>size</th><th>through</th>{heads}<th>the guest at most</th></tr></thead>\
         <tbody>{rows}</tbody></table></div>"
    )
}

/// Packets lost by stage, over all restarts; empty if none were counted.
pub(super) fn ledger(records: &[&Record]) -> String {
    let of = |subject: &Record, metric: &str, stage: Option<&str>| -> Option<f64> {
        let is_it = |record: &&&Record| {
            record.metric == metric
                && (size(record), who(record)) == (size(subject), who(subject))
                && field(record, key::STAGE).as_deref() == stage
        };
        Some(records.iter().find(is_it)?.samples.iter().sum())
    };
    let mut rows = String::new();
    let with_stage = |record: &&&Record| field(record, key::STAGE).as_deref() == Some(STAGES[0].0);
    for record in records.iter().filter(with_stage) {
        let made = of(record, "made", None).unwrap_or(0.0);
        let _ = write!(
            rows,
            "<tr><td>{} B</td><td>{}</td><td>{}</td>",
            size(record),
            escape(&who(record)),
            text::grouped(made as usize)
        );
        for (stage, _) in STAGES {
            let lost = of(record, "lost", Some(stage)).unwrap_or(0.0);
            let share = match lost {
                0.0 => "0".to_owned(),
                lost if lost > 0.0 && made > 0.0 => {
                    format!("{} ({})", text::grouped(lost as usize), text::percent(lost / made))
                }
                lost => text::number(lost),
            };
            let class = if stage == "unaccounted" && lost != 0.0 { " class=\"worse\"" } else { "" };
            let _ = write!(rows, "<td{class}>{share}</td>");
        }
        rows.push_str("</tr>");
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads: String = STAGES.iter().map(|(_, name)| format!("<th>{name}</th>")).collect();
    format!(
        "<h3>Where packets were lost</h3><p class=\"about\">A generator at full speed makes more packets than a guest \
         takes: the packets that its full ring rejected are the difference, and not an error. Losses are found by the \
         packets’ numbers; in a complete ledger none is unaccounted for.</p><div class=\"scroll\"><table class=\"sim\"><thead><tr>\
         <th>size</th><th>through</th><th>made</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

/// The features that both sides negotiated, one row per subject; empty if the records lack them.
pub(super) fn receipt(records: &[&Record]) -> String {
    let mut rows: Vec<String> = Vec::new();
    let has = |record: &Record, name: &str| field(record, name).is_some_and(|it| !it.is_empty());
    let flows: Vec<&Record> =
        records.iter().copied().filter(|record| record.metric == "rate_peak").collect();
    let columns: Vec<(&str, &str)> = RECEIPT
        .into_iter()
        .filter(|(name, _)| flows.iter().any(|record| has(record, name)))
        .collect();
    for record in &flows {
        let cell = |(name, _): &(&str, &str)| {
            let said = match (*name, bytes(record, name)) {
                (key::PAGE_BYTES, Some(bytes)) => Bytes(bytes).to_string(),
                _ => field(record, name).unwrap_or_default(),
            };
            format!("<td>{}</td>", escape(&said))
        };
        let cells: String = columns.iter().map(cell).collect();
        let row = format!("<tr><td>{}</td>{cells}</tr>", escape(&who(record)));
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads: String = columns.iter().map(|(_, head)| format!("<th>{head}</th>")).collect();
    format!(
        "<h3>Receipt</h3><div class=\"scroll\"><table class=\"sim\"><thead><tr><th>switch</th>{heads}</tr></thead>\
         <tbody>{}</tbody></table></div>",
        rows.concat()
    )
}
