//! The map of a heap: its pages drawn slice by slice, with tables of its classes and tags.
//!
//! The script adds the interaction (the tooltip, the choice of colours), using the same text of
//! slices that is drawn here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_model::experiment::key;
use haul_model::picture::{self, PAGE_SLICES, Slice};
use haul_model::{Bytes, Record};

use crate::select::field;
use crate::text::{self, escape};

/// Limit of drawn pages; only the first ones of a larger heap are drawn. A page takes up to 4 KB of
/// text.
const PAGES_MAX: usize = 512;

/// Limit of drawn maps, the newest first; the table has all.
const MAPS_MAX: usize = 4;

/// The number of colours that tags share in rotation: `--s0` to `--s7` of the page's style.
const COLOURS: usize = 8;

/// Dimensions of the drawing in its own units: a slice's width, and a page's height.
const SLICE_WIDTH: usize = 10;
const HEIGHT: f64 = 16.0;

/// Every map among the records, as HTML; `None` if there is none.
pub(crate) fn html(id: &str, records: &[&Record]) -> Option<String> {
    let mut maps: Vec<(String, Vec<&Record>)> = Vec::new();
    for record in records {
        let key = key(record);
        match maps.iter_mut().find(|(other, _)| *other == key) {
            Some((_, own)) => own.push(record),
            None => maps.push((key, vec![record])),
        }
    }
    let first = maps.len().saturating_sub(MAPS_MAX);
    let drawn: Vec<String> = maps
        .iter()
        .skip(first)
        .enumerate()
        .filter_map(|(index, (_, records))| map(&format!("{id}-map{index}"), records))
        .collect();
    (!drawn.is_empty()).then(|| drawn.concat())
}

/// The identity of a record's map.
pub(crate) fn key(record: &Record) -> String {
    let field = |name: &str| field(record, name).unwrap_or_default();
    [field("run"), field(key::HEAP), field(key::TRACE), field(key::OPERATIONS_DONE)].join("\u{1f}")
}

/// `sort.trace (sort) after 1,234 operations, 35.2 ms`, or `shared heap “name”`.
pub(crate) fn source(record: &Record) -> String {
    let field = |name: &str| field(record, name).unwrap_or_default();
    if !field(key::HEAP).is_empty() {
        return format!("shared heap “{}”", field(key::HEAP));
    }
    let done = record.count(key::OPERATIONS_DONE);
    let done = text::count(done.and_then(|n| usize::try_from(n).ok()).unwrap_or(0), "operation");
    format!(
        "{} ({}) after {done}, {} ms",
        field(key::TRACE),
        field(key::PROGRAM),
        field(key::AT_MS)
    )
}

/// The records of one map, by kind.
struct Map<'a> {
    whole: Vec<&'a Record>,
    classes: Vec<Class>,
    tags: Vec<Tag>,
    pages: Vec<&'a Record>,
}

struct Class {
    name: String,
    bytes: u64,
    blocks: String,
    live: f64,
    cached: f64,
    free: f64,
}

struct Tag {
    name: String,
    number: u64,
    blocks: String,
    live: f64,
}

impl<'a> Map<'a> {
    fn of(records: &[&'a Record]) -> Self {
        let by = |what: &str| -> Vec<&'a Record> {
            let is_by = |record: &&&Record| field(record, key::BY).as_deref() == Some(what);
            records.iter().filter(is_by).copied().collect()
        };
        Self {
            whole: by("heap"),
            classes: classes(&by("class")),
            tags: tags(&by("tag")),
            pages: by("page"),
        }
    }

    fn bytes(&self, metric: &str) -> Option<f64> {
        self.whole.iter().find(|record| record.metric == metric)?.median()
    }

    /// The rank of a class among those in use, in percent, which determines its colour.
    fn share_of_class(&self, bytes: u64) -> usize {
        let place = self.classes.iter().position(|class| class.bytes == bytes).unwrap_or(0);
        100 * place / (self.classes.len().max(2) - 1)
    }

    fn colour_of_tag(&self, number: u64) -> usize {
        self.tags.iter().position(|tag| tag.number == number).unwrap_or(0) % COLOURS
    }
}

fn classes(records: &[&Record]) -> Vec<Class> {
    let mut classes: BTreeMap<u64, Class> = BTreeMap::new();
    for record in records {
        let Some(bytes) = record.count(key::CLASS_BYTES) else { continue };
        let text = |name: &str| field(record, name).unwrap_or_default();
        // Large blocks, of class 0, follow the largest class.
        let class = classes.entry(bytes.wrapping_sub(1)).or_insert_with(|| Class {
            name: text(key::CLASS),
            bytes,
            blocks: text(key::BLOCKS),
            live: 0.0,
            cached: 0.0,
            free: 0.0,
        });
        let value = record.median().unwrap_or(0.0);
        match record.metric.as_str() {
            "live" => class.live = value,
            "cached" => class.cached = value,
            "free" => class.free = value,
            _ => {}
        }
    }
    classes.into_values().collect()
}

fn tags(records: &[&Record]) -> Vec<Tag> {
    let tag = |record: &&Record| {
        let text = |name: &str| field(record, name).unwrap_or_default();
        let number = record.count(key::TAG_NUMBER)?;
        let live = record.median().unwrap_or(0.0);
        Some(Tag { name: text(key::TAG), number, blocks: text(key::BLOCKS), live })
    };
    records.iter().filter_map(tag).collect()
}

fn map(id: &str, records: &[&Record]) -> Option<String> {
    let map = Map::of(records);
    let first = map.pages.first()?;
    let names: BTreeMap<String, &str> =
        map.tags.iter().map(|tag| (tag.number.to_string(), tag.name.as_str())).collect();
    let names = serde_json::to_string(&names).unwrap_or_default();
    let by = if map.tags.len() > 1 { key::TAG } else { key::CLASS };
    let mut html = format!(
        "<div class=\"map\" data-by=\"{by}\" data-tags=\"{}\"><h3>{}</h3>{}<div class=\"choices\"></div>\
         <svg width=\"0\" height=\"0\" aria-hidden=\"true\"><defs><path id=\"{id}\" d=\"{}\"/></defs></svg>\
         <div class=\"pages\" aria-label=\"{} of 2 MiB, {PAGE_SLICES} slices each\">",
        escape(&names),
        escape(&source(first)),
        shares(&map),
        (1..PAGE_SLICES).map(|slice| format!("M{} 0V16", slice * SLICE_WIDTH)).collect::<String>(),
        text::count(map.pages.len(), "page"),
    );
    for page in map.pages.iter().take(PAGES_MAX) {
        html.push_str(&page_html(id, page, &map));
    }
    html.push_str("</div>");
    if map.pages.len() > PAGES_MAX {
        let left = text::grouped(map.pages.len() - PAGES_MAX);
        let _ = write!(html, "<p class=\"about\">{left} more pages are in the table.</p>");
    }
    html.push_str(KEY);
    html.push_str(&class_table(&map));
    html.push_str(&tag_table(&map));
    Some(html + "<output class=\"sr\" aria-live=\"polite\"></output></div>")
}

const KEY: &str = "<p class=\"key\"><span><svg viewBox=\"0 0 10 16\"><rect class=\"span\" width=\"10\" height=\"16\"/>\
    <rect class=\"live\" y=\"7\" width=\"10\" height=\"9\"/><rect class=\"cached\" y=\"3\" width=\"10\" height=\"4\"/></svg> \
    a span’s slice: live from below, held ready by threads above it, the rest free</span> \
    <span><svg viewBox=\"0 0 10 16\"><rect class=\"live\" width=\"10\" height=\"16\"/></svg> large block</span> \
    <span><svg viewBox=\"0 0 10 16\"><rect class=\"edge\" x=\"0.5\" y=\"0.5\" width=\"9\" height=\"15\"/></svg> free slice</span></p>";

/// The use of the memory, as one bar and as text.
fn shares(map: &Map<'_>) -> String {
    let ready = map.bytes("ready").unwrap_or(0.0);
    if ready <= 0.0 {
        return String::new();
    }
    let rounding = map.bytes("rounding").unwrap_or(0.0);
    let live = map.bytes("live").unwrap_or(0.0);
    let parts = [
        ("asked", if rounding > 0.0 { "asked for" } else { "live" }, live - rounding),
        ("rounding", "rounded up to the class", rounding),
        ("cached", "held ready by threads", map.bytes("cached").unwrap_or(0.0)),
        ("span", "free in spans", map.bytes("free_in_spans").unwrap_or(0.0)),
        ("none", "free slices", map.bytes("free_slices").unwrap_or(0.0)),
    ];
    let (mut bar, mut words, mut x) = (String::new(), String::new(), 0.0);
    for (class, name, bytes) in parts.into_iter().filter(|(.., bytes)| *bytes > 0.0) {
        let width = 1000.0 * bytes / ready;
        let _ = write!(
            bar,
            "<rect class=\"{class}\" x=\"{x:.1}\" width=\"{width:.1}\" height=\"16\"/>"
        );
        x += width;
        let _ = write!(
            words,
            "<li><svg viewBox=\"0 0 10 10\"><rect class=\"{class}\" width=\"10\" height=\"10\"/></svg> {} {} \
             <span>{}</span></li>",
            size(bytes),
            escape(name),
            text::percent(bytes / ready)
        );
    }
    format!(
        "<svg class=\"shares\" viewBox=\"0 0 1000 16\" preserveAspectRatio=\"none\" role=\"img\">\
         <title>Memory by what becomes of it</title>{bar}</svg>\
         <ul class=\"shares\"><li><b>{}</b> with memory:</li>{words}</ul>",
        size(ready)
    )
}

/// One page. Equal neighbouring slices form one rectangle.
fn page_html(id: &str, page: &Record, map: &Map<'_>) -> String {
    let number = field(page, key::PAGE).unwrap_or_default();
    let state = field(page, key::STATE).unwrap_or_default();
    let slices_text = field(page, key::SLICES).unwrap_or_default();
    let slices = picture::parse(&slices_text).unwrap_or_default();
    let mut drawn = String::new();
    let (mut x, mut owner) = (0, 0);
    for run in
        slices.chunk_by(|a, b| a == b || matches!((a, b), (Slice::Large { .. }, Slice::LargeRest)))
    {
        if let Slice::Large { tag, .. } = run[0] {
            owner = tag.into();
        }
        run_svg(&run[0], x * SLICE_WIDTH, run.len() * SLICE_WIDTH, (owner, map), &mut drawn);
        x += run.len();
    }
    let is_ready = state == "ready";
    let live = size(page.median().unwrap_or(0.0));
    let backing = field(page, key::BACKING).unwrap_or_default();
    format!(
        "<div class=\"page\"><span>{}</span><svg viewBox=\"0 0 320 16\" preserveAspectRatio=\"none\" role=\"img\" \
         data-page=\"{}\" data-slices=\"{}\"{}><title>page {}: {}, {live} live, {}</title>{drawn}{}</svg></div>",
        escape(&number),
        escape(&number),
        escape(&slices_text),
        if is_ready { "" } else { " class=\"absent\"" },
        escape(&number),
        escape(&state),
        escape(&backing),
        if is_ready { format!("<use href=\"#{id}\"/>") } else { String::new() },
    )
}

/// A run of equal slices at `x` with the given width.
fn run_svg(slice: &Slice, x: usize, width: usize, (owner, map): (u64, &Map<'_>), svg: &mut String) {
    let (tag, class) = match slice {
        Slice::Span { tag, class_bytes, .. } => (u64::from(*tag), *class_bytes),
        Slice::Large { tag, .. } => (u64::from(*tag), 0),
        _ => (owner, 0),
    };
    let mut rect = |what: &str, top: f64, height: f64, colour: &str| {
        if height > 0.0 {
            let _ = write!(
                svg,
                "<rect class=\"{what}\"{colour} x=\"{x}\" y=\"{top:.1}\" width=\"{width}\" height=\"{height:.1}\"/>"
            );
        }
    };
    let live = HEIGHT * slice.live_share();
    let colour = format!(" style=\"--c:{}%\"", map.share_of_class(class));
    let what = format!("live t{}", map.colour_of_tag(tag));
    match slice {
        Slice::Free => {}
        Slice::Busy => rect("cached", 0.0, HEIGHT, ""),
        Slice::Damaged => rect("damaged", 0.0, HEIGHT, ""),
        Slice::Span { .. } => {
            let cached = HEIGHT * slice.cached_share();
            rect("span", 0.0, HEIGHT, "");
            rect("cached", HEIGHT - live - cached, cached, "");
            rect(&what, HEIGHT - live, live, &colour);
        }
        Slice::Large { .. } | Slice::LargeRest => rect(&what, 0.0, HEIGHT, &colour),
    }
}

fn class_table(map: &Map<'_>) -> String {
    let mut html = String::from(
        "<div class=\"scroll byclass\"><table><caption>Classes</caption><thead><tr><th scope=\"col\">class</th>\
         <th scope=\"col\" class=\"n\">blocks</th><th scope=\"col\" class=\"n\">live</th>\
         <th scope=\"col\" class=\"n\">cached</th><th scope=\"col\" class=\"n\">free in spans</th>\
         <th scope=\"col\" class=\"n\">in use</th></tr></thead><tbody>",
    );
    for class in &map.classes {
        let held = class.live + class.cached + class.free;
        let share = if held > 0.0 { text::percent(class.live / held) } else { String::new() };
        let _ = write!(
            html,
            "<tr><th scope=\"row\"><i style=\"--c:{}%\"></i>{}</th><td class=\"n\" data-v=\"{2}\">{2}</td>",
            map.share_of_class(class.bytes),
            escape(&class.name),
            escape(&class.blocks),
        );
        for bytes in [class.live, class.cached, class.free] {
            let _ = write!(html, "<td class=\"n\" data-v=\"{bytes}\">{}</td>", size(bytes));
        }
        let _ = write!(html, "<td class=\"n\">{share}</td></tr>");
    }
    html + "</tbody></table></div>"
}

fn tag_table(map: &Map<'_>) -> String {
    let mut html = String::from(
        "<div class=\"scroll bytag\"><table><caption>Tags</caption><thead><tr><th scope=\"col\">tag</th>\
         <th scope=\"col\" class=\"n\">blocks</th><th scope=\"col\" class=\"n\">live</th></tr></thead><tbody>",
    );
    for tag in &map.tags {
        let _ = write!(
            html,
            "<tr><th scope=\"row\"><i class=\"t{}\"></i>{}</th><td class=\"n\" data-v=\"{2}\">{2}</td>\
             <td class=\"n\" data-v=\"{3}\">{4}</td></tr>",
            map.colour_of_tag(tag.number),
            escape(&tag.name),
            escape(&tag.blocks),
            tag.live,
            size(tag.live)
        );
    }
    html + "</tbody></table></div>"
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "three digits are shown"
)]
fn size(bytes: f64) -> String {
    Bytes(bytes.max(0.0) as u64).approximate()
}
