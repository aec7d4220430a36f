//! What changed, as a table: losses first.

use std::fmt::Write as _;

use haul_model::Record;
use haul_model::experiment::key;

use super::judge::Change;
use super::{is_baseline, words};
use crate::select::field;
use crate::text::{escape, number};

/// The records of `compare` as HTML; `None` where there is none.
pub(crate) fn html(records: &[&Record]) -> Option<String> {
    if records.is_empty() {
        return None;
    }
    let names = words::words(records);
    let rows: Vec<(&Record, &String)> = records.iter().copied().zip(&names).collect();
    let of = |change: Change| -> Vec<(&Record, &String)> {
        rows.iter().copied().filter(|(record, _)| Change::of(record) == Some(change)).collect()
    };
    let mut html = String::from("<div class=\"compare\">");
    for (change, title) in [(Change::Slower, "Slower"), (Change::Faster, "Faster")] {
        let rows = of(change);
        if !rows.is_empty() {
            let _ = write!(html, "<h3>{title}: {}</h3>{}", rows.len(), table(title, &rows));
        }
    }
    let stayed = of(Change::Stayed);
    if !stayed.is_empty() {
        let _ = write!(
            html,
            "<details><summary>Stayed: {}</summary>{}</details>",
            stayed.len(),
            table("Stayed", &stayed)
        );
    }
    Some(html + "</div>")
}

fn table(caption: &str, rows: &[(&Record, &String)]) -> String {
    let mut html = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table><thead><tr>\
         <th scope=\"col\" class=\"t\">figure</th><th scope=\"col\" class=\"t\">subject</th>\
         <th scope=\"col\" class=\"n\">ratio</th><th scope=\"col\" class=\"n\">old</th>\
         <th scope=\"col\" class=\"n\">new</th><th scope=\"col\" class=\"n\">interval</th>\
         <th scope=\"col\" class=\"n\">noise</th><th scope=\"col\" class=\"t\">beside</th></tr></thead><tbody>"
    );
    for (record, name) in rows {
        let said = |name: &str| record.parameters.get(name).and_then(serde_json::Value::as_f64);
        let shown = |name: &str| said(name).map_or_else(String::new, number);
        let class = match Change::of(record) {
            Some(Change::Slower) if !is_baseline(record) => " class=\"worse\"",
            Some(Change::Faster) if !is_baseline(record) => " class=\"better\"",
            _ => "",
        };
        let [old, new] = words::values(record);
        let ratio = record.median().unwrap_or(0.0);
        let _ = write!(
            html,
            "<tr{class}><th scope=\"row\">{}</th><td class=\"t\">{}</td>\
             <td class=\"n ratio\" data-v=\"{ratio}\">{ratio:.3}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}–{}</td><td class=\"n\">{}</td><td class=\"t\">{}</td></tr>",
            escape(name),
            escape(&record.subject),
            escape(&old),
            escape(&new),
            shown(key::RATIO_LOW),
            shown(key::RATIO_HIGH),
            shown(key::NOISE),
            escape(&field(record, key::BESIDE).unwrap_or_default()),
        );
    }
    html + "</tbody></table></div>"
}
