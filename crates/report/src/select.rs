//! Groups records by machine and experiment, and selects the newer of two records of the same
//! measurement.

use std::collections::{BTreeMap, BTreeSet};

use haul_model::experiment::{key, name as experiment};
use haul_model::{Kind, Line, Machine, Record};

/// A machine and the figures that were measured on it or modelled for it.
pub(crate) struct Section<'a> {
    /// [`Record::machine`] of all records of the section.
    pub id: &'a str,
    /// The machine's line; `None` if the file contains no such line.
    pub machine: Option<&'a Machine>,
    /// The machine's records, in the order of the file.
    pub records: Vec<&'a Record>,
}

/// One section per machine, in the order in which the file first names them.
pub(crate) fn sections(lines: &[Line]) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut section_of: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        let id = match line {
            Line::Record(record) => record.machine.as_str(),
            Line::Machine(machine) => machine.id.as_str(),
        };
        let index = *section_of.entry(id).or_insert_with(|| {
            sections.push(Section { id, machine: None, records: Vec::new() });
            sections.len() - 1
        });
        match line {
            Line::Record(record) => sections[index].records.push(record),
            Line::Machine(machine) => sections[index].machine = Some(machine),
        }
    }
    sections
}

impl<'a> Section<'a> {
    /// The records of one experiment, in order.
    pub(crate) fn of(&self, experiment: &str) -> Vec<&'a Record> {
        self.records.iter().copied().filter(|record| record.experiment == experiment).collect()
    }

    /// Experiments in the order of their first record.
    pub(crate) fn experiments(&self) -> Vec<&'a str> {
        let mut seen = BTreeSet::new();
        let names = self.records.iter().map(|record| record.experiment.as_str());
        names.filter(|name| seen.insert(*name)).collect()
    }

    /// The records of each experiment, in order. Use it when all experiments are needed.
    pub(crate) fn by_experiment(&self) -> BTreeMap<&'a str, Vec<&'a Record>> {
        let mut all: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            all.entry(&record.experiment).or_default().push(record);
        }
        all
    }

    /// The records that a sentence may use: measured, with samples, and the newest of each
    /// measurement.
    pub(crate) fn newest_measured(&self) -> Vec<&'a Record> {
        self.newest_by(identity)
    }

    /// The records that a sentence may compare: like [`Section::newest_measured`], but the newest
    /// within each run, because only figures of one run are comparable. The records of the newest
    /// run come first.
    pub(crate) fn measured_by_run(&self) -> Vec<&'a Record> {
        let mut records =
            self.newest_by(|record| format!("{}\u{1f}{}", record.run, identity(record)));
        let mut newest: BTreeMap<&str, &str> = BTreeMap::new();
        for record in &records {
            let time = newest.entry(&record.run).or_insert(&record.time);
            *time = (*time).max(&record.time);
        }
        records.sort_by(|a, b| newest[b.run.as_str()].cmp(newest[a.run.as_str()]));
        records
    }

    fn newest_by(&self, key_of: impl Fn(&Record) -> String) -> Vec<&'a Record> {
        let mut newest: BTreeMap<String, usize> = BTreeMap::new();
        for (index, record) in self.records.iter().enumerate() {
            if record.kind != Kind::Measured || record.samples.is_empty() {
                continue;
            }
            let place = newest.entry(key_of(record)).or_insert(index);
            if self.records[*place].time <= record.time {
                *place = index;
            }
        }
        let kept: BTreeSet<usize> = newest.into_values().collect();
        kept.into_iter().map(|index| self.records[index]).collect()
    }
}

/// The records of each run, in the order of the runs.
pub(crate) fn runs<'a>(records: &[&'a Record]) -> Vec<Vec<&'a Record>> {
    let mut place: BTreeMap<&str, usize> = BTreeMap::new();
    let mut runs: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let index = *place.entry(&record.run).or_insert_with(|| {
            runs.push(Vec::new());
            runs.len() - 1
        });
        runs[index].push(record);
    }
    runs
}

/// The identity of a record's measurement, without its run, its time and its remarks.
fn identity(record: &Record) -> String {
    identity_without(record, &[])
}

/// The identity of a record without these parameters.
pub(crate) fn identity_without(record: &Record, left_out: &[&str]) -> String {
    let mut key = [record.experiment.as_str(), &record.subject, &record.metric].join("\u{1f}");
    for (name, value) in &record.parameters {
        let is_said_below =
            [key::CALL, key::THEN_READ, key::BRANCHES, key::LEVEL].contains(&name.as_str());
        if is_condition(name) && !is_said_below && !left_out.contains(&name.as_str()) {
            key.push_str(&format!("\u{1f}{name}={value}"));
        }
    }
    key.push_str(&format!(
        "\u{1f}{}={}\u{1f}{}={}\u{1f}{}={}\u{1f}{}={}",
        key::CALL,
        call(record),
        key::THEN_READ,
        reader(record),
        key::BRANCHES,
        branches(record),
        key::LEVEL,
        field(record, key::LEVEL).unwrap_or_default()
    ));
    key
}

/// How a subject was called. Records made before 2026-11-22 lack the parameter: in these `haul` was
/// called through C in every experiment, and only `haul-inline` was inlined.
fn call(record: &Record) -> String {
    let unsaid = if record.subject == "haul-inline" { "inline" } else { "c" };
    field(record, key::CALL).unwrap_or_else(|| unsaid.into())
}

/// The value if nothing was read, which also applies to records without the parameter.
pub(crate) const NO_READER: &str = "nothing";

/// The part of each target that was read right after its call: `nothing`, `first`, `last` or `all`.
/// Records made before 2026-11-25 only say whether the first bytes were read.
pub(crate) fn reader(record: &Record) -> String {
    match record.parameters.get(key::THEN_READ) {
        None | Some(serde_json::Value::Bool(false)) => NO_READER.into(),
        Some(serde_json::Value::Bool(true)) => "first".into(),
        Some(_) => record.shown(key::THEN_READ).unwrap_or_default(),
    }
}

/// Whether predictors could learn the branches. Records of single sizes that were made before
/// 2026-11-27 do not say it: at level `nearest`, which older ones call `mixed`, the calls repeated.
pub(crate) fn branches(record: &Record) -> String {
    let is_near = || {
        record.experiment == experiment::COPY_SIZE
            && field(record, key::LEVEL).is_some_and(|level| level == "nearest" || level == "mixed")
    };
    let unsaid = || if is_near() { "repeating" } else { "random" };
    field(record, key::BRANCHES).unwrap_or_else(|| unsaid().into())
}

/// Records that one sentence may combine: if some are of inlined code and others of calls through
/// C, only those of inlined code, because programs inline the code.
pub(crate) fn of_one_call<'a, T>(all: Vec<T>, record_of: impl Fn(&T) -> &'a Record) -> Vec<T> {
    let is_inline = |each: &T| call(record_of(each)) == "inline";
    if !all.iter().any(is_inline) {
        return all;
    }
    all.into_iter().filter(is_inline).collect()
}

/// Records that one sentence may combine: if some have a reader of the copied bytes and others do
/// not, only those without a reader.
pub(crate) fn of_one_reader<'a, T>(all: Vec<T>, record_of: impl Fn(&T) -> &'a Record) -> Vec<T> {
    let has_none = |each: &T| reader(record_of(each)) == NO_READER;
    if !all.iter().any(has_none) {
        return all;
    }
    all.into_iter().filter(has_none).collect()
}

/// Records that one sentence may combine: if predictors could not learn the branches of some, only
/// those.
pub(crate) fn of_one_kind_of_branches<'a, T>(
    all: Vec<T>,
    record_of: impl Fn(&T) -> &'a Record,
) -> Vec<T> {
    let is_random = |each: &T| branches(record_of(each)) == "random";
    if !all.iter().any(is_random) {
        return all;
    }
    all.into_iter().filter(is_random).collect()
}

/// Parameters that are remarks on the figure, with columns of their own. Records made before
/// 2026-11-25 also hold the memory limit, which the page computes.
pub(crate) fn is_remark(parameter: &str) -> bool {
    matches!(parameter, key::NOTE | key::RERUN | key::SLICES | "limit_gb_s" | "of_limit")
}

/// Parameters that are conditions of a figure. The others describe a run and differ between runs of
/// the same measurement.
pub(crate) fn is_condition(parameter: &str) -> bool {
    let is_account = matches!(
        parameter,
        key::OPERATIONS_PER_SAMPLE
            | key::ROUNDS_DISCARDED
            | key::CPU_NS
            | key::PAGE_FAULTS
            | key::MEMORY_PEAK_BYTES
            | key::MESSAGES
            | key::MECHANISM
            | key::LEFT_OUT
            | key::STEAL_PERCENT
            | key::OTHERS_PROCESSORS
            | key::BEST
            | key::OVER_BEST
            | key::OVER_BEST_LOW
            | key::OVER_BEST_HIGH
            | key::BATCHES
            | key::SAMPLED
            | key::POLLS
            | key::EMPTY_POLLS
            | key::PACKETS_COUNTED
            | key::PACKET_BYTES
            | key::GAP_NS
            | key::GAPS
            | key::SECONDS
            | key::VERDICT
            | key::EFFECT_SIZE
            | key::PLACES
            | key::RUNS
            | key::RUN_NOISE
            | key::ANALYSES
            | key::SHARE_FLOOR
    );
    !is_account && !is_remark(parameter)
}

/// The names of parameters for which `is_meant` holds, the most frequent first, and alphabetically
/// among equals.
pub(crate) fn parameter_names<'a>(
    records: impl Iterator<Item = &'a Record>,
    is_meant: impl Fn(&str) -> bool,
) -> Vec<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in records.flat_map(|record| record.parameters.keys()).filter(|name| is_meant(name)) {
        *counts.entry(name).or_default() += 1;
    }
    let mut names: Vec<(&str, usize)> = counts.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    names.into_iter().map(|(name, _)| name).collect()
}

/// A parameter as text; also the record's own fields `subject`, `run` and `unit`.
pub(crate) fn field(record: &Record, name: &str) -> Option<String> {
    match name {
        "subject" => Some(record.subject.clone()),
        "run" => Some(record.run.clone()),
        // Older records of sizes use `mixed` for the level of a copy's own two buffers.
        key::LEVEL if record.experiment == experiment::COPY_SIZE => {
            let said = record.shown(name)?;
            Some(if said == "mixed" { "nearest".into() } else { said })
        }
        _ => record.shown(name),
    }
}

/// A parameter that is a number of bytes: a JSON number, or a text such as `4KiB`.
pub(crate) fn bytes(record: &Record, name: &str) -> Option<u64> {
    let value = record.parameters.get(name)?;
    value
        .as_u64()
        .or_else(|| value.as_str()?.parse::<haul_model::Bytes>().ok().map(|bytes| bytes.0))
}

/// The number of threads; 1 if the record does not say.
pub(crate) fn threads(record: &Record) -> u64 {
    record.count(key::THREADS).unwrap_or(1)
}

/// The sort key in the order that a reader expects: levels from near to far, numbers ascending,
/// haul and libc before others, and everything else in the order of the records.
pub(crate) fn rank(name: &str, value: &str, seen: usize) -> (u64, usize) {
    let known = match name {
        key::LEVEL => ["nearest", "l1", "l2", "llc", "cold", "mixed"].as_slice(),
        key::FUNCTION => &["memcpy", "memmove", "memset"],
        key::OPERATION => &["read", "write", "copy"],
        "subject" => &["haul", "haul:auto", "libc", "haul-inline", "haul-c"],
        key::TARGET => &["warm", "cold"],
        key::PHASE => &["check", "train"],
        _ => &[],
    };
    let number = value.parse::<haul_model::Bytes>().map(|bytes| bytes.0);
    let first = known.iter().position(|known| *known == value).map(|index| index as u64);
    (first.or(number.ok()).unwrap_or(u64::MAX), seen)
}

/// Distinct values of a field, in the order of [`rank`].
pub(crate) fn distinct(records: &[&Record], name: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let values = records.iter().filter_map(|record| field(record, name));
    let values: Vec<String> = values.filter(|value| seen.insert(value.clone())).collect();
    let mut ranked: Vec<(usize, String)> = values.into_iter().enumerate().collect();
    ranked.sort_by_key(|(seen, value)| rank(name, value, *seen));
    let mut values: Vec<String> = ranked.into_iter().map(|(_, value)| value).collect();
    if name == "run" {
        let newest =
            |run: &String| records.iter().filter(|r| r.run == *run).map(|r| r.time.as_str()).max();
        values.sort_by(|a, b| newest(b).cmp(&newest(a)));
    }
    values
}
