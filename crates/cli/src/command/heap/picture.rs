//! A heap's pages and shares for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_model::experiment::{key, name};
use haul_model::picture::{self, PAGE_SLICES, Slice};
use haul_model::{Bytes, Record};

use crate::terminal::{self, Table};

/// Bars for the live share of a span's slice, from nearly empty to full.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Colours among the 256 of terminals that can be distinguished on a dark and on a light
/// background: blue, orange, green, magenta, yellow-brown, cyan, red, violet.
const COLOURS: [u8; 8] = [33, 208, 35, 170, 136, 44, 167, 99];

/// Characters of a page's number and the spaces beside its slices.
const LABEL: usize = 8;

/// The largest number of rows of pages that are shown. A larger heap shows its first rows.
const ROWS_MAX: usize = 64;

/// The whole text for a person; empty if there is no map.
pub(super) fn text<'a>(
    records: impl Iterator<Item = &'a Record>,
    width: usize,
    is_coloured: bool,
) -> String {
    let records: Vec<&Record> =
        records.filter(|record| record.experiment == name::HEAP_MAP).collect();
    let Some(first) = records.first() else { return String::new() };
    let by = |what: &str| -> Vec<&Record> {
        let is_by = |record: &&Record| parameter(record, key::BY) == what;
        records.iter().copied().filter(is_by).collect()
    };
    let palette = Palette::new(&by("tag"), &by("class"), is_coloured);
    let mut text = heading(first, &by("heap"));
    text.push_str(&pages(&by("page"), &palette, width));
    text.push_str(&format!("\n\n{}", palette.legend()));
    text.push_str(&format!("\n\n{}", classes(&by("class"), &palette).text()));
    text.push_str(&format!("\n\n{}", tags(&by("tag"), &palette).text()));
    if let Some(note) = haul_report::note(first) {
        text.push_str(&format!("\n\n{}", terminal::wrap(&format!("note: {note}"), width, 6)));
    }
    text
}

/// The meaning of the colours.
struct Palette {
    /// The colour of each tag number, or of each class in bytes (0 for large blocks).
    of: BTreeMap<u64, u8>,
    is_by_tag: bool,
    is_coloured: bool,
}

impl Palette {
    /// Colours tags if there are several, otherwise classes.
    fn new(tags: &[&Record], classes: &[&Record], is_coloured: bool) -> Self {
        let is_by_tag = tags.len() > 1;
        let (records, name) =
            if is_by_tag { (tags, key::TAG_NUMBER) } else { (classes, key::CLASS_BYTES) };
        let mut of = BTreeMap::new();
        for record in records {
            if let Some(key) = record.count(name) {
                let next = COLOURS[of.len() % COLOURS.len()];
                of.entry(key).or_insert(next);
            }
        }
        Self { of, is_by_tag, is_coloured }
    }

    fn paint(&self, key: u64, text: &str) -> String {
        match self.of.get(&key) {
            Some(colour) if self.is_coloured => format!("\x1b[38;5;{colour}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }

    /// A sample of a row's colour, if rows of this kind have colours.
    fn swatch(&self, is_tag: bool, key: u64) -> String {
        if self.is_coloured && is_tag == self.is_by_tag {
            self.paint(key, "■")
        } else {
            String::new()
        }
    }

    fn legend(&self) -> String {
        let colour = match (self.is_coloured, self.is_by_tag) {
            (false, _) => "",
            (true, true) => "; colour by tag",
            (true, false) => "; colour by class",
        };
        format!(
            "line: a page of 2 MiB; character: a slice of 64 KiB{colour}\n\
             ▁ to █ live share of a span's slice, ░ a span's slice without live blocks, ■ large block, \
             · free, ~ in change, ! damaged"
        )
    }
}

fn heading(record: &Record, whole: &[&Record]) -> String {
    let source = match parameter(record, key::HEAP) {
        name if !name.is_empty() => format!("shared heap {name}"),
        _ => format!(
            "{} ({}) after {} operations, {} ms",
            parameter(record, key::TRACE),
            parameter(record, key::PROGRAM),
            parameter(record, key::OPERATIONS_DONE),
            parameter(record, key::AT_MS),
        ),
    };
    let bytes = |metric: &str| {
        let record = whole.iter().find(|record| record.metric == metric)?;
        Some(record.median()? as u64)
    };
    let ready = bytes("ready").unwrap_or(0);
    let mut text = format!("{source}: {} with memory\n", Bytes(ready).approximate());
    for (metric, what) in [
        ("live", "live"),
        ("cached", "held ready by threads"),
        ("free_in_spans", "free in spans"),
        ("free_slices", "free slices"),
        ("rounding", "live bytes beyond the requested sizes"),
    ] {
        let Some(bytes) = bytes(metric) else { continue };
        let share = if ready > 0 { 100.0 * bytes as f64 / ready as f64 } else { 0.0 };
        let size = Bytes(bytes).approximate();
        let _ = writeln!(text, "  {size:>9}  {share:>5.1}%  {what}");
    }
    text + "\n"
}

/// Pages side by side, as many as the terminal's width allows.
fn pages(pages: &[&Record], palette: &Palette, width: usize) -> String {
    let across = ((width + 2) / (LABEL + PAGE_SLICES + 2)).clamp(1, 4);
    let drawn: Vec<String> = pages.iter().map(|page| page_line(page, palette)).collect();
    let rows: Vec<String> = drawn.chunks(across).take(ROWS_MAX).map(|row| row.join("  ")).collect();
    let mut text = rows.join("\n");
    let left = drawn.len().saturating_sub(ROWS_MAX * across);
    if left > 0 {
        let _ =
            write!(text, "\n... and {left} more pages, which --json prints and the report draws");
    }
    text
}

fn page_line(page: &Record, palette: &Palette) -> String {
    let label = format!("{:>5}", parameter(page, key::PAGE));
    let state = parameter(page, key::STATE);
    if state != "ready" {
        return format!("{label}   {state:<PAGE_SLICES$}");
    }
    let slices = picture::parse(&parameter(page, key::SLICES)).unwrap_or_default();
    let mut line = format!("{label}   ");
    let mut tag_of_large = 0;
    for slice in &slices {
        if let Slice::Large { tag, .. } = slice {
            tag_of_large = (*tag).into();
        }
        let key = match slice {
            Slice::Span { tag, .. } if palette.is_by_tag => (*tag).into(),
            Slice::Span { class_bytes, .. } => *class_bytes,
            _ if palette.is_by_tag => tag_of_large,
            _ => 0,
        };
        let character = character(slice);
        match slice {
            Slice::Span { .. } | Slice::Large { .. } | Slice::LargeRest => {
                line.push_str(&palette.paint(key, character.encode_utf8(&mut [0; 4])));
            }
            _ => line.push(character),
        }
    }
    line.extend(std::iter::repeat_n(' ', PAGE_SLICES.saturating_sub(slices.len())));
    line
}

fn character(slice: &Slice) -> char {
    match slice {
        Slice::Free => '·',
        Slice::Busy => '~',
        Slice::Damaged => '!',
        Slice::Large { .. } | Slice::LargeRest => '■',
        Slice::Span { live: 0, .. } => '░',
        Slice::Span { .. } => {
            let level = (slice.live_share() * LEVELS.len() as f64).ceil() as usize;
            LEVELS[level.clamp(1, LEVELS.len()) - 1]
        }
    }
}

fn classes(records: &[&Record], palette: &Palette) -> Table {
    let mut table =
        Table::new(&["", ">class", ">blocks", ">live", ">cached", ">free in spans", ">in use"]);
    let live = records.iter().filter(|record| record.metric == "live");
    for record in live {
        let class = parameter(record, key::CLASS);
        let of = |metric: &str| {
            let is_it =
                |other: &&&Record| other.metric == metric && parameter(other, key::CLASS) == class;
            records.iter().find(is_it).and_then(|record| record.median()).unwrap_or(0.0)
        };
        let (live, cached, free) = (of("live"), of("cached"), of("free"));
        let held = live + cached + free;
        let share = if held > 0.0 { 100.0 * live / held } else { 0.0 };
        let size = |bytes: f64| Bytes(bytes as u64).approximate();
        table.add(vec![
            palette.swatch(false, record.count(key::CLASS_BYTES).unwrap_or(0)),
            class,
            parameter(record, key::BLOCKS),
            size(live),
            size(cached),
            size(free),
            format!("{share:.0}%"),
        ]);
    }
    table
}

fn tags(records: &[&Record], palette: &Palette) -> Table {
    let mut table = Table::new(&["", "tag", ">blocks", ">live"]);
    for record in records {
        table.add(vec![
            palette.swatch(true, record.count(key::TAG_NUMBER).unwrap_or(0)),
            parameter(record, key::TAG),
            parameter(record, key::BLOCKS),
            Bytes(record.median().unwrap_or(0.0) as u64).approximate(),
        ]);
    }
    table
}

/// A parameter without control characters, which a terminal would obey: the records may be
/// untrusted.
fn parameter(record: &Record, name: &str) -> String {
    let text = record.shown(name).unwrap_or_default();
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(by: &str, metric: &str, bytes: f64) -> Record {
        let mut record = Record::new("r", "heap.map", "haul", metric, "B")
            .with("by", by)
            .with("heap", "evil\x1b[2J");
        record.samples = vec![bytes];
        record
    }

    fn page(number: u64, state: &str, slices: &str) -> Record {
        let page = record("page", "live", 0.0).with("page", number);
        page.with("state", state).with("slices", slices)
    }

    fn tag(name: &str, number: u8) -> Record {
        record("tag", "live", 4096.0).with("tag", name).with("tag_number", number).with("blocks", 1)
    }

    fn records() -> Vec<Record> {
        let class = |metric: &str, bytes: f64| {
            record("class", metric, bytes).with("class", "4 KiB").with("class_bytes", 4096)
        };
        vec![
            record("heap", "ready", 4_194_304.0),
            record("heap", "live", 1_048_576.0),
            class("live", 32768.0).with("blocks", 8),
            class("cached", 16384.0),
            class("free", 16384.0),
            tag("untagged", 0),
            tag("mbuf", 1),
            page(0, "ready", "4096:8+4+4@1 4096:0+4+12@0 L131072@1 = ~ 27*-"),
            page(1, "absent", "32*-"),
            page(2, "ready", "no picture"),
        ]
    }

    #[test]
    fn text_has_line_per_page_and_character_per_slice() {
        let text = text(records().iter(), 100, false);
        assert!(text.contains("    0   ▄░■■~···························"), "{text}");
        assert!(text.contains("    1   absent"), "{text}");
        assert!(text.contains("4.00 MiB with memory"), "{text}");
        assert!(text.contains("1.00 MiB   25.0%  live"), "{text}");
        assert!(text.contains("50%"), "{text}");
        assert!(!text.contains('\x1b'), "no colour, and no escape sequence of the records: {text}");
    }

    #[test]
    fn colours_mean_tags_if_there_are_several() {
        let coloured = text(records().iter(), 100, true);
        assert!(coloured.contains("\x1b[38;5;208m▄\x1b[0m"), "{coloured}");
        assert!(coloured.contains("colour by tag"), "{coloured}");
        let one_tag: Vec<Record> = records()
            .into_iter()
            .filter(|record| record.count("tag_number").is_none_or(|tag| tag == 0))
            .collect();
        let coloured = text(one_tag.iter(), 100, true);
        assert!(coloured.contains("colour by class"), "{coloured}");
    }

    #[test]
    fn wide_terminal_has_more_pages_per_line() {
        let lines = |width: usize| {
            let text = text(records().iter(), width, false);
            text.lines()
                .filter(|line| line.contains("absent"))
                .map(str::to_owned)
                .collect::<String>()
        };
        assert!(lines(40).trim_start().starts_with("1 "), "{}", lines(40));
        assert!(lines(100).trim_start().starts_with("0 "), "{}", lines(100));
    }

    #[test]
    fn text_is_empty_without_map() {
        assert_eq!(text([].iter(), 100, true), "");
    }
}
