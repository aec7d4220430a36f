//! A thread of the primary process that prepares memory before it is needed, returns idle memory,
//! and reclaims the blocks of dead processes. No call waits for this thread, and the heaps work
//! without it.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::dropin::Dropin;
use crate::extents::NoGrowth;
use crate::mailbox::Mailbox;
use crate::{ask, futex, lifecycle};

/// The period of the thread's checks. The period is long enough that the checks cost nothing, and
/// short enough that a page is ready for a thread that allocates 2 MiB in that time.
const PERIOD: Duration = Duration::from_millis(20);

/// While the program allocates from DPDK, this thread may hold DPDK's lock for at most the time
/// divided by this number, to return memory without a request.
const LOCK_SHARE: u32 = 100;

/// The thread's name. The kernel keeps at most 15 characters.
const NAME: &CStr = c"haul-rte-malloc";

static IS_STOPPING: AtomicBool = AtomicBool::new(false);
static HOUSEKEEPER: Mutex<Option<Housekeeper>> = Mutex::new(None);

/// The thread and its process, because a child of fork does not have the thread.
#[derive(Clone, Copy)]
struct Housekeeper {
    thread: libc::pthread_t,
    process: c_int,
}

/// Starts the thread on the processors of DPDK's control threads.
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
        // string; the thread uses only statics.
        (Some(create), _) => unsafe {
            create(&raw mut thread, NAME.as_ptr(), keep_house, null_mut())
        },
        // SAFETY: as above; NULL selects the default attributes.
        (None, Some(create)) => unsafe {
            let no_attributes = core::ptr::null();
            create(&raw mut thread, NAME.as_ptr(), no_attributes, keep_house_posix, null_mut())
        },
        (None, None) => -1,
    };
    if failed == 0 {
        *housekeeper = Some(Housekeeper { thread, process: process() });
        dropin.directory.mailbox.server.store(process().cast_unsigned(), Ordering::Relaxed);
    }
}

/// Ends the thread, before DPDK's memory is unmapped.
pub(crate) fn stop() {
    let Ok(mut housekeeper) = HOUSEKEEPER.lock() else {
        return;
    };
    let Some(Housekeeper { thread, process: its_process }) = housekeeper.take() else {
        return;
    };
    if its_process == process() {
        IS_STOPPING.store(true, Ordering::Relaxed);
        if let Some(dropin) = lifecycle::current() {
            dropin.directory.mailbox.server.store(0, Ordering::Relaxed);
            futex::wake(&dropin.directory.mailbox.requests);
            // Waiting processes see that there will be no answer.
            dropin.directory.mailbox.answers.fetch_add(1, Ordering::Release);
            futex::wake(&dropin.directory.mailbox.answers);
        }
        // SAFETY: the thread is joinable and is joined once, because it was taken out above.
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
    while !IS_STOPPING.load(Ordering::Relaxed) {
        let Some(dropin) = lifecycle::serving() else {
            break;
        };
        let requests = &dropin.directory.mailbox.requests;
        futex::wait(requests, seen, PERIOD);
        seen = requests.load(Ordering::Acquire);
        dropin.heaps.iter().for_each(|each| each.extents.answer());
        // No thread waits for this memory, so DPDK can be asked for it the next time.
        let is_busy = ask::is_dpdk_busy();
        let no_growth = is_busy.then(NoGrowth::begin);
        dropin.heaps.iter().for_each(|each| _ = each.heap.maintain());
        drop(no_growth);
        let mailbox = &dropin.directory.mailbox;
        mailbox.answer_return(|bytes| dropin.give_back(bytes));
        let is_needed =
            || requests.load(Ordering::Relaxed) != seen || IS_STOPPING.load(Ordering::Relaxed);
        if is_busy {
            continue;
        }
        pace.give_back(mailbox, is_needed, || dropin.give_back(1) > 0);
    }
    0
}

/// The pace at which idle extents are returned. DPDK clears each extent under the lock for which
/// the program's own requests wait, so returning all extents at once would delay these requests
/// by tens of milliseconds. Therefore most extents are returned while no thread uses DPDK's heap,
/// and as soon as possible, because a large request would otherwise have to wait for them.
struct Pace {
    pauses_until: Instant,
    quiet_since: Instant,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self { pauses_until: now, quiet_since: now }
    }

    /// Returns extents one by one until a thread uses DPDK's heap, or until `is_needed` shows
    /// that this thread is needed elsewhere. If a thread has used DPDK's heap recently, returns
    /// at most one extent and then pauses long enough to keep to [`LOCK_SHARE`]. `give_one`
    /// returns one extent, or false if there is none.
    fn give_back(
        &mut self,
        mailbox: &Mailbox,
        is_needed: impl Fn() -> bool,
        mut give_one: impl FnMut() -> bool,
    ) {
        let start = Instant::now();
        if mailbox.is_dpdk_used() {
            mailbox.clear_dpdk_use();
            self.quiet_since = start;
        }
        if start - self.quiet_since >= PERIOD {
            while !mailbox.is_dpdk_used() && !is_needed() && give_one() {}
            return;
        }
        if start >= self.pauses_until && give_one() {
            self.pauses_until = Instant::now() + start.elapsed() * (LOCK_SHARE - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    #[test]
    fn pace_returns_extents_while_dpdk_is_unused() {
        // SAFETY: every field is an atomic integer, for which zero is a valid value.
        let mailbox: Box<Mailbox> = unsafe { Box::new_zeroed().assume_init() };
        let (mut pace, given) = (Pace::new(), Cell::new(0));
        let give = |pace: &mut Pace, left: u32, at_each: &dyn Fn()| {
            given.set(0);
            pace.give_back(
                &mailbox,
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
        mailbox.note_dpdk_use();
        assert_eq!(give(&mut pace, 5, &|| ()), 1, "DPDK was used just now");
        std::thread::sleep(PERIOD);
        assert_eq!(give(&mut pace, 5, &|| ()), 5, "DPDK was not used for a period");
        assert_eq!(give(&mut pace, 5, &|| mailbox.note_dpdk_use()), 1, "DPDK was used meanwhile");
        std::thread::sleep(PERIOD);
        mailbox.note_dpdk_use();
        assert_eq!(give(&mut pace, 0, &|| ()), 0, "the period starts again");
        std::thread::sleep(PERIOD);
        assert_eq!(give(&mut pace, 9, &|| ()), 7, "the thread was needed elsewhere");
    }

    #[test]
    fn pace_keeps_lock_share_while_dpdk_is_used() {
        // SAFETY: as above.
        let mailbox: Box<Mailbox> = unsafe { Box::new_zeroed().assume_init() };
        let (mut pace, mut given, start) = (Pace::new(), 0, Instant::now());
        while start.elapsed() < Duration::from_millis(200) {
            mailbox.note_dpdk_use();
            pace.give_back(
                &mailbox,
                || false,
                || {
                    given += 1;
                    std::thread::sleep(Duration::from_millis(2));
                    true
                },
            );
        }
        // At most one extent is returned in 200 ms.
        assert!((1..=2).contains(&given), "{given}");
    }
}
