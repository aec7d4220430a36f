//! The paper's experiment: 48 machines, Table 2, Figures 6 to 8, and the error of each figure.
//!
//! The experiment runs twice: with the machine as the paper describes it, and with one knob
//! (compute per packet), whose value gives BASE's in-order copy shares the paper's values. The
//! knob depends on no other figure. If the knob is zero, the second run would be equal to the
//! first, and is left out.
//!
//! From the bottom up:
//!
//! - `point`: the paper's machines, and the results of their runs;
//! - `derive`: computes the paper's figures from cycles;
//! - `tiers`: the tiers that a reproduction must reach.

mod derive;
mod point;
#[cfg(test)]
mod tests;
mod tiers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haul_measure::Caches;
use haul_model::experiment::{key, name};
use haul_model::{Kind, Record};
use haul_sim::Image;
use haul_sim::workload::RECEIVE;

use self::point::Results;
use super::paper::Mode;
use super::pool;
use super::program::Program;
use super::task::Simulated;
use crate::context::{Context, Step};
use crate::error::Error;
use crate::experiment::Experiment;

pub use point::{Calibration, Point};

/// The settings of a reproduction.
#[derive(Clone, Debug)]
pub struct Reproduce {
    /// Packets of each trace. The paper: 100,000.
    pub packets: u64,
    /// Packets of each trace in the calibrated runs. A run reaches its steady state long before
    /// its last packet.
    pub packets_calibrated: u64,
    /// The number of runs at the same time.
    pub threads: usize,
    /// The workload's program, instead of the program that is part of haul.
    pub program: Option<std::path::PathBuf>,
}

/// The largest number of packets before time is counted. These packets warm the caches, the
/// predictor and the connection. There are more such packets than the NIC's 256 buffers.
const WARM_PACKETS_MAX: u64 = 300;

/// The time per packet of all runs together, on one core: some 100 ns per instruction, 48 runs of
/// about 1,700 instructions per packet.
const TIME_OF_PACKET: Duration = Duration::from_micros(48 * 170);

/// The number of packets before time is counted, if a run has this many packets.
#[must_use]
pub fn warm_packets(packets: u64) -> u64 {
    WARM_PACKETS_MAX.min(packets / 4)
}

impl Experiment for Reproduce {
    fn name(&self) -> String {
        "the paper's machines".to_owned()
    }

    fn overhead(&self, _: &Caches) -> Duration {
        TIME_OF_PACKET * self.packets as u32 / self.threads as u32
    }

    /// Runs all machines. Emits a record for each run when it ends. If the experiment is not
    /// stopped, it finally emits the records of tables, figures, tiers and speed.
    ///
    /// # Errors
    /// The program cannot be read, or a run fails.
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        let program = match &self.program {
            Some(path) => Program::read(path)?,
            None => Program::named(RECEIVE)?,
        };
        let (image, program_digest) = (program.image()?, program.digest());
        let began = Instant::now();
        let points = point::all(0);
        // The number of completed runs when the knob has been probed, and when all runs with the
        // knob have ended.
        let probed = points.len() + point::base_in_order(0).len();
        let knobbed = probed + points.len();
        let mut done = 0;
        let mut none = Results::new(self.packets, program_digest.clone());
        run(self, &image, &points, &mut none, (&mut done, points.len()), context)?;
        if context.is_stopped() {
            return Ok(());
        }
        let mut one_knob = Results::new(self.packets_calibrated, program_digest);
        let work = calibrate(self, &image, &none, &mut one_knob, (&mut done, probed), context)?;
        if work > 0 {
            run(self, &image, &point::all(work), &mut one_knob, (&mut done, knobbed), context)?;
        }
        if context.is_stopped() {
            return Ok(());
        }
        // With a knob of zero, the machines are the same, and their runs exist already.
        let with_knob = if work > 0 { &one_knob } else { &none };
        for (calibration, results) in
            [(Calibration::None, &none), (Calibration::OneKnob, with_knob)]
        {
            derive::emit(calibration, results, work, context);
            tiers::emit(calibration, results, context);
        }
        emit_speed(&none, began, self.threads, context);
        Ok(())
    }
}

/// The number of iterations of the knob's loop for which BASE's in-order copy shares are nearest
/// to the paper's.
fn calibrate(
    plan: &Reproduce,
    image: &Image,
    none: &Results,
    probe: &mut Results,
    progress: (&mut usize, usize),
    context: &mut Context<'_>,
) -> Result<u64, Error> {
    /// Iterations of the probe: about as many cycles as the stack takes per packet.
    const PROBE_WORK: u64 = 1000;
    let wanted = none.base_line(0).map_or(0.0, |line| line.missing_cycles());
    if wanted < 0.5 {
        // One iteration takes at least a cycle.
        return Ok(0);
    }
    let points: Vec<Point> = point::base_in_order(PROBE_WORK);
    run(plan, image, &points, probe, progress, context)?;
    let (Some(fit), Some(probed)) = (none.base_line(0), probe.base_line(PROBE_WORK)) else {
        return Ok(0);
    };
    let cycles_of_one = (probed.fixed - fit.fixed) / PROBE_WORK as f64;
    if cycles_of_one <= 0.0 {
        return Ok(0);
    }
    Ok((wanted / cycles_of_one).round() as u64)
}

fn run(
    plan: &Reproduce,
    image: &Image,
    points: &[Point],
    results: &mut Results,
    (done, total): (&mut usize, usize),
    context: &mut Context<'_>,
) -> Result<(), Error> {
    let (packets, began) = (results.packets, Instant::now());
    let warm = warm_packets(packets);
    let stop = context.stop;
    let mut failure = None;
    // Records are in the order of the points, not in the order in which runs end, so that the
    // file of a run is the same on any number of threads.
    let mut ended = BTreeMap::new();
    let mut keep = |index: usize, simulated: Simulated, context: &mut Context<'_>| {
        context.emit(points[index].record(results, &simulated));
        results.add(points[index].clone(), simulated);
    };
    let mut next = 0;
    let work = |point: &Point| point.task(packets, warm).run(image, stop);
    pool::each(points, plan.threads, stop, work, |index, outcome| {
        let point = &points[index];
        match outcome {
            Ok(None) => false,
            Ok(Some(simulated)) => {
                *done += 1;
                let left = total.saturating_sub(*done) as u32;
                let elapsed = began.elapsed();
                let what = format!("{done}/{total} {point}");
                (context.progress)(&Step { what, elapsed, budget: elapsed * left });
                ended.insert(index, simulated);
                while let Some(simulated) = ended.remove(&next) {
                    keep(next, simulated, context);
                    next += 1;
                }
                true
            }
            Err(error) => {
                failure.get_or_insert(error);
                false
            }
        }
    });
    // The runs that had ended when the experiment was stopped or another run failed.
    ended.into_iter().for_each(|(index, simulated)| keep(index, simulated, context));
    failure.map_or(Ok(()), Err)
}

/// Emits the speed of the simulator. The speed is measured; all other figures are modelled.
fn emit_speed(results: &Results, began: Instant, threads: usize, context: &mut Context<'_>) {
    for in_order in [false, true] {
        let runs = results.runs().filter(|(point, _)| point.in_order == in_order);
        let mips: Vec<f64> =
            runs.map(|(_, run)| run.instructions as f64 / run.seconds / 1e6).collect();
        if mips.is_empty() {
            continue;
        }
        let core = point::issue(in_order).name();
        let mut record = Record::new("", name::SIM_SPEED, "haul", "simulated_mips", "million/s")
            .with(key::CORE, core)
            .with(key::PACKETS, results.packets)
            .with(key::THREADS, threads);
        record.samples = mips;
        record.kind = Kind::Measured;
        context.emit(record);
    }
    let mut record =
        Record::new("", name::SIM_SPEED, "haul", "time", "s").with(key::THREADS, threads);
    record.samples = vec![began.elapsed().as_secs_f64()];
    record.kind = Kind::Measured;
    context.emit(record);
}

/// The modes with an engine.
pub(crate) const ENGINES: [Mode; 3] = [Mode::SyncNlb, Mode::SyncWlb, Mode::Async];
