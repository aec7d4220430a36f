//! The run: restarts of every subject in turn, each with a separate guest.

use std::cell::RefCell;
use std::fs;
use std::time::{Duration, Instant};

use haul_measure::disturbance::Watch;
use haul_measure::rounds::{self, Limits, Next, Order, Round};
use haul_measure::sys;

use super::bench::{Bench, Subject};
use super::counted::miscounted;
use super::flow::Flow;
use super::library::Served;
use super::openvswitch::VhostPort;
use super::protocol::{Counted, Role};
use super::sides::{Common, Cycles, Receipt, SOCKET, Side};
use super::waits;
use crate::context::Context;
use crate::drive::Folder;
use crate::error::Error;
use crate::leave_out::or_leave_out;

/// The time before the measured window, in which caches become warm and queues reach their usual
/// length.
pub(super) const WARM_UP: Duration = Duration::from_millis(150);

/// A window does not count if a thread waited for its processor for more than this share of the
/// time.
const WAIT_SHARE_MAX: f64 = 0.015;

/// The time in which cycles are counted.
pub(super) const METER: Duration = Duration::from_millis(100);

/// The largest number of windows per restart. After the first window that counts, no further
/// window is measured.
const TRIES: usize = 3;

/// The number of further windows if no packet arrived, because a thread may have had no processor
/// at all.
const TRIES_OF_NOTHING: usize = 20;

/// The time between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The number of processors of a flow: one for each side.
const PROCESSORS: usize = 2;

/// A subject in a run.
pub(super) struct Entrant<'a> {
    pub(super) subject: &'a Subject,
    failure: Option<Error>,
    pub(super) samples: Vec<Sample>,
}

/// The result of a restart.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Packets per second.
    pub(super) rate: f64,
    /// Whether a thread waited for its processor in every window.
    pub(super) hit: bool,
    /// The counters of switch and guest at the end.
    pub(super) switch: Counted,
    pub(super) guest: Counted,
    /// The cycles per packet on either side, in a separate window.
    pub(super) switch_cycles: Cycles,
    pub(super) guest_cycles: Cycles,
    pub(super) receipts: (Receipt, Receipt),
    /// The packets that a library served in the switch, if it says so.
    pub(super) served: Option<Served>,
    /// By how many packets the switch's own statistics differ from the guest's counts, if the
    /// switch has statistics.
    pub(super) miscounted: Option<u64>,
}

impl Sample {
    /// Whether a library served packets in the switch.
    pub(super) fn is_served(&self) -> bool {
        self.served.is_some_and(|it| it.served > 0)
    }
}

/// A run of one size.
pub(super) struct Run<'a> {
    pub(super) bench: &'a Bench,
    pub(super) cpus: Vec<usize>,
    /// The subjects, and a second time the subjects with which others are compared.
    pub(super) entrants: Vec<Entrant<'a>>,
    /// Guests that wait for their next switch.
    kept: RefCell<Vec<Kept>>,
}

/// A guest that outlives its switches, which all run one program. Another program may offer
/// features that differ from those that the guest has agreed on.
struct Kept {
    switch: String,
    guest: Box<dyn Side>,
    folder: Folder,
}

/// Both sides of a flow, and the folder of their socket.
pub(super) struct Sides {
    pub(super) switch: Box<dyn Side>,
    pub(super) guest: Box<dyn Side>,
    folder: Folder,
}

impl<'a> Run<'a> {
    /// The run of all subjects.
    ///
    /// # Errors
    /// This process may run only on one processor.
    pub(super) fn new(bench: &'a Bench, context: &Context<'_>) -> Result<Self, Error> {
        let cpus = if context.cpus.is_empty() { sys::affinity() } else { context.cpus.clone() };
        if cpus.len() < PROCESSORS {
            return Err(Error::OneProcessorForwarding { allowed: cpus.len() });
        }
        let again = bench.again();
        let twice = again.iter().map(|&index| &bench.subjects[index]);
        let entrants = bench.subjects.iter().chain(twice);
        let entrants = entrants
            .map(|subject| Entrant { subject, failure: None, samples: Vec::new() })
            .collect();
        Ok(Self { bench, cpus, entrants, kept: RefCell::default() })
    }

    /// Restarts every subject in turn until the budget is spent.
    ///
    /// # Errors
    /// The baseline failed; all subjects have the samples of the earlier rounds.
    pub(super) fn repeat(
        &mut self,
        watch: &mut Watch,
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        let (least, most) = self.bench.restarts;
        let mut order = Order::new(0..self.entrants.len(), self.bench.seed);
        let limits = Limits { budget: self.bench.budget, started: Instant::now(), least, most };
        let what = format!("forward {}, {} B", self.bench.flow, self.bench.size_bytes);
        let round = |context: &mut Context<'_>, _| self.round(&order.draw(), context);
        let after = |context: &mut Context<'_>, progress| context.report_progress(&what, progress);
        let (done, ended) = rounds::repeat(limits, watch, context, round, after);
        for entrant in &mut self.entrants {
            entrant.samples.truncate(done);
        }
        ended
    }

    /// A restart of each subject in this order.
    fn round(&mut self, order: &[usize], context: &mut Context<'_>) -> Result<Next, Error> {
        let baseline = self.bench.subjects[self.bench.baseline()].name();
        for &index in order {
            if context.is_stopped() {
                return Ok(Next::Stopped);
            }
            let entrant = &self.entrants[index];
            if entrant.failure.is_some() {
                continue;
            }
            let name = entrant.subject.name();
            let sample = self.sample(entrant.subject, context);
            if context.is_stopped() {
                return Ok(Next::Stopped);
            }
            let is_needed = name == baseline;
            let failure = &mut self.entrants[index].failure;
            if let Some(sample) = or_leave_out(sample, &name, is_needed, failure, context)? {
                self.entrants[index].samples.push(sample);
            }
        }
        if context.is_stopped() { Ok(Next::Stopped) } else { Ok(Next::Round) }
    }

    /// Starts both sides, and waits until each side sees the other.
    pub(super) fn start(&self, subject: &Subject, context: &Context<'_>) -> Result<Sides, Error> {
        let bench = self.bench;
        let (folder, kept) = match self.kept_for(subject) {
            Some(Kept { folder, guest, .. }) => (folder, Some(guest)),
            None => (self.folder(subject)?, None),
        };
        let common = Common {
            flow: bench.flow,
            layout: bench.layout,
            size_bytes: bench.size_bytes,
            queues: bench.queues,
            buffers: bench.buffers,
            source: bench.source,
            folder: folder.path(),
            cpus: &self.cpus,
            is_huge: bench.is_huge,
            driver: &bench.driver,
            is_to_kernel: bench.guest.is_kernel(),
            guest_listens: subject.switch.port() == Some(VhostPort::Client),
            stop: context.stop,
        };
        let (of_switch, of_guest) = self.attempts(subject);
        let threads = bench.threads(self.cpus.len());
        let (of_switch_cpus, of_guest_cpus) = self.cpus.split_at(threads);
        let started = subject.switch.start(Role::Switch, &common, of_switch_cpus, &subject.copy);
        let mut switch = started.map_err(&of_switch)?;
        // If the guest is haul, its copy between its ring and its memory is not one of the
        // compared copies.
        let start = || bench.guest.start(Role::Guest, &common, &of_guest_cpus[..threads], "haul");
        let mut guest = kept.map_or_else(start, Ok).map_err(&of_guest)?;
        guest.await_link().map_err(&of_guest)?;
        switch.await_link().map_err(&of_switch)?;
        guest.await_forwarding(context.stop).map_err(&of_guest)?;
        Ok(Sides { switch, guest, folder })
    }

    /// The guest of the previous switch of this program.
    fn kept_for(&self, subject: &Subject) -> Option<Kept> {
        let mut all = self.kept.borrow_mut();
        let place = all.iter().position(|kept| kept.switch == subject.switch.name())?;
        let kept = all.swap_remove(place);
        // DPDK's switch does not replace a socket that another switch left. The socket may not
        // exist.
        let _ = fs::remove_file(kept.folder.path().join(SOCKET));
        Some(kept)
    }

    fn folder(&self, subject: &Subject) -> Result<Folder, Error> {
        Folder::new("forward").map_err(|reason| Error::Folder {
            peer: subject.name(),
            folder: std::env::temp_dir(),
            reason,
        })
    }

    /// Ends both sides, the guest first: DPDK's guest is killed by a signal if it writes to a
    /// switch that has ended. A guest that is a kernel is kept for the next switch.
    /// Returns the packets that a library served in the switch, if it says so.
    pub(super) fn end(&self, subject: &Subject, sides: Sides) -> Option<Served> {
        let Sides { switch, guest, folder } = sides;
        if self.bench.keeps_guest() {
            let served = switch.end();
            let switch = subject.switch.name();
            self.kept.borrow_mut().push(Kept { switch, guest, folder });
            return served;
        }
        guest.end();
        switch.end()
    }

    /// The errors of a failed switch and of a failed guest.
    pub(super) fn attempts(
        &self,
        subject: &Subject,
    ) -> (impl Fn(String) -> Error + use<>, impl Fn(String) -> Error + use<>) {
        let switch = failed(subject.switch.name(), "forward as switch");
        (switch, failed(self.bench.guest.name(), "forward as guest"))
    }

    /// One restart of both sides.
    fn sample(&self, subject: &Subject, context: &Context<'_>) -> Result<Sample, Error> {
        let mut sides = self.start(subject, context)?;
        self.begin(&mut sides, subject)?;
        sleep(WARM_UP, context);
        let mut sample = Sample::default();
        for _ in 0..TRIES {
            (sample.rate, sample.hit) = self.window(subject, &mut sides, context)?;
            if !sample.hit || context.is_stopped() {
                break;
            }
        }
        let (of_switch, of_guest) = self.attempts(subject);
        let Sides { switch, guest, .. } = &mut sides;
        switch.meter(Role::Switch).map_err(&of_switch)?;
        guest.meter(Role::Guest).map_err(&of_guest)?;
        sleep(METER, context);
        sample.switch_cycles = switch.metered().map_err(&of_switch)?;
        sample.guest_cycles = guest.metered().map_err(&of_guest)?;
        let counted = miscounted(switch.as_mut(), guest.as_mut(), self.bench.size_bytes);
        sample.miscounted = counted.map_err(&of_switch)?;
        // The side that makes packets ends first, so that no packets are in transit.
        if self.bench.flow.is_from_guest() {
            sample.guest = guest.halt().map_err(&of_guest)?;
            sample.switch = switch.halt().map_err(&of_switch)?;
        } else {
            sample.switch = switch.halt().map_err(&of_switch)?;
            sample.guest = guest.halt().map_err(&of_guest)?;
        }
        sample.receipts = (switch.receipt(), guest.receipt());
        sample.served = self.end(subject, sides);
        Ok(sample)
    }

    /// Makes both sides forward. The side that receives packets begins before the side that makes
    /// them.
    pub(super) fn begin(&self, sides: &mut Sides, subject: &Subject) -> Result<(), Error> {
        let (of_switch, of_guest) = self.attempts(subject);
        let Sides { switch, guest, .. } = sides;
        if self.bench.flow.is_from_guest() {
            switch.go(None).map_err(of_switch)?;
            return guest.go(None).map_err(of_guest);
        }
        guest.go(None).map_err(of_guest)?;
        switch.go(None).map_err(of_switch)
    }

    /// Returns the packets per second in a window, and whether a thread waited for its processor
    /// in this window.
    ///
    /// # Errors
    /// No packet arrived in any of many windows, so that the switch has no rate.
    pub(super) fn window(
        &self,
        subject: &Subject,
        sides: &mut Sides,
        context: &Context<'_>,
    ) -> Result<(f64, bool), Error> {
        for _ in 0..=TRIES_OF_NOTHING {
            let found = self.one_window(sides, context)?;
            if found.0 > 0.0 || context.is_stopped() {
                return Ok(found);
            }
        }
        let (of_switch, _) = self.attempts(subject);
        let windows = TRIES_OF_NOTHING + 1;
        Err(of_switch(format!("no packet arrived in {windows} windows of {:?}", self.bench.window)))
    }

    fn one_window(&self, sides: &mut Sides, context: &Context<'_>) -> Result<(f64, bool), Error> {
        let Sides { switch, guest, .. } = sides;
        let flow = self.bench.flow;
        let at_guest = [Flow::Enqueue, Flow::Return].contains(&flow);
        let is_of_guest = at_guest || !switch.counts();
        let before = (switch.waits(), guest.waits());
        let attempt = failed("the forwarder".to_owned(), "report its counters");
        let measured = if is_of_guest { &mut *guest } else { &mut *switch };
        measured.begin().map_err(&attempt)?;
        sleep(self.bench.window, context);
        let rates = measured.rates(flow).map_err(&attempt)?;
        let after = (switch.waits(), guest.waits());
        let shares = [waits::share(before.0, after.0), waits::share(before.1, after.1)];
        let hit = shares.into_iter().flatten().any(|share| share > WAIT_SHARE_MAX);
        let rate = match flow {
            // The packets that a guest sends are the returning packets.
            Flow::Pvp if is_of_guest => rates.tx,
            Flow::Pvp | Flow::Dequeue | Flow::Return => rates.returned,
            Flow::Enqueue | Flow::Loopback => rates.rx,
        };
        Ok((rate, hit))
    }

    /// The rounds in which all of these entrants took part.
    pub(super) fn rounds(&self, entrants: &[usize]) -> Vec<Round> {
        let of = |index: &usize| &self.entrants[*index].samples;
        let count = entrants.iter().map(|index| of(index).len()).min().unwrap_or(0);
        let round = |number: usize| Round {
            values: entrants.iter().map(|index| of(index)[number].rate).collect(),
            hit: entrants.iter().any(|index| of(index)[number].hit),
        };
        (0..count).map(round).collect()
    }
}

/// Sleeps for this time, or until the run is stopped.
pub(super) fn sleep(time: Duration, context: &Context<'_>) {
    let started = Instant::now();
    while !context.is_stopped() {
        match time.checked_sub(started.elapsed()) {
            Some(left) if !left.is_zero() => std::thread::sleep(left.min(POLL_INTERVAL)),
            _ => break,
        }
    }
}

fn failed(peer: String, attempt: &'static str) -> impl Fn(String) -> Error + use<> {
    move |reason| Error::Driver { peer: peer.clone(), attempt: attempt.to_owned(), reason }
}
