//! Transfers to another process.

use std::collections::BTreeMap;

use haul_model::experiment::{key, name};
use haul_model::{Bytes, Record};

use super::{Tone, Verdict, row, speed, tone_of_ratio};
use crate::findings::channel::{CHOICE, Load, OTHERS};
use crate::findings::{ranges, tone_of_all};
use crate::select::{bytes, distinct, field, runs};
use crate::text;

/// From this size on a message is a bulk transfer, and below one that travels in a slot.
const LARGE_BYTES: u64 = 16 << 10;

/// haul's choice, its fastest mechanism and the best other at a size.
struct Pair<'a> {
    size: u64,
    own: f64,
    mechanism: (&'a str, f64),
    other: (&'a str, f64),
}

/// What to do with figures that were taken beside other programs, whichever way they point: how
/// much those ran, and where, is nothing that the next transfer meets again.
const MEASURE_AGAIN: &str = "measure again while nothing else runs: `haul channel bench`, \
                             with `--busy-core 1` for a machine that stays busy";

/// Under which conditions transfers were measured.
struct Case {
    /// Behind the question: target and load.
    place: String,
    load: Load,
    is_survey: bool,
}

/// haul's choice beside the best other, for short and long messages, by target and load.
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
                ("warm", Load::Untold | Load::Free) => String::new(),
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
        let own = records.iter().find(|record| record.subject == CHOICE)?.median()?;
        let others = records.iter().filter(|record| is_other(&record.subject));
        let other = fastest(others)?;
        let mechanism = fastest(records.iter().filter(|record| is_mechanism(&record.subject)));
        let mechanism = mechanism.unwrap_or((CHOICE, own));
        (size > 0 && own > 0.0 && other.1 > 0.0).then_some(Pair { size, own, mechanism, other })
    };
    by_size.into_iter().filter_map(pair).collect()
}

/// Who moves most, and how much.
fn fastest<'a, 'b>(records: impl Iterator<Item = &'b &'a Record>) -> Option<(&'a str, f64)>
where
    'a: 'b,
{
    let medians = records.filter_map(|record| Some((record.subject.as_str(), record.median()?)));
    medians.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn verdict(what: &str, pairs: &[Pair<'_>], case: &Case) -> Option<Verdict> {
    let most = pairs.iter().max_by(|a, b| a.own.total_cmp(&b.own))?;
    let (first, last) = (pairs.first()?.size, pairs.last()?.size);
    let cost = |pair: &Pair<'_>| pair.other.1 / pair.own;
    let tones: Vec<Tone> = pairs.iter().map(|pair| tone_of_ratio(cost(pair))).collect();
    let mut text = format!(
        "{} at {}, {}",
        text::gigabytes(most.own),
        Bytes(most.size),
        match tone_of_ratio(cost(most)) {
            Tone::Same => format!("as fast as {}", most.other.0),
            _ => speed(cost(most), most.other.0),
        }
    );
    let lost: Vec<(u64, bool)> =
        pairs.iter().zip(&tones).map(|(pair, tone)| (pair.size, *tone == Tone::Worse)).collect();
    if let Some((_, worst)) = pairs
        .iter()
        .zip(&tones)
        .filter(|(_, tone)| **tone == Tone::Worse)
        .map(|(pair, _)| (cost(pair), pair))
        .max_by(|a, b| a.0.total_cmp(&b.0))
    {
        let places = ranges::words(&lost);
        text.push_str(&format!("; slower {places}: {}", speed(cost(worst), worst.other.0)));
    }
    let tone = tone_of_all(tones);
    let action = match tone {
        _ if case.load == Load::Others => MEASURE_AGAIN.into(),
        Tone::Worse => remedy(pairs, case),
        Tone::Same => "nothing".into(),
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
            .course(pairs.iter().map(cost)),
    )
}

/// What to do where haul's choice loses: name the mechanism of haul's that does not, or take the
/// other. A survey has written the table of choices already.
fn remedy<'a>(pairs: &[Pair<'a>], case: &Case) -> String {
    let ratio = |own: f64, pair: &Pair<'_>| tone_of_ratio(pair.other.1 / own);
    let lost: Vec<&Pair<'a>> =
        pairs.iter().filter(|pair| ratio(pair.own, pair) == Tone::Worse).collect();
    let is_cured = lost.iter().all(|pair| ratio(pair.mechanism.1, pair) != Tone::Worse);
    let names = |pick: fn(&Pair<'a>) -> &'a str| {
        let mut names: Vec<String> = lost.iter().map(|pair| pick(pair).to_owned()).collect();
        names.sort();
        names.dedup();
        text::list(&names)
    };
    let mechanisms = names(|pair| pair.mechanism.0.trim_start_matches("haul:"));
    match (is_cured, case.is_survey) {
        (true, true) => format!("`Settings::mechanism` at these sizes: {mechanisms}"),
        (true, false) => {
            format!("`haul survey`: its haul.toml chooses by size (here {mechanisms})")
        }
        (false, _) => {
            let other = names(|pair| pair.other.0);
            match case.load {
                Load::Busy => format!("{other} at these sizes, where a processor stays busy"),
                _ => format!("{other} at these sizes"),
            }
        }
    }
}
