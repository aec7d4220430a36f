//! A traced window of cycles: one lane per instruction and per transaction, with its stages and the
//! transactions for which it waited. It is made of HTML elements, so that a lane wraps on a narrow
//! screen.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use haul_model::Record;
use haul_model::experiment::key;

use super::text;
use crate::text::{escape, slug};

/// The meaning of each letter and its colour on the page. Waiting is pale.
const INSTRUCTIONS: [(char, &str, &str); 7] = [
    ('f', "fetched", "band"),
    ('d', "in the window, waits", "rule"),
    ('x', "executes", "s0"),
    ('m', "waits for memory", "s1"),
    ('=', "done, waits to commit", "pale"),
    ('C', "commits", "ink"),
    ('!', "dropped", "worse"),
];
const TRANSACTIONS: [(char, &str, &str); 10] = [
    ('c', "looked up in the caches", "s5"),
    ('t', "translated and split", "s4"),
    ('b', "bus, or waits for it", "s3"),
    ('a', "announced to the caches", "s7"),
    ('h', "in the chipset", "band"),
    ('e', "waits in the engine’s queue", "rule"),
    ('q', "waits in the memory’s queue", "rule"),
    ('M', "memory", "s0"),
    ('d', "data on the bus, or waits for it", "s2"),
    ('n', "completion reported", "s6"),
];

/// The number of lines on the axis.
const TICKS: u64 = 4;

/// The least width of a span that shows its letter, in percent of a lane.
const LETTER_FROM: f64 = 2.5;

/// A span of a lane, as parsed from a record.
struct Span {
    letter: char,
    from: f64,
    to: f64,
}

/// Both parts of the newest window.
pub(super) fn html(records: &[&Record]) -> String {
    let cycles = |name: &str| records.first().and_then(|record| record.number(name));
    let (Some(from), Some(to)) = (cycles(key::FROM_CYCLE), cycles(key::TO_CYCLE)) else {
        return String::new();
    };
    if to <= from {
        return String::new();
    }
    let drawing = Drawing { from, to, prefix: prefix(records), known: transactions(records) };
    let mut html = String::from("<div class=\"sim trace\">");
    for (part, title, key) in [
        ("instruction", "Instructions", &INSTRUCTIONS[..]),
        ("transaction", "Transactions of the memory", &TRANSACTIONS),
    ] {
        let rows: Vec<&&Record> = records.iter().filter(|r| r.metric == part).collect();
        if !rows.is_empty() {
            let _ = write!(html, "<h3>{title}</h3>{}", legend(key));
            html.push_str(&drawing.part(&rows, key));
        }
    }
    html + "</div>"
}

/// The prefix of the ids of this window's lanes, because a page may hold several machines.
fn prefix(records: &[&Record]) -> String {
    records.first().map_or_else(String::new, |r| slug(&format!("{}-{}", r.machine, r.run)))
}

/// The numbers of the transactions that have a lane.
fn transactions(records: &[&Record]) -> BTreeSet<u32> {
    records.iter().filter_map(|record| own_number(&text(record, key::ROW))).collect()
}

/// 8216 of `#8216 engine read 0x80472040`.
fn own_number(row: &str) -> Option<u32> {
    row.strip_prefix('#')?.split(' ').next()?.parse().ok()
}

fn legend(key: &[(char, &str, &str)]) -> String {
    let mut html = String::from("<p class=\"key\">");
    for (letter, meaning, colour) in key {
        let _ = write!(html, "<span><i class=\"{colour}\">{letter}</i> {}</span>", escape(meaning));
    }
    html + "</p>"
}

struct Drawing {
    from: f64,
    to: f64,
    prefix: String,
    known: BTreeSet<u32>,
}

impl Drawing {
    fn part(&self, rows: &[&&Record], key: &[(char, &str, &str)]) -> String {
        let mut html = String::from("<div class=\"lanes\">");
        html.push_str(&self.axis());
        for record in rows {
            html.push_str(&self.lane(record, key));
        }
        let left_out: f64 = rows.iter().filter_map(|record| record.number(key::LEFT_OUT)).sum();
        if left_out > 0.0 {
            let _ = write!(html, "<p>And {left_out} more: choose a shorter window.</p>");
        }
        html + "</div>"
    }

    fn axis(&self) -> String {
        let mut html = String::from("<div class=\"lane axis\"><span></span><div class=\"track\">");
        for tick in 0..TICKS {
            #[expect(clippy::cast_precision_loss, reason = "a handful")]
            let share = tick as f64 / TICKS as f64;
            let cycle = self.from + share * (self.to - self.from);
            let _ = write!(html, "<b style=\"left:{:.2}%\">{cycle:.0}</b>", share * 100.0);
        }
        html + "</div><span>cycle</span></div>"
    }

    fn lane(&self, record: &Record, key: &[(char, &str, &str)]) -> String {
        let row = text(record, key::ROW);
        let id = own_number(&row)
            .map_or_else(String::new, |number| format!(" id=\"{}\"", self.id(number)));
        let mut html = format!(
            "<div class=\"lane\"{id}><span class=\"who\">{}</span><div class=\"track\">",
            escape(&row)
        );
        for span in spans(&text(record, key::SPANS)) {
            self.span(&span, key, &mut html);
        }
        let _ = write!(
            html,
            "</div><span class=\"why\">{}</span></div>",
            self.linked(&text(record, key::WAITS))
        );
        html
    }

    fn span(&self, span: &Span, key: &[(char, &str, &str)], html: &mut String) {
        let place = |cycle: f64| {
            (cycle.clamp(self.from, self.to) - self.from) / (self.to - self.from) * 100.0
        };
        let (left, right) = (place(span.from), place(span.to));
        let Some((_, meaning, colour)) = key.iter().find(|(letter, ..)| *letter == span.letter)
        else {
            return;
        };
        let width = right - left;
        let letter = if width >= LETTER_FROM { span.letter.to_string() } else { String::new() };
        let _ = write!(
            html,
            "<i class=\"{colour}\" style=\"left:{left:.2}%;width:{width:.2}%\" title=\"{}: {} to {}, {} cycles\">{letter}</i>",
            escape(meaning),
            span.from,
            span.to,
            span.to - span.from
        );
    }

    fn id(&self, number: u32) -> String {
        format!("{}-{number}", self.prefix)
    }

    /// The remark, with a link to every lane that it names.
    fn linked(&self, remark: &str) -> String {
        let mut html = String::new();
        for (index, part) in remark.split('#').enumerate() {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (name, rest) = part.split_at(digits);
            let target = name.parse().ok().filter(|number| self.known.contains(number));
            let _ = match (index, target) {
                (0, _) => write!(html, "{}", escape(part)),
                (_, Some(number)) => {
                    write!(html, "<a href=\"#{}\">#{number}</a>{}", self.id(number), escape(rest))
                }
                (_, None) => write!(html, "#{}", escape(part)),
            };
        }
        html
    }
}

/// Parses `q 20..100, M 100..220`; malformed parts are left out.
fn spans(text: &str) -> Vec<Span> {
    let span = |part: &str| {
        let (letter, cycles) = part.trim().split_once(' ')?;
        let (from, to) = cycles.split_once("..")?;
        let (from, to) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
        #[expect(clippy::cast_precision_loss, reason = "cycles of a picture: far fewer than 2^52")]
        (from <= to).then_some(Span {
            letter: letter.chars().next()?,
            from: from as f64,
            to: to as f64,
        })
    };
    text.split(',').filter_map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(part: &str, row: &str, spans: &str, waits: &str) -> Record {
        Record::new("r", "sim.trace", "haul", part, "cycles")
            .with("from_cycle", 100)
            .with("to_cycle", 300)
            .with("row", row)
            .with("spans", spans)
            .with("waits", waits)
    }

    #[test]
    fn lanes_are_positioned_by_cycle_and_link_to_what_they_wait_for() {
        let all = [
            record("instruction", "80000000 <b>", "x 100..150", "waits for line #7"),
            record("transaction", "#7 load 0x40", "M 150..900", ""),
            record(
                "transaction",
                "#8 load 0x80",
                "q 90..150, M 150..151",
                "waits for #7 #9 on channel 1",
            ),
        ];
        let html = html(&all.iter().collect::<Vec<_>>());
        assert!(html.contains("80000000 &lt;b&gt;"), "{html}");
        assert!(html.contains("left:0.00%;width:25.00%"), "{html}");
        assert!(html.contains("left:25.00%;width:75.00%"), "clipped to the window: {html}");
        assert!(
            html.contains("id=\"r-7\"") && html.contains("<a href=\"#r-7\">#7</a> #9 on"),
            "{html}"
        );
        assert_eq!(html.matches(" class=\"lane\"").count(), 3);
    }

    #[test]
    fn malformed_spans_and_empty_window_are_left_out() {
        assert!(spans("x, y 1.., z ..2, w 9..3, ,").is_empty());
        assert_eq!(spans("x 1..2, nonsense").len(), 1);
        let mut empty = record("instruction", "a", "x 1..2", "");
        empty.parameters.insert("to_cycle".into(), 100.into());
        assert_eq!(html(&[&empty]), "");
        assert_eq!(html(&[]), "");
    }
}
