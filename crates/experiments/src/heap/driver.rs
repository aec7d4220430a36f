//! The child process that drives one heap. The process starts the requested heap, performs the
//! tasks in sequence, each on all its threads, and ends when its run closes the conversation.
//!
//! `malloc` belongs to a process, so libc's `malloc` and preloaded ones can only be compared in
//! separate processes. The conversation uses standard input, a socket, so that the output of a
//! library cannot be mixed into the conversation.

use std::io;

use haul_machine::sys::Sys;
use haul_measure::clock::Clock;
use haul_measure::crew::{self, Crew, Meeting};

use super::allocator::{Allocator, c::C, dpdk::Dpdk, haul::Haul};
use super::peers::Peer;
use super::protocol::{Reply, Start, Task};
use super::work::{Found, Harness, payload_bytes};
use crate::drive::{self, Conversation};
use crate::error::Error;

/// Serves one conversation on standard input, a Unix socket, until the other side closes it.
///
/// # Errors
/// Standard input is not a socket, or it ends in the middle of a line.
pub fn serve() -> Result<(), Error> {
    drive::serve(converse)
}

fn converse(mut run: Conversation) -> io::Result<()> {
    let Some(start) = run.hear_message::<Start>()? else { return Ok(()) };
    let failed = match start.peer {
        Peer::Dpdk => Dpdk::new(&start).map(|heap| drive(&heap, &start, &mut run)),
        Peer::Haul => Haul::new(&start).map(|heap| drive(&heap, &start, &mut run)),
        Peer::Libc | Peer::Mimalloc | Peer::Jemalloc | Peer::Tcmalloc => {
            C::new(start.peer).map(|heap| drive(&heap, &start, &mut run))
        }
    };
    match failed {
        Ok(driven) => driven,
        Err(reason) => run.say_message(&Reply::Failed { reason }),
    }
}

/// Performs tasks on this heap until the run closes the conversation.
fn drive<A: Allocator>(heap: &A, start: &Start, run: &mut Conversation) -> io::Result<()> {
    let harness = Harness::new(heap, start);
    let machine = Sys::new();
    let resident_start = machine.resident_bytes();
    let work =
        |thread: usize, task: &Task, meeting: &Meeting<'_>| harness.perform(thread, task, meeting);
    let driven = crew::with_crew(start.threads, &start.cpus, &work, |crew, _| {
        run.say_message(&Reply::Ready { version: heap.version(), pages: heap.pages() })?;
        while let Some(task) = run.hear_message::<Task>()? {
            let resident = || Some((machine.resident_bytes()? as f64, resident_start? as f64));
            run.say_message(&answer(crew, &task, resident))?;
        }
        Ok(())
    });
    driven.unwrap_or_else(|error| run.say_message(&Reply::Failed { reason: error.to_string() }))
}

fn answer(
    crew: &Crew<'_, Task, Result<Found, String>>,
    task: &Task,
    resident: impl Fn() -> Option<(f64, f64)>,
) -> Reply {
    let found = match crew.together(task) {
        Ok(found) => found.into_iter().collect::<Result<Vec<Found>, String>>(),
        Err(panic) => Err(format!("thread {}: {}", panic.thread, panic.message)),
    };
    let grown = || {
        let (now, start) = resident()?;
        Some((now - start).max(0.0))
    };
    let values = found.and_then(|found| {
        let hit = found.iter().flat_map(|found| &found.samples).any(|sample| sample.is_hit());
        let unknown = || "/proc/self/smaps_rollup has no resident bytes".to_owned();
        let values = match task {
            Task::Footprint => vec![grown().ok_or_else(unknown)?, payload_bytes(&found)],
            Task::Residue | Task::Load { .. } => vec![grown().ok_or_else(unknown)?],
            Task::Replay { .. } => vec![joint_ns(&found), grown().ok_or_else(unknown)?],
            Task::Repeat { .. } => own_ns(&found).into_iter().chain([joint_ns(&found)]).collect(),
            Task::NoBulk { .. } | Task::Latency { .. } | Task::Zeroed { .. } => mean_values(&found),
            Task::Grow { .. } | Task::Release | Task::Bulk { .. } => own_ns(&found),
        };
        Ok((values, hit))
    });
    match values {
        Ok((values, hit)) => Reply::Done { values, hit },
        Err(reason) => Reply::Failed { reason },
    }
}

/// Nanoseconds per operation, for each timed part: the mean of the threads' times.
fn own_ns(found: &[Found]) -> Vec<f64> {
    let things = found.first().map_or(0, |found| found.samples.len());
    let each = |found: &Found, thing: usize| {
        found.samples[thing].own_ns() / found.operations.max(1) as f64
    };
    let mean = |thing| found.iter().map(|found| each(found, thing)).sum::<f64>();
    (0..things).map(|thing| mean(thing) / found.len() as f64).collect()
}

/// Nanoseconds per operation of one thread, from the start of all threads to the end of the last
/// thread. This figure shows the speed of all threads together, however they share their CPUs.
fn joint_ns(found: &[Found]) -> f64 {
    let samples = || found.iter().flat_map(|found| &found.samples);
    let start = samples().map(|sample| sample.start).min().unwrap_or(0);
    let end = samples().map(|sample| sample.end).max().unwrap_or(0);
    let operations = found.first().map_or(1, |found| found.operations.max(1));
    Clock::get().ns_between(start, end) / operations as f64
}

/// The means over the threads of the figures that are not divided by the number of operations.
fn mean_values(found: &[Found]) -> Vec<f64> {
    let figures = found.first().map_or(0, |found| found.values.len());
    let mean = |figure: usize| found.iter().map(|found| found.values[figure]).sum::<f64>();
    (0..figures).map(|figure| mean(figure) / found.len() as f64).collect()
}
