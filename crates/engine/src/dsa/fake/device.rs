//! The queues of a fake device, and the threads that execute their descriptors.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::execute::{self, Limits, Planned};
use super::settings::{Event, Injection, Settings};
use crate::dsa::completion::Completion;
use crate::dsa::descriptor::{Descriptor, Opcode, flag};
use crate::dsa::status::Status;
use crate::outcome::Access;

/// What the device does with descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It executes them.
    Running,
    /// It was removed: submissions fail.
    Removed,
    /// It halted: submissions disappear.
    Halted,
    /// It keeps them and executes none.
    Wedged,
}

/// What happened to a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submitted {
    /// The queue accepted it, or a halted device lost it.
    Accepted,
    /// The queue is full.
    Full,
    /// The device does not exist any more.
    Gone,
}

/// Counts of a fake device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Submissions, refused ones included, and the descriptors of executed batches.
    pub submitted: u64,
    /// Descriptors that completed, whatever their status.
    pub completed: u64,
    /// Submissions that a full queue refused or, if dedicated, lost.
    pub full: u64,
    /// Completions whose record could not be written.
    pub unrecorded: u64,
}

/// A fake device, shared by its clients and its threads.
pub(super) struct Device {
    pub(super) settings: Settings,
    state: Mutex<State>,
    /// A thread has work, or must end.
    work: Condvar,
    /// A client may have become idle.
    idle: Condvar,
}

struct State {
    life: Life,
    /// Counts resets: a client of an earlier one has no device.
    generation: u64,
    is_stopping: bool,
    queues: Vec<VecDeque<Job>>,
    /// The queue that a thread serves next.
    turn: usize,
    /// The clients of the descriptors that threads execute now.
    running: Vec<u64>,
    /// The open clients of each queue.
    clients: Vec<Vec<u64>>,
    client_next: u64,
    counts: Counts,
}

struct Job {
    client: u64,
    queue: usize,
    generation: u64,
    number: u64,
    descriptor: Descriptor,
}

impl Device {
    pub(super) fn new(settings: Settings) -> Self {
        let count = settings.queues.len();
        let state = State {
            life: Life::Running,
            generation: 0,
            is_stopping: false,
            queues: (0..count).map(|_| VecDeque::new()).collect(),
            turn: 0,
            running: Vec::new(),
            clients: vec![Vec::new(); count],
            client_next: 0,
            counts: Counts::default(),
        };
        Self { settings, state: Mutex::new(state), work: Condvar::new(), idle: Condvar::new() }
    }

    /// Registers a client; `None` if the queue is dedicated and has one.
    pub(super) fn open(&self, queue: usize, is_dedicated: bool) -> Option<(u64, u64)> {
        let mut state = self.lock();
        if is_dedicated && !state.clients[queue].is_empty() {
            return None;
        }
        let client = state.client_next;
        state.client_next += 1;
        state.clients[queue].push(client);
        Some((client, state.generation))
    }

    /// Waits until nothing of the client is pending, for at most `bound`, and forgets it. Returns
    /// false if the time was not enough.
    pub(super) fn close(&self, queue: usize, client: u64, bound: Option<Duration>) -> bool {
        let deadline = bound.map(|bound| Instant::now() + bound);
        let mut state = self.lock();
        loop {
            let is_pending = state.queues[queue].iter().any(|job| job.client == client);
            if state.is_stopping || !(is_pending || state.running.contains(&client)) {
                state.clients[queue].retain(|other| *other != client);
                return true;
            }
            let Some(deadline) = deadline else {
                state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.idle.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Puts a descriptor into a queue.
    pub(super) fn submit(
        &self,
        queue: usize,
        client: u64,
        generation: u64,
        descriptor: Descriptor,
    ) -> Submitted {
        let mut state = self.lock();
        state.counts.submitted += 1;
        let number = state.counts.submitted;
        let events = events(&self.settings.injections, number, &descriptor);
        for event in events.iter() {
            match event {
                Event::Remove => self.end(&mut state, Life::Removed),
                Event::Halt => self.end(&mut state, Life::Halted),
                Event::Wedge => state.life = Life::Wedged,
                _ => {}
            }
        }
        match state.life {
            Life::Removed => return Submitted::Gone,
            _ if generation != state.generation => return Submitted::Gone,
            Life::Halted => return Submitted::Accepted,
            Life::Running | Life::Wedged => {}
        }
        let is_full = state.queues[queue].len() >= self.settings.queues[queue].size as usize;
        if is_full || events.contains(&Event::Full) {
            state.counts.full += 1;
            return Submitted::Full;
        }
        state.queues[queue].push_back(Job { client, queue, generation, number, descriptor });
        drop(state);
        self.work.notify_one();
        Submitted::Accepted
    }

    /// Changes what the device does; a reset is a change to [`Life::Running`].
    pub(super) fn change(&self, life: Life) {
        let mut state = self.lock();
        match life {
            Life::Removed | Life::Halted => self.end(&mut state, life),
            Life::Wedged => state.life = life,
            Life::Running => {
                if state.life != Life::Wedged {
                    state.generation += 1;
                }
                state.life = life;
            }
        }
        drop(state);
        self.work.notify_all();
    }

    pub(super) fn life(&self) -> Life {
        self.lock().life
    }

    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Ends the threads and every wait.
    pub(super) fn stop(&self) {
        self.lock().is_stopping = true;
        self.work.notify_all();
        self.idle.notify_all();
    }

    /// Executes descriptors until the device stops: the body of a thread.
    pub(super) fn serve(&self) {
        while let Some(job) = self.next() {
            let completion = self.run(&job);
            let mut state = self.lock();
            let lives = state.life != Life::Removed && state.life != Life::Halted;
            if let Some(completion) =
                completion.filter(|_| lives && job.generation == state.generation)
            {
                self.record(&mut state, &job.descriptor, &completion);
            }
            let at = state.running.iter().position(|client| *client == job.client);
            at.map(|at| state.running.swap_remove(at));
            drop(state);
            self.idle.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the life of all pending descriptors.
    fn end(&self, state: &mut State, life: Life) {
        state.life = life;
        state.queues.iter_mut().for_each(VecDeque::clear);
        self.idle.notify_all();
    }

    /// Waits for the next descriptor, from the queues in turn.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            let count = state.queues.len();
            if state.life == Life::Running {
                for offset in 0..count {
                    let queue = (state.turn + offset) % count;
                    let Some(job) = state.queues[queue].pop_front() else { continue };
                    state.turn = (queue + 1) % count;
                    state.running.push(job.client);
                    return Some(job);
                }
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn limits(&self, queue: usize) -> Limits<'_> {
        Limits {
            queue: &self.settings.queues[queue],
            operations: self.settings.operations(),
            is_strict: self.settings.strict,
        }
    }

    /// Executes a descriptor; `None` if the device ended meanwhile.
    fn run(&self, job: &Job) -> Option<Completion> {
        let limits = self.limits(job.queue);
        let is_batch = job.descriptor.opcode() == Some(Opcode::Batch);
        if is_batch && execute::check(&job.descriptor, &limits).is_ok() {
            return self.batch(job, &limits);
        }
        let events = events(&self.settings.injections, job.number, &job.descriptor);
        self.apply(&job.descriptor, &limits, &events)
    }

    /// Executes a descriptor with what goes wrong in it.
    fn apply(
        &self,
        descriptor: &Descriptor,
        limits: &Limits<'_>,
        events: &[Event],
    ) -> Option<Completion> {
        let (mut planned, mut forced) = (None, None);
        for event in events {
            match *event {
                Event::Delay(delay) => self.delay(delay),
                Event::Fault { byte, access } => planned = Some(Planned { byte, access }),
                Event::Status { byte, bytes } => forced = Some((byte, bytes)),
                _ => {}
            }
        }
        let Some((byte, bytes)) = forced else {
            return Some(execute::execute(descriptor, limits, planned));
        };
        let (status, access) = Status::of(byte);
        if bytes > 0 {
            let planned = Planned { byte: bytes, access: Access::Read };
            let done = execute::execute(descriptor, limits, Some(planned));
            let side =
                if access == Access::Write { descriptor.target() } else { descriptor.source() };
            let fault_address = side.wrapping_add(u64::from(bytes));
            return Some(Completion { status, access, fault_address, ..done });
        }
        Some(Completion { access, ..Completion::of(status, 0) })
    }

    /// Sleeps, but not longer than the device lives.
    fn delay(&self, delay: Duration) {
        let deadline = Instant::now() + delay;
        let mut state = self.lock();
        while !state.is_stopping && state.life != Life::Removed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.idle.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Executes the descriptors of a batch in their order.
    fn batch(&self, job: &Job, limits: &Limits<'_>) -> Option<Completion> {
        let (list, count) = (job.descriptor.source(), job.descriptor.size());
        let Ok(descriptors) = execute::read_list(list, count) else {
            let completion = Completion::of(Status::BatchPageFault, 0);
            return Some(Completion { fault_address: list, ..completion });
        };
        let (mut done, mut has_failed) = (0, false);
        for descriptor in &descriptors {
            if has_failed && descriptor.flags() & flag::FENCE != 0 {
                break;
            }
            let number = {
                let mut state = self.lock();
                state.counts.submitted += 1;
                state.counts.submitted
            };
            let events = events(&self.settings.injections, number, descriptor);
            // A batch within a batch is not an operation.
            let completion = match descriptor.opcode() {
                Some(Opcode::Batch) => Completion::of(Status::Opcode, 0),
                _ => self.apply(descriptor, limits, &events)?,
            };
            if completion.status.is_success() {
                done += 1;
            } else {
                has_failed = true;
            }
            let mut state = self.lock();
            if state.life == Life::Removed || state.life == Life::Halted {
                return None;
            }
            self.record(&mut state, descriptor, &completion);
        }
        let status = if has_failed { Status::BatchFailed } else { Status::Success };
        Some(Completion::of(status, done))
    }

    /// Writes the record of a descriptor, if it has one and asks for it or failed.
    fn record(&self, state: &mut State, descriptor: &Descriptor, completion: &Completion) {
        state.counts.completed += 1;
        let (flags, address) = (descriptor.flags(), descriptor.record_address());
        let is_requested = flags & flag::RECORD_REQUESTED != 0 || !completion.status.is_success();
        if flags & flag::RECORD_VALID == 0 || !is_requested {
            return;
        }
        let is_aligned = address.is_multiple_of(32);
        if !is_aligned || execute::write_record(address, completion).is_err() {
            state.counts.unrecorded += 1;
        }
    }
}

/// The events that concern a descriptor.
fn events(injections: &[Injection], number: u64, descriptor: &Descriptor) -> Vec<Event> {
    if injections.is_empty() {
        return Vec::new();
    }
    let concerns = |one: &&Injection| one.concerns(number, descriptor.opcode_number());
    injections.iter().filter(concerns).map(|one| one.event).collect()
}
