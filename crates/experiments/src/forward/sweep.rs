//! Many sizes, one after the other, within each restart. If a flow's rate is measured for each
//! size in bytes, it has plateaus at cache lines. Differences between restarts would hide these
//! plateaus.

use std::time::Instant;

use haul_measure::disturbance::Watch;
use haul_measure::rounds::{self, Limits, Next, Order};
use haul_model::experiment::{key, name};

use super::bench::BEFORE_NEW_SIZE;
use super::records::{of, whole};
use super::run::{Run, Sample, WARM_UP, sleep};
use crate::context::Context;
use crate::error::Error;
use crate::remarks::Remarks;

/// Rates of one subject: a row for each size, with a rate for each restart.
type Rates = Vec<Vec<f64>>;

/// Restarts every subject in turn, each with all sizes in a new random order. After the last
/// restart, emits a record for each subject and size.
pub(super) fn measure(
    run: &mut Run<'_>,
    watch: &mut Watch,
    context: &mut Context<'_>,
) -> Result<(), Error> {
    let bench = run.bench;
    let sizes = &bench.sweep;
    let count = bench.subjects.len();
    let mut rates: Vec<Rates> = vec![vec![Vec::new(); sizes.len()]; count];
    let (mut subjects, mut places) =
        (Order::new(0..count, bench.seed), Order::new(0..sizes.len(), bench.seed));
    let (least, most) = bench.restarts;
    let limits = Limits { budget: bench.budget, started: Instant::now(), least, most };
    let mut receipts: Vec<Option<Sample>> = vec![None; count];
    let round = |context: &mut Context<'_>, _| {
        for index in subjects.draw() {
            let restart = one(run, index, &places.draw(), context)?;
            let Some((found, sample)) = restart else { return Ok(Next::Stopped) };
            for (place, rate) in found {
                rates[index][place].push(rate);
            }
            receipts[index] = Some(sample);
        }
        Ok(Next::Round)
    };
    let what = format!("forward {}, {} sizes", bench.flow, sizes.len());
    let after = |context: &mut Context<'_>, progress| context.report_progress(&what, progress);
    let (_, ended) = rounds::repeat(limits, watch, context, round, after);
    for (entrant, sample) in run.entrants.iter_mut().zip(receipts) {
        entrant.samples.extend(sample);
    }
    let remarks = Remarks::new(&[], &watch.finish());
    for (entrant, rates) in run.entrants.iter().zip(rates) {
        let mut record = of(&whole(run, entrant, &remarks), "rate_peak", "packets/s");
        name::FORWARD_SWEEP.clone_into(&mut record.experiment);
        record = record.with(key::FLOW, bench.flow.name());
        for (size, samples) in sizes.iter().zip(rates).filter(|(_, rates)| !rates.is_empty()) {
            let mut record = record.clone().with(key::SIZE_BYTES, *size);
            record.samples = samples;
            context.emit(record);
        }
    }
    ended
}

/// One restart of a subject: the rate of each size, and the versions and features of the sides;
/// `None` if the run was stopped.
#[expect(clippy::type_complexity, reason = "rates with their places, and a receipt")]
fn one(
    run: &Run<'_>,
    index: usize,
    places: &[usize],
    context: &Context<'_>,
) -> Result<Option<(Vec<(usize, f64)>, Sample)>, Error> {
    let bench = run.bench;
    let subject = &bench.subjects[index];
    let (of_switch, of_guest) = run.attempts(subject);
    let mut sides = run.start(subject, context)?;
    run.begin(&mut sides, subject)?;
    sleep(WARM_UP, context);
    let mut rates = Vec::with_capacity(places.len());
    for &place in places {
        sides.switch.resize(bench.sweep[place]).map_err(&of_switch)?;
        sleep(BEFORE_NEW_SIZE, context);
        let (rate, _) = run.window(subject, &mut sides, context)?;
        if context.is_stopped() {
            return Ok(None);
        }
        rates.push((place, rate));
    }
    let switch = sides.switch.halt().map_err(&of_switch)?;
    let guest = sides.guest.halt().map_err(&of_guest)?;
    let receipts = (sides.switch.receipt(), sides.guest.receipt());
    run.end(subject, sides);
    Ok(Some((rates, Sample { switch, guest, receipts, ..Sample::default() })))
}
