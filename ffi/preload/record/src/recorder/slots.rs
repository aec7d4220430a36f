//! The slots of threads: a thread claims one in its first call, and releases it when it ends.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use super::{KEY, State, state};
use crate::filter;
use crate::thread::Thread;

/// The number of the next thread that starts under a filter. The number is above the kernel's
/// thread IDs (PID_MAX_LIMIT, 2^22).
static UNNUMBERED: AtomicU32 = AtomicU32::new(1 << 31);

/// Claims a slot for the calling thread.
#[cold]
pub(super) fn claim(state: &State, process: u64) -> Option<usize> {
    let place = if filter::is_on() {
        // The kernel cannot be asked for the thread's ID, so the thread gets a number that the
        // kernel does not use.
        take(state, UNNUMBERED.fetch_add(1, Ordering::Relaxed))?
    } else {
        let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        take(state, number).or_else(|| {
            free_places_of_the_dead(state);
            take(state, number)
        })?
    };
    let value = ptr::without_provenance::<c_void>(((process << 32) | place as u64) as usize);
    // SAFETY: the recorder created the key, and it is below KEY_MAX, so nothing is allocated.
    unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed), value) };
    Some(place)
}

fn take(state: &State, number: u32) -> Option<usize> {
    let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
    let is_taken =
        |thread: &Thread| thread.owner.compare_exchange(0, number, order, relaxed).is_ok();
    let place = state.threads.iter().position(is_taken)?;
    // The previous owner may have ended in the middle of a call.
    state.threads.get(place)?.reset();
    Some(place)
}

/// Frees the slots of threads that have ended. A thread may allocate after its keys were destroyed,
/// and claim a slot that it never releases.
#[cold]
fn free_places_of_the_dead(state: &State) {
    let process = state.file.process.load(Ordering::Relaxed);
    // SAFETY: the call has no conditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno belongs to this thread and lives as long as it.
    let before = unsafe { errno.read() };
    for thread in &state.threads {
        let number = thread.owner.load(Ordering::Relaxed);
        // SAFETY: signal 0 is not sent: the kernel only checks whether the thread exists.
        let alive = unsafe { libc::syscall(libc::SYS_tgkill, process, number, 0) } == 0;
        if number != 0 && !alive {
            let (order, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = thread.owner.compare_exchange(number, 0, order, relaxed);
        }
    }
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// Releases the slot of a thread that ends. The next owner continues in the slot's block.
pub(super) extern "C" fn leave(value: *mut c_void) {
    let value = value.addr() as u64;
    let Some(state) = state() else { return };
    if value >> 32 == u64::from(state.file.process.load(Ordering::Relaxed))
        && let Some(thread) = state.threads.get((value & 0xffff_ffff) as usize)
    {
        thread.owner.store(0, Ordering::Release);
    }
}
