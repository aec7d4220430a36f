//! What the processes of one run know of each other: which failures were told, so that a script of
//! a thousand commands on a full disk says one line.
//!
//! The first process gives the run a name, by an environment variable that the others inherit.
//! A process that fails creates an empty file of that name where `HAUL_RECORD_TOLD` says, or beside
//! the traces; a process that finds it there says nothing. Where no file can be created, the first
//! process, which fails before its program's own code begins, adds the failure to the name.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::iter;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::file::{self, PATH_BYTES, decimal};

const VARIABLE: &[u8] = b"HAUL_RECORD_RUN=";

/// Three numbers of ten digits, what is between them and a zero.
const NAME_BYTES: usize = 40;

/// Between the name of a run and the failure that all its processes know of.
const KNOWN: u8 = b'!';

/// That failure; 0 for none.
static KNOWN_FAILURE: AtomicU32 = AtomicU32::new(0);

/// Whether the program's own code has not begun: the environment may be changed.
static IS_EARLY: AtomicBool = AtomicBool::new(false);

/// `HAUL_RECORD_RUN=NAME` and a zero.
struct Run(UnsafeCell<[u8; VARIABLE.len() + NAME_BYTES]>);
// SAFETY: written by the constructor alone, which is alone; only read after that.
unsafe impl Sync for Run {}
static RUN: Run = Run(UnsafeCell::new([0; VARIABLE.len() + NAME_BYTES]));

/// The folder of `HAUL_RECORD_TOLD`, with a slash behind it; empty where there is none. A copy, for
/// programs write over their environment.
struct Told(UnsafeCell<([u8; PATH_BYTES], usize)>);
// SAFETY: written by the constructor alone, which is alone; only read after that.
unsafe impl Sync for Told {}
static TOLD: Told = Told(UnsafeCell::new(([0; PATH_BYTES], 0)));

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Names the run, where no process before has, and keeps where failures are told. From the
/// constructor alone.
pub(crate) fn begin(inherited: Option<&[u8]>, told: Option<&[u8]>) {
    IS_EARLY.store(true, Ordering::Relaxed);
    // SAFETY: the constructor is alone.
    let (path, length) = unsafe { &mut *TOLD.0.get() };
    if let Some(told) = told.filter(|told| told.starts_with(b"/"))
        && let Some(place) = path.get_mut(..told.len())
    {
        place.copy_from_slice(told);
        if let Some(place) = path.get_mut(told.len()) {
            *place = b'/';
            *length = told.len() + 1;
        }
    }
    // SAFETY: the constructor is alone.
    let run = unsafe { &mut *RUN.0.get() };
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        for (place, byte) in run.iter_mut().skip(length).zip(bytes) {
            *place = *byte;
        }
        length += bytes.len();
    };
    put(VARIABLE);
    let is_name = |name: &&[u8]| {
        name.len() < NAME_BYTES && name.iter().all(|byte| *byte != b'/' && *byte != 0)
    };
    if let Some(name) = inherited.filter(is_name) {
        let mut parts = name.split(|byte| *byte == KNOWN);
        put(parts.next().unwrap_or_default());
        let known = parts.next().and_then(|digits| core::str::from_utf8(digits).ok()?.parse().ok());
        KNOWN_FAILURE.store(known.unwrap_or(0), Ordering::Relaxed);
        return;
    }
    let process = rustix::process::getpid().as_raw_nonzero().get() as u32;
    put(decimal(process, &mut [0; 10]));
    put(b"-");
    // Which process of that number it was: microseconds, of which 32 bits come again after an hour.
    put(decimal((file::clock_ns(libc::CLOCK_REALTIME) / 1000) as u32, &mut [0; 10]));
    let _ = export(run.as_mut_ptr());
}

/// Adds it to the environment, in memory that no allocator gave: the program may change what it
/// has.
fn export(variable: *mut u8) -> Option<()> {
    // SAFETY: the program's own code has not begun: nobody changes the environment.
    let old = unsafe { environ };
    let mut count = 0;
    while !old.is_null() {
        // SAFETY: it ends with a null, which was not yet met.
        let entry = unsafe { old.add(count) };
        // SAFETY: as above.
        if unsafe { entry.read() }.is_null() {
            break;
        }
        count += 1;
    }
    let length = (count + 2) * size_of::<*mut c_char>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at no address that anything else has.
    let new = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE)
    };
    let new = new.ok()?.cast::<*mut c_char>();
    // SAFETY: both have `count`, and the new one is new.
    unsafe { ptr::copy_nonoverlapping(old, new, count) };
    // SAFETY: the new one has room for two more, of which the last is null as it was mapped.
    let last = unsafe { new.add(count) };
    // SAFETY: as above.
    unsafe { last.write(variable.cast()) };
    // SAFETY: as above: nobody reads it now.
    unsafe { environ = new };
    Some(())
}

/// Whether this process is the first of the run to tell of a failure of this number. Also where
/// that cannot be known: better a line twice than none.
pub(crate) fn is_first(base: &[u8], failure: u32) -> bool {
    let folder = base.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    // SAFETY: it was written by the constructor, and never since.
    let (told, length) = unsafe { &*TOLD.0.get() };
    let told = told.get(..*length).unwrap_or_default();
    let places = [told, base.get(..folder).unwrap_or_default()];
    let places = places.into_iter().filter(|place| !place.is_empty());
    for place in places {
        match create(place, failure) {
            Ok(()) => return true,
            Err(Errno::EXIST) => return false,
            // The place that the traces cannot be written to may be this one.
            Err(_) => {}
        }
    }
    let is_known = KNOWN_FAILURE.load(Ordering::Relaxed) == failure;
    if !is_known && IS_EARLY.load(Ordering::Relaxed) {
        make_known(failure);
    }
    !is_known
}

/// The program's own code begins: from now on the environment is its own.
pub(crate) fn end_of_start() {
    IS_EARLY.store(false, Ordering::Relaxed);
}

/// Adds a failure to the run's name, which the processes that follow inherit.
fn make_known(failure: u32) {
    // SAFETY: the constructor is alone: `IS_EARLY`.
    let run = unsafe { &mut *RUN.0.get() };
    let mut digits = [0; 10];
    let digits = decimal(failure, &mut digits);
    let end = run.iter().position(|byte| *byte == 0).unwrap_or(run.len());
    // A name without a failure leaves room for one and a zero.
    if let Some(room) = run.get_mut(end..).filter(|room| room.len() > digits.len() + 1) {
        for (place, byte) in room.iter_mut().zip(iter::once(&KNOWN).chain(digits)) {
            *place = *byte;
        }
    }
}

/// Creates the empty file of a failure in a folder, whose name ends with a slash.
fn create(folder: &[u8], failure: u32) -> Result<(), Errno> {
    let mut path = [0; PATH_BYTES];
    let mut length = 0;
    // SAFETY: it was written by the constructor, and never since.
    let run = unsafe { &*RUN.0.get() };
    let name = run.get(VARIABLE.len()..).and_then(|name| CStr::from_bytes_until_nul(name).ok());
    let mut digits = [0; 10];
    let failure = decimal(failure, &mut digits);
    for part in [folder, b".haul_record.", name.unwrap_or_default().to_bytes(), b".", failure] {
        let place = path.get_mut(length..length + part.len()).ok_or(Errno::NAMETOOLONG)?;
        place.copy_from_slice(part);
        length += part.len();
    }
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::NAMETOOLONG)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).map(drop)
}
