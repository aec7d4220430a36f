//! The text of the page: verdicts, missing comparisons, and findings.

use std::fmt::Write as _;

use crate::figures::Figure;
use crate::findings::verdicts::{Missing, Verdict};
use crate::findings::{Finding, Tone};
use crate::svg;
use crate::text::{self, escape};

/// One row per question: the answer, its trend, and the advice.
pub(super) fn verdicts(rows: &[Verdict], figures: &[Figure<'_>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<table class=\"verdicts\"><caption>Verdicts</caption><thead><tr><th scope=\"col\">question</th>\
         <th scope=\"col\">verdict</th><th scope=\"col\">trend</th><th scope=\"col\">do this</th></tr></thead><tbody>",
    );
    for row in rows {
        let (class, word) = class_of(row.tone);
        let _ = write!(
            html,
            "<tr class=\"{class}\"><th scope=\"row\" class=\"ask\">{}</th><td class=\"say\"><span class=\"sr\">{word}: \
             </span>{}</td><td class=\"course\">{}</td><td class=\"do\">{}</td></tr>",
            escape(&row.question),
            escape(&row.text),
            course(row, figures),
            with_code(&row.action),
        );
    }
    html + "</tbody></table>"
}

fn class_of(tone: Tone) -> (&'static str, &'static str) {
    match tone {
        Tone::Better => ("better", "Better"),
        Tone::Same => ("same", "No difference"),
        Tone::Unknown => ("unknown", "Cannot tell"),
        Tone::Worse => ("worse", "Worse"),
        Tone::Fact => ("fact", "Fact"),
    }
}

/// A link to a row's figure: a line of its ratios if there are several, with a rule at 1.
fn course(row: &Verdict, figures: &[Figure<'_>]) -> String {
    let found = figures.iter().enumerate().find(|(_, figure)| figure.experiment == row.experiment);
    let Some((order, figure)) = found else { return String::new() };
    let label = format!("Figure&nbsp;{}", order + 1);
    let inner = if row.course.is_empty() {
        label
    } else {
        format!("{}<span class=\"sr\">{label}</span>", svg::spark(&row.course))
    };
    format!(
        "<a href=\"#{}\" title=\"Figure {}: haul’s time over the best other’s; the rule is 1, and below it is faster\">{inner}</a>",
        figure.id,
        order + 1
    )
}

/// The comparisons that are missing, with the commands that make them.
pub(super) fn missing(missing: &[Missing]) -> String {
    if missing.is_empty() {
        return String::new();
    }
    let items: Vec<String> = missing
        .iter()
        .map(|each| format!("<li>{} <code>{}</code></li>", escape(each.what), escape(each.command)))
        .collect();
    format!(
        "<div class=\"missing\"><p>Not compared here, with what would do it: </p><ul>{}</ul></div>",
        items.concat()
    )
}

/// Every finding; unfolded if there is no verdict above.
pub(super) fn findings(findings: &[Finding], figures: &[Figure<'_>], is_all: bool) -> String {
    if findings.is_empty() {
        return "<p class=\"lead\">These records contain no comparison, only figures.</p>".into();
    }
    let open = if is_all { " open" } else { "" };
    let mut html = format!(
        "<details class=\"all\"{open}><summary>All that the records say: {}</summary><ol class=\"findings\">",
        text::count(findings.len(), "sentence")
    );
    for finding in findings {
        let (class, word) = class_of(finding.tone);
        let _ = write!(
            html,
            "<li class=\"{class}\"><p><span class=\"sr\">{word}: </span>{}",
            escape(&finding.text)
        );
        if let Some((order, figure)) =
            figures.iter().enumerate().find(|(_, figure)| figure.experiment == finding.experiment)
        {
            let _ = write!(html, " <a href=\"#{}\">Figure&nbsp;{}</a>", figure.id, order + 1);
        }
        html.push_str("</p>");
        if let Some(action) = &finding.action {
            let _ = write!(html, "<p class=\"action\">{}</p>", with_code(action));
        }
        html.push_str("</li>");
    }
    html + "</ol></details>"
}

/// Escaped text in which `commands` in back quotes are set as code.
fn with_code(text: &str) -> String {
    let mut html = String::new();
    for (index, part) in escape(text).split('`').enumerate() {
        if index % 2 == 1 {
            let _ = write!(html, "<code>{part}</code>");
        } else {
            html.push_str(part);
        }
    }
    html
}
