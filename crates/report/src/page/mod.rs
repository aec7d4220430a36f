//! The page: findings, machine, plots and tables in one file that loads no other.
//!
//! From the bottom up:
//!
//! - `facts`: the machine and the kind of the page;
//! - `sentences`: verdicts, missing comparisons, and findings.

mod facts;

mod sentences;

use std::fmt::Write as _;

use haul_model::experiment::name;
use haul_model::{Line, Record};

use self::facts::{kind, name};
use crate::embed;
use crate::figures::{self, Figure};
use crate::findings::of_section;
use crate::findings::verdicts;
use crate::select::{self, Section};
use crate::svg;
use crate::table;
use crate::text::{self, escape, script_json};

const STYLE: &str = include_str!("../../assets/report.css");
/// The parts of the script. Each part follows the parts that it uses.
const SCRIPT: [&str; 6] = [
    include_str!("../../assets/script/look.js"),
    include_str!("../../assets/script/plot.js"),
    include_str!("../../assets/script/lines.js"),
    include_str!("../../assets/script/dots.js"),
    include_str!("../../assets/script/map.js"),
    include_str!("../../assets/script/page.js"),
];
const CHART_STYLE: &str = include_str!("../../assets/vendor/uplot/uPlot.min.css");
const CHART_SCRIPT: &str = include_str!("../../assets/vendor/uplot/uPlot.iife.min.js");
const CHART_LICENCE: &str = include_str!("../../assets/vendor/uplot/LICENSE");

/// The content security policy: the page may load nothing. Neither a mistake in haul nor text in a
/// record from elsewhere can make it fetch anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// Formats records as one HTML file that works offline, without a server, and without JavaScript
/// except for interaction.
///
/// Every record appears: in a plot if one covers its experiment, always in a table, and in the data
/// that the page embeds, with at most 64 samples to four digits. Text from records is escaped
/// everywhere. An empty slice gives a page that names the command to run. Costs time and memory in
/// proportion to the records; the page itself is below 100 KB.
#[must_use]
pub fn html(lines: &[Line]) -> String {
    let sections = select::sections(lines);
    let all: Vec<Vec<Figure<'_>>> = sections
        .iter()
        .enumerate()
        .map(|(index, section)| figures::figures(section, index))
        .collect();
    let mut page = head(&sections);
    page.push_str(&top(&sections));
    page.push_str("<main id=\"main\">");
    if lines.is_empty() {
        page.push_str(EMPTY);
    }
    for (index, (section, figures)) in sections.iter().zip(&all).enumerate() {
        page.push_str(&section_html(section, figures, index));
    }
    page.push_str("</main>");
    page.push_str(FOOTER);
    page.push_str(&data(lines, &all));
    page.push_str("</body></html>\n");
    page
}

const EMPTY: &str = "<section class=\"machine\"><h1>No records yet</h1><p class=\"lead\">This page shows what \
    was measured, and nothing was given to it.</p><p>Run <code>haul survey</code> to measure this machine; it \
    writes <code>survey.jsonl</code> and this page. To make the page again from saved records, run \
    <code>haul report survey.jsonl</code>.</p></section>";

const FOOTER: &str = "<footer><h2>How to read this page</h2><p>Every figure is the median of its samples. What is \
    compared was measured alternately within one run, so that a ratio is paired; its interval holds 95% of bootstrap \
    resamples. The noise floor is the distance of the baseline’s ratio to itself from 1 in the same run. A difference \
    counts if its whole interval is on one side of 1 and it is beyond the floor. “No difference” means that interval \
    and floor exclude 5%. Otherwise the run cannot tell, and the page says what would decide it. “Measured” means a \
    value from a clock or a counter, “modelled” one from a formula or a simulator. GB/s are 10⁹ bytes a second; KiB, MiB and GiB are powers of \
    1024.</p><p class=\"downloads\" id=\"downloads\" hidden><button type=\"button\" id=\"save-records\">Save the records (JSON Lines)</button> \
    <span>They are inside this page, with samples to four digits, and with 61 quantiles where there were more than 64 \
    samples; the file that the page was made from (survey.jsonl, of a survey) has every sample.</span></p></footer>";

fn head(sections: &[Section<'_>]) -> String {
    let title = match sections {
        [one] => format!("haul: {}", name(one)),
        _ => "haul report".into(),
    };
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <link rel=\"icon\" href=\"data:,\"><title>{}</title>\
         <style>{CHART_STYLE}</style><style>{STYLE}</style></head><body>",
        escape(&title)
    )
}

fn top(sections: &[Section<'_>]) -> String {
    let mut html = String::from(
        "<a class=\"skip\" href=\"#main\">Skip to the findings</a><header class=\"top\"><p class=\"brand\">haul</p>",
    );
    if sections.len() > 1 {
        html.push_str("<nav aria-label=\"Machines\"><label>Machine <select id=\"machine\"><option value=\"\">all</option>");
        for (index, section) in sections.iter().enumerate() {
            let _ = write!(html, "<option value=\"m{index}\">{}</option>", escape(&name(section)));
        }
        html.push_str("</select></label></nav>");
    }
    html + "<button type=\"button\" id=\"theme\" class=\"quiet\" hidden>Theme: system</button></header>"
}

fn section_html(section: &Section<'_>, figures: &[Figure<'_>], index: usize) -> String {
    let about = kind(section);
    let mut html = format!(
        "<section class=\"machine\" id=\"m{index}\" aria-labelledby=\"m{index}-name\"><h1 id=\"m{index}-name\">\
         <span>{about}</span> {}</h1>",
        escape(&name(section))
    );
    let rows = verdicts::of_section(section);
    html.push_str(&sentences::verdicts(&rows, figures));
    html.push_str(&sentences::missing(&verdicts::missing_of(section)));
    html.push_str(&facts::html(section));
    html.push_str(&sentences::findings(&of_section(section), figures, rows.is_empty()));
    html.push_str(&contents(figures));
    let limits = section.of(name::MEMORY_BANDWIDTH);
    for (order, figure) in figures.iter().enumerate() {
        html.push_str(&figure_html(figure, order + 1, &limits));
    }
    html + "</section>"
}

/// Links to the figures, which stay visible while scrolling.
fn contents(figures: &[Figure<'_>]) -> String {
    /// The least number of figures that needs a list.
    const FEWEST: usize = 3;
    if figures.len() < FEWEST {
        return String::new();
    }
    let link = |(order, figure): (usize, &Figure<'_>)| {
        format!(
            "<li><a href=\"#{}\">{}&nbsp;{}</a></li>",
            figure.id,
            order + 1,
            escape(&figure.title)
        )
    };
    let links: String = figures.iter().enumerate().map(link).collect();
    format!("<nav class=\"contents\" aria-label=\"Figures\"><ol>{links}</ol></nav>")
}

fn figure_html(figure: &Figure<'_>, order: usize, limits: &[&Record]) -> String {
    let id = &figure.id;
    let mut html = format!(
        "<section class=\"figure\" id=\"{id}\" aria-labelledby=\"{id}-title\"><h2 id=\"{id}-title\">\
         <span>Figure&nbsp;{order}</span> {}</h2><p class=\"about\">{}</p><p class=\"fixed\">{}</p>",
        escape(&figure.title),
        escape(figure.about),
        escape(&figure.fixed.join(" · ")),
    );
    if let Some(plot) = &figure.plot {
        let _ = write!(
            html,
            "<div class=\"controls\"></div><div class=\"plot\" data-figure=\"{id}\">{}</div>\
             <div class=\"legend\"></div><output class=\"sr\" aria-live=\"polite\"></output>",
            svg::of_plot(plot, &figure.title)
        );
        let rerun = plot.views.first().map(|view| view.rerun.clone()).unwrap_or_default();
        if !rerun.is_empty() {
            let _ = write!(
                html,
                "<p class=\"rerun\">Measure again (each number’s own command is in the table):<br><code>{}</code></p>",
                escape(&rerun)
            );
        }
    }
    if let Some(picture) = &figure.picture {
        html.push_str(picture);
    }
    let open = if figure.plot.is_none() && figure.picture.is_none() { " open" } else { "" };
    let numbers = text::count(figure.records.len(), "record");
    let caption = format!("{}: {numbers}", figure.title);
    let table = table::table(&caption, &figure.records, limits);
    let _ = write!(
        html,
        "<details{open}><summary>Table: {numbers}</summary>{table}</details></section>"
    );
    html
}

/// The records, the plots as data, and the scripts that draw them.
fn data(lines: &[Line], all: &[Vec<Figure<'_>>]) -> String {
    let records = embed::lines_json(lines);
    let plots: std::collections::BTreeMap<&str, _> = all
        .iter()
        .flatten()
        .filter_map(|figure| Some((figure.id.as_str(), figure.plot.as_ref()?)))
        .collect();
    let plots = serde_json::to_string(&plots).expect("plots are plain data with string keys");
    format!(
        "<script type=\"application/json\" id=\"records\">[{}]</script>\
         <script type=\"application/json\" id=\"plots\">{}</script>\
         <script>/*!\n{CHART_LICENCE}*/\n{CHART_SCRIPT}</script><script>(() => {{\n\"use strict\";\n{}}})();</script>",
        script_json(&records.join(",\n")),
        script_json(&plots),
        SCRIPT.join("\n"),
    )
}
