//! Turns the restarts of a run into its records: rates and their ratios, lost packets by stage,
//! packets per burst, and the versions and features of both sides.

use std::collections::BTreeMap;

use haul_measure::clock::Clock;
use haul_measure::disturbance::Noticed;
use haul_measure::rounds::{self, Evaluation};
use haul_model::experiment::{key, name};
use haul_model::{Comparison, RatioOf, Record};

use super::bench::Subject;
use super::ceiling::is_ceiling;
use super::flow::{Flow, GUEST_ROOM_BYTES};
use super::ledger::{Ledger, STAGES};
use super::library::{Library, Served};
use super::openvswitch::VhostPort;
use super::run::{Entrant, Run, Sample};
use super::sides::Forwarder;
use super::testpmd::Testpmd;
use crate::context::Context;
use crate::remarks::Remarks;

const RATE: &str = "rate_peak";
const RATE_UNIT: &str = "packets/s";

/// The packets by which a switch's own statistics differ from the guest's counts.
const MISCOUNTED: &str = "miscounted";

/// The rate of the library of haul's ring by DPDK's in the same restart.
const RATIO_IN_TURNS: &str = "ratio_in_turns";

/// The gain of haul's copy over libc's in the same flow.
const GAIN: &str = "copy_gain";

/// Emits the records of a run.
pub(super) fn emit(run: &Run<'_>, noticed: &Noticed, context: &mut Context<'_>) {
    let bench = run.bench;
    let count = bench.subjects.len();
    let baseline = bench.baseline();
    // The subjects with samples, in their order, and the baseline again.
    let has_samples = |index: &usize| !run.entrants[*index].samples.is_empty();
    let present: Vec<usize> = (0..count).filter(has_samples).collect();
    let Some(place) = present.iter().position(|&index| index == baseline) else { return };
    let evaluation = evaluate(run, &present, place, count);
    let mut remarks = Remarks::new(&[], noticed);
    let all = present.iter().chain([&count]).flat_map(|&index| &run.entrants[index].samples);
    let (hit, restarts) = all.fold((0, 0), |(hit, all), it| (hit + usize::from(it.hit), all + 1));
    let refused = of_guest_refused(run, &present);
    if refused > 0 {
        remarks.add(format!(
            "the guest’s cycles are left out of {refused} of {restarts} restarts: testpmd counted \
             more than passed"
        ));
    }
    if hit > 0 {
        remarks.add(format!(
            "other programs used a forwarder’s processor in {hit} of {restarts} restarts"
        ));
    }
    for &index in &present {
        let (name, restarts) = (run.entrants[index].subject.name(), samples_of(run, index));
        if run.entrants[index].subject.switch.library().is_some_and(Library::has_ring) {
            add_unserved(&name, &restarts, &mut remarks);
        }
        add_miscounted(&name, &restarts, &mut remarks);
    }
    for (place, &index) in present.iter().enumerate() {
        let entrant = &run.entrants[index];
        let all =
            whole(run, entrant, &remarks).with(key::ROUNDS_DISCARDED, evaluation.rounds_discarded);
        let mut record = of(&all, RATE, RATE_UNIT);
        record.samples.clone_from(&evaluation.series[place]);
        compare_rates(&mut record, evaluation.comparisons[place].clone());
        context.emit(record);
        let mut record = of(&all, MISCOUNTED, "packets");
        let restarts = samples_of(run, index);
        let miscounted = restarts.iter().filter_map(|sample| sample.miscounted);
        record.samples = miscounted.map(|packets| packets as f64).collect();
        if !record.samples.is_empty() {
            context.emit(record);
        }
        let mut record = of(&all, RATIO_IN_TURNS, "ratio");
        record.samples = restarts.iter().filter_map(|it| it.served?.ratio).collect();
        if !record.samples.is_empty() {
            context.emit(record);
        }
        if entrant.subject.switch == Forwarder::Haul {
            emit_losses(&all, entrant, bench.flow, context);
            emit_batches(&all, entrant, context);
        }
        emit_cycles(run, &all, entrant, context);
    }
    emit_gain(run, &remarks, context);
}

/// The restarts of a subject: also those of the baseline's second series, because what a restart
/// shows by itself needs no other one.
fn samples_of<'a>(run: &'a Run<'_>, index: usize) -> Vec<&'a Sample> {
    let subject = &run.entrants[index].subject;
    let same = run.entrants.iter().filter(|entrant| entrant.subject == *subject);
    same.flat_map(|entrant| &entrant.samples).collect()
}

/// Adds a remark if a library with haul's ring left packets to DPDK.
fn add_unserved(name: &str, restarts: &[&Sample], remarks: &mut Remarks) {
    let all = restarts.len();
    let unserved = restarts.iter().filter(|sample| !sample.is_served()).count();
    let sum = |of: fn(&Served) -> u64| {
        restarts.iter().filter_map(|it| it.served.as_ref()).map(of).sum::<u64>()
    };
    let (served, handed) = (sum(|it| it.served), sum(|it| it.handed));
    if unserved > 0 {
        remarks
            .add(format!("{name}: its library served no packet in {unserved} of {all} restarts"));
    }
    if handed > 0 {
        let share = 100.0 * handed as f64 / (handed as f64 + served as f64);
        remarks.add(format!("{name}: its library handed {share:.3}% of the packets to DPDK"));
    }
}

/// Adds a remark if a switch's statistics differ from the guest's counts.
fn add_miscounted(name: &str, restarts: &[&Sample], remarks: &mut Remarks) {
    let counted = restarts.iter().filter_map(|sample| sample.miscounted);
    let wrong = counted.clone().filter(|packets| *packets > 0).count();
    if wrong > 0 {
        let (most, all) = (counted.max().unwrap_or(0), restarts.len());
        remarks.add(format!(
            "{name}: its statistics differ from the guest’s counts in {wrong} of {all} restarts, \
             by up to {most} packets"
        ));
    }
}

/// The number of restarts in which a guest counted more cycles than had passed.
fn of_guest_refused(run: &Run<'_>, present: &[usize]) -> usize {
    let again = run.bench.subjects.len();
    let all = present.iter().chain([&again]).flat_map(|&index| &run.entrants[index].samples);
    all.filter(|sample| sample.guest_cycles.is_refused).count()
}

/// The rounds of the subjects with samples, with one of these subjects as baseline, whose second
/// series is the last entrant.
fn evaluate(run: &Run<'_>, present: &[usize], place: usize, again: usize) -> Evaluation {
    let names: Vec<String> =
        present.iter().map(|&index| run.entrants[index].subject.name()).collect();
    let mut entrants = present.to_vec();
    entrants.push(again);
    rounds::evaluate(&run.rounds(&entrants), &names, place, run.bench.seed)
}

/// Compares haul's copy with libc's, both in haul's switch, so that only the copy differs.
fn emit_gain(run: &Run<'_>, remarks: &Remarks, context: &mut Context<'_>) {
    let bench = run.bench;
    let named = |name: &str| bench.subjects.iter().position(|subject| subject.name() == name);
    let (Some(haul), Some(libc)) = (named("haul"), named("libc")) else { return };
    let Some(again) = bench.again().iter().position(|&index| index == libc) else { return };
    let evaluation = evaluate(run, &[haul, libc], 1, bench.subjects.len() + again);
    let [own, others, _] = evaluation.series.as_slice() else { return };
    if own.is_empty() {
        return;
    }
    let mut record = of(&whole(run, &run.entrants[haul], remarks), GAIN, "ratio");
    record.samples = own.iter().zip(others).map(|(own, other)| own / other).collect();
    compare_rates(&mut record, evaluation.comparisons[0].clone());
    context.emit(record);
}

/// The ratio of rates, because a forwarder is compared by its packets per second.
pub(super) fn compare_rates(record: &mut Record, rates: Option<Comparison>) {
    record.ratio_of = rates.is_some().then_some(RatioOf::Rate);
    record.comparison = rates;
}

/// A record of the same subject and parameters, for another metric.
pub(super) fn of(whole: &Record, metric: &str, unit: &str) -> Record {
    Record { metric: metric.to_owned(), unit: unit.to_owned(), ..whole.clone() }
}

/// A record without a metric: the subject, the parameters, and the versions and features of both
/// sides.
pub(super) fn whole(run: &Run<'_>, entrant: &Entrant<'_>, remarks: &Remarks) -> Record {
    let bench = run.bench;
    let subject = entrant.subject.switch.name();
    let mut record = Record::new("", experiment(bench.flow), &subject, "", "")
        .with(key::SIZE_BYTES, bench.size_bytes)
        .with(key::GUEST, bench.guest.name())
        .with(key::LAYOUT, bench.layout.name());
    if bench.guest.testpmd().is_some() && bench.size_bytes > GUEST_ROOM_BYTES {
        record = record.with(key::BUFFERS, bench.buffers.name());
    }
    let is_haul = entrant.subject.switch == Forwarder::Haul;
    if let Some(copy) = copy_of(entrant) {
        record = record.with(key::COPY, copy);
    }
    if let Some(engine) = entrant.subject.engine() {
        record = record.with(key::ENGINE, engine);
    }
    if let Some(library) = entrant.subject.switch.library() {
        record = record.with(key::LIBRARY, library.option());
        if library.has_ring() {
            record = record.with(key::SERVED, entrant.samples.iter().all(Sample::is_served));
        }
    }
    if let Some(port) = entrant.subject.switch.port().filter(|port| *port != VhostPort::default()) {
        record = record.with(key::OVS_PORT, port.name());
    }
    let source = if is_haul { bench.source.name() } else { "net_null" };
    if bench.flow == Flow::Pvp {
        record = record.with(key::TRAFFIC, source);
    }
    if bench.queues > 1 {
        let threads = bench.threads(run.cpus.len());
        record = record.with(key::QUEUES, bench.queues).with(key::THREADS, threads);
    }
    let sides = [&entrant.subject.switch, &bench.guest];
    if let Some(found) = sides.into_iter().find_map(Forwarder::testpmd) {
        let bits = found.simd_bits().map_or("EAL's choice".to_owned(), |bits| bits.to_string());
        record = record.with(key::SIMD_BITS, bits);
    } else if Testpmd::find(None).is_ok() {
        record = record.with(key::INSTALLED, "testpmd");
    }
    if !bench.left_out.is_empty() {
        record = record.with(key::LEFT_OUT, bench.left_out.join(", "));
    }
    if let Some(sample) = entrant.samples.last() {
        record = with_receipt(record, sample);
    }
    let page_bytes = entrant.samples.last().map_or(0, |sample| sample.switch.page_bytes);
    let page_bytes = match page_bytes {
        0 if bench.is_huge => 2 << 20,
        0 => 4 << 10,
        bytes => bytes,
    };
    remarks.on(record.with(key::PAGE_BYTES, page_bytes))
}

/// The name of the copy in a switch, without a library's folder; `None` if it is not known.
fn copy_of(entrant: &Entrant<'_>) -> Option<String> {
    let Subject { switch, copy } = entrant.subject;
    match switch.library() {
        Some(library) => library.copy(),
        None if *switch == Forwarder::Haul => copy.rsplit('/').next().map(str::to_owned),
        // The other two switches copy with DPDK's librte_vhost.
        None => Some("rte_memcpy".to_owned()),
    }
}

/// The record with the versions and features of both sides. Versions and features come from one
/// restart, because they are the same in all restarts.
fn with_receipt(mut record: Record, sample: &Sample) -> Record {
    let (switch, guest) = &sample.receipts;
    for (name, value) in [
        (key::VERSION, &switch.version),
        (key::GUEST_VERSION, &guest.version),
        (key::GUEST_RX, &guest.rx_path),
        (key::GUEST_TX, &guest.tx_path),
        (key::GUEST_KERNEL, &guest.kernel),
        (key::ACCELERATOR, &guest.accelerator.map(str::to_owned)),
    ] {
        if let Some(value) = value {
            record = record.with(name, value.as_str());
        }
    }
    let counted = [sample.switch.features, sample.guest.features];
    let counted = counted.into_iter().find(|features| *features != 0);
    let features = switch.features.or(guest.features).or(counted);
    if let Some(features) = features {
        record = record.with(key::FEATURES, format!("{features:#x}"));
    }
    let ring = sample.switch.ring_size.max(sample.guest.ring_size);
    record.with(key::RING_SIZE, if ring > 0 { ring } else { 1024 })
}

/// Lost packets by stage and restart, for a flow through both sides.
fn emit_losses(all: &Record, entrant: &Entrant<'_>, flow: Flow, context: &mut Context<'_>) {
    // Without a copy, packets return without numbers, so that the numbers of the missing packets
    // are unknown.
    if flow != Flow::Pvp || is_ceiling(&entrant.subject.copy) {
        return;
    }
    let ledgers: Vec<Vec<f64>> = entrant
        .samples
        .iter()
        .map(|sample| Ledger::of(&sample.switch).rows().map(|(_, count)| count).collect())
        .collect();
    for (place, stage) in STAGES.into_iter().enumerate() {
        let mut record = of(all, "lost", "packets").with(key::STAGE, stage);
        record.samples = ledgers.iter().map(|ledger| ledger[place]).collect();
        context.emit(record);
    }
    let mut record = of(all, "made", "packets");
    record.samples = entrant.samples.iter().map(|sample| sample.switch.made as f64).collect();
    context.emit(record);
}

/// Emits the packets per receive call at each queue pair, over all restarts.
fn emit_batches(all: &Record, entrant: &Entrant<'_>, context: &mut Context<'_>) {
    let mut sums: BTreeMap<(u16, usize), u64> = BTreeMap::new();
    for (queue, batches) in entrant.samples.iter().flat_map(|it| &it.switch.rx_batches) {
        for (size, count) in batches.iter().enumerate().filter(|(_, count)| **count > 0) {
            *sums.entry((*queue, size)).or_default() += count;
        }
    }
    for ((queue, size), count) in sums {
        let mut record = of(all, "batches", "count")
            .with(key::PORT, "vhost")
            .with(key::QUEUE, queue)
            .with(key::DIRECTION, "rx")
            .with(key::SIZE, size);
        record.samples = vec![count as f64];
        context.emit(record);
    }
    let mut record = of(all, "cycles", "cycles/packet");
    let cycles = entrant.samples.iter().map(|sample| sample.switch.cycles_per_packet);
    record.samples = cycles.filter(|cycles| *cycles > 0.0).collect();
    if !record.samples.is_empty() {
        context.emit(record);
    }
}

/// Emits the shares of the ring, its copy and the guest in a packet's cycles, and the highest
/// rate at which the guest could take packets from any switch.
fn emit_cycles(run: &Run<'_>, all: &Record, entrant: &Entrant<'_>, context: &mut Context<'_>) {
    let mut emit = |metric: &str, unit: &str, samples: Vec<f64>| {
        if !samples.is_empty() {
            let mut record = of(all, metric, unit);
            record.samples = samples;
            context.emit(record);
        }
    };
    let cycles = "cycles/packet";
    let ring = |entrant: &Entrant<'_>| -> Vec<Option<f64>> {
        entrant.samples.iter().map(|sample| sample.switch_cycles.ring).collect()
    };
    emit("cycles_ring", cycles, ring(entrant).into_iter().flatten().collect());
    // The difference from the same ring without a copy, restart by restart.
    let is_it = |it: &&Entrant<'_>| it.subject.copy == "none";
    let nothing = run.entrants.iter().find(is_it).filter(|_| !is_it(&entrant));
    if let Some(nothing) = nothing {
        let pairs = ring(entrant).into_iter().zip(ring(nothing));
        let copies = pairs.filter_map(|(own, nothing)| Some(own? - nothing?));
        emit("cycles_copy", cycles, copies.collect());
    }
    let guest = entrant.samples.iter().filter_map(|sample| sample.guest_cycles.all);
    let guest: Vec<f64> = guest.filter(|cycles| *cycles > 0.0).collect();
    let ns_of_cycle = Clock::get().ns_between(0, 1 << 30) / f64::from(1 << 30);
    let most = guest.iter().map(|cycles| 1e9 / (cycles * ns_of_cycle)).collect();
    emit("cycles_guest", cycles, guest);
    // The threads of a switch poll, so that only an engine changes their processor time.
    if run.bench.subjects.iter().any(|subject| subject.engine().is_some()) {
        let used = entrant.samples.iter().filter_map(|sample| sample.switch_cycles.processors);
        emit("processors", "processors", used.collect());
    }
    emit("guest_ceiling", RATE_UNIT, most);
}

/// The flow's name in records.
#[must_use]
pub(super) fn experiment(flow: Flow) -> &'static str {
    match flow {
        Flow::Pvp => name::FORWARD_PVP,
        Flow::Enqueue => name::FORWARD_ENQUEUE,
        Flow::Dequeue => name::FORWARD_DEQUEUE,
        Flow::Loopback => name::FORWARD_LOOPBACK,
        Flow::Return => name::FORWARD_RETURN,
    }
}
