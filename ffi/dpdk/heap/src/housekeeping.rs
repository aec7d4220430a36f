//! A thread of the primary process that keeps memory ready before it is needed, gives back what is
//! idle, and cleans up after processes that died. Nothing waits for it, and everything works
//! without.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::counter::Counter;
use crate::dropin::Dropin;
use crate::extents::Sparing;
use crate::{ask, futex, lifecycle};

/// How often it looks: rarely enough to cost nothing, often enough that a page is ready when a
/// thread that allocates 2 MiB in that time wants one.
const PERIOD: Duration = Duration::from_millis(20);

/// While DPDK is asked for memory, one part in so many of the time at most is spent under its lock
/// to give memory back that nobody asked for.
const LOCK_SHARE: u32 = 100;

/// At most 15 characters, as the kernel keeps them.
const NAME: &CStr = c"haul-rte-malloc";

static IS_ASKED_TO_STOP: AtomicBool = AtomicBool::new(false);
static HOUSEKEEPER: Mutex<Option<Housekeeper>> = Mutex::new(None);

/// The thread, and the process that it lives in: a fork has not got it.
#[derive(Clone, Copy)]
struct Housekeeper {
    thread: libc::pthread_t,
    process: c_int,
}

/// Starts it where DPDK runs threads that serve no packets.
pub(crate) fn start(dropin: &'static Dropin) {
    let Ok(mut housekeeper) = HOUSEKEEPER.lock() else {
        return;
    };
    if !dropin.is_primary || housekeeper.is_some() {
        return;
    }
    let mut thread = 0;
    let functions = dropin.functions;
    let failed = match (functions.rte_thread_create_control, functions.rte_ctrl_thread_create) {
        // SAFETY: the thread's number is written before the function returns; the name is a C
        // string; the thread uses nothing but statics.
        (Some(create), _) => unsafe {
            create(&raw mut thread, NAME.as_ptr(), keep_house, null_mut())
        },
        // SAFETY: as above; without attributes there are the usual ones.
        (None, Some(create)) => unsafe {
            let no_attributes = core::ptr::null();
            create(&raw mut thread, NAME.as_ptr(), no_attributes, keep_house_posix, null_mut())
        },
        (None, None) => -1,
    };
    if failed == 0 {
        *housekeeper = Some(Housekeeper { thread, process: process() });
        dropin.directory.counter.clerk.store(process().cast_unsigned(), Ordering::Relaxed);
    }
}

/// Ends it, before DPDK's memory goes.
pub(crate) fn stop() {
    let Ok(mut housekeeper) = HOUSEKEEPER.lock() else {
        return;
    };
    let Some(Housekeeper { thread, process: its_process }) = housekeeper.take() else {
        return;
    };
    if its_process == process() {
        IS_ASKED_TO_STOP.store(true, Ordering::Relaxed);
        if let Some(dropin) = lifecycle::current() {
            dropin.directory.counter.clerk.store(0, Ordering::Relaxed);
            futex::wake(&dropin.directory.counter.requests);
            // Whoever waits for an answer sees that there will be none.
            dropin.directory.counter.answers.fetch_add(1, Ordering::Release);
            futex::wake(&dropin.directory.counter.answers);
        }
        // SAFETY: the thread was made joinable, and is joined once: it was taken out above.
        unsafe { libc::pthread_join(thread, null_mut()) };
    }
}

fn process() -> c_int {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

extern "C" fn keep_house_posix(argument: *mut c_void) -> *mut c_void {
    keep_house(argument);
    null_mut()
}

extern "C" fn keep_house(_: *mut c_void) -> u32 {
    let mut seen = 0;
    let mut pace = Pace::new();
    while !IS_ASKED_TO_STOP.load(Ordering::Relaxed) {
        let Some(dropin) = lifecycle::serving() else {
            break;
        };
        let requests = &dropin.directory.counter.requests;
        futex::wait(requests, seen, PERIOD);
        seen = requests.load(Ordering::Acquire);
        dropin.heaps.iter().for_each(|each| each.extents.answer());
        // What nobody waits for can be had from DPDK the next time.
        let is_busy = ask::is_dpdk_busy();
        let sparing = is_busy.then(Sparing::begin);
        dropin.heaps.iter().for_each(|each| _ = each.heap.maintain());
        drop(sparing);
        let counter = &dropin.directory.counter;
        counter.answer_back(|bytes| dropin.give_back(bytes));
        let is_needed =
            || requests.load(Ordering::Relaxed) != seen || IS_ASKED_TO_STOP.load(Ordering::Relaxed);
        if is_busy {
            continue;
        }
        pace.give_back(counter, is_needed, || dropin.give_back(1) > 0);
    }
    0
}

/// When idle extents go back. DPDK clears each, under the lock that the program's own requests of
/// it wait for: all at once they would wait for tens of milliseconds. So most go while nobody asks
/// DPDK for anything, and as soon as that is so: then those are idle that a large request would
/// wait for.
struct Pace {
    rests_until: Instant,
    quiet_since: Instant,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self { rests_until: now, quiet_since: now }
    }

    /// Gives back, one by one, until somebody asks DPDK for something or this thread `is_needed`.
    /// Where somebody asked lately it gives at most one back, and rests as much longer as keeps to
    /// [`LOCK_SHARE`]. `give_one` says whether there was one.
    fn give_back(
        &mut self,
        counter: &Counter,
        is_needed: impl Fn() -> bool,
        mut give_one: impl FnMut() -> bool,
    ) {
        let start = Instant::now();
        if counter.was_asked() {
            counter.forget_asked();
            self.quiet_since = start;
        }
        if start - self.quiet_since >= PERIOD {
            while !counter.was_asked() && !is_needed() && give_one() {}
            return;
        }
        if start >= self.rests_until && give_one() {
            self.rests_until = Instant::now() + start.elapsed() * (LOCK_SHARE - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    #[test]
    fn extents_go_while_nobody_asks_dpdk() {
        // SAFETY: every field is an atomic integer, which zero is a value of.
        let counter: Box<Counter> = unsafe { Box::new_zeroed().assume_init() };
        let (mut pace, given) = (Pace::new(), Cell::new(0));
        let give = |pace: &mut Pace, left: u32, at_each: &dyn Fn()| {
            given.set(0);
            pace.give_back(
                &counter,
                || given.get() == 7,
                || {
                    let is_there = given.get() < left;
                    given.set(given.get() + u32::from(is_there));
                    at_each();
                    is_there
                },
            );
            given.get()
        };
        counter.note_asked();
        assert_eq!(give(&mut pace, 5, &|| ()), 1, "somebody asked just now");
        std::thread::sleep(PERIOD);
        assert_eq!(give(&mut pace, 5, &|| ()), 5, "nobody asked for as long");
        assert_eq!(give(&mut pace, 5, &|| counter.note_asked()), 1, "somebody asked meanwhile");
        std::thread::sleep(PERIOD);
        counter.note_asked();
        assert_eq!(give(&mut pace, 0, &|| ()), 0, "it starts again");
        std::thread::sleep(PERIOD);
        assert_eq!(give(&mut pace, 9, &|| ()), 7, "it was needed elsewhere");
    }

    #[test]
    fn where_dpdk_is_asked_all_the_time_a_share_of_it_is_kept() {
        // SAFETY: as above.
        let counter: Box<Counter> = unsafe { Box::new_zeroed().assume_init() };
        let (mut pace, mut given, start) = (Pace::new(), 0, Instant::now());
        while start.elapsed() < Duration::from_millis(200) {
            counter.note_asked();
            pace.give_back(
                &counter,
                || false,
                || {
                    given += 1;
                    std::thread::sleep(Duration::from_millis(2));
                    true
                },
            );
        }
        // One in 200 ms at most.
        assert!((1..=2).contains(&given), "{given}");
    }
}
