//! The highest loads that meet a goal, and the latency at fractions of these loads. haul must
//! make the packets, because its generator makes them at a constant rate.

use std::time::Duration;

use haul_measure::disturbance::Watch;
use haul_measure::rounds::{Order, Round, evaluate};
use haul_model::experiment::key;

use super::ceiling::is_ceiling;
use super::flow::Flow;
use super::records::{compare_rates, of, whole};
use super::run::Run;
use super::search::{Found, Goal, Range, Trial, search};
use super::sides::{Forwarder, Side};
use crate::context::Context;
use crate::error::Error;
use crate::remarks::Remarks;

/// The lowest searched load, in packets per second: through a process that polls, and through a
/// kernel that may be emulated.
const LEAST: f64 = 1e4;
const LEAST_OF_KERNEL: f64 = 1e2;

/// The highest searched load, relative to the rate of packets that were sent as fast as possible:
/// a load that the receiver can process costs the generator less than a load that is too high for
/// the receiver.
const MOST_OVER_PEAK: f64 = 3.0;

/// Loads at which latency is measured, in percent of the highest load that meets the goal.
const LOADS_PERCENT: [u32; 3] = [10, 50, 90];

/// The beginning of the metric's name for that load.
const RATE: &str = "rate_";

/// The results of searches: for each entrant a row for each goal, with the result of each search.
type Searched = Vec<Vec<Vec<Found>>>;

/// Searches for each goal with each subject whose load haul can set: once, or alternating several
/// times, together with the second baseline, so that each ratio has an interval.
pub(super) fn measure(
    run: &Run<'_>,
    watch: &Watch,
    context: &mut Context<'_>,
) -> Result<(), Error> {
    let bench = run.bench;
    let has_samples = |index: &usize| !run.entrants[*index].samples.is_empty();
    let mut entrants: Vec<usize> =
        (0..bench.subjects.len()).filter(|index| can_search(run, *index)).collect();
    entrants.retain(has_samples);
    if bench.searches.is_empty() || entrants.is_empty() {
        return Ok(());
    }
    let named = |name: &str| entrants.iter().position(|it| bench.subjects[*it].name() == name);
    let own = entrants.iter().position(|index| *index == bench.baseline());
    let baseline = own.or(named("libc")).unwrap_or(0);
    if bench.searches_each > 1 {
        entrants.push(entrants[baseline]);
    }
    let mut searched: Searched = vec![vec![Vec::new(); bench.searches.len()]; entrants.len()];
    let mut order = Order::new(0..entrants.len(), bench.seed);
    let mut ended = Ok(());
    'rounds: for number in 0..bench.searches_each {
        for place in order.draw() {
            if context.is_stopped() {
                break 'rounds;
            }
            let is_first = number == 0 && searched[place][0].is_empty();
            let found = one(run, entrants[place], is_first, watch, context);
            match found {
                Ok(found) => {
                    let rows = searched[place].iter_mut().zip(found);
                    rows.for_each(|(row, found)| row.push(found));
                }
                Err(error) => {
                    ended = Err(error);
                    break 'rounds;
                }
            }
        }
    }
    emit(run, &entrants, baseline, &searched, watch, context);
    ended
}

/// Whether haul can set the load of this subject and count the missing packets: haul makes the
/// packets, and copies each packet with its number.
fn can_search(run: &Run<'_>, index: usize) -> bool {
    let subject = &run.bench.subjects[index];
    let is_haul = subject.switch == Forwarder::Haul;
    match run.bench.flow {
        Flow::Pvp => is_haul && !is_ceiling(&subject.copy),
        Flow::Return => !(is_haul && is_ceiling(&subject.copy)),
        Flow::Enqueue | Flow::Dequeue | Flow::Loopback => false,
    }
}

/// Searches for all goals with one restart of a subject. If requested, also measures latency
/// below the first goal's load.
fn one(
    run: &Run<'_>,
    index: usize,
    is_first: bool,
    watch: &Watch,
    context: &mut Context<'_>,
) -> Result<Vec<Found>, Error> {
    let bench = run.bench;
    let subject = &bench.subjects[index];
    let (of_switch, of_guest) = run.attempts(subject);
    let mut sides = run.start(subject, context)?;
    let is_of_guest = bench.flow.is_from_guest();
    let (taker, of_taker): (_, &dyn Fn(String) -> Error) = match is_of_guest {
        true => (&mut sides.switch, &of_switch),
        false => (&mut sides.guest, &of_guest),
    };
    taker.go(None).map_err(of_taker)?;
    let maker = if is_of_guest { &mut sides.guest } else { &mut sides.switch };
    let measured = goals(run, index, maker.as_mut(), is_first && bench.latency, watch, context);
    run.end(subject, sides);
    measured.map_err(|reason| if is_of_guest { of_guest(reason) } else { of_switch(reason) })
}

fn goals(
    run: &Run<'_>,
    index: usize,
    maker: &mut dyn Side,
    with_latency: bool,
    watch: &Watch,
    context: &mut Context<'_>,
) -> Result<Vec<Found>, String> {
    let bench = run.bench;
    let rates = run.entrants[index].samples.iter().map(|sample| sample.rate);
    let peak = rates.fold(0.0, f64::max);
    let least = if bench.guest.is_kernel() { LEAST_OF_KERNEL } else { LEAST };
    let range = Range { least, most: (peak * MOST_OVER_PEAK).max(2.0 * least) };
    let mut all = Vec::new();
    for (_, goal) in &bench.searches {
        all.push(search_goal(goal, range, maker, context)?);
    }
    let highest = all.iter().find_map(|found: &Found| found.lower);
    let Some(highest) = highest.filter(|_| with_latency) else { return Ok(all) };
    for percent in LOADS_PERCENT {
        if context.is_stopped() {
            break;
        }
        let rate = highest * f64::from(percent) / 100.0;
        let time = bench.searches.first().map_or(bench.window, |(_, goal)| goal.trial);
        let counted = maker.trial(rate, time)?;
        let remarks = Remarks::new(&[], &watch.finish());
        let all = whole(run, &run.entrants[index], &remarks).with(key::LOAD_PERCENT, percent);
        // Packets that did not arrive have no latency.
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
    Ok(all)
}

fn search_goal(
    goal: &Goal,
    range: Range,
    maker: &mut dyn Side,
    context: &mut Context<'_>,
) -> Result<Found, String> {
    let mut failure = None;
    let found = search(goal, range, |load, time| {
        if context.is_stopped() {
            return None;
        }
        match maker.trial(load, time) {
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

/// Emits the records of the searches: loads, and their ratios if there were several searches.
fn emit(
    run: &Run<'_>,
    entrants: &[usize],
    baseline: usize,
    searched: &Searched,
    watch: &Watch,
    context: &mut Context<'_>,
) {
    let bench = run.bench;
    let own = if bench.searches_each > 1 { entrants.len() - 1 } else { entrants.len() };
    let name = |index: &usize| bench.subjects[*index].name();
    let names: Vec<String> = entrants[..own].iter().map(name).collect();
    for (number, (name, goal)) in bench.searches.iter().enumerate() {
        let of_goal = |place: usize| &searched[place][number];
        let evaluation = (own < entrants.len()).then(|| {
            let whole = searched.iter().map(|it| it[number].len()).min().unwrap_or(0);
            let lowers = |turn: usize| -> Option<Vec<f64>> {
                (0..entrants.len()).map(|place| of_goal(place)[turn].lower).collect()
            };
            let turns = (0..whole).filter_map(lowers);
            let turns: Vec<Round> = turns.map(|values| Round { values, hit: false }).collect();
            evaluate(&turns, &names, baseline, bench.seed)
        });
        for (place, &index) in entrants[..own].iter().enumerate() {
            let found = of_goal(place);
            let note = note(goal, found);
            let all = whole(run, &run.entrants[index], &Remarks::new(&[note], &watch.finish()));
            for (metric, of_found) in [
                (format!("{RATE}{name}"), (|it| it.lower) as fn(&Found) -> Option<f64>),
                (format!("upper_{name}"), |it| it.upper),
                (format!("throughput_{name}"), |it| it.throughput),
            ] {
                let mut record = of(&all, &metric, "packets/s");
                record.samples = found.iter().filter_map(of_found).collect();
                if metric.starts_with(RATE) {
                    let comparisons = evaluation.as_ref().map(|it| &it.comparisons);
                    compare_rates(&mut record, comparisons.and_then(|it| it[place].clone()));
                }
                if !record.samples.is_empty() {
                    context.emit(record);
                }
            }
        }
    }
}

fn note(goal: &Goal, found: &[Found]) -> String {
    let seconds = |time: Duration| format!("{} s", time.as_secs_f64());
    let trials: Vec<String> = found.iter().map(|it| it.trials.to_string()).collect();
    format!(
        "trials of {}, {} in sum, {} of that time may lose more than {} of the packets; {} trials",
        seconds(goal.trial),
        seconds(goal.sum),
        goal.exceed_ratio,
        goal.loss_ratio,
        trials.join(" + ")
    )
}
