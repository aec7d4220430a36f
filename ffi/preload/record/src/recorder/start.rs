//! The start: reads the environment, and makes the state if the program is to be recorded.

use core::ffi::{CStr, c_char};
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::report::say;
use super::slots::leave;
use super::{BASE, KEY, LIMIT, Recorder, STATE, State, base};
use crate::{real, tree};

/// Keys below this number store their value in the thread itself; glibc allocates memory for the
/// values of later keys (PTHREAD_KEY_2NDLEVEL_SIZE).
const KEY_MAX: u32 = 32;

/// The number that stands for the report that a program has its own malloc. The number is used
/// like a failure's number.
const HAS_OWN_MALLOC: u32 = 10_003;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Runs after libc's constructors and before the program's own code.
extern "C" fn constructor() {
    // The look-up happens now, because the program's first call may come from a signal handler.
    real::is_ready();
    // SAFETY: the call reads the auxiliary vector that the kernel gave the process.
    let is_set_user_id = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // The user who starts a set-user-ID program must not choose the file to which it writes.
    let Some(name) = variable(c"HAUL_RECORD").filter(|_| !is_set_user_id) else { return };
    if let Err(why) = set_up(name) {
        say(&[b"nothing is recorded: ", why]);
    }
    tree::end_of_start();
}

fn set_up(name: &[u8]) -> Result<(), &'static [u8]> {
    if let Some(text) = variable(c"HAUL_RECORD_LIMIT") {
        let limit = core::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        LIMIT.store(
            limit.ok_or(&b"HAUL_RECORD_LIMIT is not a number of bytes"[..])?,
            Ordering::Relaxed,
        );
    }
    set_base(name).ok_or(&b"HAUL_RECORD must name a file, in at most 4,000 bytes"[..])?;
    tree::begin(variable(c"HAUL_RECORD_RUN"), variable(c"HAUL_RECORD_TOLD"));
    if real::program_has_own_malloc() {
        // The program's own malloc is reported once for all processes of a run, like the end of a
        // trace.
        if tree::is_first(base(), HAS_OWN_MALLOC) {
            say(&[
                b"the program has a malloc of its own, which precedes all others: its calls are not \
                  recorded; build the program without that malloc to record them",
            ]);
        }
        return Ok(());
    }
    let mut key = 0;
    // SAFETY: the call writes the key. `leave` will be called with the value of each thread that
    // ends.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) };
    if made != 0 || key >= KEY_MAX {
        return Err(b"the program has used up its thread keys; preload this library first");
    }
    KEY.store(key, Ordering::Relaxed);
    let state =
        map_state().ok_or(&b"cannot map memory that a fork wipes, which needs Linux 4.14"[..])?;
    STATE.store(state.as_ptr(), Ordering::Release);
    // An unusable name is reported now, before the program's first call.
    let _ = Recorder::current();
    Ok(())
}

/// Stores the name as an absolute path. Returns `None` if the name is invalid or too long.
fn set_base(name: &[u8]) -> Option<()> {
    /// The longest name in bytes. The file's name also contains the process ID for each `%p` or
    /// at its end, and the number of the attempt.
    const NAME_MAX: usize = 4000;
    if name.is_empty() || name.len() > NAME_MAX || name.ends_with(b"/") {
        return None;
    }
    // SAFETY: only the constructor runs, and `STATE` is not set.
    let (path, length) = unsafe { &mut *BASE.0.get() };
    if !name.starts_with(b"/") {
        // SAFETY: the call writes at most NAME_MAX bytes, and the buffer is longer.
        let folder = unsafe { libc::getcwd(path.as_mut_ptr().cast::<c_char>(), NAME_MAX) };
        if folder.is_null() {
            return None;
        }
        *length = CStr::from_bytes_until_nul(path).ok()?.count_bytes();
        *path.get_mut(*length)? = b'/';
        *length += 1;
    }
    let end = *length + name.len();
    path.get_mut(*length..end.min(NAME_MAX))?.get_mut(..name.len())?.copy_from_slice(name);
    *length = end;
    Some(())
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the program's own code has not started, so nothing changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: the value is not null, so it is a C string of the environment, which outlives the
    // constructor.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

fn map_state() -> Option<NonNull<State>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let length = size_of::<State>();
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE)
    };
    let state = mapped.ok()?;
    // SAFETY: it is the whole mapping that was just created. Only a forked child sees the mapping
    // wiped.
    unsafe { rustix::mm::madvise(state, length, Advice::LinuxWipeOnFork) }.ok()?;
    // All zeros are a valid state: not begun, no file, no names, no threads. The page's alignment
    // is sufficient.
    NonNull::new(state.cast())
}

const _: () = assert!(align_of::<State>() <= 4096);
