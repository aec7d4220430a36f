//! The arena and the calls of a stream, and the subject that runs on them.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};

use haul_measure::interleave::LEAD_IN_DIVISOR;
use haul_measure::memory::{HUGE_PAGE_BYTES, Pages, Region};
use haul_measure::{Error as MeasureError, Subject};
use haul_model::stream::{Call, Function, Stream};

use super::sites::{Called, Entry, SITES};
use super::subjects::Candidate;
use crate::copy::operations::READ_SLACK_BYTES;
use crate::error::Error;

/// A site counts as a reader if at least this share of its observed targets is read soon.
const READ_SHARE_MIN: f64 = 0.5;

/// The most untimed calls before each sample, which warm up caches and predictors: the last eighth
/// of the stream.
const LEAD_IN_CALLS_MAX: usize = 32 << 10;

/// The number of rounds with the same locations.
const ROUNDS_PER_SHIFT: u64 = 8;

/// From one shift to the next: odd, so that every shift comes, and neighbours differ in many bits.
const SHIFT_STEP: usize = 37;

/// The arena, which all subjects share, and the calls.
#[derive(Debug)]
pub struct Track {
    region: Region,
    entries: Vec<Entry>,
}

impl Track {
    /// Allocates the arena of a stream, and gives each site of its calls a code location.
    ///
    /// # Errors
    /// The machine does not have enough memory.
    pub fn new(stream: &Stream) -> Result<Self, MeasureError> {
        Self::of_calls(stream, |_| true)
    }

    /// Like [`Self::new`], with the calls of one site alone.
    ///
    /// # Errors
    /// The machine does not have enough memory.
    pub fn of_site(stream: &Stream, site: u16) -> Result<Self, MeasureError> {
        Self::of_calls(stream, |call| call.site == site)
    }

    fn of_calls(stream: &Stream, is_wanted: impl Fn(&Call) -> bool) -> Result<Self, MeasureError> {
        let bytes = stream.arena_bytes() as usize + READ_SLACK_BYTES;
        // Whole huge pages, as for other workloads: the location of base pages in L2 is random.
        let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        let region = Region::touched(bytes, Pages::Huge)?;
        let places = places(stream);
        let entry = |call: &Call| entry(call, stream, places[usize::from(call.site)]);
        let entries = stream.calls.iter().filter(|call| is_wanted(call)).map(entry).collect();
        Ok(Self { region, entries })
    }

    /// The arena. No run may be in progress.
    pub fn arena(&mut self) -> &[u8] {
        self.region.as_mut_slice()
    }

    /// The number of calls.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.entries.len()
    }

    /// The share of calls after which the target's first 8 bytes are read.
    #[must_use]
    pub fn read_share(stream: &Stream) -> f64 {
        let read = stream.calls.iter().filter(|call| is_read(stream, call.site)).count();
        read as f64 / stream.calls.len().max(1) as f64
    }

    /// Performs all calls once with each candidate, from the same bytes, and compares every byte of
    /// the arena with the expected one.
    ///
    /// # Errors
    /// [`Error::WrongStream`] for the first wrong byte, or there is no memory for the expected
    /// bytes.
    pub fn prove(&mut self, name: &str, candidates: &[Candidate]) -> Result<(), Error> {
        let mut expected = Region::new(self.region.bytes(), Pages::Unsaid)?;
        let expected = expected.as_mut_slice();
        pattern(expected);
        for entry in &self.entries {
            perform(*entry, expected);
        }
        for candidate in candidates.iter().filter(|candidate| !candidate.is_empty()) {
            pattern(self.region.as_mut_slice());
            // SAFETY: as in `run`; the region is borrowed mutably.
            unsafe { candidate.calls.run(&self.entries, 0, self.region.pointer(), 1) };
            let found = self.region.as_mut_slice();
            if found == expected {
                continue;
            }
            let mut pairs = found.iter().zip(&*expected);
            if let Some(offset) = pairs.position(|(found, expected)| found != expected) {
                let (subject, stream) = (candidate.name.to_owned(), name.to_owned());
                return Err(Error::WrongStream { subject, stream, offset });
            }
        }
        Ok(())
    }
}

/// The code location of each site: the sites with the most calls have one each, and the others
/// share the last one.
pub(super) fn places(stream: &Stream) -> Vec<usize> {
    let mut order: Vec<usize> = (0..stream.sites.len()).collect();
    let counts = calls_by_site(stream);
    order.sort_by_key(|site| Reverse(counts[*site]));
    let mut places = vec![0; order.len()];
    for (rank, site) in order.into_iter().enumerate() {
        places[site] = rank.min(SITES - 1);
    }
    places
}

/// The number of calls from each site.
#[must_use]
pub fn calls_by_site(stream: &Stream) -> Vec<usize> {
    let mut counts = vec![0; stream.sites.len()];
    for call in &stream.calls {
        counts[usize::from(call.site)] += 1;
    }
    counts
}

/// Whether the targets of this site are read right after the call. Sites that were not observed
/// have no reader.
#[must_use]
pub fn is_read(stream: &Stream, site: u16) -> bool {
    let share = stream.sites[usize::from(site)].read_share();
    share.is_some_and(|share| share >= READ_SHARE_MIN)
}

fn entry(call: &Call, stream: &Stream, place: usize) -> Entry {
    let source = call.source.unwrap_or_default();
    let is_apart = source.abs_diff(call.target) >= call.size;
    let (called, source) = match call.function {
        // A program that copies between areas that overlap with memcpy relies on a memcpy that
        // allows it, as haul's and glibc's do. memmove guarantees it.
        Function::Memcpy if is_apart => (Called::Memcpy, source),
        Function::Memcpy | Function::Memmove => (Called::Memmove, source),
        Function::Memset { zero } => (Called::Memset, Entry::byte(zero)),
    };
    Entry::new((place, called, is_read(stream, call.site)), call.target, source, call.size)
}

/// Performs a call as the standard library does.
fn perform(entry: Entry, arena: &mut [u8]) {
    let (called, target, source, size) = entry.parts();
    match called {
        Called::Memset => arena[target..target + size].fill(source as u8),
        Called::Memcpy | Called::Memmove => arena.copy_within(source..source + size, target),
    }
}

/// Bytes that repeat after 251, a prime, so that no shifted copy is equal.
fn pattern(bytes: &mut [u8]) {
    let period: [u8; 251] = std::array::from_fn(|index| index as u8);
    for chunk in bytes.chunks_mut(period.len()) {
        chunk.copy_from_slice(&period[..chunk.len()]);
    }
}

/// The shift of the sites' locations in a round. A shift holds for some rounds, so that predictors
/// know the locations as in a program that runs for long.
pub(super) fn shift_in(round: u64) -> usize {
    (round / ROUNDS_PER_SHIFT) as usize * SHIFT_STEP % SITES
}

/// A candidate on a track, on one thread.
#[derive(Debug)]
pub struct OnTrack<'a> {
    candidate: Candidate,
    track: &'a Track,
    /// The shift of the sites' locations in this round.
    shift: AtomicUsize,
}

impl<'a> OnTrack<'a> {
    /// The candidate on this track.
    #[must_use]
    pub fn new(candidate: Candidate, track: &'a Track) -> Self {
        Self { candidate, track, shift: AtomicUsize::new(0) }
    }

    fn perform(&self, entries: &[Entry], passes: u64) {
        let base = self.track.region.pointer();
        let shift = self.shift.load(Ordering::Relaxed);
        // SAFETY: every call of a valid stream lies in its arena, which the region contains with
        // the slack after it. A replay has one thread, and takes one sample at a time.
        unsafe { self.candidate.calls.run(entries, shift, base, passes) };
    }
}

impl Subject for OnTrack<'_> {
    fn name(&self) -> &str {
        self.candidate.name
    }

    /// Gives the sites their locations in this round, and performs the end of the stream, after
    /// which its beginning follows.
    fn prepare(&self, _: usize, round: u64, _: u64) {
        self.shift.store(shift_in(round), Ordering::Relaxed);
        let entries = &self.track.entries;
        let count = (entries.len() / LEAD_IN_DIVISOR as usize).min(LEAD_IN_CALLS_MAX);
        self.perform(&entries[entries.len() - count..], 1);
    }

    /// `iterations` is a multiple of the number of calls.
    fn run(&self, _: usize, iterations: u64) {
        self.perform(&self.track.entries, iterations / self.track.calls().max(1) as u64);
    }
}
