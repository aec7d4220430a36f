//! Child processes that die at a chosen step.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use crate::support::child::in_child;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The child completed its work.
    Finished,
    /// The child was killed at the chosen step.
    Killed,
    /// It failed otherwise.
    Crashed,
}

/// The label at which the child dies: a pointer to the first byte of its text, and its length.
static TARGET: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static TARGET_BYTES: AtomicU64 = AtomicU64::new(0);
/// Passages until death.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Runs `work` in a child that dies when it passes `label` for the `count`th time.
pub(crate) fn kill_at(label: &'static str, count: u64, work: impl FnOnce()) -> End {
    // There must be only one child at a time, but tests run concurrently.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    TARGET.store(label.as_ptr().cast_mut(), SeqCst);
    TARGET_BYTES.store(label.len() as u64, SeqCst);
    LEFT.store(count, SeqCst);
    run(die_at_target, work)
}

/// Runs `work` in a child, with a hook at each step. Neither the hook nor `work` may call malloc.
pub(crate) fn run(hook: fn(&'static str), work: impl FnOnce()) -> End {
    let status = in_child(|| {
        haul_heap::step::set_hook(hook);
        work();
        0
    });
    match status {
        0 => End::Finished,
        _ if status == -libc::SIGKILL => End::Killed,
        _ => End::Crashed,
    }
}

/// Kills this process at the chosen passage of the chosen label. Allocates nothing.
fn die_at_target(label: &'static str) {
    let bytes = TARGET_BYTES.load(SeqCst) as usize;
    if label.len() != bytes {
        return;
    }
    // SAFETY: the parent stored a label's text and its length before the fork.
    let target = unsafe { std::slice::from_raw_parts(TARGET.load(SeqCst), bytes) };
    if label.as_bytes() == target && LEFT.fetch_sub(1, SeqCst) == 1 {
        // SAFETY: the call only returns a number.
        let me = unsafe { libc::getpid() };
        // SAFETY: no pointers are involved; the call does not return.
        unsafe { libc::kill(me, libc::SIGKILL) };
    }
}

/// Words that child processes share with this process. Never freed.
pub(crate) fn shared_words(count: usize) -> &'static [AtomicU64] {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses an unused address.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), count * 8, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the memory was mapped with this size, is zeroed, is never unmapped, and is used
    // only as atomics.
    unsafe { std::slice::from_raw_parts(start.cast(), count) }
}
