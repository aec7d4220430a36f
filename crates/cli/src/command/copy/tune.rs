//! `haul copy tune`: finds how this machine copies best, and writes that with its evidence into
//! haul.toml.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul::copy::{Policy, Thresholds};
use haul_experiments::Experiment;
use haul_experiments::channel::choice::{self, Chosen};
use haul_experiments::copy::tune::{self, Part, Tuned, Verdict};
use haul_experiments::engine::break_even;
use haul_machine::file::{Destination, destination};
use haul_machine::tuning::{Evidence, Tuning};
use haul_measure::Caches;
use haul_model::experiment::{key, name};
use haul_model::profile::Calls;
use haul_model::{Bytes, Record};

use super::profiled;
use crate::arguments::copy::Tune as Arguments;
use crate::command::steps::Runner;
use crate::command::tuning::{Tables, what_next};
use crate::command::{Command, refuse_replacing, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal;

/// More space than the records (0.3 MB) and the file (64 KiB at most) need together.
const ROOM: Bytes = Bytes(1 << 20);

pub(super) struct Tune {
    out: PathBuf,
    budget: Duration,
    json: bool,
    /// The calls of the program for which the policy is, until it is tuned.
    program: Option<Calls>,
    is_for_program: bool,
    /// The result, which was written into the file.
    tuned: Option<Tuned>,
    /// What the file changes besides copies.
    tables: Tables,
}

impl Tune {
    /// Checks the path of the file, and reads the profiles.
    ///
    /// # Errors
    /// The path is a device or a FIFO, or replaces a profile; a profile cannot be read.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let Arguments { out_file: out, profile, budget, json } = arguments;
        // Every other fault of the path is reported when the outputs are opened.
        if let Ok(Destination::Stream(_)) = destination(&out) {
            return Err(Error::TuneInto { path: out });
        }
        let is_for_program = !profile.is_empty();
        let mut tune = Self {
            out,
            budget,
            json,
            program: None,
            is_for_program,
            tuned: None,
            tables: Tables::default(),
        };
        if is_for_program {
            let records = tune.out.with_file_name(tune.records());
            refuse_replacing(&profile, [&tune.out, &records])?;
            tune.program = Some(profiled::calls(&profile)?);
        }
        Ok(tune)
    }

    /// Name of the record file, which is beside the tuning file; the evidence in the tuning file
    /// refers to it.
    fn records(&self) -> String {
        let stem = self.out.file_stem().unwrap_or_default().to_string_lossy();
        if self.is_for_program {
            // The profile usually has the program's name and this ending.
            return format!("{stem}.tune.jsonl");
        }
        let name = format!("{stem}.jsonl");
        if self.out.file_name().is_some_and(|file| file.eq_ignore_ascii_case(&name)) {
            // The file itself has this name: it must not replace its own records.
            return format!("{stem}.records.jsonl");
        }
        name
    }
}

impl Command for Tune {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let folder = self.out.parent().unwrap_or(Path::new("")).to_path_buf();
        Outputs {
            json: self.json,
            folder: Some((folder, self.records())),
            room: ROOM,
            files: vec![self.out.clone()],
        }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let machine = this_machine();
        let program = self.program.take();
        let config = tune::Tune { budget: self.budget, program, ..tune::Tune::default() };
        let least = config.least(&Caches::from_sizes(&machine.caches_bytes));
        if config.budget < least {
            terminal::say(&format!(
                "haul: this needs about {:.0} s, more than the --budget of {} s: large sizes need their \
                 fewest rounds in any case",
                least.as_secs_f64(),
                config.budget.as_secs_f64()
            ));
        }
        let mut runner = Runner::new(&machine, journal, 1, config.budget)?;
        let written = policy(&mut runner, &config, &self.out, &self.records())?;
        if let Some(written) = written {
            self.tables = written.tables;
            self.tuned = Some(written.tuned);
        }
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        let Some(tuned) = &self.tuned else { return Ok(()) };
        let mut lines: Vec<String> = tuned.verdicts.iter().map(sentence).collect();
        lines.push(what_next(&self.out, tuned.is_any_kept(), self.tables));
        if self.json {
            terminal::say(&lines.join("\n"));
            return Ok(());
        }
        terminal::print(&lines.join("\n"))
    }

    fn kept(&self, journal: &Journal) -> String {
        match &self.tuned {
            Some(_) => journal.kept(),
            None => format!("{}; {} was not written", journal.kept(), self.out.display()),
        }
    }
}

/// The result in the file.
pub(in crate::command) struct Written {
    pub(in crate::command) tuned: Tuned,
    pub(in crate::command) tables: Tables,
}

/// Finds the policy and writes it to `path`, with evidence from the record file named `records`.
/// Returns `None` if the search was stopped before the result was complete; then nothing is
/// written.
///
/// # Errors
/// A record or the file cannot be written, or the experiment fails.
pub(in crate::command) fn policy(
    runner: &mut Runner<'_>,
    config: &tune::Tune,
    path: &Path,
    records: &str,
) -> Result<Option<Written>, Error> {
    let tuned =
        runner.step(&config.name(), config.budget, |context| tune::tune(config, context))?;
    if tuned.stopped {
        return Ok(None);
    }
    let now = haul_experiments::context::now();
    let mut tuning = Tuning::new(runner.machine_id(), &now, tuned.policy);
    if !tuned.is_any_kept() {
        // A file that repeats the defaults would override the defaults of a later haul.
        tuning.choices.clear();
        tuning.copy.clear();
    }
    let is_kept = |part: Part| tuned.verdicts.iter().any(|it| it.part == part && it.is_kept);
    let kept: Vec<Part> = Part::ALL.into_iter().filter(|part| is_kept(*part)).collect();
    tuning.evidence = evidence(runner.records(), &kept, records);
    let chosen = choice::table(runner.records());
    warn_of_disturbed(&chosen);
    // If this run measures no channels or no engines, the file keeps what it has for this machine.
    let had = Tuning::read(path).ok().filter(|had| had.machine == runner.machine_id());
    let measured = break_even::sizes(runner.records());
    tuning.engine = measured.or(had.as_ref().and_then(|had| had.engine));
    tuning.channel = if chosen.table.choices.is_empty() {
        had.map(|had| had.channel).unwrap_or_default()
    } else {
        chosen.table
    };
    tuning
        .evidence
        .extend(chosen.evidence.into_iter().filter_map(|record| of_rate(record, records)));
    tuning.write(path)?;
    let tables = Tables::of(&tuning);
    Ok(Some(Written { tuned, tables }))
}

/// Warns about the sizes that the table of channels leaves out.
fn warn_of_disturbed(chosen: &Chosen<'_>) {
    let table = match chosen.table.choices.is_empty() {
        true => "no size is left for a table of channels, and an earlier table stays",
        false => "the table of channels leaves them out",
    };
    for (sizes, busy) in chosen.disturbed.iter().zip(["", " with one processor busy"]) {
        if sizes.is_empty() {
            continue;
        }
        let sizes: Vec<String> = sizes.iter().map(|size| Bytes(*size).to_string()).collect();
        terminal::say(&format!(
            "haul: the hypervisor took more than {}% of the processors' time, or other programs kept more than \
             {} processors busy, while messages of {}{busy} were measured: {table}; run this again at a quieter \
             time",
            Record::STEAL_PERCENT_MAX,
            Record::OTHERS_PROCESSORS_MAX,
            sizes.join(", ")
        ));
    }
}

/// Evidence of a rate: the ratio of times is its inverse.
fn of_rate(record: &Record, file: &str) -> Option<Evidence> {
    let evidence = Evidence::of(record, file)?;
    Some(Evidence { ratio: 1.0 / evidence.ratio, ..evidence })
}

/// The results of the checks for the parts that are kept. For copies, also each size's result at
/// the bad offset where string instructions were best. A part that was not kept is not in the
/// file, because its records do not support it.
fn evidence<'a>(all: impl Iterator<Item = &'a Record>, kept: &[Part], file: &str) -> Vec<Evidence> {
    let records: Vec<&Record> = all
        .filter(|record| record.experiment == name::COPY_TUNE)
        .filter(|record| record.comparison.as_ref().is_some_and(|c| c.baseline != record.subject))
        .collect();
    let has = |record: &Record, name: &str, value: &str| record.text(name) == Some(value);
    let mut shown: Vec<&Record> = Vec::new();
    for part in kept {
        let of_part = records.iter().filter(|record| has(record, key::PART, part.name()));
        shown.extend(of_part.filter(|record| has(record, key::PHASE, "check")));
    }
    if kept.contains(&Part::Copies) {
        let offsets = records.iter().filter(|record| has(record, key::PHASE, "offsets"));
        shown.extend(best_by_size(&offsets.copied().collect::<Vec<_>>()));
    }
    shown.into_iter().filter_map(|record| Evidence::of(record, file)).collect()
}

/// For each size, the record with the least ratio.
fn best_by_size<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let ratio = |record: &Record| record.comparison.as_ref().map_or(f64::INFINITY, |c| c.ratio);
    let mut best: BTreeMap<u64, &Record> = BTreeMap::new();
    for &record in records {
        let size = record.count(key::SIZE_BYTES).unwrap_or(0);
        let entry = best.entry(size).or_insert(record);
        if ratio(record) < ratio(entry) {
            *entry = record;
        }
    }
    best.into_values().collect()
}

fn sentence(verdict: &Verdict) -> String {
    let what = match verdict.part {
        Part::Choices => "Small shape and instruction set",
        Part::Copies => "Copies",
        Part::Fills => "Fills",
    };
    if !verdict.is_compared {
        let why = match verdict.part {
            Part::Choices => "no other applies to this processor and these sizes",
            Part::Copies | Part::Fills => "no size here is large enough for another method",
        };
        return format!("{what}: nothing was measured, because {why}.");
    }
    let Some(ratio) = verdict.ratio else {
        return format!("{what}: nothing beats the defaults of this processor, which stay.");
    };
    let percent = (ratio - 1.0) * 100.0;
    let worst = verdict.ratio_worst.map_or(0.0, |worst| (worst - 1.0) * 100.0);
    let outcome = if verdict.is_kept { "kept" } else { "not kept, the values before stay" };
    format!(
        "{what}: {} need {percent:+.1}% of the time before in total and {worst:+.1}% at \
         worst, on other sizes than they were found on: {outcome}.",
        changes(&verdict.base, &verdict.found)
    )
}

/// The differences of one policy from another: choices by name, then thresholds.
pub(super) fn changes(base: &Policy, found: &Policy) -> String {
    let choices = Policy::CHOICES.iter().filter(|name| found.choice(name) != base.choice(name));
    let choices = choices.filter_map(|name| Some(format!("{name} {}", found.choice(name)?)));
    let is_other = |name: &&&str| found.thresholds.get(name) != base.thresholds.get(name);
    let thresholds = Thresholds::NAMES
        .iter()
        .filter(is_other)
        .map(|name| format!("{name} {}", super::list::size(found.thresholds.get(name))));
    choices.chain(thresholds).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::Comparison;

    fn record(subject: &str, part: &str, phase: &str, ratio: f64) -> Record {
        let mut record = Record::new("run", "copy.tune", subject, "time", "ns")
            .with("part", part)
            .with("phase", phase);
        record.comparison = Some(Comparison {
            baseline: "default".into(),
            ratio,
            ratio_low: ratio,
            ratio_high: ratio,
            floor: 0.01,
        });
        record
    }

    #[test]
    fn evidence_has_only_kept_parts() {
        let records = [
            record("default", "copies", "check", 1.0),
            record("tuned", "copies", "check", 0.9),
            record("tuned", "fills", "check", 1.08),
            record("stream", "fills", "train", 1.04),
        ];
        let of = |kept: &[Part]| evidence(records.iter(), kept, "haul.jsonl");
        let kept = of(&[Part::Copies]);
        let what: Vec<&str> = kept.iter().map(|e| e.what.as_str()).collect();
        assert_eq!(what, ["tuned, phase check"]);
        assert_eq!((kept[0].ratio, kept[0].records.as_str()), (0.9, "haul.jsonl"));
        assert!(of(&[]).is_empty(), "a file of the defaults has no evidence");
    }

    #[test]
    fn sentence_names_changes_of_verdict() {
        let base = Policy::for_this_processor().clamped();
        let mut found = base;
        assert!(found.thresholds.set("stream_copy_min", 1 << 20));
        assert!(found.choose("isa", "sse2"));
        let mut verdict = Verdict {
            part: Part::Copies,
            base,
            is_compared: true,
            found,
            ratio: Some(0.96),
            ratio_worst: Some(1.003),
            is_kept: true,
        };
        let text = sentence(&verdict);
        for part in ["isa sse2, stream_copy_min 1 MiB", "-4.0%", "+0.3%", "kept"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        verdict.ratio = None;
        assert!(sentence(&verdict).contains("nothing beats the defaults"));
        verdict.is_compared = false;
        assert!(sentence(&verdict).contains("nothing was measured, because no size here"));
    }
}
