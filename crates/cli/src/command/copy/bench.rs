//! `haul copy bench`: copies and fills side by side with the installed C library.

use std::path::Path;
use std::time::Duration;

use haul_experiments::copy::drawn::Shape;
use haul_experiments::copy::stream::{Replay, recorded};
use haul_experiments::copy::{
    Drawn, Function, Handed, Plain, Selection, Sizes, ThenRead, subjects,
};
use haul_experiments::memory::Bandwidth;
use haul_machine::sys::Sys;
use haul_measure::distribution::{Alignment, Overlap, SIZE_MAX_BYTES};
use haul_measure::{Caches, Distribution, Level, distribution};
use haul_model::Bytes;
use haul_model::experiment::name;

use super::table::{comparisons, limit_note};
use crate::arguments::copy::Bench as Arguments;
use crate::command::steps::{self, Steps};
use crate::command::{Command, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::summary::Printing;

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
