//! The best kernel at every size.

use std::collections::BTreeMap;

use haul_model::experiment::{key, name};
use haul_model::{Bytes, Record};

use super::{Finding, Tone, finding, is, ranges};
use crate::select::{bytes, distinct, field, of_one_reader, runs, threads};
use crate::text;

/// A subject within this share of the best counts as best. haul promises to stay within 3% of the
/// best kernel and of libc; a reader would not act on less.
const CLOSE: f64 = 0.03;

/// Time by size and subject, one thread, one function.
struct Times {
    function: String,
    by_size: BTreeMap<u64, BTreeMap<String, Time>>,
}

/// A subject's time at one size.
#[derive(Clone, Copy)]
struct Time {
    /// The subject's ratio to the baseline, round by round, because medians of different rounds
    /// are not paired. The value is in nanoseconds if a subject of the size was not compared.
    value: f64,
    /// The ends of the value's interval; the value itself without a comparison.
    low: f64,
    high: f64,
    /// The noise floor; 0 without a comparison.
    floor: f64,
    /// The median.
    nanoseconds: f64,
    is_ratio: bool,
}

impl Time {
    fn of(record: &Record) -> Option<Self> {
        let nanoseconds = record.median()?;
        let time = match &record.comparison {
            Some(c) => Self {
                value: c.ratio,
                low: c.ratio_low,
                high: c.ratio_high,
                floor: c.floor,
                nanoseconds,
                is_ratio: true,
            },
            None => Self {
                value: nanoseconds,
                low: nanoseconds,
                high: nanoseconds,
                floor: 0.0,
                nanoseconds,
                is_ratio: false,
            },
        };
        (time.value > 0.0 && nanoseconds > 0.0).then_some(time)
    }

    /// Whether this time is within 3% of the best time.
    fn is_close_to(&self, best: &Self) -> bool {
        self.value <= best.value * (1.0 + CLOSE)
    }

    /// Whether this time is longer than the best time by more than 3%, beyond the noise of both
    /// times.
    fn is_behind(&self, best: &Self) -> bool {
        !self.is_close_to(best)
            && self.low > best.high
            && self.value > best.value * (1.0 + self.floor.max(best.floor))
    }
}

/// "libc is within 3% of the best from 4 KiB up."
pub(super) fn libc_by_size(records: &[&Record]) -> Option<Finding> {
    let times = Times::first(records)?;
    let close = times.close_to_best("libc")?;
    let tone = Tone::Fact;
    let range = ranges::words(&close);
    let sentence = format!(
        "On this machine libc’s {} is within 3% of the best of all {range}{}.",
        times.function,
        times.hidden("libc")
    );
    Some(finding(name::COPY_SIZE, tone, sentence))
}

/// The advice for thresholds that have not been tuned.
const TUNE: &str = "Set its thresholds for this machine with `haul copy tune`.";

/// How far haul is from the best of all, size by size.
pub(super) fn haul_by_size(records: &[&Record]) -> Option<Finding> {
    let times = Times::first(records)?;
    let close = times.close_to_best("haul")?;
    let range = ranges::words(&close);
    let hidden = times.hidden("haul");
    let sentence =
        format!("haul’s {} is within 3% of the best of all {range}{hidden}", times.function);
    let worst = times
        .by_size
        .iter()
        .filter_map(|(size, subjects)| {
            let (best, time) = best(subjects)?;
            let own = subjects.get("haul")?;
            own.is_behind(&time).then_some((own.value / time.value, *size, best))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let Some((over, size, best)) = worst else {
        let is_known = close.iter().any(|(_, is_close)| *is_close);
        let tone = if is_known { Tone::Better } else { Tone::Unknown };
        return Some(finding(name::COPY_SIZE, tone, sentence + "."));
    };
    let sentence = format!(
        "{sentence}; it is farthest at {}, where {best} takes {} less time.",
        Bytes(size),
        text::percent(1.0 - 1.0 / over)
    );
    let tuned = records.iter().any(|record| record.experiment == name::COPY_TUNE);
    // If a kernel wins at a size that the tuner has tried, a reader cannot avoid the loss. If
    // libc wins, a reader can, by calling libc.
    let tone = if tuned && best != "libc" { Tone::Fact } else { Tone::Worse };
    let found = finding(name::COPY_SIZE, tone, sentence);
    Some(if tuned { found } else { found.action(TUNE) })
}

/// The function that is measured by size; `None` without such records.
pub(super) fn function(records: &[&Record]) -> Option<String> {
    Times::first(records).map(|times| times.function)
}

/// haul's time over libc's, from the smallest size to the largest.
pub(super) fn haul_over_libc(records: &[&Record]) -> Vec<f64> {
    let Some(times) = Times::first(records) else { return Vec::new() };
    let ratio = |subjects: &BTreeMap<String, Time>| {
        Some(subjects.get("haul")?.value / subjects.get("libc")?.value)
    };
    times.by_size.values().filter_map(ratio).collect()
}

/// "Fastest kernels by size: avx2 up to 16 KiB, rep_movsb to 4 MiB, stream_avx2 above."
pub(super) fn fastest_by_size(records: &[&Record]) -> Option<Finding> {
    let times = Times::first(records)?;
    let kernels: Vec<(u64, BTreeMap<&str, Time>)> = times
        .by_size
        .iter()
        .map(|(size, subjects)| {
            (
                *size,
                subjects
                    .iter()
                    .filter(|(s, _)| is_kernel(s))
                    .map(|(s, t)| (s.as_str(), *t))
                    .collect(),
            )
        })
        .filter(|(_, kernels): &(u64, BTreeMap<&str, Time>)| kernels.len() > 1)
        .collect();
    let mut parts: Vec<String> = Vec::new();
    let mut start = 0;
    while start < kernels.len() {
        let (name, length) = longest_run(&kernels[start..])?;
        let last = kernels[start + length - 1].0;
        let is_last = start + length == kernels.len();
        parts.push(match (parts.is_empty(), is_last) {
            (true, true) => format!("{name} at every size"),
            (true, false) => format!("{name} up to {}", Bytes(last)),
            (false, true) => format!("{name} above"),
            (false, false) => format!("{name} to {}", Bytes(last)),
        });
        start += length;
    }
    if parts.is_empty() {
        return None;
    }
    let sentence = format!(
        "Fastest kernels for {} by size, within 3%: {}.",
        times.function,
        text::list(&parts)
    );
    Some(finding(name::COPY_SIZE, Tone::Fact, sentence))
}

/// The kernel that stays close to the best for the most sizes from the first on. Taking the longest
/// run each time gives the fewest changes.
fn longest_run<'a>(sizes: &[(u64, BTreeMap<&'a str, Time>)]) -> Option<(&'a str, usize)> {
    let run = |name: &str| {
        sizes
            .iter()
            .take_while(|(_, kernels)| {
                let best = kernels.values().min_by(|a, b| a.value.total_cmp(&b.value));
                best.zip(kernels.get(name)).is_some_and(|(best, own)| own.is_close_to(best))
            })
            .count()
    };
    let names = sizes.first()?.1.keys();
    let (name, length) = names.map(|name| (*name, run(name))).max_by_key(|(_, length)| *length)?;
    Some((name, length.max(1)))
}

fn is_kernel(subject: &str) -> bool {
    subject != "libc" && !subject.starts_with("haul")
}

fn best(subjects: &BTreeMap<String, Time>) -> Option<(&str, Time)> {
    subjects
        .iter()
        .map(|(subject, time)| (subject.as_str(), *time))
        .min_by(|a, b| a.1.value.total_cmp(&b.1.value))
}

impl Times {
    /// The times of the first function, with one thread.
    fn first(records: &[&Record]) -> Option<Self> {
        let mut own: Vec<&Record> = records
            .iter()
            .copied()
            .filter(|r| {
                r.experiment == name::COPY_SIZE
                    && r.metric == "time"
                    && r.unit == "ns"
                    && threads(r) == 1
            })
            .collect();
        own = of_one_reader(own, |record| record);
        let function = distinct(&own, key::FUNCTION).into_iter().next();
        own.retain(|record| {
            function.as_ref().is_none_or(|function| is(record, key::FUNCTION, function))
        });
        let mut by_size: BTreeMap<u64, BTreeMap<String, Time>> = BTreeMap::new();
        // If a size was measured at several levels, the nearest one counts, and of several runs the
        // newest with a comparison: the records are sorted by run, newest first.
        for level in distinct(&own, key::LEVEL).into_iter().map(Some).chain([None]) {
            for run in runs(&own) {
                let mut of_run: BTreeMap<u64, BTreeMap<String, Time>> = BTreeMap::new();
                for record in run.into_iter().filter(|record| field(record, key::LEVEL) == level) {
                    if let (Some(size), Some(time)) =
                        (bytes(record, key::SIZE_BYTES), Time::of(record))
                    {
                        of_run.entry(size).or_default().insert(record.subject.clone(), time);
                    }
                }
                for (size, subjects) in of_run.into_iter().filter(|(_, all)| all.len() > 1) {
                    by_size.entry(size).or_insert(subjects);
                }
            }
        }
        for subjects in by_size.values_mut() {
            // Ratios are compared only with ratios.
            if !subjects.values().all(|time| time.is_ratio) {
                let in_nanoseconds = |time: &mut Time| {
                    let nanoseconds = time.nanoseconds;
                    (time.value, time.low, time.high) = (nanoseconds, nanoseconds, nanoseconds);
                };
                subjects.values_mut().for_each(in_nanoseconds);
            }
        }
        let function = function.unwrap_or_else(|| "copy".into());
        (!by_size.is_empty()).then_some(Self { function, by_size })
    }

    /// The number of sizes, as text, at which noise hides whether the subject is so close.
    fn hidden(&self, subject: &str) -> String {
        let is_hidden = |subjects: &BTreeMap<String, Time>| {
            let (own, (_, best)) = subjects.get(subject).zip(best(subjects))?;
            Some(!own.is_close_to(&best) && !own.is_behind(&best))
        };
        match self.by_size.values().filter(|subjects| is_hidden(subjects) == Some(true)).count() {
            0 => String::new(),
            count => {
                format!(" (the run cannot tell at {}: noise)", text::count(count, "size"))
            }
        }
    }

    /// Each size at which the subject was measured, and whether it is close to the best there.
    fn close_to_best(&self, subject: &str) -> Option<Vec<(u64, bool)>> {
        let close: Vec<(u64, bool)> = self
            .by_size
            .iter()
            .filter_map(|(size, subjects)| {
                let own = subjects.get(subject)?;
                Some((*size, own.is_close_to(&best(subjects)?.1)))
            })
            .collect();
        (!close.is_empty()).then_some(close)
    }
}
