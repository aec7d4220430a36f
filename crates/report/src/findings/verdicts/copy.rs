//! Copies, fills and their thresholds.

use haul_model::experiment::{key, name};
use haul_model::{Comparison, Nanos, Record};

use super::{Tone, Verdict, row, settle, speed_of};
use crate::findings::distribution::{self, Compared};
use crate::findings::stream;
use crate::findings::tune::{self, Advice};
use crate::findings::{is, mean, of_haul, size, tone, values};
use crate::select::field;
use crate::text;

/// The calls of recorded programs.
pub(super) fn programs(records: &[&Record]) -> Option<Verdict> {
    let all = stream::compared(records);
    let mean = mean(&all)?;
    let text = format!("{}{}", speed_of(&mean), stream::losses(&all));
    let tone = stream::tone(&all, &mean);
    let action = match tone {
        Tone::Worse => {
            "see which copy is best at your call sites: `haul copy advise --stream FILE`"
        }
        Tone::Unknown => "measure longer: `haul copy bench --stream FILE --budget 1m`",
        _ => "nothing",
    };
    let question = format!("as your programs call: {}", text::count(all.len(), "stream"));
    let course = all.iter().map(|(_, comparison)| comparison.ratio);
    Some(row(name::COPY_STREAM, &question, text, tone).act(action).course(course))
}

/// One row per function on the sizes that services copy.
pub(super) fn services(records: &[&Record]) -> Vec<Verdict> {
    let near =
        distribution::of_services(distribution::nearest(of_haul(records, name::COPY_DISTRIBUTION)));
    let functions = values(&near, key::FUNCTION);
    let row_of = |function: &String| {
        let own: Vec<Compared<'_>> = near
            .iter()
            .copied()
            .filter(|(record, _)| is(record, key::FUNCTION, function))
            .collect();
        let all = mean(&own)?;
        let sizes = match own.iter().all(|(record, _)| record.parameters.contains_key(key::FILE)) {
            true => "sizes in your files",
            false => "sizes that services copy",
        };
        let figures = match own.as_slice() {
            [(record, comparison)] => figures(records, record, comparison),
            several => format!(", in the mean of {}", text::count(several.len(), "distribution")),
        };
        let answer = format!("{}{figures}", speed_of(&all));
        let course = classes(records, function);
        let action = match tone(&all) {
            Tone::Unknown => settle(Some(&all), "haul copy bench --budget 1m"),
            tone => action(&tone, function, &all.baseline),
        };
        let question = format!("{function}, {sizes}");
        Some(
            row(name::COPY_DISTRIBUTION, &question, answer, tone(&all)).act(&action).course(course),
        )
    };
    functions.iter().filter_map(row_of).collect()
}

/// ` (7.9 ns and 10.0 ns)`.
fn figures(records: &[&Record], own: &Record, comparison: &Comparison) -> String {
    let regime = [key::BRANCHES, key::THEN_READ];
    let same = [key::FUNCTION, key::DISTRIBUTION, key::LEVEL, key::THREADS, key::FILE];
    let baseline = records.iter().find(|record| {
        record.run == own.run
            && record.experiment == own.experiment
            && record.subject == comparison.baseline
            && same.iter().chain(&regime).all(|name| field(record, name) == field(own, name))
    });
    match (own.median(), baseline.and_then(|record| record.median())) {
        (Some(ours), Some(theirs)) => format!(" ({} and {})", Nanos(ours), Nanos(theirs)),
        _ => String::new(),
    }
}

fn action(tone: &Tone, function: &str, baseline: &str) -> String {
    match tone {
        Tone::Better => match function {
            "memcpy" => "`haul::copy::copy`, or `haul_memcpy` of haul.h".into(),
            "memmove" => "`haul::copy::copy_within`, or `haul_memmove`".into(),
            "memset" => "`haul::copy::fill`, or `haul_memset`".into(),
            other => format!("haul’s {other}"),
        },
        Tone::Worse => format!("keep {baseline}’s {function}"),
        Tone::Same | Tone::Fact | Tone::Unknown => "nothing".into(),
    }
}

/// The ratios by size class, from small to large.
fn classes(records: &[&Record], function: &str) -> Vec<f64> {
    let near = distribution::nearest(of_haul(records, name::COPY_SIZE_CLASS));
    let own = near.iter().filter(|(record, _)| is(record, key::FUNCTION, function));
    own.map(|(_, comparison)| comparison.ratio).collect()
}

/// The places where haul is slower than the baseline, which the mean over services may hide.
pub(super) fn losses(records: &[&Record]) -> Option<Verdict> {
    let found = distribution::losses(records).filter(|found| found.tone == Tone::Worse)?;
    let worst = found.text.split_once("; the worst is ").map_or(found.text.as_str(), |(_, w)| w);
    let count = found.text.split(" in ").nth(1).and_then(|rest| rest.split(';').next());
    let text = format!("slower in {}: {}", count.unwrap_or("some"), worst.trim_end_matches('.'));
    let action = "measure your sizes: `haul copy bench --distribution FILE`";
    Some(row(&found.experiment, "where haul’s copies lose", text, Tone::Worse).act(action))
}

/// The regimes of branches and readers in which haul is slower than the baseline, on the sizes that
/// services copy.
pub(super) fn regimes(records: &[&Record]) -> Option<Verdict> {
    let found = distribution::lost_regimes(records);
    let (worst, comparison) = found.first()?;
    let others = match found.len() {
        1 => String::new(),
        several => format!(", the worst of {several} such"),
    };
    let text = format!("slower: {}{others}", speed_of(comparison));
    let question = format!(
        "{}, {}",
        field(worst, key::FUNCTION).unwrap_or_default(),
        distribution::regime(worst)
    );
    let action = "see which copy is best: `haul copy advise --sizes SIZE --predictable --read`";
    Some(row(name::COPY_DISTRIBUTION, &question, text, Tone::Worse).act(action))
}

/// haul at one size at a time, compared with every kernel and with libc.
pub(super) fn by_size(records: &[&Record]) -> Option<Verdict> {
    let found = size::haul_by_size(records)?;
    let text = found.text.trim_end_matches('.').split_once(" is ").map(|(_, text)| text.to_owned());
    let action = match (&found.action, found.tone) {
        (Some(_), _) => "`haul copy tune`",
        (None, Tone::Worse) => "keep libc’s at the sizes that lose",
        (None, Tone::Unknown) => {
            "measure longer: `haul copy bench --sizes 1KiB..64MiB --budget 2m`"
        }
        (None, Tone::Fact) => "nothing: it is tuned",
        _ => "nothing",
    };
    let course = size::haul_over_libc(records);
    let question = format!("{}, one size at a time", size::function(records)?);
    Some(
        row(name::COPY_SIZE, &question, text.unwrap_or(found.text), found.tone)
            .act(action)
            .course(course),
    )
}

/// Whether the written haul.toml is worth keeping.
pub(super) fn tuned(records: &[&Record]) -> Option<Verdict> {
    let (found, advice) = tune::judged(records)?;
    let action = match advice {
        Advice::Keep => "`mkdir -p ~/.config/haul; cp haul.toml ~/.config/haul`",
        Advice::KeepUnless => {
            "keep it if your sizes are not among those: `mkdir -p ~/.config/haul; cp haul.toml \
             ~/.config/haul`"
        }
        Advice::LeaveUnless if found.tone == Tone::Same => "nothing",
        Advice::LeaveUnless => "keep the defaults, unless your sizes are among those that gain",
        Advice::Leave => "remove it: the defaults are better",
        Advice::Nothing => "nothing: the defaults stay",
    };
    let text = found.text.trim_start_matches("What was tuned for this machine ");
    let text = text.trim_start_matches("What was tuned is ");
    let text = text.trim_start_matches("What was tuned ").trim_end_matches('.').to_owned();
    Some(row(name::COPY_TUNE, "haul.toml, beside the defaults", text, found.tone).act(action))
}
