use std::sync::atomic::{AtomicUsize, Ordering};

use haul_model::stream::{
    Call, Function as Recording, Header, PAGE_BYTES, Read, ReadsBy, Site, Stream, TimeClass,
};

use super::sites::{Calls, Pointers, SITES};
use super::subjects::{Candidate, select};
use super::track::{OnTrack, Track, is_read};
use super::*;
use crate::copy::Selection;
use crate::copy::operations::FILL_BYTE;
use haul_measure::Subject;

/// A stream with calls of every function from more sites than have a code location of their own,
/// with overlaps in both directions, empty calls, and some sites that read.
fn stream() -> Stream {
    let pages = 20;
    let arena = u64::from(pages * PAGE_BYTES);
    let site = |number: u64| Site {
        module: "prog".into(),
        offset: 0x1000 + number,
        symbol: (number == 0).then(|| "main".into()),
        sampled: number % 3 * 10,
        read_soon: number % 3 * 5,
    };
    let sites: Vec<Site> = (0..100).map(site).collect();
    let mut random = haul_measure::random::Random::new(1);
    let mut call = |at: usize| {
        let size = [0, 1, 7, 16, 31, 64, 100, 128, 300, 5000][random.below(10)];
        let mut offset = || random.below(arena as usize - size) as u32;
        let (target, source) = (offset(), offset());
        let near = target.saturating_sub(40);
        let (function, source) = match at % 4 {
            0 => (Recording::Memcpy, Some(source)),
            1 => (Recording::Memmove, Some(near)),
            2 => (Recording::Memset { zero: at.is_multiple_of(8) }, None),
            _ => (Recording::Memcpy, Some(if at.is_multiple_of(3) { near } else { source })),
        };
        let site = (at % 100).min(at % 7 * 20) as u16;
        let (since, read) = (TimeClass::default(), Read::Unknown);
        Call { function, site, size: size as u32, target, source, since, read }
    };
    let calls: Vec<Call> = (0..5000).map(&mut call).collect();
    let header = Header {
        program: "prog".into(),
        about: "a test".into(),
        time: "2026-11-27T06:00:00Z".into(),
        machine: "test".into(),
        libc: "test".into(),
        thread: 0,
        process_calls: 5000,
        thread_calls: 5000,
        skipped: 0,
        left_out: 0,
        reads_by: ReadsBy::Breakpoint,
        pages,
    };
    Stream { header, sites, calls }
}

#[test]
fn every_subject_leaves_the_bytes_that_the_calls_ask_for() {
    let stream = stream();
    // The oracle of the calls, apart from the one of the proof.
    let mut expected = vec![0; stream.arena_bytes() as usize];
    expected.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    for call in &stream.calls {
        let (target, size) = (call.target as usize, call.size as usize);
        match (call.function, call.source) {
            (Recording::Memset { zero }, _) => {
                expected[target..target + size].fill(if zero { 0 } else { FILL_BYTE });
            }
            (_, source) => {
                let source = source.unwrap() as usize;
                let bytes = expected[source..source + size].to_vec();
                expected[target..target + size].copy_from_slice(&bytes);
            }
        }
    }
    let mut track = Track::new(&stream).unwrap();
    let candidates = select(&Selection::Kernels).unwrap();
    let names: Vec<&str> = candidates.iter().map(|it| it.name).collect();
    assert!(["libc", "haul", "scalar", "empty"].iter().all(|it| names.contains(it)), "{names:?}");
    for candidate in candidates.iter().filter(|it| !it.is_empty()) {
        track.prove("prog", &[*candidate]).unwrap();
        let arena = &track.arena()[..expected.len()];
        assert!(*arena == *expected, "{}", candidate.name);
    }
}

static COPIED: AtomicUsize = AtomicUsize::new(0);
static MOVED: AtomicUsize = AtomicUsize::new(0);
static FILLED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_copy(target: *mut u8, _: *const u8, _: usize) -> *mut u8 {
    COPIED.fetch_add(1, Ordering::Relaxed);
    target
}

unsafe extern "C" fn count_move(target: *mut u8, _: *const u8, _: usize) -> *mut u8 {
    MOVED.fetch_add(1, Ordering::Relaxed);
    target
}

unsafe extern "C" fn count_fill(target: *mut u8, _: i32, _: usize) -> *mut u8 {
    FILLED.fetch_add(1, Ordering::Relaxed);
    target
}

#[test]
fn each_call_runs_once_in_each_pass() {
    let stream = stream();
    let track = Track::new(&stream).unwrap();
    let pointers = Pointers { copy: count_copy, copy_within: count_move, fill: count_fill };
    let candidate = Candidate { name: "count", calls: Calls::Pointers(pointers) };
    let subject = OnTrack::new(candidate, &track);
    subject.run(0, 3 * track.calls() as u64);
    let counts = [&COPIED, &MOVED, &FILLED].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts.iter().sum::<usize>(), 3 * stream.calls.len());
    // The same calls from other locations.
    for round in [8, 80, 504] {
        subject.prepare(0, round, 0);
        for count in [&COPIED, &MOVED, &FILLED] {
            count.store(0, Ordering::Relaxed);
        }
        subject.run(0, 3 * track.calls() as u64);
        let shifted = [&COPIED, &MOVED, &FILLED].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(shifted, counts, "round {round}");
    }
    // A memcpy that overlaps is a memmove.
    let count = |is: &dyn Fn(&Call) -> bool| stream.calls.iter().filter(|call| is(call)).count();
    let is_near = |call: &Call| {
        call.function == Recording::Memcpy && call.source.unwrap().abs_diff(call.target) < call.size
    };
    let near = count(&is_near);
    assert!(near > 100, "{near}");
    let copies = count(&|call| call.function == Recording::Memcpy);
    let moves = count(&|call| call.function == Recording::Memmove);
    assert_eq!(counts[..2], [3 * (copies - near), 3 * (moves + near)]);
}

/// Calls by the wrong function are found, and so is a byte beyond a target.
#[test]
fn proof_rejects_wrong_subjects() {
    let mut track = Track::new(&stream()).unwrap();
    let pointers = Pointers { copy: count_copy, copy_within: count_move, fill: count_fill };
    let candidate = Candidate { name: "broken", calls: Calls::Pointers(pointers) };
    let error = track.prove("prog", &[candidate]).unwrap_err().to_string();
    assert!(error.contains("broken") && error.contains("figures are withheld"), "{error}");
}

#[test]
fn sites_read_if_half_of_their_observed_targets_are_read_soon() {
    let mut stream = stream();
    stream.sites[0] = Site { sampled: 10, read_soon: 4, ..stream.sites[0].clone() };
    stream.sites[1] = Site { sampled: 10, read_soon: 5, ..stream.sites[1].clone() };
    stream.sites[2] = Site { sampled: 0, read_soon: 0, ..stream.sites[2].clone() };
    assert_eq!([0, 1, 2].map(|site| is_read(&stream, site)), [false, true, false]);
}

/// The busiest sites have a code location each. The others share one, which is not one of these.
#[test]
fn busiest_sites_have_locations_of_their_own() {
    let stream = stream();
    let places = track::places(&stream);
    let mut order: Vec<usize> = (0..stream.sites.len()).collect();
    let counts = track::calls_by_site(&stream);
    order.sort_by_key(|site| std::cmp::Reverse(counts[*site]));
    let own: Vec<usize> = order[..SITES - 1].iter().map(|site| places[*site]).collect();
    assert_eq!(own, (0..SITES - 1).collect::<Vec<_>>());
    assert!(order[SITES - 1..].iter().all(|site| places[*site] == SITES - 1));
}

/// A site has a location for some rounds, and each location in turn.
#[test]
fn sites_change_locations_between_rounds() {
    let shifts: Vec<usize> = (0..512).map(track::shift_in).collect();
    assert!(shifts.chunks(8).all(|rounds| rounds.iter().all(|shift| *shift == rounds[0])));
    let mut seen: Vec<usize> = shifts.iter().copied().step_by(8).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..SITES).collect::<Vec<_>>());
}

#[test]
fn built_in_streams_can_be_replayed() {
    assert_eq!(recorded::built_in().len(), recorded::names().count());
    for found in recorded::built_in() {
        assert!(!found.stream.calls.is_empty() && found.file.is_none());
    }
}
