//! Transfers to another process.

use std::collections::BTreeMap;

use haul_model::experiment::{key, name};
use haul_model::{Bytes, Comparison, Record};

use super::{Tone, Verdict, row, settle, speed_of};
use crate::findings::channel::{CHOICE, Load, OTHERS};
use crate::findings::{ranges, tone, tone_of_all};
use crate::select::{bytes, distinct, field, runs};
use crate::text;

/// A message of this size or more is a bulk transfer; a smaller one travels in a slot.
const LARGE_BYTES: u64 = 16 << 10;

/// haul's choice, its fastest mechanism and the best other at a size.
struct Pair<'a> {
    size: u64,
    own: f64,
    /// haul's choice compared with the best other, in cost.
    beside: Comparison,
    /// haul's fastest mechanism, and its comparison with the best other.
    mechanism: (&'a str, Comparison),
}

/// The advice for figures that were taken while other programs ran, whatever the figures say,
/// because the next transfer will meet another load.
const MEASURE_AGAIN: &str = "measure again while nothing else runs: `haul channel bench`, \
                             with `--busy-core 1` for a machine that stays busy";

/// The conditions under which transfers were measured.
struct Case {
    /// The suffix of the question: target and load.
    place: String,
    load: Load,
    is_survey: bool,
}

/// haul's choice compared with the best other, for short and long messages, by target and load.
pub(super) fn transfers(records: &[&Record]) -> Vec<Verdict> {
    let all: Vec<&Record> = records
        .iter()
        .copied()
        .filter(|r| r.experiment == name::CHANNEL_TRANSFER && r.metric == "throughput")
        .collect();
    let is_survey = records.iter().any(|record| record.experiment == name::MEMORY_BANDWIDTH);
    let mut rows = Vec::new();
    for target in distinct(&all, key::TARGET) {
        for load in Load::ALL {
            let is_it = |record: &&Record| {
                field(record, key::TARGET).as_ref() == Some(&target) && Load::of(record) == load
            };
            let here: Vec<&Record> = all.iter().copied().filter(is_it).collect();
            let pairs = runs(&here).into_iter().map(|run| pairs(&run)).find(|p| !p.is_empty());
            let into = match (target.as_str(), load) {
                ("warm", Load::Unknown | Load::Free) => String::new(),
                (target, _) => format!(", into {target} memory"),
            };
            let case = Case { place: into + load.words(), load, is_survey };
            let (large, small): (Vec<_>, Vec<_>) =
                pairs.unwrap_or_default().into_iter().partition(|pair| pair.size >= LARGE_BYTES);
            rows.extend(verdict("messages to another process", &small, &case));
            rows.extend(verdict("bulk data to another process", &large, &case));
        }
    }
    rows
}

fn pairs<'a>(run: &[&'a Record]) -> Vec<Pair<'a>> {
    let mut by_size: BTreeMap<u64, Vec<&Record>> = BTreeMap::new();
    for record in run {
        by_size.entry(bytes(record, key::SIZE_BYTES).unwrap_or(0)).or_default().push(record);
    }
    let is_other = |name: &str| {
        !name.starts_with("haul:") && !OTHERS.contains(&name) && !name.contains("2014:")
    };
    let is_mechanism =
        |name: &str| name.starts_with("haul:") && !OTHERS.contains(&name) && !name.contains('+');
    let pair = |(size, records): (u64, Vec<&'a Record>)| {
        let chosen = *records.iter().find(|record| record.subject == CHOICE)?;
        let other = fastest(records.iter().filter(|record| is_other(&record.subject)))?;
        let mechanism = fastest(records.iter().filter(|record| is_mechanism(&record.subject)));
        let mechanism = mechanism.unwrap_or(chosen);
        let (own, beside) = (chosen.median()?, Comparison::between(chosen, other)?);
        let mechanism = (mechanism.subject.as_str(), Comparison::between(mechanism, other)?);
        (size > 0).then_some(Pair { size, own, beside, mechanism })
    };
    by_size.into_iter().filter_map(pair).collect()
}

/// The record with the highest rate.
fn fastest<'a, 'b>(records: impl Iterator<Item = &'b &'a Record>) -> Option<&'a Record>
where
    'a: 'b,
{
    let medians = records.filter_map(|record| Some((*record, record.median()?)));
    medians.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(record, _)| record)
}

fn verdict(what: &str, pairs: &[Pair<'_>], case: &Case) -> Option<Verdict> {
    let most = pairs.iter().max_by(|a, b| a.own.total_cmp(&b.own))?;
    let (first, last) = (pairs.first()?.size, pairs.last()?.size);
    let mut text = format!(
        "{} at {}, {}",
        text::gigabytes(most.own),
        Bytes(most.size),
        speed_of(&most.beside)
    );
    let at = |wanted: Tone| -> (Vec<(u64, bool)>, Option<&Comparison>) {
        let is_it = |pair: &&Pair<'_>| tone(&pair.beside) == wanted;
        let sizes = pairs.iter().map(|pair| (pair.size, is_it(&pair))).collect();
        let all = pairs.iter().filter(is_it).map(|pair| &pair.beside);
        (sizes, all.max_by(|a, b| a.ratio.total_cmp(&b.ratio)))
    };
    if let (sizes, Some(worst)) = at(Tone::Worse) {
        text.push_str(&format!("; slower {}: {}", ranges::words(&sizes), speed_of(worst)));
    }
    let (sizes, unknown) = at(Tone::Unknown);
    if unknown.is_some() && pairs.len() > 1 {
        text.push_str(&format!("; cannot tell {}", ranges::words(&sizes)));
    }
    let tone = tone_of_all(pairs.iter().map(|pair| tone(&pair.beside)));
    let action = match tone {
        _ if case.load == Load::Others => MEASURE_AGAIN.into(),
        Tone::Worse => remedy(pairs, case),
        Tone::Same => "nothing".into(),
        Tone::Unknown => settle(unknown, "haul channel bench --budget 1m"),
        _ => "`haul::channel::Channel`, as it comes".into(),
    };
    let range = if first == last {
        format!("of {}", Bytes(first))
    } else {
        format!("of {} to {}", Bytes(first), Bytes(last))
    };
    let question = format!("{what} {range}{}", case.place);
    Some(
        row(name::CHANNEL_TRANSFER, &question, text, tone)
            .act(&action)
            .course(pairs.iter().map(|pair| pair.beside.ratio)),
    )
}

/// The advice if haul's choice loses: haul's mechanism that does not lose, or else the other
/// subject. A survey has already written the table of choices.
fn remedy<'a>(pairs: &[Pair<'a>], case: &Case) -> String {
    let lost: Vec<&Pair<'a>> =
        pairs.iter().filter(|pair| tone(&pair.beside) == Tone::Worse).collect();
    let is_cured = lost.iter().all(|pair| tone(&pair.mechanism.1) != Tone::Worse);
    let names = |pick: fn(&Pair<'a>) -> String| {
        let mut names: Vec<String> = lost.iter().map(|pair| pick(pair)).collect();
        names.sort();
        names.dedup();
        text::list(&names)
    };
    let mechanisms = names(|pair| pair.mechanism.0.trim_start_matches("haul:").to_owned());
    match (is_cured, case.is_survey) {
        (true, true) => format!("`Settings::mechanism` at these sizes: {mechanisms}"),
        (true, false) => {
            format!("`haul survey`: its haul.toml chooses by size (here {mechanisms})")
        }
        (false, _) => {
            let other = names(|pair| pair.beside.baseline.clone());
            match case.load {
                Load::Busy => format!("{other} at these sizes, where a processor stays busy"),
                _ => format!("{other} at these sizes"),
            }
        }
    }
}
