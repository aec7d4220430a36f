//! SIGBUS, caught for memory of files that other processes can take away.
//!
//! A page of a mapped file is gone once the file is truncated, or once a hole is punched into it
//! and the next access gets no page: the pool of huge pages is empty, or the system commits no more
//! memory. The access then raises a signal, which ends the process. Memory that another process can
//! take away like this is mapped under a [`Guard`]: the signal handler puts private zeros in the
//! place of the page and marks the guard. The interrupted access continues with the zeros, as if
//! the peer had written them. The user of the memory checks [`Guard::is_broken`] after a burst and
//! gives the memory up.
//!
//! A process that may get no more memory, because of its own limit or strict overcommit, gets one
//! spare page in the place of every missing page.
//!
//! Every other SIGBUS has the effect that it has without the guard: the handler that was
//! installed before runs, with its own flags and mask; the default action ends the process. A
//! program that later sets its own handler takes the signal away until [`install`] is called
//! again. Users of guarded memory call it now and then, and every new guard calls it. From then
//! on, faults that are not the guard's go to the program's handler, and a signal that this
//! handler passes on goes to the handler before it. For this, each installed handler of the guard
//! is a separate function with its own level, which determines the action that it passes on to.
//!
//! From the bottom up:
//!
//! - `table`: which mappings are guarded;
//! - `kept`: the process's own actions for the signal.

mod kept;
mod table;

use core::ffi::c_void;
use core::mem;
use core::sync::atomic::{AtomicBool, AtomicUsize};

use crate::sync::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sys::signal::{self, BUS, DEFAULT, IGNORE, flag};
use crate::sys::{self, Errno, memory};

pub use kept::Action;
use kept::Kept;
use table::Mapped;

/// The most handlers of the program over which the guard installs itself again.
const LEVELS_MAX: usize = 16;

/// The most pages of a mapping that are replaced one by one, so that its intact pages stay. After
/// that many, the whole mapping is replaced, because a process has a limited number of mappings
/// (`vm.max_map_count`, 65,530).
const PAGES_MAX: u32 = 256;

/// The codes of a fault, `si_code` of sigaction(2): an address that does not exist, an error of the
/// object, a memory error.
const BUS_FAULTS: [i32; 3] = [2, 3, 4];

/// The last code of a fault. Higher codes are notifications, and codes below 1 were sent by a
/// process.
const BUS_MCEERR_AR: i32 = 4;

type Entry = unsafe extern "C" fn(i32, *mut Info, *mut c_void);
type Plain = unsafe extern "C" fn(i32);

/// The description of a signal: the part of `siginfo_t` that is used here, in the kernel's layout
/// for 64 bits.
#[repr(C)]
struct Info {
    signal: i32,
    error: i32,
    code: i32,
    _space: i32,
    address: usize,
}

const _: () = assert!(mem::offset_of!(Info, code) == 8 && mem::offset_of!(Info, address) == 16);

/// The action to which each level passes a signal on.
static KEPT: [Kept; LEVELS_MAX] = [const { Kept::new() }; LEVELS_MAX];

/// One more than the highest level that was ever installed.
static LEVELS_USED: AtomicU32 = AtomicU32::new(0);

/// The page that replaces a missing one if no other page is available.
static SPARE: AtomicUsize = AtomicUsize::new(0);

/// A function that decides whether a fault belongs to its owner; 0 if there is none.
static OTHER: AtomicUsize = AtomicUsize::new(0);

/// Whether a thread is installing the handler.
static IS_INSTALLING: AtomicBool = AtomicBool::new(false);

/// A mapping whose pages may be taken away. It must be dropped before the mapping is unmapped.
#[derive(Debug)]
pub struct Guard {
    index: usize,
}

impl Guard {
    /// Guards a readable mapping of the caller, of whole pages of `page_bytes` bytes. The caller
    /// must accept any bytes in it. Two system calls.
    ///
    /// # Errors
    /// `NFILE` if 16,384 mappings are guarded already; the kernel's error if the handler cannot be
    /// installed.
    pub fn new(start: usize, bytes: usize, page_bytes: usize) -> Result<Self, Errno> {
        debug_assert!(page_bytes.is_power_of_two() && bytes.is_multiple_of(page_bytes));
        install()?;
        let mapped = Mapped { start, end: start + bytes, page_bytes };
        table::take(mapped).map(|index| Self { index }).ok_or(Errno::NFILE)
    }

    /// Whether pages of it were gone when they were accessed. These pages are now private to this
    /// process.
    #[inline]
    pub fn is_broken(&self) -> bool {
        table::is_broken(self.index)
    }

    /// Marks the mapping as whole again, after the caller has replaced it.
    pub fn mended(&self) {
        table::mended(self.index);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        table::give_back(self.index);
    }
}

/// Installs the handler if it is not installed, also in a process that ignores the signal, and
/// unblocks the signal in this thread. One or two system calls.
///
/// # Errors
/// The kernel's error; `USERS` if the program has set 16 handlers over the guard's.
pub fn install() -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    signal::unblock(BUS);
    if SPARE.load(Relaxed) == 0 {
        SPARE.store(memory::spare(sys::machine::page_bytes())?, Release);
    }
    install_over(signal::action(BUS)?)
}

/// Like [`install`], for a recorder: `other` decides whether a fault is the recorder's. An
/// ignored signal stays ignored, because the next program inherits that.
///
/// # Errors
/// Those of [`install`].
pub fn install_for(other: fn(usize) -> bool) -> Result<(), Errno> {
    OTHER.store(other as *const () as usize, Release);
    let before = signal::action(BUS)?;
    if before.handler != IGNORE {
        return install();
    }
    KEPT[0].set(before);
    LEVELS_USED.fetch_max(1, AcqRel);
    Ok(())
}

/// Whether the guard was installed, in this process or in one that it was forked from.
pub fn is_on() -> bool {
    LEVELS_USED.load(Acquire) > 0
}

/// The program's own action for the signal, once the guard [`is_on`].
pub fn kept() -> Action {
    KEPT[top()].get()
}

/// Sets the program's action for the signal, to which faults that are not the guard's go from now
/// on.
///
/// # Safety
/// The action's handler is a default, or a function that may run as a handler.
///
/// # Errors
/// The kernel's error; nothing has changed then.
pub unsafe fn keep(action: Action) -> Result<(), Errno> {
    let level = top();
    let before = KEPT[level].get();
    // Set before the installation, so that no signal finds the old action.
    KEPT[level].set(action);
    // An ignored signal stays ignored: the next program inherits that.
    let new = if action.handler == IGNORE { action } else { ours(level, action) };
    // SAFETY: it ignores the signal, or is an entry of the guard, which calls the caller's handler.
    let set = unsafe { signal::set_action(BUS, new) };
    if set.is_err() {
        KEPT[level].set(before);
    }
    set.map(drop)
}

fn top() -> usize {
    (LEVELS_USED.load(Acquire) as usize).saturating_sub(1)
}

/// Installs the guard in front of an action that was found, unless that is the guard's own.
fn install_over(found: Action) -> Result<(), Errno> {
    if level_of(found.handler).is_some() {
        return Ok(());
    }
    // The installing thread needs three system calls, or does not exist in this child of fork.
    for _ in 0..1000 {
        if !IS_INSTALLING.swap(true, Acquire) {
            break;
        }
        sys::yield_now();
    }
    let result = install_alone();
    IS_INSTALLING.store(false, Release);
    result
}

fn install_alone() -> Result<(), Errno> {
    let found = signal::action(BUS)?;
    if level_of(found.handler).is_some() {
        return Ok(());
    }
    let used = LEVELS_USED.load(Acquire) as usize;
    // A handler that is found again keeps its level, for example if a program replaces its
    // handler and then restores it.
    let is_again = used > 0 && KEPT[used - 1].get().handler == found.handler;
    let level = if is_again { used - 1 } else { used };
    let kept = KEPT.get(level).ok_or(Errno::USERS)?;
    kept.set(found);
    // SAFETY: an entry of the guard, which passes on to the action that was found.
    let before = unsafe { signal::set_action(BUS, ours(level, found)) }?;
    if before != found && level_of(before.handler).is_none() {
        // Another thread has set `before` meanwhile.
        kept.set(before);
    }
    LEVELS_USED.fetch_max(level as u32 + 1, AcqRel);
    Ok(())
}

/// The guard's handler of a level, with the flags and mask of the action that it passes on to.
fn ours(level: usize, action: Action) -> Action {
    let is_handler = action.handler != DEFAULT && action.handler != IGNORE;
    let flags = if is_handler { action.flags } else { flag::ONSTACK };
    let flags = (flags | flag::SIGINFO) & !flag::RESETHAND;
    Action { handler: ENTRIES[level] as *const () as usize, flags, mask: action.mask }
}

fn level_of(handler: usize) -> Option<usize> {
    ENTRIES.iter().position(|entry| *entry as *const () as usize == handler)
}

/// The handlers, one for each level.
static ENTRIES: [Entry; LEVELS_MAX] = [
    entry::<0>,
    entry::<1>,
    entry::<2>,
    entry::<3>,
    entry::<4>,
    entry::<5>,
    entry::<6>,
    entry::<7>,
    entry::<8>,
    entry::<9>,
    entry::<10>,
    entry::<11>,
    entry::<12>,
    entry::<13>,
    entry::<14>,
    entry::<15>,
];

/// # Safety
/// The caller is the kernel, or a handler that passes on the kernel's arguments.
unsafe extern "C" fn entry<const LEVEL: usize>(signal: i32, info: *mut Info, context: *mut c_void) {
    // SAFETY: the kernel gives a handler a valid description of the signal.
    let about = unsafe { &*info };
    let is_ours =
        BUS_FAULTS.contains(&about.code) && (replace(about.address) || is_other(about.address));
    if !is_ours {
        let is_fault = (1..=BUS_MCEERR_AR).contains(&about.code);
        // SAFETY: the caller's promise.
        unsafe { pass_on(LEVEL, is_fault, signal, info, context) };
    }
}

/// Replaces the page at the address with zeros, if its mapping is guarded.
fn replace(address: usize) -> bool {
    let Some((mapped, faults)) = table::find(address) else { return false };
    let Mapped { start, end, page_bytes } = mapped;
    // SAFETY: a guarded mapping, whose users accept any bytes there.
    if faults > PAGES_MAX && unsafe { memory::put_zeros(start, end - start) }.is_ok() {
        return true;
    }
    // SAFETY: a page of that mapping.
    unsafe { replace_page(mapped.page_of(address), page_bytes) }
}

/// Replaces a page with zeros, or with the spare page if there is no memory.
///
/// # Safety
/// The caller owns these bytes, which are whole pages of their file's page size, and accepts any
/// content in them.
pub unsafe fn replace_page(page: usize, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    if unsafe { memory::put_zeros(page, bytes) }.is_ok() {
        return true;
    }
    let spare = SPARE.load(Acquire);
    // SAFETY: likewise, and the spare was made by `install`.
    spare != 0
        && unsafe { memory::put_spare(spare, sys::machine::page_bytes(), page, bytes) }.is_ok()
}

fn is_other(address: usize) -> bool {
    let other = OTHER.load(Acquire);
    if other == 0 {
        return false;
    }
    // SAFETY: only `install_for` stores there, and it stores such a function.
    let other: fn(usize) -> bool = unsafe { mem::transmute(other) };
    other(address)
}

/// Applies the action that the guard replaced at this level to a signal that is not the guard's.
///
/// # Safety
/// The caller is a handler and passes its own arguments.
unsafe fn pass_on(
    level: usize,
    is_fault: bool,
    signal: i32,
    info: *mut Info,
    context: *mut c_void,
) {
    let action = KEPT[level].take();
    match action.handler {
        // An ignored fault would repeat forever, so the kernel applies the default.
        IGNORE if !is_fault => {}
        DEFAULT | IGNORE => {
            let default = Action { handler: DEFAULT, ..Action::default() };
            // SAFETY: the default.
            let _ = unsafe { signal::set_action(BUS, default) };
            if !is_fault {
                // A fault repeats by itself.
                signal::raise(BUS);
            }
        }
        handler if action.flags & flag::SIGINFO != 0 => {
            // SAFETY: a handler with this flag has this signature, sigaction(2).
            let handler = unsafe { mem::transmute::<usize, Entry>(handler) };
            // SAFETY: the kernel's arguments.
            unsafe { handler(signal, info, context) };
            reinstall(level);
        }
        handler => {
            // SAFETY: a handler without the flag has this signature.
            let handler = unsafe { mem::transmute::<usize, Plain>(handler) };
            // SAFETY: as the kernel would.
            unsafe { handler(signal) };
            reinstall(level);
        }
    }
}

/// Installs the guard again if the handler that ran has set another action, such as the default to
/// end the process. Later signals are passed on to that action.
fn reinstall(level: usize) {
    if OTHER.load(Relaxed) != 0 {
        // The recorder sees every action that the program sets, and the program may allow few
        // calls.
        return;
    }
    let Ok(found) = signal::action(BUS) else { return };
    if level_of(found.handler).is_none() {
        KEPT[level].set(found);
        // SAFETY: an entry of the guard, which passes on to the action that was found.
        let _ = unsafe { signal::set_action(BUS, ours(level, found)) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
