//! Catches SIGBUS for mapped files whose memory other processes can remove.
//!
//! A mapped file loses a page if another process truncates the file. It also loses a page if a
//! process punches a hole into the file and the next access gets no new page, because the pool of
//! huge pages is empty or the system commits no more memory. An access to the missing page raises
//! SIGBUS, which ends the process. A [`Guard`] protects a mapping whose memory another process
//! can remove like this: the signal handler replaces the missing page with private zeros and
//! marks the guard. The interrupted access continues with the zeros, as if the peer had written
//! them. The user of the memory checks [`Guard::is_broken`] after a burst and stops using the
//! memory if it is broken.
//!
//! If the process gets no more memory, because of its own limit or strict overcommit, one spare
//! page replaces every missing page.
//!
//! Every other SIGBUS has the same effect as without the guard: the previously installed handler
//! runs, with its own flags and mask, or the default action ends the process. If a program later
//! sets its own handler, the guard gets no signal until [`install`] is called again. Users of
//! guarded memory call `install` now and then, and every new guard calls it. From then on, the
//! guard passes faults of other memory on to the program's handler. A signal that the program's
//! handler passes on goes to the handler that was installed before it. For this, each installed
//! handler of the guard is a separate function with its own level. The level determines the
//! action to which the function passes a signal on.
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

/// The most handlers of the program that the guard replaces with its own.
const LEVELS_MAX: usize = 16;

/// The most missing pages of a mapping that are replaced one by one, so that its intact pages
/// stay. If more pages are missing, the whole mapping is replaced, because a process has a
/// limited number of mappings (`vm.max_map_count`, 65,530).
const PAGES_MAX: u32 = 256;

/// The values of `si_code` for a fault, from sigaction(2): an address that does not exist, an
/// object-specific hardware error, a memory error.
const BUS_FAULTS: [i32; 3] = [2, 3, 4];

/// The highest `si_code` of a fault. A signal with a higher code is a notification; a signal with
/// a code below 1 was sent by a process.
const BUS_MCEERR_AR: i32 = 4;

type Entry = unsafe extern "C" fn(i32, *mut Info, *mut c_void);
type Plain = unsafe extern "C" fn(i32);

/// The kernel's description of a signal: the fields of `siginfo_t` that are used here, in the
/// 64-bit layout.
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

/// The page that replaces a missing page if no other page is available.
static SPARE: AtomicUsize = AtomicUsize::new(0);

/// A recorder's function that decides whether a fault is the recorder's; 0 if there is none.
static OTHER: AtomicUsize = AtomicUsize::new(0);

/// Whether a thread is installing the handler.
static IS_INSTALLING: AtomicBool = AtomicBool::new(false);

/// Guards a mapping whose pages another process may remove. Must be dropped before the mapping is
/// unmapped.
#[derive(Debug)]
pub struct Guard {
    index: usize,
}

impl Guard {
    /// Guards a readable mapping of the caller, which consists of whole pages of `page_bytes`
    /// bytes. The caller must accept any content in the mapping. Two system calls.
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

    /// Whether pages of the mapping were missing when they were accessed. The pages that replaced
    /// them are private to this process.
    #[inline]
    pub fn is_broken(&self) -> bool {
        table::is_broken(self.index)
    }

    /// Marks the mapping as intact again, after the caller has mapped new memory there.
    pub fn mended(&self) {
        table::mended(self.index);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        table::give_back(self.index);
    }
}

/// Installs the guard's SIGBUS handler if it is not installed, even if the process ignores
/// SIGBUS, and unblocks SIGBUS in this thread. One or two system calls.
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

/// Like [`install`], for a recorder: `other` decides whether a fault is the recorder's. If the
/// process ignores SIGBUS, the signal stays ignored, because a program that the process executes
/// inherits the setting.
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

/// Whether the guard was installed, in this process or in an ancestor before a fork.
pub fn is_on() -> bool {
    LEVELS_USED.load(Acquire) > 0
}

/// The program's own action for SIGBUS. Only valid if the guard [`is_on`].
pub fn kept() -> Action {
    KEPT[top()].get()
}

/// Sets the program's own action for SIGBUS. From now on, the guard passes faults of other memory
/// on to this action.
///
/// # Safety
/// The action's handler is a default, or a function that may run as a handler.
///
/// # Errors
/// The kernel's error; nothing has changed then.
pub unsafe fn keep(action: Action) -> Result<(), Errno> {
    let level = top();
    let before = KEPT[level].get();
    // The action is stored before the handler is installed, so that no signal finds the old
    // action.
    KEPT[level].set(action);
    // An ignored signal stays ignored, because a program that the process executes inherits that.
    let new = if action.handler == IGNORE { action } else { ours(level, action) };
    // SAFETY: the action ignores the signal, or is an entry of the guard, which calls the
    // caller's handler.
    let set = unsafe { signal::set_action(BUS, new) };
    if set.is_err() {
        KEPT[level].set(before);
    }
    set.map(drop)
}

fn top() -> usize {
    (LEVELS_USED.load(Acquire) as usize).saturating_sub(1)
}

/// Replaces the action `found` with a handler of the guard, unless it already is one.
fn install_over(found: Action) -> Result<(), Errno> {
    if level_of(found.handler).is_some() {
        return Ok(());
    }
    // Another thread may be installing the handler, which needs three system calls. In a child of
    // fork, that thread may not exist, so the wait is limited.
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
    // A handler that is found a second time keeps its level, for example if a program replaces
    // its handler and then restores it.
    let is_again = used > 0 && KEPT[used - 1].get().handler == found.handler;
    let level = if is_again { used - 1 } else { used };
    let kept = KEPT.get(level).ok_or(Errno::USERS)?;
    kept.set(found);
    // SAFETY: an entry of the guard, which passes signals on to the action that was found.
    let before = unsafe { signal::set_action(BUS, ours(level, found)) }?;
    if before != found && level_of(before.handler).is_none() {
        // Another thread has set `before` meanwhile.
        kept.set(before);
    }
    LEVELS_USED.fetch_max(level as u32 + 1, AcqRel);
    Ok(())
}

/// The guard's handler of a level, with the flags and mask of the action to which it passes
/// signals on.
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

/// Replaces the page of `bytes` bytes at `page` with zeros, or with the spare page if there is no
/// memory.
///
/// # Safety
/// The caller owns these bytes, which are whole pages in their file's page size, and accepts any
/// content in them.
pub unsafe fn replace_page(page: usize, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    if unsafe { memory::put_zeros(page, bytes) }.is_ok() {
        return true;
    }
    let spare = SPARE.load(Acquire);
    // SAFETY: likewise, and `install` made the spare page.
    spare != 0
        && unsafe { memory::put_spare(spare, sys::machine::page_bytes(), page, bytes) }.is_ok()
}

fn is_other(address: usize) -> bool {
    let other = OTHER.load(Acquire);
    if other == 0 {
        return false;
    }
    // SAFETY: only `install_for` stores there, and it stores a function of this type.
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

/// Installs the guard again if the program's handler that just ran has set another action, such
/// as the default, which ends the process. The guard passes later signals on to that action.
fn reinstall(level: usize) {
    if OTHER.load(Relaxed) != 0 {
        // The recorder sees every action that the program sets, and the program may allow few
        // calls.
        return;
    }
    let Ok(found) = signal::action(BUS) else { return };
    if level_of(found.handler).is_none() {
        KEPT[level].set(found);
        // SAFETY: an entry of the guard, which passes signals on to the action that was found.
        let _ = unsafe { signal::set_action(BUS, ours(level, found)) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
