//! `haul copy bench`: copies and fills side by side with the installed C library.

use std::path::Path;
use std::time::Duration;

use haul_experiments::copy::drawn::Shape;
use haul_experiments::copy::stream::subjects::EMPTY;
use haul_experiments::copy::stream::{Replay, recorded};
use haul_experiments::copy::{
    Drawn, Function, Handed, Plain, Selection, Sizes, ThenRead, subjects,
};
use haul_experiments::memory::Bandwidth;
use haul_machine::sys::Sys;
use haul_measure::distribution::{Alignment, Overlap, SIZE_MAX_BYTES};
use haul_measure::{Caches, Distribution, Level, distribution};
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Nanos, Record};
use haul_report::limit;

use crate::arguments::copy::Bench as Arguments;
use crate::command::steps::{self, Steps};
use crate::command::{Command, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::summary::{Comparisons, Measured, Printing};

/// Time for a measurement without --budget: enough rounds for an interval of about 1% on a quiet
/// machine.
const BUDGET_EACH: Duration = Duration::from_secs(2);

/// The distribution that is measured if no sizes are named.
const DEFAULT_DISTRIBUTION: &str = "service";

pub(super) struct Bench {
    steps: Steps,
    budget: Option<Duration>,
    json: bool,
    printing: Printing,
}

impl Bench {
    /// Resolves every name, reads every distribution, and lists the steps.
    ///
    /// # Errors
    /// A name is unknown, a file is not a distribution, or there are more threads than processors.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let threads = if arguments.handed { 2 } else { usize::from(arguments.threads) };
        let allowed = Sys::new().topology().allowed.len();
        if threads > allowed {
            return Err(Error::Threads { asked: threads, allowed });
        }
        let levels = once_each(arguments.level.iter().flat_map(|levels| &levels.0));
        let readers = match arguments.then_read.is_empty() {
            true => vec![ThenRead::Nothing],
            false => once_each(&arguments.then_read),
        };
        let branches = arguments.branches.unwrap_or_default();
        let levels_or = |default| if levels.is_empty() { vec![default] } else { levels.clone() };
        let shapes = shapes(&arguments)?;
        refuse_unused(&arguments, !shapes.is_empty())?;
        let mut sizes_bytes = sizes_bytes(&arguments)?;
        let alignment = match arguments.misaligned {
            Some(odd_share) => Alignment { odd_share },
            None => Alignment::default(),
        };
        let overlap = arguments.overlap.map_or_else(Overlap::default, |share| Overlap { share });
        let caches = Caches::from_sizes(&this_machine().caches_bytes);
        let available_bytes = Sys::new().memory().available_bytes;
        let (mut steps, mut asked): (Steps, Steps) = (Vec::new(), replays(&arguments)?);
        if arguments.handed {
            asked.extend(messages(&arguments, sizes_bytes.split_off(0))?);
        }
        for function in functions(&arguments) {
            let (drawn, swept) = selections(function, &arguments.kernel)?;
            for shape in &shapes {
                for (level, then_read) in each(&levels_or(Level::L1), &readers) {
                    asked.push(Box::new(Drawn {
                        level,
                        threads,
                        subjects: drawn.clone(),
                        alignment,
                        overlap,
                        branches,
                        then_read,
                        ..Drawn::new(function, shape.clone())
                    }));
                }
            }
            if !sizes_bytes.is_empty() {
                let limit = Bandwidth::limit(function, threads, &caches, available_bytes);
                steps.push(Box::new(limit));
            }
            for &size in &sizes_bytes {
                for (level, then_read) in
                    each(&levels_of(size, levels_or(Level::Nearest)), &readers)
                {
                    asked.push(Box::new(Sizes {
                        level,
                        threads,
                        subjects: swept.clone(),
                        alignment,
                        branches,
                        then_read,
                        ..Sizes::new(function, vec![size])
                    }));
                }
            }
        }
        steps.extend(steps::evenly(asked, arguments.budget, BUDGET_EACH));
        let Arguments { budget, json, printing, .. } = arguments;
        Ok(Self { steps, budget, json, printing })
    }
}

impl Command for Bench {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let files = self.printing.export_markdown.iter().cloned().collect();
        Outputs { json: self.json, files, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, self.budget, journal)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        let table = comparisons(journal.records());
        if self.json || table.is_empty() {
            return Ok(());
        }
        let note = limit_note(journal).map_or_else(String::new, |note| note + "\n");
        let ratio = "\nratio: time over libc's, below 1 is faster; floor: how far libc differed from itself in \
             the same run.";
        let has_streams = journal.records().any(|it| it.experiment == name::COPY_STREAM);
        let empty = "\nempty: calls of a function that does nothing, with the same loop and reads.";
        let empty = if has_streams { empty } else { "" };
        table.print(&self.printing, &(note + ratio + empty))
    }
}

/// The named values in their order, each once.
fn once_each<'a, T: Copy + PartialEq + 'a>(named: impl IntoIterator<Item = &'a T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::new();
    for name in named {
        if !once.contains(name) {
            once.push(*name);
        }
    }
    once
}

/// Every level with every reader.
fn each<'a>(
    levels: &'a [Level],
    readers: &'a [ThenRead],
) -> impl Iterator<Item = (Level, ThenRead)> + 'a {
    levels.iter().flat_map(|level| readers.iter().map(|reader| (*level, *reader)))
}

/// The requested functions.
fn functions(arguments: &Arguments) -> Vec<Function> {
    match arguments.function.is_empty() {
        true => vec![Function::Memcpy],
        false => arguments.function.clone(),
    }
}

/// The messages of every size.
fn messages(arguments: &Arguments, sizes_bytes: Vec<usize>) -> Result<Steps, Error> {
    let subjects = selections(Function::Memcpy, &arguments.kernel)?.0;
    let message = |size| Handed { subjects: subjects.clone(), ..Handed::new(vec![size]) };
    Ok(sizes_bytes.into_iter().map(|size| Box::new(message(size)) as Box<_>).collect())
}

/// The replay of every stream.
fn replays(arguments: &Arguments) -> Result<Steps, Error> {
    let mut replays: Steps = Vec::new();
    for (at, name) in arguments.stream.iter().enumerate() {
        if arguments.stream[..at].contains(name) {
            continue;
        }
        for stream in recorded::find(name)? {
            let subjects = match arguments.kernel.is_empty() {
                true => Selection::Products,
                false => Selection::Named(arguments.kernel.clone()),
            };
            let replay = Replay { subjects, ..Replay::new(stream) };
            replay.check()?;
            replays.push(Box::new(replay));
        }
    }
    Ok(replays)
}

/// The shapes that sizes are drawn from.
fn shapes(arguments: &Arguments) -> Result<Vec<Shape>, Error> {
    let mut names = arguments.distribution.clone();
    let is_other = !arguments.size_class.is_empty()
        || arguments.sizes.is_some()
        || !arguments.stream.is_empty();
    if names.is_empty() && !is_other {
        names.push(DEFAULT_DISTRIBUTION.into());
    }
    let mut shapes = Vec::new();
    for name in &names {
        let found = match name.to_str() {
            Some(name) => Distribution::find(name)?,
            None => distribution::file::read(Path::new(name))?,
        };
        shapes.push(Shape::Distribution(found));
    }
    for class in &arguments.size_class {
        shapes.push(Shape::of_class(*class)?);
    }
    Ok(shapes)
}

/// An option that would not change the measurement is a mistake, and is refused before the
/// measurement.
fn refuse_unused(arguments: &Arguments, is_drawn: bool) -> Result<(), Error> {
    const DRAWN: (&str, &str) = ("drawn sizes", "add --distribution or --size-class");
    let unused = |option, (belongs, remedy)| Err(Error::Unused { option, belongs, remedy });
    if let Some(option) = of_sizes(arguments).filter(|_| !is_drawn && arguments.sizes.is_none()) {
        let remedy = "add --distribution, --size-class or --sizes";
        return unused(option, ("sizes, and a stream has its own calls", remedy));
    }
    if is_drawn && arguments.level.iter().any(|levels| levels.0.contains(&Level::Nearest)) {
        let belongs = ("one size after the other", "name l1, l2, llc, cold or mixed");
        return unused("--level nearest", belongs);
    }
    match arguments.overlap {
        Some(_) if !is_drawn => unused("--overlap", DRAWN),
        Some(_) if !functions(arguments).contains(&Function::Memmove) => {
            unused("--overlap", ("memmove", "add --function memmove"))
        }
        _ => Ok(()),
    }
}

/// A named option that a stream does not have, because its calls are as recorded.
fn of_sizes(arguments: &Arguments) -> Option<&'static str> {
    let named = [
        ("--function", !arguments.function.is_empty()),
        ("--level", !arguments.level.is_empty()),
        ("--threads", arguments.threads > 1),
        ("--branches", arguments.branches.is_some()),
        ("--then-read", !arguments.then_read.is_empty()),
        ("--misaligned", arguments.misaligned.is_some()),
        ("--overlap", arguments.overlap.is_some()),
    ];
    named.into_iter().find_map(|(option, is_named)| is_named.then_some(option))
}

/// The levels at which this size is measured. A size that fits none of them is measured once.
fn levels_of(size: usize, mut levels: Vec<Level>) -> Vec<Level> {
    if size > SIZE_MAX_BYTES && levels.len() > 1 {
        levels = vec![Level::Nearest];
    }
    levels
}

fn sizes_bytes(arguments: &Arguments) -> Result<Vec<usize>, Error> {
    in_bytes(arguments.sizes.as_ref())
}

/// The sizes of `--sizes`, which fit into an address space.
///
/// # Errors
/// A size is 0 or too large.
pub(super) fn in_bytes(sizes: Option<&haul_model::Sizes>) -> Result<Vec<usize>, Error> {
    /// Half the address space of a process, because source and target must both fit.
    const LIMIT: Bytes = Bytes(1 << 46);
    const OPTION: &str = "--sizes";
    let too_large = |asked| Error::Size { asked, limit: LIMIT, option: OPTION };
    let sizes = sizes.iter().flat_map(|sizes| &sizes.0);
    sizes
        .map(|&size| match usize::try_from(size.0) {
            Ok(0) => Err(Error::NoSize { option: OPTION }),
            Ok(_) if size > LIMIT => Err(too_large(size)),
            Err(_) => Err(too_large(size)),
            Ok(bytes) => Ok(bytes),
        })
        .collect()
}

/// Subjects for drawn sizes and for sweeps. An unknown name is an error here, not after the first
/// measurement.
fn selections(function: Function, kernels: &[String]) -> Result<(Selection, Selection), Error> {
    if kernels.is_empty() {
        return Ok((Selection::Products, Selection::Kernels));
    }
    let named = Selection::Named(kernels.to_vec());
    subjects::select(function, &named, Plain::C)?;
    Ok((named.clone(), named))
}

/// Every comparison as a row; a blank line separates the sizes.
fn comparisons<'a>(records: impl Iterator<Item = &'a Record>) -> Comparisons {
    let records: Vec<&Record> = records.collect();
    let mut headings = vec!["function", "sizes", "level", ">threads"];
    let has_readers = records.iter().any(|record| reader(record) != ThenRead::Nothing.name());
    if has_readers {
        headings.push("then read");
    }
    headings.extend(["subject", ">time"]);
    let has_rates = records.iter().any(|record| limit::throughput(record).is_some());
    if has_rates {
        headings.extend([">GB/s", ">of limit"]);
    }
    headings.extend([">ratio", ">interval", ">floor", "verdict"]);
    let mut table = Comparisons::new(&headings, has_rates);
    // The bandwidth of memory is a rate, where more is better: it is a column here, not a row.
    for record in records.iter().filter(|record| record.experiment != name::MEMORY_BANDWIDTH) {
        let Some(comparison) = record.cost() else { continue };
        let mut row = what(record);
        let mut of = row[..SUBJECT_COLUMN - 1].join(", ");
        if threads(record) > 1 {
            of.push_str(&format!(", {} threads", threads(record)));
        }
        if has_readers {
            row.insert(READER_COLUMN, reader(record).to_owned());
            of.push_str(&format!(", then read {}", reader(record)));
        }
        if has_rates {
            let rate = limit::throughput(record);
            let allowed = limit::memory_limit(records.iter().copied(), record);
            row.push(rate.map_or(String::new(), |rate| format!("{rate:.1}")));
            let share = rate.zip(allowed).map(|(rate, allowed)| rate / allowed);
            row.push(share.map_or(String::new(), |share| format!("{:.0}%", 100.0 * share)));
        }
        row.extend([
            format!("{:.3}", comparison.ratio),
            format!("{:.3}-{:.3}", comparison.ratio_low, comparison.ratio_high),
            format!("{:.3}", comparison.floor),
            comparison.verdict().name().to_owned(),
        ]);
        let cost = Some(comparison.ratio);
        let mut measured = Measured { cost, comparison: Some(comparison), is_time: true };
        if record.subject == EMPTY {
            // It copies nothing, so that it is neither faster nor slower.
            (measured.comparison, measured.is_time) = (None, false);
            row.pop();
        }
        table.add(of, &record.subject, measured, row);
    }
    table
}

/// Index of the subject's column: after the function, the sizes, the level and the threads.
const SUBJECT_COLUMN: usize = 4;

/// Index of the readers' column, if there is one.
const READER_COLUMN: usize = SUBJECT_COLUMN;

fn threads(record: &Record) -> u64 {
    record.count(key::THREADS).unwrap_or(1)
}

/// The bytes of each target that are read right after its call.
fn reader(record: &Record) -> &str {
    let reads = record.text(key::THEN_READ);
    reads.unwrap_or(ThenRead::Nothing.name())
}

/// The program of a stream, with its description.
fn stream(record: &Record) -> String {
    let program = record.shown(key::STREAM).unwrap_or_default();
    match record.text(key::ABOUT) {
        Some(about) => format!("{program}: {about}"),
        None => program,
    }
}

/// Explains the columns of rates, with the bandwidth of memory; `None` without such columns.
fn limit_note(journal: &Journal) -> Option<String> {
    let sized = || journal.records().filter(|record| limit::throughput(record).is_some());
    sized().next()?;
    let mut allowed: Vec<String> = sized()
        .filter_map(|record| {
            let rate = limit::memory_limit(journal.records(), record)?;
            let what = if what(record)[0] == "memset" { "filling" } else { "copying" };
            Some(format!("{rate:.1} GB/s by {what}"))
        })
        .collect();
    allowed.sort();
    allowed.dedup();
    let allowed = match allowed.is_empty() {
        true => "the memory's bandwidth".to_owned(),
        false => format!("the memory's {}", allowed.join(" and ")),
    };
    Some(format!(
        "\nGB/s: 10^9 bytes per second, all threads; of limit: share of {allowed}, which a copy inside the \
         caches can exceed."
    ))
}

/// What was measured, its subject, and its time.
fn what(record: &Record) -> Vec<String> {
    let text = |name: &str| record.shown(name).unwrap_or_default();
    if record.experiment == name::COPY_STREAM {
        let time = record.median().map_or(String::new(), |ns| Nanos(ns).to_string());
        let [function, level] = ["as called", "arena"].map(str::to_owned);
        return vec![function, stream(record), level, "1".into(), record.subject.clone(), time];
    }
    let sizes = match record.count(key::SIZE_BYTES) {
        Some(size) => Bytes(size).to_string(),
        None => text(key::DISTRIBUTION) + &text(key::SIZE_CLASS),
    };
    vec![
        text(key::FUNCTION),
        sizes,
        text(key::LEVEL),
        text(key::THREADS),
        record.subject.clone(),
        record.median().map_or(String::new(), |ns| Nanos(ns).to_string()),
    ]
}
