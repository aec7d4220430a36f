//! The page: findings, machine, plots, tables, in one file that asks nothing of any other.

use std::fmt::Write as _;

use haul_model::experiment::name;
use haul_model::{Bytes, Line, Machine, Record};

use crate::embed;
use crate::figures::{self, Figure};
use crate::findings::verdicts::{self, Missing, Verdict};
use crate::findings::{Finding, Tone, of_section};
use crate::select::{self, Section};
use crate::svg;
use crate::table;
use crate::text::{self, escape, script_json};

const STYLE: &str = include_str!("../assets/report.css");
/// The script in the order in which its parts use one another.
const SCRIPT: [&str; 6] = [
    include_str!("../assets/script/look.js"),
    include_str!("../assets/script/plot.js"),
    include_str!("../assets/script/lines.js"),
    include_str!("../assets/script/dots.js"),
    include_str!("../assets/script/map.js"),
    include_str!("../assets/script/page.js"),
];
const CHART_STYLE: &str = include_str!("../assets/vendor/uplot/uPlot.min.css");
const CHART_SCRIPT: &str = include_str!("../assets/vendor/uplot/uPlot.iife.min.js");
const CHART_LICENCE: &str = include_str!("../assets/vendor/uplot/LICENSE");

/// What the page may load: nothing. A mistake of ours, or text of a stranger's record, cannot make
/// it fetch anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// Records as one HTML file that works offline, without a server, and without JavaScript except for
/// what moves.
///
/// Every record appears: drawn where a plot knows its experiment, in a table always, and in the
/// data that the page embeds, with samples to four digits and at most 64 of them. Text from records
/// is escaped wherever it stands. An empty slice gives a page that says what to run. Costs time and
/// memory in proportion to the records; the page itself is below 100 KB.
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
    compared was measured in turns within one run, so that a ratio is paired; its interval holds 95% of bootstrap \
    resamples. The noise floor is how far the baseline came from itself in the same run. A difference below the \
    floor, or whose interval holds 1, is no difference. “Measured” means that a clock or a counter said so; \
    “modelled” that a formula or a simulator did. GB/s are 10⁹ bytes a second; KiB, MiB and GiB are powers of \
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

/// A machine's name: its processor, and its id where the file has no line for it.
fn name(section: &Section<'_>) -> String {
    match section.machine {
        Some(machine) if !machine.cpu.is_empty() => machine.cpu.clone(),
        _ if section.id.is_empty() => "a machine that the records do not name".into(),
        _ => format!("machine {}", section.id),
    }
}

fn section_html(section: &Section<'_>, figures: &[Figure<'_>], index: usize) -> String {
    let about = kind(section);
    let mut html = format!(
        "<section class=\"machine\" id=\"m{index}\" aria-labelledby=\"m{index}-name\"><h1 id=\"m{index}-name\">\
         <span>{about}</span> {}</h1>",
        escape(&name(section))
    );
    let rows = verdicts::of_section(section);
    html.push_str(&verdicts_html(&rows, figures));
    html.push_str(&missing_html(&verdicts::missing_of(section)));
    html.push_str(&facts(section));
    html.push_str(&findings_html(&of_section(section), figures, rows.is_empty()));
    html.push_str(&contents(figures));
    let limits = section.of(name::MEMORY_BANDWIDTH);
    for (order, figure) in figures.iter().enumerate() {
        html.push_str(&figure_html(figure, order + 1, &limits));
    }
    html + "</section>"
}

/// What kind of page this is, up to the machine's name.
fn kind(section: &Section<'_>) -> &'static str {
    const KINDS: [(&str, &str); 9] = [
        (name::COMPARE, "What changed on"),
        (name::SIM_SWEEP, "A sweep of simulated servers, by"),
        (name::SIM, "A simulated server, by"),
        (name::HEAP_REPLAY, "A program’s allocations, replayed on"),
        (name::HEAP_MAP, "What a heap holds on"),
        (name::PCIE_SWEEP, "A sweep of a modelled NIC, by"),
        (name::PCIE_BURST, "Bursts of a running program, on"),
        (name::PCIE, "What packets move across PCIe, on"),
        (name::FORWARD, "Packets forwarded on"),
    ];
    let experiments = section.experiments();
    let is_it = |(begin, _): &&(&str, &str)| {
        !experiments.is_empty() && experiments.iter().all(|name| name.starts_with(begin))
    };
    KINDS.iter().find(is_it).map_or("How to move bytes on", |(_, about)| about)
}

/// A row a question: the answer, its course, and what to do.
fn verdicts_html(rows: &[Verdict], figures: &[Figure<'_>]) -> String {
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
        Tone::Worse => ("worse", "Worse"),
        Tone::Fact => ("fact", "Fact"),
    }
}

/// The way to a row's figure: a line of its ratios where there are several, with 1 as a rule.
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

fn missing_html(missing: &[Missing]) -> String {
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

/// Links to the figures, which stay in sight.
fn contents(figures: &[Figure<'_>]) -> String {
    /// Fewer are seen without a list.
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

fn findings_html(findings: &[Finding], figures: &[Figure<'_>], is_all: bool) -> String {
    if findings.is_empty() {
        return "<p class=\"lead\">These records compare nothing, so there is nothing to conclude; \
                <code>haul survey</code> measures all that this page can tell.</p>"
            .into();
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

/// Escaped text whose `commands` are set as code.
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

fn facts(section: &Section<'_>) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    let times: Vec<&str> = section
        .records
        .iter()
        .map(|record| record.time.as_str())
        .filter(|time| !time.is_empty())
        .collect();
    if let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) {
        rows.push((
            "date".into(),
            if first == last {
                spaced(first)
            } else {
                format!("{} to {}", spaced(first), spaced(last))
            },
        ));
    }
    if let Some(machine) = section.machine {
        rows.extend(machine_facts(machine));
    }
    let modelled = section.records.iter().filter(|r| r.kind == haul_model::Kind::Modelled).count();
    let measured = section.records.len() - modelled;
    rows.push((
        "figures".into(),
        format!("{} measured, {} modelled", text::grouped(measured), text::grouped(modelled)),
    ));
    let mut runs: Vec<&str> = section.records.iter().map(|record| record.run.as_str()).collect();
    runs.sort_unstable();
    runs.dedup();
    rows.push(("runs".into(), runs.join(", ")));
    rows.push(("machine id".into(), section.id.into()));
    let mut html = format!(
        "<details class=\"machine-facts\"><summary>{}</summary><dl class=\"facts\">",
        escape(&facts_line(section, measured))
    );
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(html, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    html + "</dl></details>"
}

/// The machine, the day and how much was measured, in a line.
fn facts_line(section: &Section<'_>, measured: usize) -> String {
    let mut parts = Vec::new();
    if let Some(machine) = section.machine {
        parts.push(text::count(machine.processors, "processor"));
        let last = machine.caches_bytes.len();
        parts.extend(machine.caches_bytes.iter().enumerate().map(|(index, size)| {
            let name = if index + 1 == last && last > 2 {
                "LLC".into()
            } else {
                format!("L{}", index + 1)
            };
            format!("{name} {}", Bytes(*size).approximate())
        }));
        if machine.memory_bytes > 0 {
            parts.push(Bytes(machine.memory_bytes).approximate());
        }
        let told = ["kernel", "libc", "hypervisor"];
        parts.extend(told.iter().filter_map(|name| machine.facts.get(*name).cloned()));
    }
    let days = section.records.iter().filter_map(|record| record.time.get(..10));
    parts.extend(days.max().map(str::to_owned));
    parts.push(format!("{} measured", text::count(measured, "figure")));
    parts.join(" · ")
}

/// `2026-01-02T03:04:05Z` as a person reads it; anything else as it is.
fn spaced(time: &str) -> String {
    match time.split_once('T') {
        Some((date, clock)) if clock.ends_with('Z') => {
            format!("{date} {} UTC", clock.trim_end_matches('Z'))
        }
        _ => time.into(),
    }
}

fn machine_facts(machine: &Machine) -> Vec<(String, String)> {
    let mut rows = vec![
        ("processors".into(), machine.processors.to_string()),
        ("instruction sets".into(), machine.isa.join(", ")),
    ];
    let caches: Vec<String> =
        machine.caches_bytes.iter().map(|size| Bytes(*size).to_string()).collect();
    rows.push(("caches for one core".into(), caches.join(", ")));
    if machine.memory_bytes > 0 {
        rows.push(("memory".into(), Bytes(machine.memory_bytes).approximate()));
    }
    rows.extend(machine.facts.iter().map(|(name, value)| (name.replace('_', " "), value.clone())));
    rows
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

/// The records and the plots as data, and the scripts that draw them.
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
