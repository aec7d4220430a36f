//! Packets of virtual machines.

use std::collections::BTreeMap;

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Comparison, Record};

use super::{Tone, Verdict, row, settle};
use crate::findings::{open, tone, tone_of_all};
use crate::select::{bytes, distinct, field, runs};
use crate::text;

const RATE: &str = "rate_peak";

/// Rates without loss, the strictest first, each with the field's name for it.
const WITHOUT_LOSS: [(&str, &str); 2] = [("rate_rfc2544", "RFC 2544"), ("rate_ndr", "NDR")];

/// The flows that a survey or a user measures, each with the question of its row.
const FLOWS: [(&str, &str); 4] = [
    (name::FORWARD_PVP, "a VM’s packets"),
    (name::FORWARD_ENQUEUE, "packets to a VM"),
    (name::FORWARD_DEQUEUE, "packets from a VM"),
    (name::FORWARD_LOOPBACK, "packets round a switch and a VM"),
];

/// The rate of haul's switch at one size, compared with the fastest other switch of the same run,
/// or with itself with libc's copy.
struct Rate {
    size: u64,
    own: f64,
    without_loss: Option<(f64, &'static str)>,
    other: Option<Other>,
}

struct Other {
    name: String,
    /// In cost: haul's time per packet divided by the other's.
    beside: Comparison,
    is_switch: bool,
}

/// A row for each flow and ring layout.
pub(super) fn flows(records: &[&Record]) -> Vec<Verdict> {
    let row_of = |(flow, question): (&str, &str)| {
        let of_flow = |record: &&&Record| record.experiment == flow;
        let all: Vec<&Record> = records.iter().filter(of_flow).copied().collect();
        let layouts = distinct(&all, key::LAYOUT);
        let several = layouts.len() > 1;
        let of_layout = move |layout: &String| {
            let here: Vec<&Record> = all
                .iter()
                .copied()
                .filter(|record| field(record, key::LAYOUT).as_ref() == Some(layout))
                .collect();
            let place = if several { format!(", {layout} rings") } else { String::new() };
            verdict(flow, question, &place, &rates(&here))
        };
        layouts.iter().filter_map(of_layout).collect::<Vec<Verdict>>()
    };
    FLOWS.into_iter().flat_map(row_of).collect()
}

/// One rate per size, from the newest run that compares it with another switch, or else from the
/// newest run.
fn rates(records: &[&Record]) -> Vec<Rate> {
    let mut by_size: BTreeMap<u64, Rate> = BTreeMap::new();
    for run in runs(records) {
        let is_own = |record: &&&Record| {
            record.metric == RATE
                && record.subject == "haul"
                && field(record, key::COPY).as_deref() == Some("haul")
        };
        for own in run.iter().filter(is_own) {
            let Some(found) = rate(own, &run) else { continue };
            let has_switch = |rate: &Rate| rate.other.as_ref().is_some_and(|it| it.is_switch);
            let known = by_size.get(&found.size);
            if known.is_none_or(|known| !has_switch(known) && has_switch(&found)) {
                by_size.insert(found.size, found);
            }
        }
    }
    by_size.into_values().collect()
}

fn rate(own: &Record, run: &[&Record]) -> Option<Rate> {
    let size = bytes(own, key::SIZE_BYTES)?;
    let at_size = |record: &&Record| bytes(record, key::SIZE_BYTES) == Some(size);
    let rate = own.median().filter(|rate| *rate > 0.0)?;
    let here: Vec<&Record> = run.iter().copied().filter(at_size).collect();
    let same_copy = |record: &&&Record| {
        record.subject == "haul" && field(record, key::COPY) == field(own, key::COPY)
    };
    let without_loss = WITHOUT_LOSS.into_iter().find_map(|(metric, word)| {
        let found = here.iter().filter(same_copy).find(|record| record.metric == metric)?;
        Some((found.median()?, word))
    });
    let others = here.iter().filter(|record| record.metric == RATE && record.subject != "haul");
    let others = others.filter_map(|record| Some((*record, record.median()?)));
    let fastest = others.filter(|it| it.1 > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
    let other = match fastest {
        Some((other, _)) => beside(own, other),
        None => copy_gain(&here),
    };
    Some(Rate { size, own: rate, without_loss, other })
}

/// The comparison with another switch: by alternating runs if there is one, or else by the two
/// records.
fn beside(own: &Record, other: &Record) -> Option<Other> {
    let compared = own.cost().filter(|it| it.baseline == other.subject && it.ratio > 0.0);
    let beside = compared.or_else(|| Comparison::between(own, other))?;
    Some(Other { name: other.subject.clone(), beside, is_switch: true })
}

/// The comparison of haul's copy with libc's in the same switch.
fn copy_gain(here: &[&Record]) -> Option<Other> {
    let gain = here.iter().find(|record| record.metric == "copy_gain")?;
    let beside = gain.cost().filter(|it| it.ratio > 0.0)?;
    Some(Other { name: "with libc’s copy".into(), beside, is_switch: false })
}

fn verdict(flow: &str, question: &str, place: &str, rates: &[Rate]) -> Option<Verdict> {
    let (first, last) = (rates.first()?, rates.last()?);
    let mut text = format!("{} at {} B", millions(first.own), first.size);
    if let Some(other) = &first.other {
        text += &format!(", {}", speed(other));
    }
    if let Some((rate, word)) = first.without_loss {
        text += &format!("; {} without loss ({word})", millions(rate));
    }
    let lost: Vec<String> = rates
        .iter()
        .skip(1)
        .filter_map(|rate| {
            let other = rate.other.as_ref()?;
            match tone(&other.beside) {
                Tone::Worse => Some(format!("{} at {} B", speed(other), rate.size)),
                Tone::Unknown => Some(format!("cannot tell at {} B", rate.size)),
                _ => None,
            }
        })
        .collect();
    if !lost.is_empty() {
        text += &format!("; {}", text::list(&lost));
    }
    let others: Vec<&Other> = rates.iter().filter_map(|rate| rate.other.as_ref()).collect();
    let tone = match others.as_slice() {
        [] => Tone::Fact,
        others => tone_of_all(others.iter().map(|other| tone(&other.beside))),
    };
    let range = if first.size == last.size {
        format!(", {} B", first.size)
    } else {
        format!(", {} to {} B", first.size, last.size)
    };
    let course = others.iter().map(|other| other.beside.ratio);
    let question = format!("{question}{range}{place}");
    Some(row(flow, &question, text, tone).act(&action(tone, &others)).course(course))
}

fn action(tone: Tone, others: &[&Other]) -> String {
    if tone == Tone::Unknown {
        let open = others.iter().map(|other| &other.beside).find(|it| it.settle().is_some());
        return settle(open, "haul forward pvp --restarts 15");
    }
    let Some(other) = others.iter().find(|other| other.is_switch) else {
        return "`haul forward pvp --switch haul,testpmd --guest testpmd` puts DPDK beside it"
            .into();
    };
    match tone {
        Tone::Worse => {
            let lost = others.iter().find(|it| crate::findings::tone(&it.beside) == Tone::Worse);
            format!("stay with {} at the sizes that lose", lost.unwrap_or(other).name)
        }
        Tone::Better => "`haul forward --port vhost:path=FILE`, or `haul::forward`".into(),
        Tone::Same | Tone::Fact | Tone::Unknown => "nothing".into(),
    }
}

/// `1.30 times as fast as testpmd`, `10% slower than testpmd`, `as fast as testpmd`.
fn speed(other: &Other) -> String {
    let (name, rate) = (&other.name, 1.0 / other.beside.ratio);
    match tone(&other.beside) {
        Tone::Better => format!("{} times as fast as {name}", three_digits(rate)),
        Tone::Worse => format!("{} slower than {name}", text::percent(1.0 - rate)),
        Tone::Unknown => format!("beside {name} {}", open(&other.beside)),
        Tone::Same | Tone::Fact => format!("as fast as {name}"),
    }
}

fn millions(rate: f64) -> String {
    format!("{} Mpps", three_digits(rate / 1e6))
}
