//! All changes as a table, losses first.

use std::fmt::Write as _;

use haul_model::experiment::key;
use haul_model::{Record, Verdict};

use super::{change_of, is_counted, is_whole, with_change, words};
use crate::select::field;
use crate::text::{escape, number};

/// The records of `compare` as HTML; `None` if there are none.
pub(crate) fn html(records: &[&Record]) -> Option<String> {
    if records.is_empty() {
        return None;
    }
    let names = words::words(records);
    let named = |wanted: &Record| {
        let place = records.iter().position(|record| std::ptr::eq(*record, wanted));
        place.map_or("", |place| names[place].as_str())
    };
    let rows = |of: Vec<&Record>| -> String {
        of.iter().map(|record| row(record, named(record))).collect()
    };
    let mut html = String::from("<div class=\"compare\">");
    let wholes: Vec<&Record> = records.iter().copied().filter(|it| is_whole(it)).collect();
    if !wholes.is_empty() {
        let title = "Overall";
        let _ = write!(html, "<h3>{title}</h3>{}", table(title, &rows(wholes)));
    }
    for (change, title) in [(Verdict::More, "Slower"), (Verdict::Less, "Faster")] {
        let of = with_change(records, change);
        if !of.is_empty() {
            let _ = write!(html, "<h3>{title}: {}</h3>{}", of.len(), table(title, &rows(of)));
        }
    }
    let baselines = records.iter().copied().filter(|record| !is_counted(record)).collect();
    for (title, of) in [
        ("Cannot tell", with_change(records, Verdict::CannotTell)),
        ("Stayed", with_change(records, Verdict::NoDifference)),
        ("Baselines, not counted", baselines),
    ] {
        if !of.is_empty() {
            let count = of.len();
            let table = table(title, &rows(of));
            let _ = write!(html, "<details><summary>{title}: {count}</summary>{table}</details>");
        }
    }
    Some(html + "</div>")
}

fn table(caption: &str, rows: &str) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table><thead><tr>\
         <th scope=\"col\" class=\"t\">figure</th><th scope=\"col\" class=\"t\">subject</th>\
         <th scope=\"col\" class=\"n\">ratio</th><th scope=\"col\" class=\"t\">change</th>\
         <th scope=\"col\" class=\"n\">old</th>\
         <th scope=\"col\" class=\"n\">new</th><th scope=\"col\" class=\"n\">interval</th>\
         <th scope=\"col\" class=\"n\">noise</th><th scope=\"col\" class=\"n\">runs</th>\
         <th scope=\"col\" class=\"t\">beside</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

fn row(record: &Record, name: &str) -> String {
    let shown = |name: &str| record.number(name).map_or_else(String::new, number);
    let class = match change_of(record) {
        Some(Verdict::More) if is_counted(record) => " class=\"worse\"",
        Some(Verdict::Less) if is_counted(record) => " class=\"better\"",
        _ => "",
    };
    let [old, new] = words::values(record);
    let ratio = record.median().unwrap_or(0.0);
    let text = |name: &str| escape(&field(record, name).unwrap_or_default());
    let runs = match (text(key::OLD_RUNS), text(key::NEW_RUNS)) {
        (old, _) if old.is_empty() => old,
        (old, new) => format!("{old}, {new}"),
    };
    format!(
        "<tr{class}><th scope=\"row\">{}</th><td class=\"t\">{}</td>\
         <td class=\"n ratio\" data-v=\"{ratio}\">{ratio:.3}</td><td class=\"t\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}–{}</td><td class=\"n\">{}</td><td class=\"n\">{runs}</td>\
         <td class=\"t\">{}</td></tr>",
        escape(name),
        escape(&record.subject),
        text(key::CHANGE),
        escape(&old),
        escape(&new),
        shown(key::RATIO_LOW),
        shown(key::RATIO_HIGH),
        shown(key::NOISE),
        text(key::BESIDE),
    )
}
