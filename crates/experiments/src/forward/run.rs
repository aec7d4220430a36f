//! The run: restarts of every subject in turn, each with a guest of its own.

use std::cell::RefCell;
use std::fs;
use std::time::{Duration, Instant};

use haul_measure::disturbance::Watch;
use haul_measure::rounds::{self, Limits, Next, Order, Round};
use haul_measure::sys;

use super::bench::{Bench, Subject};
use super::flow::Flow;
use super::protocol::{Counted, Role};
use super::sides::{Common, Cycles, Receipt, SOCKET, Side};
use super::waits;
use crate::context::Context;
use crate::drive::Folder;
use crate::error::Error;
use crate::leave_out::or_leave_out;

/// What goes by before it is measured: caches are warm, and queues as full as they will be.
pub(super) const WARM_UP: Duration = Duration::from_millis(150);

/// A window in which a thread waited for its processor for more than this share of the time does
/// not count.
const WAIT_SHARE_MAX: f64 = 0.015;

/// How long cycles are counted.
pub(super) const METER: Duration = Duration::from_millis(100);

/// How many windows of a restart are tried until one counts.
const TRIES: usize = 3;

/// How many more, where nothing came: a thread may have had no processor at all.
const TRIES_OF_NOTHING: usize = 20;

/// How often a run looks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// How many processors a flow has: one for each side.
const PROCESSORS: usize = 2;

/// A subject in a run.
pub(super) struct Entrant<'a> {
    pub(super) subject: &'a Subject,
    failure: Option<Error>,
    pub(super) samples: Vec<Sample>,
}

/// What a restart gave.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Packets a second.
    pub(super) rate: f64,
    /// Whether a thread waited for its processor in every window.
    pub(super) hit: bool,
    /// What switch and guest had counted at the end.
    pub(super) switch: Counted,
    pub(super) guest: Counted,
    /// What a packet took on either side, in a time of its own.
    pub(super) switch_cycles: Cycles,
    pub(super) guest_cycles: Cycles,
    pub(super) receipts: (Receipt, Receipt),
}

/// A run of one size.
pub(super) struct Run<'a> {
    pub(super) bench: &'a Bench,
    pub(super) cpus: Vec<usize>,
    /// The subjects, and those once more that are compared with.
    pub(super) entrants: Vec<Entrant<'a>>,
    /// Guests that wait for their next switch.
    kept: RefCell<Vec<Kept>>,
}

/// A guest that outlives its switches, of one program: another one may offer other features than
/// the guest has agreed on.
struct Kept {
    switch: &'static str,
    guest: Box<dyn Side>,
    folder: Folder,
}

/// Both sides of a flow, and where they meet.
pub(super) struct Sides {
    pub(super) switch: Box<dyn Side>,
    pub(super) guest: Box<dyn Side>,
    folder: Folder,
}

impl<'a> Run<'a> {
    /// Of everybody who is to be measured.
    ///
    /// # Errors
    /// This process may run on one processor alone.
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

    /// Restarts everybody until the budget is spent.
    ///
    /// # Errors
    /// The one that others are compared with failed; all have the samples of the rounds before.
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
        let after = |context: &mut Context<'_>, progress| context.tell(&what, progress);
        let (done, ended) = rounds::repeat(limits, watch, context, round, after);
        for entrant in &mut self.entrants {
            entrant.samples.truncate(done);
        }
        ended
    }

    /// A restart of each in this order.
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
            let name = entrant.subject.name().to_owned();
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

    /// Both sides, which see each other.
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
            source: bench.source,
            folder: folder.path(),
            cpus: &self.cpus,
            is_huge: bench.is_huge,
            driver: &bench.driver,
            is_to_kernel: bench.guest.is_kernel(),
            stop: context.stop,
        };
        let (of_switch, of_guest) = self.attempts(subject);
        let threads = bench.threads(self.cpus.len());
        let (of_switch_cpus, of_guest_cpus) = self.cpus.split_at(threads);
        let started = subject.switch.start(Role::Switch, &common, of_switch_cpus, &subject.copy);
        let mut switch = started.map_err(&of_switch)?;
        // What a guest of haul's copies between its own ring and itself is never what is compared.
        let start = || bench.guest.start(Role::Guest, &common, &of_guest_cpus[..threads], "haul");
        let mut guest = kept.map_or_else(start, Ok).map_err(&of_guest)?;
        guest.await_link().map_err(&of_guest)?;
        switch.await_link().map_err(&of_switch)?;
        guest.await_forwarding(context.stop).map_err(&of_guest)?;
        Ok(Sides { switch, guest, folder })
    }

    /// The guest that a switch of this program had before.
    fn kept_for(&self, subject: &Subject) -> Option<Kept> {
        let mut all = self.kept.borrow_mut();
        let place = all.iter().position(|kept| kept.switch == subject.switch.name())?;
        let kept = all.swap_remove(place);
        // DPDK's switch does not take the place of a socket that another one left. There may be
        // none.
        let _ = fs::remove_file(kept.folder.path().join(SOCKET));
        Some(kept)
    }

    fn folder(&self, subject: &Subject) -> Result<Folder, Error> {
        Folder::new("forward").map_err(|reason| Error::Folder {
            peer: subject.name().to_owned(),
            folder: std::env::temp_dir(),
            reason,
        })
    }

    /// Ends both sides, the guest first: DPDK's is killed by a signal when it writes to a switch
    /// that is gone. A kernel waits for the next one.
    pub(super) fn end(&self, subject: &Subject, sides: Sides) {
        let Sides { switch, guest, folder } = sides;
        if self.bench.keeps_guest() {
            switch.end();
            let switch = subject.switch.name();
            self.kept.borrow_mut().push(Kept { switch, guest, folder });
            return;
        }
        guest.end();
        switch.end();
    }

    /// What is said where a side fails.
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
        // Who makes packets ends first, so that none are under way.
        if self.bench.flow.is_from_guest() {
            sample.guest = guest.halt().map_err(&of_guest)?;
            sample.switch = switch.halt().map_err(&of_switch)?;
        } else {
            sample.switch = switch.halt().map_err(&of_switch)?;
            sample.guest = guest.halt().map_err(&of_guest)?;
        }
        sample.receipts = (switch.receipt(), guest.receipt());
        self.end(subject, sides);
        Ok(sample)
    }

    /// Both sides forward from here on. Who takes packets begins before who makes them.
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

    /// Packets a second, and whether a thread waited for its processor meanwhile.
    ///
    /// # Errors
    /// Nothing came in any of many windows: that is no rate of this switch.
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
        Err(of_switch(format!("no packet came in {windows} times {:?}", self.bench.window)))
    }

    fn one_window(&self, sides: &mut Sides, context: &Context<'_>) -> Result<(f64, bool), Error> {
        let Sides { switch, guest, .. } = sides;
        let flow = self.bench.flow;
        let at_guest = [Flow::Enqueue, Flow::Return].contains(&flow);
        let is_of_guest = at_guest || !switch.counts();
        let before = (switch.waits(), guest.waits());
        let attempt = failed("the forwarder", "say what it has counted");
        let measured = if is_of_guest { &mut *guest } else { &mut *switch };
        measured.begin().map_err(&attempt)?;
        sleep(self.bench.window, context);
        let rates = measured.rates(flow).map_err(&attempt)?;
        let after = (switch.waits(), guest.waits());
        let shares = [waits::share(before.0, after.0), waits::share(before.1, after.1)];
        let hit = shares.into_iter().flatten().any(|share| share > WAIT_SHARE_MAX);
        let rate = match flow {
            // What a guest gives back is what returns.
            Flow::Pvp if is_of_guest => rates.tx,
            Flow::Pvp | Flow::Dequeue | Flow::Return => rates.returned,
            Flow::Enqueue | Flow::Loopback => rates.rx,
        };
        Ok((rate, hit))
    }

    /// The rounds of these entrants, as far as all of them took part.
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

/// Sleeps so long, or until the run is told to stop.
pub(super) fn sleep(time: Duration, context: &Context<'_>) {
    let started = Instant::now();
    while !context.is_stopped() {
        match time.checked_sub(started.elapsed()) {
            Some(left) if !left.is_zero() => std::thread::sleep(left.min(LOOK)),
            _ => break,
        }
    }
}

fn failed(peer: &'static str, attempt: &'static str) -> impl Fn(String) -> Error + use<> {
    move |reason| Error::Driver { peer: peer.to_owned(), attempt: attempt.to_owned(), reason }
}
