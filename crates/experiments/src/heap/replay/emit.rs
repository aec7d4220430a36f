//! Turns the results of a replay into records.

use haul_measure::rounds::{Round, evaluate};
use haul_model::Record;
use haul_model::experiment::{key, name};

use super::entrant::{Course, Entrant};
use super::{MIB, Points, Replay};
use crate::context::Context;
use crate::heap::protocol::Start;
use crate::remarks::Remarks;

impl Replay {
    pub(super) fn emit(
        &self,
        start: &Start,
        points: &Points,
        entrants: &[Entrant<'_>],
        remarks: &Remarks,
        context: &mut Context<'_>,
    ) {
        let (again, subjects) = entrants.split_last().expect("the baseline is measured twice");
        let subjects: Vec<&Entrant<'_>> =
            subjects.iter().filter(|entrant| entrant.failure.is_none()).collect();
        let record = |entrant: &Entrant<'_>, metric: &str, unit: &str| {
            let mut record = self.record(start, entrant.found.peer.name(), metric, unit);
            record = record.with(key::VERSION, entrant.version.clone());
            if let Some(pages) = &entrant.pages {
                record = record.with(key::PAGES, pages.clone());
            }
            remarks.on(record)
        };
        self.emit_whole(&subjects, again, start.threads > start.cpus.len(), &record, context);
        self.emit_asked_for(start, points, context);
        for entrant in &subjects {
            for (point, &end) in points.ends.iter().enumerate() {
                let at = |record: Record| self.at(record, end);
                let samples = |of: fn(&Course) -> &Vec<f64>| {
                    entrant.courses.iter().map(|course| of(course)[point]).collect()
                };
                let mut footprint = at(record(entrant, "footprint", "MiB"));
                footprint.samples = samples(|course| &course.footprint_mib);
                context.emit(footprint);
                let mut time = at(record(entrant, "time", "ns"));
                time.samples = samples(|course| &course.time_ns);
                context.emit(time);
            }
        }
    }

    /// Emits two figures for the whole history, compared with the baseline.
    fn emit_whole(
        &self,
        subjects: &[&Entrant<'_>],
        again: &Entrant<'_>,
        crowded: bool,
        record: &dyn Fn(&Entrant<'_>, &str, &str) -> Record,
        context: &mut Context<'_>,
    ) {
        let names: Vec<String> =
            subjects.iter().map(|entrant| entrant.found.peer.name().to_owned()).collect();
        for (metric, unit) in [("time", "ns"), ("footprint_peak", "MiB")] {
            let of = if unit == "ns" { Course::mean_ns } else { Course::peak_mib };
            let round = |index: usize| Round {
                values: subjects
                    .iter()
                    .copied()
                    .chain([again])
                    .map(|entrant| of(&entrant.courses[index]))
                    .collect(),
                // Threads that share CPUs do not count as other processes.
                hit: !crowded && subjects.iter().any(|entrant| entrant.courses[index].hit),
            };
            let rounds: Vec<Round> = (0..again.courses.len()).map(round).collect();
            let found = evaluate(&rounds, &names, 0, self.seed);
            for (index, subject) in subjects.iter().enumerate() {
                let mut whole = record(subject, metric, unit);
                whole.samples.clone_from(&found.series[index]);
                whole.comparison = found.comparisons[index].clone();
                context.emit(whole);
            }
        }
    }

    /// Emits the bytes that the recorded program had requested, which is the least footprint that
    /// a heap can have.
    fn emit_asked_for(&self, start: &Start, points: &Points, context: &mut Context<'_>) {
        for (&end, &live) in points.ends.iter().zip(&points.live) {
            let record = self.record(start, "asked for", "footprint", "MiB");
            let mut record = self.at(record, end);
            record.samples = vec![live as f64 / MIB];
            context.emit(record);
        }
    }

    /// The parameters that all records share.
    fn record(&self, start: &Start, subject: &str, metric: &str, unit: &str) -> Record {
        Record::new("", name::HEAP_REPLAY, subject, metric, unit)
            .with(key::TRACE, self.trace.name())
            .with(key::PROGRAM, self.trace.header.program_name())
            .with(key::OPERATIONS, self.trace.history.operations.len())
            .with(key::THREADS, start.threads)
            .with(key::CPUS, start.cpus.len())
            .with(key::THREADS_RECORDED, self.trace.history.threads.len())
            .with(key::RERUN, self.rerun.clone())
    }

    /// The record of a point: the number of operations before it, and their time in the recording.
    fn at(&self, record: Record, end: usize) -> Record {
        let time_ns = self.trace.history.operations[end - 1].time_ns;
        let at_ms = (time_ns as f64 / 1e3).round() / 1e3;
        record.with(key::OPERATIONS_DONE, end).with(key::AT_MS, at_ms)
    }
}
