//! Turns the results of a run into records.

use haul_measure::rounds::{Round, evaluate};
use haul_model::Record;
use haul_model::experiment::key;

use super::bench::{Bench, Entrant};
use super::child::Figures;
use super::peers::Peer;
use super::test::{Extent, Test};
use crate::context::Context;
use crate::remarks::Remarks;

impl Bench {
    /// Emits a record for each heap and figure.
    pub(super) fn emit(
        &self,
        entrants: &mut [Entrant<'_>],
        remarks: &Remarks,
        context: &mut Context<'_>,
    ) {
        let crowded = self.is_crowded(entrants);
        let (again, subjects) = entrants.split_last().expect("the baseline is measured twice");
        let subjects: Vec<&Entrant<'_>> =
            subjects.iter().filter(|entrant| entrant.failure.is_none()).collect();
        let names: Vec<String> =
            subjects.iter().map(|entrant| entrant.found.peer.name().to_owned()).collect();
        let columns: Vec<Vec<(Vec<f64>, bool)>> = subjects
            .iter()
            .copied()
            .chain([again])
            .map(|entrant| entrant.repetitions(self, crowded))
            .collect();
        for (place, figure) in self.test.figures(&self.extent).iter().enumerate() {
            let rounds: Vec<Round> = (0..columns[0].len())
                .map(|repetition| Round {
                    values: columns.iter().map(|column| column[repetition].0[place]).collect(),
                    hit: columns.iter().any(|column| column[repetition].1),
                })
                .collect();
            let found = evaluate(&rounds, &names, 0, self.seed);
            for (index, subject) in subjects.iter().enumerate() {
                let mut record = self.record(subject, remarks, found.rounds_discarded);
                record.subject.clone_from(&names[index]);
                record.metric = figure.metric.into();
                record.unit = figure.unit.into();
                if let Some(round) = figure.round {
                    record = record.with(key::ROUND, round);
                }
                record.samples.clone_from(&found.series[index]);
                record.compare(found.comparisons[index].clone());
                context.emit(record);
            }
        }
    }

    /// The parameters that all records of a heap share.
    fn record(&self, entrant: &Entrant<'_>, remarks: &Remarks, rounds_discarded: usize) -> Record {
        let Extent { shape, rounds, count, .. } = self.extent;
        let mut record = Record::new("", self.test.experiment(), "", "", "")
            .with(key::SIZE_BYTES, shape.size)
            .with(key::ALIGN_BYTES, shape.align)
            .with(key::THREADS, self.threads)
            .with(key::CPUS, entrant.start.cpus.len())
            .with(key::SHARED, self.shared)
            .with(key::POOL, self.pool)
            .with(key::VERSION, entrant.version.clone())
            .with(key::ROUNDS_DISCARDED, rounds_discarded);
        if self.test.repeated(&self.extent).is_some() {
            record = record.with(key::OPERATIONS_PER_SAMPLE, entrant.iterations);
        } else {
            record = record.with(key::ROUNDS, rounds).with(key::COUNT, count);
        }
        if let Some(pages) = &entrant.pages {
            record = record.with(key::PAGES, pages.clone());
        }
        if self.grow_ahead_bytes > 0 && entrant.found.peer == Peer::Haul {
            record = record.with(key::GROW_AHEAD_BYTES, self.grow_ahead_bytes);
        }
        if self.ready_bytes > 0 && entrant.found.peer == Peer::Haul {
            record = record.with(key::READY_BYTES, self.ready_bytes);
        }
        if self.test == Test::Zeroed {
            record = record.with(key::ENGINE, self.engine.clone());
        }
        remarks.on(record)
    }
}

impl Entrant<'_> {
    /// The figures of each repetition, and whether another process ran in it. Threads that share
    /// CPUs do not count as other processes.
    fn repetitions(&self, bench: &Bench, crowded: bool) -> Vec<(Vec<f64>, bool)> {
        let each = |tasks: &Vec<Figures>| {
            let values: Vec<Vec<f64>> =
                tasks.iter().map(|figures| figures.values.clone()).collect();
            let hit = !crowded && tasks.iter().any(|figures| figures.hit);
            (bench.test.figures_of(&values, bench.threads, crowded), hit)
        };
        self.given.iter().map(each).collect()
    }
}
