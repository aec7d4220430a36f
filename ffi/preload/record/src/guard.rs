//! What keeps a trace that somebody cuts from ending the program: a store into a page that the file
//! has no more is SIGBUS. The recorder's action for it puts memory in place of the block; what is
//! not of a block goes to the program's own action, which is kept here and which the program is
//! shown.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::process::Signal;

use crate::real;

/// The program's action for SIGBUS.
struct Kept(UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: written by `install` once, and then as the kernel's own is: by whoever sets an action. A
// program whose threads do so at the same time has either action, or a mixture only of the mask.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new(MaybeUninit::uninit()));

/// The address of ours; 0 before it is set.
static OURS: AtomicUsize = AtomicUsize::new(0);

static IS_ON: AtomicU32 = AtomicU32::new(0);

/// Whether SIGBUS is watched, in this process or in one that it was forked from.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Acquire) != 0
}

/// Has SIGBUS come to `ours`, which hands on by [`forward`] what is not of a trace. Once is enough:
/// a child inherits it.
pub(crate) fn install(ours: Full) {
    if is_on() {
        return;
    }
    OURS.store(ours as *const () as usize, Ordering::Relaxed);
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action it writes the old one.
    if unsafe { real::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: it was written.
    let before = unsafe { before.assume_init() };
    set_kept(before);
    if set(&before) == 0 {
        IS_ON.store(1, Ordering::Release);
    }
}

/// What the program set; [`is_on`] says that there is something.
pub(crate) fn kept() -> libc::sigaction {
    // SAFETY: nobody has a reference to it: it is copied, whole.
    let kept = unsafe { KEPT.0.get().read() };
    // SAFETY: `install` wrote it before `IS_ON`.
    unsafe { kept.assume_init() }
}

fn set_kept(action: libc::sigaction) {
    // SAFETY: as in `kept`.
    unsafe { KEPT.0.get().write(MaybeUninit::new(action)) };
}

/// Keeps the program's new action, and sets ours with what it says of mask and stack.
pub(crate) fn replace(action: libc::sigaction) -> c_int {
    let before = kept();
    // Before it is in force, so that no signal finds the old one.
    set_kept(action);
    let status = set(&action);
    if status != 0 {
        set_kept(before);
    }
    status
}

fn set(action: &libc::sigaction) -> c_int {
    let mut ours = *action;
    // What is ignored stays so: the next program inherits that.
    if action.sa_sigaction != libc::SIG_IGN {
        ours.sa_sigaction = OURS.load(Ordering::Relaxed);
        ours.sa_flags = (ours.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    }
    if action.sa_sigaction == libc::SIG_DFL {
        ours.sa_flags |= libc::SA_ONSTACK;
    }
    // SAFETY: `ours` is a whole action whose function has the signature that SA_SIGINFO asks for.
    unsafe { real::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) }
}

type Plain = unsafe extern "C" fn(c_int);
pub(crate) type Full = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Does what the program wants done for a SIGBUS.
///
/// # Safety
/// From a signal handler, with what the kernel gave it.
pub(crate) unsafe fn forward(
    number: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    is_fault: bool,
) {
    let action = kept();
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        set_kept(libc::sigaction { sa_sigaction: libc::SIG_DFL, ..action });
    }
    match action.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            let default = libc::sigaction { sa_flags: 0, ..action };
            // SAFETY: a whole action, the default one.
            unsafe { real::sigaction(number, &raw const default, ptr::null_mut()) };
            if !is_fault {
                // A fault comes again by itself.
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::BUS);
            }
        }
        function if action.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the program set it with SA_SIGINFO, so that it has this signature.
            let function = unsafe { mem::transmute::<usize, Full>(function) };
            // SAFETY: what the kernel gave.
            unsafe { function(number, info, context) };
        }
        function => {
            // SAFETY: the program set it without SA_SIGINFO, so that it has this signature.
            let function = unsafe { mem::transmute::<usize, Plain>(function) };
            // SAFETY: as the kernel would.
            unsafe { function(number) };
        }
    }
}
