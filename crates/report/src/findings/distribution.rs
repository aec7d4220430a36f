//! What haul changes for the sizes that services copy.

use haul_model::{Comparison, Record, Verdict};

use super::{Finding, Tone, change, finding, is, mean, of_haul, tone, values, verb};
use crate::select::{field, threads};
use crate::stats::{largest, smallest};
use crate::text;

const DISTRIBUTION: &str = "copy.distribution";
const CLASS: &str = "copy.size_class";

/// The distribution that stands for what services copy; without it, all that there are.
const SERVICE: &str = "service";

/// Thresholds cannot help here: these sizes lie below the smallest of them.
const JUDGE: &str = "Measure the sizes of your own application: `haul copy bench --distribution FILE`; there, haul is the code that a caller in Rust or with haul.h has inlined, and haul-c the same functions called through C.";

type Compared<'a> = (&'a Record, &'a Comparison);

/// "On the sizes a service copies, haul saves 21% of libc's time": a sentence for all functions.
pub(super) fn headline(records: &[&Record]) -> Option<Finding> {
    let near = of_services(nearest(of_haul(records, DISTRIBUTION)));
    let functions = values(&near, "function");
    let of = |function: &str| -> Vec<Compared<'_>> {
        near.iter().copied().filter(|(record, _)| is(record, "function", function)).collect()
    };
    let first = functions.first().map_or_else(|| near.clone(), |function| of(function));
    let all = mean(&first)?;
    let spread =
        match (smallest(first.iter().map(|c| c.1.ratio)), largest(first.iter().map(|c| c.1.ratio)))
        {
            (Some(low), Some(high)) if first.len() > 1 => {
                format!(
                    " ({} to {} over {})",
                    signed(low),
                    signed(high),
                    text::count(first.len(), "distribution")
                )
            }
            _ => String::new(),
        };
    let function = functions.first().map_or_else(String::new, |function| format!(" in {function}"));
    let others: Vec<String> = functions
        .iter()
        .skip(1)
        .filter_map(|function| Some(format!("{} in {function}", verb(&mean(&of(function))?))))
        .collect();
    let called = if first.iter().all(|(record, _)| says(record, "call", "inline")) {
        ", inlined up to 64 bytes,"
    } else {
        ""
    };
    let sizes = match first.iter().all(|(record, _)| record.parameters.contains_key("file")) {
        true => "sizes in your files",
        false => "sizes a service copies",
    };
    let mut sentence = format!("On the {sizes}, haul{called} {}{function}{spread}", verb(&all));
    if !others.is_empty() {
        sentence.push_str(&format!("; it {}", text::list(&others)));
    }
    let place = first.first().and_then(|(record, _)| field(record, "level"));
    let place =
        place.map_or_else(String::new, |level| format!(", data in {}", text::level(&level)));
    let floor = text::percent(all.floor);
    Some(finding(
        DISTRIBUTION,
        tone(&all),
        format!("{sentence}{place}, one thread; noise floor {floor}."),
    ))
}

/// "By size class: 0–16 B −34%, 17–64 B −25%, 65–256 B no difference."
pub(super) fn classes(records: &[&Record]) -> Option<Finding> {
    let mut near = nearest(of_haul(records, CLASS));
    let function = values(&near, "function").into_iter().next();
    near.retain(|(record, _)| {
        function.as_ref().is_none_or(|function| is(record, "function", function))
    });
    let all = mean(&near)?;
    let parts: Vec<String> = near
        .iter()
        .filter_map(|(record, c)| {
            Some(format!("{} {}", text::size_class(&field(record, "size_class")?), change(c)))
        })
        .collect();
    let function = function.map_or_else(String::new, |function| format!(" in {function}"));
    let sentence =
        format!("Against {} by size class{function}: {}.", all.baseline, text::list(&parts));
    let tone = if near.iter().any(|(_, c)| c.verdict() == Verdict::More) {
        Tone::Worse
    } else {
        tone(&all)
    };
    Some(finding(CLASS, tone, sentence))
}

/// "By where the data lies, on the same sizes: L1 −21%, L2 −12%, LLC −3%, cold no difference."
pub(super) fn levels(records: &[&Record]) -> Option<Finding> {
    let mut alone = of_services(of_haul(records, DISTRIBUTION));
    alone.retain(|(record, _)| threads(record) == 1);
    let function = values(&alone, "function").into_iter().next();
    alone.retain(|(record, _)| {
        function.as_ref().is_none_or(|function| is(record, "function", function))
    });
    let levels = values(&alone, "level");
    if levels.len() < 2 {
        return None;
    }
    let at = |level: &String| -> Option<Comparison> {
        let there: Vec<Compared<'_>> = alone
            .iter()
            .copied()
            .filter(|(record, _)| field(record, "level").as_ref() == Some(level))
            .collect();
        mean(&there)
    };
    let means: Vec<(String, Comparison)> =
        levels.iter().filter_map(|level| Some((text::level(level), at(level)?))).collect();
    let parts: Vec<String> =
        means.iter().map(|(level, mean)| format!("{level} {}", change(mean))).collect();
    let tone = if means.iter().any(|(_, mean)| mean.verdict() == Verdict::More) {
        Tone::Worse
    } else if means.iter().all(|(_, mean)| mean.verdict() == Verdict::NoDifference) {
        Tone::Same
    } else {
        Tone::Better
    };
    let function = function.map_or_else(String::new, |function| format!(" in {function}"));
    Some(finding(
        DISTRIBUTION,
        tone,
        format!("By where the data lies, on the same sizes{function}: {}.", text::list(&parts)),
    ))
}

/// Where haul is slower than its baseline beyond the noise, or that it is nowhere.
pub(super) fn losses(records: &[&Record]) -> Option<Finding> {
    let mut all = of_haul(records, DISTRIBUTION);
    all.extend(of_haul(records, CLASS));
    let baseline = all.first()?.1.baseline.clone();
    let mut lost: Vec<Compared<'_>> =
        all.iter().copied().filter(|(_, c)| c.verdict() == Verdict::More).collect();
    lost.sort_by(|a, b| b.1.ratio.total_cmp(&a.1.ratio));
    let total = text::count(all.len(), "comparison");
    let Some((worst, c)) = lost.first() else {
        let sentence = format!(
            "haul is slower than {baseline} beyond the noise in none of {total} by distribution, size class, \
             level and threads."
        );
        return Some(finding(DISTRIBUTION, Tone::Better, sentence));
    };
    let fields = ["function", "distribution", "size_class", "level"];
    let mut place: Vec<String> = fields.iter().filter_map(|name| field(worst, name)).collect();
    place.push(text::count(usize::try_from(threads(worst)).unwrap_or(usize::MAX), "thread"));
    let sentence = format!(
        "haul is slower than {baseline} in {} of {total}; the worst is {}: {} more time (noise floor {}).",
        text::grouped(lost.len()),
        place.join(", "),
        text::percent(c.ratio - 1.0),
        text::percent(c.floor),
    );
    Some(finding(&worst.experiment, Tone::Worse, sentence).action(JUDGE))
}

/// Whether a parameter says this value.
fn says(record: &Record, name: &str, value: &str) -> bool {
    field(record, name).is_some_and(|own| own == value)
}

/// Those that stand for what services copy; all where there are none. A file of that name stands for
/// whatever is in it.
fn of_services(mut compared: Vec<Compared<'_>>) -> Vec<Compared<'_>> {
    if compared.iter().any(|(record, _)| is_service(record)) {
        compared.retain(|(record, _)| is_service(record));
    }
    compared
}

fn is_service(record: &Record) -> bool {
    is(record, "distribution", SERVICE) && !record.parameters.contains_key("file")
}

/// Comparisons at the nearest level that was measured, with one thread.
fn nearest(mut compared: Vec<Compared<'_>>) -> Vec<Compared<'_>> {
    compared.retain(|(record, _)| threads(record) == 1);
    if let Some(nearest) = values(&compared, "level").into_iter().next() {
        compared.retain(|(record, _)| field(record, "level").as_ref() == Some(&nearest));
    }
    compared
}

/// A ratio as a change: `−21%`, `+4.0%`.
fn signed(ratio: f64) -> String {
    let sign = if ratio < 1.0 { '−' } else { '+' };
    format!("{sign}{}", text::percent(ratio - 1.0))
}
