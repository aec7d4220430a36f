//! What haul gains or loses on the sizes that services copy.

use haul_model::experiment::{key, name};
use haul_model::{Comparison, Record, Verdict};

use super::{Finding, Tone, change, finding, is, mean, of_haul, tone, tone_of_all, values, verb};
use crate::select::{NO_READER, branches, field, reader, threads};
use crate::stats::{largest, smallest};
use crate::text;

/// The distribution of the sizes that services copy. Without it, all distributions count.
const SERVICE: &str = "service";

/// haul with the defaults of the processor, regardless of haul.toml.
const UNTUNED: &str = "haul-untuned";

/// The advice for a loss. Thresholds cannot help here: these sizes are below the smallest
/// threshold.
const JUDGE: &str = "Measure the sizes of your own application: `haul copy bench --distribution FILE`. There, haul is the code that the compiler inlines into a caller in Rust or with haul.h, and haul-c is the same functions called through C.";

pub(super) type Compared<'a> = (&'a Record, &'a Comparison);

/// "On the sizes a service copies, haul saves 21% of libc's time": a sentence for all functions.
pub(super) fn headline(records: &[&Record]) -> Option<Finding> {
    let near = of_services(nearest(of_haul(records, name::COPY_DISTRIBUTION)));
    let functions = values(&near, key::FUNCTION);
    let of = |function: &str| -> Vec<Compared<'_>> {
        near.iter().copied().filter(|(record, _)| is(record, key::FUNCTION, function)).collect()
    };
    let first = functions.first().map_or_else(|| near.clone(), |function| of(function));
    let all = mean(&first)?;
    let mut parts = vec![tone(&all)];
    // The upper end of the spread is shown as well.
    parts.extend(worst(&first).map(tone).filter(|tone| *tone == Tone::Worse));
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
    let others: Vec<(&String, Comparison)> = functions
        .iter()
        .skip(1)
        .filter_map(|function| Some((function, mean(&of(function))?)))
        .collect();
    parts.extend(others.iter().map(|(_, mean)| tone(mean)));
    let others: Vec<String> =
        others.iter().map(|(function, mean)| format!("{} in {function}", verb(mean))).collect();
    let called = if first.iter().all(|(record, _)| says(record, key::CALL, "inline")) {
        ", inlined up to 64 bytes,"
    } else {
        ""
    };
    let sizes = match first.iter().all(|(record, _)| record.parameters.contains_key(key::FILE)) {
        true => "sizes in your files",
        false => "sizes a service copies",
    };
    let (without, tones): (Vec<String>, Vec<Tone>) = untuned(records, &near).into_iter().unzip();
    parts.extend(tones);
    let with = if without.is_empty() { "" } else { "with the haul.toml of this survey " };
    let mut sentence =
        format!("On the {sizes}, {with}haul{called} {}{function}{spread}", verb(&all));
    if !others.is_empty() {
        sentence.push_str(&format!("; it {}", text::list(&others)));
    }
    if !without.is_empty() {
        sentence.push_str(&format!("; without that file it {}", text::list(&without)));
    }
    let place = first.first().and_then(|(record, _)| field(record, key::LEVEL));
    let place =
        place.map_or_else(String::new, |level| format!(", data in {}", text::level(&level)));
    let floor = text::percent(all.floor);
    Some(finding(
        name::COPY_DISTRIBUTION,
        tone_of_all(parts),
        format!("{sentence}{place}, one thread; noise floor {floor}."),
    ))
}

/// haul without a haul.toml, function by function, if a survey measured it together with haul
/// with its haul.toml, on the same sizes in the same rounds.
fn untuned(records: &[&Record], near: &[Compared<'_>]) -> Vec<(String, Tone)> {
    let beside = |own: &Record| {
        near.iter().any(|(record, _)| {
            record.run == own.run
                && [key::FUNCTION, key::DISTRIBUTION, key::LEVEL, key::THREADS]
                    .iter()
                    .all(|name| field(record, name) == field(own, name))
        })
    };
    let all: Vec<Compared<'_>> = records
        .iter()
        .filter(|record| record.experiment == name::COPY_DISTRIBUTION && record.subject == UNTUNED)
        .filter(|record| reader(record) == NO_READER && beside(record))
        .filter_map(|record| record.comparison.as_ref().map(|comparison| (*record, comparison)))
        .collect();
    let of = |function: &String| -> Vec<Compared<'_>> {
        all.iter().copied().filter(|(record, _)| is(record, key::FUNCTION, function)).collect()
    };
    values(&all, key::FUNCTION)
        .iter()
        .filter_map(|function| {
            let mean = mean(&of(function))?;
            Some((format!("{} in {function}", verb(&mean)), tone(&mean)))
        })
        .collect()
}

/// "By size class, data in L1, one thread: in memcpy 0–16 B −34% and 17–64 B −25%; in memset 0–16 B
/// +4%."
pub(super) fn classes(records: &[&Record]) -> Option<Finding> {
    let near = nearest(of_haul(records, name::COPY_SIZE_CLASS));
    let (first, baseline) = near.first().map(|(record, c)| (*record, c.baseline.clone()))?;
    let place = field(first, key::LEVEL)
        .map_or_else(String::new, |level| format!(", data in {}", text::level(&level)));
    let listed = by_function(&near, |own| {
        let part = |(record, c): &Compared<'_>| {
            Some((text::size_class(&field(record, key::SIZE_CLASS)?), (*c).clone()))
        };
        own.iter().filter_map(part).collect()
    });
    let (parts, tone) = listed?;
    let sentence = format!("Against {baseline} by size class{place}, one thread: {parts}.");
    Some(finding(name::COPY_SIZE_CLASS, tone, sentence))
}

/// "By where the data lies, on the same sizes, one thread: in memcpy L1 −21%, L2 −12%, cold no
/// difference."
pub(super) fn levels(records: &[&Record]) -> Option<Finding> {
    let mut alone = of_services(of_haul(records, name::COPY_DISTRIBUTION));
    alone.retain(|(record, _)| threads(record) == 1);
    if values(&alone, key::LEVEL).len() < 2 {
        return None;
    }
    let (parts, tone) = by_function(&alone, |own| {
        let at = |level: String| {
            let is_there =
                |compared: &&Compared<'_>| field(compared.0, key::LEVEL).as_ref() == Some(&level);
            let there: Vec<Compared<'_>> = own.iter().filter(is_there).copied().collect();
            Some((text::level(&level), mean(&there)?))
        };
        values(own, key::LEVEL).into_iter().filter_map(at).collect()
    })?;
    let sentence = format!("By where the data lies, on the same sizes, one thread: {parts}.");
    Some(finding(name::COPY_DISTRIBUTION, tone, sentence))
}

/// The change of each function, row by row, as text, and the tone of this text; `None` if there
/// is no row.
fn by_function(
    compared: &[Compared<'_>],
    rows: impl Fn(&[Compared<'_>]) -> Vec<(String, Comparison)>,
) -> Option<(String, Tone)> {
    let mut functions: Vec<Option<String>> =
        values(compared, key::FUNCTION).into_iter().map(Some).collect();
    if functions.is_empty() {
        functions.push(None);
    }
    let (mut parts, mut tones) = (Vec::new(), Vec::new());
    for function in functions {
        let is_its = |compared: &&Compared<'_>| field(compared.0, key::FUNCTION) == function;
        let own: Vec<Compared<'_>> = compared.iter().filter(is_its).copied().collect();
        let rows = rows(&own);
        if rows.is_empty() {
            continue;
        }
        tones.extend(rows.iter().map(|(_, c)| tone(c)));
        let rows: Vec<String> =
            rows.iter().map(|(row, c)| format!("{row} {}", change(c))).collect();
        let place = function.map_or_else(String::new, |function| format!("in {function} "));
        parts.push(place + &text::list(&rows));
    }
    (!parts.is_empty()).then(|| (parts.join("; "), tone_of_all(tones)))
}

/// The comparison whose ratio is the largest.
fn worst<'a>(compared: &[Compared<'a>]) -> Option<&'a Comparison> {
    compared.iter().map(|(_, c)| *c).max_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

/// Names the places where haul is slower than its baseline beyond the noise, or says that there
/// is no such place.
pub(super) fn losses(records: &[&Record]) -> Option<Finding> {
    let mut all = of_haul(records, name::COPY_DISTRIBUTION);
    all.extend(of_haul(records, name::COPY_SIZE_CLASS));
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
        return Some(finding(name::COPY_DISTRIBUTION, Tone::Better, sentence));
    };
    let fields = [key::FUNCTION, key::DISTRIBUTION, key::SIZE_CLASS, key::LEVEL];
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

/// Comparisons of inlined haul in which haul is slower than its baseline, and whose branches repeat
/// or whose targets are read, the worst first. Data is in L1, and one thread copies.
pub(super) fn lost_regimes<'a>(records: &[&'a Record]) -> Vec<Compared<'a>> {
    let mut lost: Vec<Compared<'_>> = records
        .iter()
        .filter(|record| record.experiment == name::COPY_DISTRIBUTION && record.subject == "haul")
        .filter(|record| reader(record) != NO_READER || branches(record) != "random")
        .filter(|record| says(record, key::LEVEL, "l1") && threads(record) == 1)
        .filter_map(|record| record.comparison.as_ref().map(|comparison| (*record, comparison)))
        .filter(|(_, comparison)| comparison.verdict() == Verdict::More)
        .collect();
    lost.sort_by(|a, b| b.1.ratio.total_cmp(&a.1.ratio));
    lost
}

/// The regime of a record: `sizes of service that repeat, first 8 bytes read next`.
pub(super) fn regime(record: &Record) -> String {
    let distribution = field(record, key::DISTRIBUTION).unwrap_or_default();
    let sizes = match branches(record).as_str() {
        "repeating" => format!("sizes of {distribution} that repeat"),
        _ => format!("random sizes of {distribution}"),
    };
    let read = match reader(record).as_str() {
        NO_READER => "target not read",
        "first" => "first 8 bytes read next",
        "last" => "last 8 bytes read next",
        _ => "target read next",
    };
    format!("{sizes}, {read}")
}

/// Whether a parameter has this value.
fn says(record: &Record, name: &str, value: &str) -> bool {
    field(record, name).is_some_and(|own| own == value)
}

/// The comparisons on the sizes that services copy; all comparisons if there are none. A file of
/// that name counts, whatever it contains.
pub(super) fn of_services(mut compared: Vec<Compared<'_>>) -> Vec<Compared<'_>> {
    if compared.iter().any(|(record, _)| is_service(record)) {
        compared.retain(|(record, _)| is_service(record));
    }
    compared
}

fn is_service(record: &Record) -> bool {
    is(record, key::DISTRIBUTION, SERVICE) && !record.parameters.contains_key(key::FILE)
}

/// Comparisons at the nearest measured level, with one thread.
pub(super) fn nearest(mut compared: Vec<Compared<'_>>) -> Vec<Compared<'_>> {
    compared.retain(|(record, _)| threads(record) == 1);
    if let Some(nearest) = values(&compared, key::LEVEL).into_iter().next() {
        compared.retain(|(record, _)| field(record, key::LEVEL).as_ref() == Some(&nearest));
    }
    compared
}

/// A ratio as a change: `−21%`, `+4.0%`.
fn signed(ratio: f64) -> String {
    let sign = if ratio < 1.0 { '−' } else { '+' };
    format!("{sign}{}", text::percent(ratio - 1.0))
}
