//! `haul copy tune`: how this machine copies best, with its evidence, into haul.toml.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul::copy::{Policy, Thresholds};
use haul::file::{Destination, destination};
use haul::tuning::{Evidence, Tuning};
use haul_experiments::Experiment;
use haul_experiments::channel::choice::{self, Chosen};
use haul_experiments::copy::Function;
use haul_experiments::copy::tune::{self, Part, Tuned, Verdict};
use haul_measure::Caches;
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Record};

use crate::arguments::copy::Tune as Arguments;
use crate::command::steps::Runner;
use crate::command::{Command, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

/// More than the records (0.3 MB) and the file (64 KiB at most) take together.
const ROOM: Bytes = Bytes(1 << 20);

pub(super) struct Tune {
    out: PathBuf,
    budget: Duration,
    json: bool,
    /// What was found, and put into the file.
    tuned: Option<Tuned>,
}

impl Tune {
    /// Looks at where the file is to go.
    ///
    /// # Errors
    /// A device or a FIFO stands there.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let Arguments { out, budget, json } = arguments;
        // Every other fault of the place is told when the outputs are opened.
        if let Ok(Destination::Stream(_)) = destination(&out) {
            return Err(Error::TuneInto { path: out });
        }
        Ok(Self { out, budget, json, tuned: None })
    }

    /// The records beside the file: what its evidence refers to.
    fn records(&self) -> String {
        let stem = self.out.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{stem}.jsonl");
        if self.out.file_name().is_some_and(|file| file.eq_ignore_ascii_case(&name)) {
            // The file itself is called so: it must not replace what it stands on.
            return format!("{stem}.records.jsonl");
        }
        name
    }
}

impl Command for Tune {
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
        let config = tune::Tune { budget: self.budget, ..tune::Tune::default() };
        let least = tune::Tune::least(&Caches::from_sizes(&machine.caches_bytes));
        if config.budget < least {
            terminal::say(&format!(
                "haul: this takes about {:.0} s, more than the --budget of {} s: large sizes take their \
                 fewest rounds in any case",
                least.as_secs_f64(),
                config.budget.as_secs_f64()
            ));
        }
        let mut runner = Runner::new(&machine, journal, 1, config.budget)?;
        self.tuned = policy(&mut runner, &config, &self.out, &self.records())?;
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        let Some(tuned) = &self.tuned else { return Ok(()) };
        let mut lines: Vec<String> = tuned.verdicts.iter().map(sentence).collect();
        lines.push(how_to_activate(&self.out));
        if self.json {
            terminal::say(&lines.join("\n"));
            return Ok(());
        }
        terminal::print(&lines.join("\n"))
    }
}

/// Finds the policy and writes it to `path`, with the evidence that went to the file named
/// `records`. `None` when stopped before all was known: nothing is written then.
///
/// # Errors
/// A record or the file cannot be written, or the experiment fails.
pub(in crate::command) fn policy(
    runner: &mut Runner<'_>,
    config: &tune::Tune,
    path: &Path,
    records: &str,
) -> Result<Option<Tuned>, Error> {
    let tuned =
        runner.step(&config.name(), config.budget, |context| tune::tune(config, context))?;
    if tuned.stopped {
        return Ok(None);
    }
    let now = haul_experiments::context::now();
    let mut tuning = Tuning::new(runner.machine_id(), &now, tuned.policy);
    tuning.evidence = evidence(runner.records(), records);
    let chosen = choice::table(runner.records());
    tell_disturbed(&chosen);
    tuning.channel = if chosen.table.choices.is_empty() {
        // This run says nothing of channels: what the file had of this machine stays.
        let had = Tuning::read(path).ok().filter(|had| had.machine == runner.machine_id());
        had.map(|had| had.channel).unwrap_or_default()
    } else {
        chosen.table
    };
    tuning
        .evidence
        .extend(chosen.evidence.into_iter().filter_map(|record| of_rate(record, records)));
    tuning.write(path)?;
    Ok(Some(tuned))
}

/// Says which sizes the table of channels leaves out.
fn tell_disturbed(chosen: &Chosen<'_>) {
    let table = match chosen.table.choices.is_empty() {
        true => "nothing is left for a table of channels, and one that was there stays",
        false => "the table of channels leaves them out",
    };
    for (sizes, busy) in chosen.disturbed.iter().zip(["", " with one processor busy"]) {
        if sizes.is_empty() {
            continue;
        }
        let sizes: Vec<String> = sizes.iter().map(|size| Bytes(*size).to_string()).collect();
        terminal::say(&format!(
            "haul: the hypervisor took more than {}% of the processors' time, or other programs kept more than \
             {} processors busy, while messages of {}{busy} were measured: {table}; run it again at a quieter \
             time",
            Record::STEAL_PERCENT_MAX,
            Record::OTHERS_PROCESSORS_MAX,
            sizes.join(", ")
        ));
    }
}

/// Evidence of a rate: time over the baseline's is its inverse.
fn of_rate(record: &Record, file: &str) -> Option<Evidence> {
    let evidence = Evidence::of(record, file)?;
    Some(Evidence { ratio: 1.0 / evidence.ratio, ..evidence })
}

/// One line: how to use the file.
pub(in crate::command) fn how_to_activate(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    format!(
        "To use it: export HAUL_TUNING={}, or copy that file to ~/.config/haul/haul.toml.",
        path.display()
    )
}

/// What the checks said, and the bad offsets that strings passed; for a function where nothing was
/// worth checking, the best other way that training found at each size.
fn evidence<'a>(all: impl Iterator<Item = &'a Record>, file: &str) -> Vec<Evidence> {
    let records: Vec<&Record> = all
        .filter(|record| record.experiment == name::COPY_TUNE)
        .filter(|record| record.comparison.as_ref().is_some_and(|c| c.baseline != record.subject))
        .collect();
    let mut evidence = Vec::new();
    for function in [Function::Memcpy, Function::Memset] {
        let of_phase = |phase: &str| -> Vec<&Record> {
            let has = |record: &Record, name: &str, value: &str| {
                record.parameters.get(name).and_then(|v| v.as_str()) == Some(value)
            };
            let of_function = records.iter().filter(|r| has(r, key::FUNCTION, function.name()));
            of_function.filter(|r| has(r, key::PHASE, phase)).copied().collect()
        };
        let checked = of_phase("check");
        let told = if checked.is_empty() { best_by_size(&of_phase("train")) } else { checked };
        let told = told.into_iter().chain(best_by_size(&of_phase("offsets")));
        evidence.extend(told.filter_map(|record| Evidence::of(record, file)));
    }
    evidence
}

/// Of each size the record with the least ratio.
fn best_by_size<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let ratio = |record: &Record| record.comparison.as_ref().map_or(f64::INFINITY, |c| c.ratio);
    let mut best: BTreeMap<u64, &Record> = BTreeMap::new();
    for &record in records {
        let size = record.parameters.get(key::SIZE_BYTES).and_then(|v| v.as_u64()).unwrap_or(0);
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
    let Some(ratio) = verdict.ratio else {
        return format!("{what}: nothing beats the defaults of this processor; they stay.");
    };
    let percent = (ratio - 1.0) * 100.0;
    let worst = verdict.ratio_worst.map_or(0.0, |worst| (worst - 1.0) * 100.0);
    let outcome = if verdict.is_kept { "kept" } else { "not kept, what was before stays" };
    format!(
        "{what}: {} take {percent:+.1}% of the time before on the whole and {worst:+.1}% at \
         worst, on what they were not found on: {outcome}.",
        changes(&verdict.base, &verdict.found)
    )
}

/// What of a policy differs from another: choices by name, then thresholds.
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

    fn record(subject: &str, function: &str, phase: &str) -> Record {
        let mut record = Record::new("run", "copy.tune", subject, "time", "ns")
            .with("function", function)
            .with("phase", phase);
        record.comparison = Some(Comparison {
            baseline: "default".into(),
            ratio: 0.9,
            ratio_low: 0.9,
            ratio_high: 0.9,
            floor: 0.01,
        });
        record
    }

    #[test]
    fn evidence_is_the_check_and_the_training_where_nothing_was_checked() {
        let mut records = [
            record("default", "memcpy", "check"),
            record("tuned", "memcpy", "check"),
            record("vectors", "memcpy", "train"),
            record("vectors", "memset", "train"),
            record("stream", "memset", "train"),
        ];
        records[4].comparison.as_mut().unwrap().ratio = 0.8;
        let evidence = evidence(records.iter(), "haul.jsonl");
        let what: Vec<&str> = evidence.iter().map(|e| e.what.as_str()).collect();
        assert_eq!(
            what,
            ["tuned, phase check, function memcpy", "stream, phase train, function memset"]
        );
        assert!(evidence.iter().all(|e| e.records == "haul.jsonl"));
    }

    #[test]
    fn a_verdict_is_a_sentence_with_what_changed() {
        let base = Policy::for_this_processor().clamped();
        let mut found = base;
        assert!(found.thresholds.set("stream_copy_min", 1 << 20));
        assert!(found.choose("isa", "sse2"));
        let mut verdict = Verdict {
            part: Part::Copies,
            base,
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
    }
}
