//! The highest loads that hold a goal, and how long packets take at parts of them: of haul's
//! switch, whose generator keeps a rate.

use std::time::Duration;

use haul_measure::disturbance::Watch;
use haul_model::experiment::key;

use super::records::{of, whole};
use super::run::{Run, Sides};
use super::search::{Found, Goal, Range, Trial, search};
use super::sides::Forwarder;
use crate::context::Context;
use crate::error::Error;
use crate::remarks::Remarks;

/// Below this load, in packets a second, nothing is looked for.
const LEAST: f64 = 1e4;

/// The highest load, over the rate at which packets came through as fast as they could: an offered
/// load costs the generator less than one that nobody keeps up with.
const MOST_OVER_PEAK: f64 = 1.5;

/// Loads at which latency is measured, in percent of the highest.
const LOADS_PERCENT: [u32; 3] = [10, 50, 90];

/// The name of that load's metric begins with this.
const RATE: &str = "rate_";

/// Searches for each goal with each copy, one after the other.
pub(super) fn measure(
    run: &Run<'_>,
    watch: &Watch,
    context: &mut Context<'_>,
) -> Result<(), Error> {
    let bench = run.bench;
    if bench.searches.is_empty() {
        return Ok(());
    }
    for (index, subject) in bench.subjects.iter().enumerate() {
        // Copying nothing, packets come back without numbers: all would count as lost.
        let can = subject.switch == Forwarder::Haul && subject.copy != "none";
        if !can || context.is_stopped() || run.entrants[index].samples.is_empty() {
            continue;
        }
        let mut sides = run.start(subject)?;
        let (of_switch, of_guest) = run.attempts(subject);
        sides.guest.go(None).map_err(&of_guest)?;
        let measured = one(run, index, &mut sides, watch, context);
        sides.end();
        measured.map_err(&of_switch)?;
    }
    Ok(())
}

/// Every goal of one subject.
fn one(
    run: &Run<'_>,
    index: usize,
    sides: &mut Sides,
    watch: &Watch,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let bench = run.bench;
    let rates: Vec<f64> = run.entrants[index].samples.iter().map(|sample| sample.rate).collect();
    let peak = rates.iter().copied().fold(0.0, f64::max);
    let range = Range { least: LEAST, most: (peak * MOST_OVER_PEAK).max(2.0 * LEAST) };
    let mut highest = None;
    for (name, goal) in &bench.searches {
        let found = look(goal, range, sides, context)?;
        highest = highest.or(found.lower);
        emit(run, index, (name, goal), &found, watch, context);
    }
    let Some(highest) = highest.filter(|_| bench.latency) else { return Ok(()) };
    for percent in LOADS_PERCENT {
        if context.is_stopped() {
            break;
        }
        let rate = highest * f64::from(percent) / 100.0;
        let time = bench.searches.first().map_or(bench.window, |(_, goal)| goal.trial);
        let counted = sides.switch.trial(rate, time)?;
        let remarks = Remarks::new(&[], &watch.finish());
        let all = whole(run, &run.entrants[index], &remarks).with(key::LOAD_PERCENT, percent);
        // Of packets that did not come there is no latency.
        let latency = counted.latency_ns.iter().filter(|_| counted.returned > 0);
        for (quantile, ns) in latency {
            let mut record = of(&all, "latency", "ns").with(key::QUANTILE, *quantile);
            record.samples = vec![*ns];
            context.emit(record);
        }
        for (metric, count) in [("unsent", counted.unsent), ("missing", counted.missing)] {
            let mut record = of(&all, metric, "packets");
            record.samples = vec![count as f64];
            context.emit(record);
        }
    }
    Ok(())
}

fn look(
    goal: &Goal,
    range: Range,
    sides: &mut Sides,
    context: &mut Context<'_>,
) -> Result<Found, String> {
    let mut failure = None;
    let found = search(goal, range, |load, time| {
        if context.is_stopped() {
            return None;
        }
        match sides.switch.trial(load, time) {
            Ok(counted) => {
                let loss_ratio = counted.missing as f64 / counted.made.max(1) as f64;
                Some(Trial { time, loss_ratio })
            }
            Err(reason) => {
                failure = Some(reason);
                None
            }
        }
    });
    failure.map_or(Ok(found), Err)
}

fn emit(
    run: &Run<'_>,
    index: usize,
    (name, goal): (&str, &Goal),
    found: &Found,
    watch: &Watch,
    context: &mut Context<'_>,
) {
    let seconds = |time: Duration| format!("{} s", time.as_secs_f64());
    let note = format!(
        "trials of {}, {} in sum, {} of that time may lose more than {} of the packets; {} trials",
        seconds(goal.trial),
        seconds(goal.sum),
        goal.exceed_ratio,
        goal.loss_ratio,
        found.trials
    );
    let remarks = Remarks::new(&[note], &watch.finish());
    let all = whole(run, &run.entrants[index], &remarks);
    for (metric, value) in [
        (format!("{RATE}{name}"), found.lower),
        (format!("upper_{name}"), found.upper),
        (format!("throughput_{name}"), found.throughput),
    ] {
        let Some(value) = value else { continue };
        let mut record = of(&all, &metric, "packets/s");
        record.samples = vec![value];
        context.emit(record);
    }
}
