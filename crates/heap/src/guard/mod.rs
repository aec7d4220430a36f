//! SIGBUS, caught where memory of a file is touched that others can take away.
//!
//! A page of a mapped file is gone once the file is cut short, or a hole is punched into it and
//! there is no page for the next touch: a pool of huge pages is empty, the system commits no
//! more. The touch is a signal then, which ends the process. Memory that another process can do
//! this to is mapped under a [`Guard`]: at such a signal the handler puts zeros of this process's
//! own in the place of the page and marks the guard. The access that was interrupted goes on with
//! the zeros, as if the other side had written them, and whoever looks at [`Guard::is_broken`]
//! after a burst gives the memory up.
//!
//! A process that may have no more memory, by its own limit or under strict overcommit, gets one
//! spare page instead, in every place that is gone.
//!
//! Every other SIGBUS does what it did without the guard: the handler that was there before has
//! it, with the flags and the mask that it asked for; the default action ends the process. A
//! program that sets a handler of its own later takes the signal away, until [`install`] is
//! called again: whoever guards memory calls it now and then, and as the next mapping is guarded.
//! From then on what is not the guard's goes to that one, and what that one passes on goes to the
//! one before it. For this each handler of the guard that was ever in force is a function of its
//! own, which knows what it came after.
//!
//! From the bottom up:
//!
//! - `table`: which mappings are guarded;
//! - `kept`: what else the process does for the signal.

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

/// Handlers of the program's, set one over the other, that the guard comes back after.
const LEVELS_MAX: usize = 16;

/// Pages of a mapping that are replaced one by one: what is intact of it stays. After so many all
/// of it goes, for a process has only so many mappings (`vm.max_map_count`, 65,530).
const PAGES_MAX: u32 = 256;

/// What tells of a fault, `si_code` of sigaction(2): an address that is not there, an error of the
/// object, memory that went bad.
const BUS_FAULTS: [i32; 3] = [2, 3, 4];

/// The last code of a fault; above is what a thread is only told of, below 1 what was sent.
const BUS_MCEERR_AR: i32 = 4;

type Entry = unsafe extern "C" fn(i32, *mut Info, *mut c_void);
type Plain = unsafe extern "C" fn(i32);

/// What a handler is told of the signal: the part of `siginfo_t` that is used here, as the kernel
/// lays it out for 64 bits.
#[repr(C)]
struct Info {
    signal: i32,
    error: i32,
    code: i32,
    _space: i32,
    address: usize,
}

const _: () = assert!(mem::offset_of!(Info, code) == 8 && mem::offset_of!(Info, address) == 16);

/// What each level passes on to.
static KEPT: [Kept; LEVELS_MAX] = [const { Kept::new() }; LEVELS_MAX];

/// One more than the highest level that was ever in force.
static LEVELS_USED: AtomicU32 = AtomicU32::new(0);

/// The page that is put where no other can be had.
static SPARE: AtomicUsize = AtomicUsize::new(0);

/// What else is asked whether a fault is its own; 0 for nothing.
static OTHER: AtomicUsize = AtomicUsize::new(0);

/// A thread sets the handler.
static IS_ARMING: AtomicBool = AtomicBool::new(false);

/// A mapping whose pages may go. Dropped before the mapping is taken away.
#[derive(Debug)]
pub struct Guard {
    index: usize,
}

impl Guard {
    /// Guards a mapping of the caller's that can be read, in whole pages of so many bytes, of
    /// which any bytes are borne. Two system calls.
    ///
    /// # Errors
    /// `NFILE` where 16,384 mappings are guarded; what the kernel said of the handler.
    pub fn new(start: usize, bytes: usize, page_bytes: usize) -> Result<Self, Errno> {
        debug_assert!(page_bytes.is_power_of_two() && bytes.is_multiple_of(page_bytes));
        install()?;
        let mapped = Mapped { start, end: start + bytes, page_bytes };
        table::take(mapped).map(|index| Self { index }).ok_or(Errno::NFILE)
    }

    /// Whether pages of it were gone when they were touched: what stands there is of this
    /// process's own, and nobody else sees it.
    #[inline]
    pub fn is_broken(&self) -> bool {
        table::is_broken(self.index)
    }

    /// The mapping is whole again: the caller has put another one in its place.
    pub fn mended(&self) {
        table::mended(self.index);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        table::give_back(self.index);
    }
}

/// Sets the handler where it is not in force, also for a process that ignores the signal, and has
/// this thread get the signal if it blocks it. A system call or two.
///
/// # Errors
/// What the kernel said; `USERS` where the program has set 16 handlers over the guard's.
pub fn install() -> Result<(), Errno> {
    if cfg!(miri) {
        return Ok(());
    }
    signal::unblock(BUS);
    if SPARE.load(Relaxed) == 0 {
        SPARE.store(memory::spare(sys::machine::page_bytes())?, Release);
    }
    arm(signal::action(BUS)?)
}

/// The same for a recorder, which asks `other` whether a fault is its own, and leaves a signal
/// alone that the process ignores: the next program inherits that.
///
/// # Errors
/// As [`install`].
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

/// Whether the signal is the guard's, in this process or in one that it was forked from.
pub fn is_on() -> bool {
    LEVELS_USED.load(Acquire) > 0
}

/// What the program has set for the signal, once the guard [`is_on`].
pub fn kept() -> Action {
    KEPT[top()].get()
}

/// Has what is not the guard's go to another action from now on, which the program sets.
///
/// # Safety
/// The action's handler is a default, or a function that may run as a handler.
///
/// # Errors
/// What the kernel said; nothing has changed then.
pub unsafe fn keep(action: Action) -> Result<(), Errno> {
    let level = top();
    let before = KEPT[level].get();
    // Before it is in force, so that no signal finds the old one.
    KEPT[level].set(action);
    // What is ignored stays so: the next program inherits that.
    let new = if action.handler == IGNORE { action } else { ours(level, action) };
    // SAFETY: to ignore it, or an entry of ours, which passes on as the caller says.
    let set = unsafe { signal::set_action(BUS, new) };
    if set.is_err() {
        KEPT[level].set(before);
    }
    set.map(drop)
}

fn top() -> usize {
    (LEVELS_USED.load(Acquire) as usize).saturating_sub(1)
}

/// Puts the guard in front of an action that was found in force, unless it is the guard's own.
fn arm(found: Action) -> Result<(), Errno> {
    if level_of(found.handler).is_some() {
        return Ok(());
    }
    // Who has it has it for three system calls. It may have died in a fork of another thread's.
    for _ in 0..1000 {
        if !IS_ARMING.swap(true, Acquire) {
            break;
        }
        sys::give_way();
    }
    let result = arm_alone();
    IS_ARMING.store(false, Release);
    result
}

fn arm_alone() -> Result<(), Errno> {
    let found = signal::action(BUS)?;
    if level_of(found.handler).is_some() {
        return Ok(());
    }
    let used = LEVELS_USED.load(Acquire) as usize;
    // One that comes again, as it does where a program sets and restores its own, has its place.
    let is_again = used > 0 && KEPT[used - 1].get().handler == found.handler;
    let level = if is_again { used - 1 } else { used };
    let kept = KEPT.get(level).ok_or(Errno::USERS)?;
    kept.set(found);
    // SAFETY: an entry of ours, which passes on to what is in force.
    let before = unsafe { signal::set_action(BUS, ours(level, found)) }?;
    if before != found && level_of(before.handler).is_none() {
        // Set by another thread since it was looked at.
        kept.set(before);
    }
    LEVELS_USED.fetch_max(level as u32 + 1, AcqRel);
    Ok(())
}

/// The guard's handler of a level, with what the action that it passes on to asks for.
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
/// From the kernel, or a handler that passes on what the kernel gave it.
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

/// Puts zeros in the place of the page that the address lies in, if its mapping is guarded.
fn replace(address: usize) -> bool {
    let Some((mapped, faults)) = table::find(address) else { return false };
    let Mapped { start, end, page_bytes } = mapped;
    // SAFETY: a mapping that a guard stands for, whose users bear any bytes there.
    if faults > PAGES_MAX && unsafe { memory::put_zeros(start, end - start) }.is_ok() {
        return true;
    }
    // SAFETY: a page of it.
    unsafe { replace_page(mapped.page_of(address), page_bytes) }
}

/// Puts zeros in the place of a page, or the spare page where there is no memory.
///
/// # Safety
/// It is the caller's, in whole pages of its file's kind, and any bytes of it are borne.
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
    // SAFETY: `install_for` alone stores there, and what it stores is such a function.
    let other: fn(usize) -> bool = unsafe { mem::transmute(other) };
    other(address)
}

/// The signal is not of a guarded mapping: does what was done for it before.
///
/// # Safety
/// From a handler, with what it was given.
unsafe fn pass_on(
    level: usize,
    is_fault: bool,
    signal: i32,
    info: *mut Info,
    context: *mut c_void,
) {
    let action = KEPT[level].take();
    match action.handler {
        // A fault that is ignored comes again without end: the kernel takes the default then.
        IGNORE if !is_fault => {}
        DEFAULT | IGNORE => {
            let default = Action { handler: DEFAULT, ..Action::default() };
            // SAFETY: the default.
            let _ = unsafe { signal::set_action(BUS, default) };
            if !is_fault {
                // A fault comes again by itself.
                signal::raise(BUS);
            }
        }
        handler if action.flags & flag::SIGINFO != 0 => {
            // SAFETY: a handler with this flag has this signature, sigaction(2).
            let handler = unsafe { mem::transmute::<usize, Entry>(handler) };
            // SAFETY: what the kernel gave.
            unsafe { handler(signal, info, context) };
            stay(level);
        }
        handler => {
            // SAFETY: a handler without the flag has this one.
            let handler = unsafe { mem::transmute::<usize, Plain>(handler) };
            // SAFETY: as the kernel would.
            unsafe { handler(signal) };
            stay(level);
        }
    }
}

/// A handler that the signal was passed on to may have set another action, as one does that ends
/// the process by the default: that is passed on to from now on.
fn stay(level: usize) {
    if OTHER.load(Relaxed) != 0 {
        // The recorder sees what the program sets, which may allow itself few system calls.
        return;
    }
    let Ok(found) = signal::action(BUS) else { return };
    if level_of(found.handler).is_none() {
        KEPT[level].set(found);
        // SAFETY: an entry of ours, which passes on to what was in force.
        let _ = unsafe { signal::set_action(BUS, ours(level, found)) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
