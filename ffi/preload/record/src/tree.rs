//! The shared knowledge of the processes of one run: the failures that were reported, so that a
//! script of a thousand commands on a full disk prints one line.
//!
//! The first process gives the run a name in an environment variable, which the other processes
//! inherit. A process that fails creates an empty file with that name in the folder of
//! `HAUL_RECORD_TOLD`, or beside the traces; a process that finds the file reports nothing. If no
//! file can be created, the first process, which fails before its program's own code starts,
//! appends the failure to the name.

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

/// The longest name in bytes: three numbers of ten digits, two separators and a zero.
const NAME_BYTES: usize = 40;

/// The separator between the name of a run and the failure that all its processes know.
const KNOWN: u8 = b'!';

/// The failure that all processes know; 0 if there is none.
static KNOWN_FAILURE: AtomicU32 = AtomicU32::new(0);

/// Whether the program's own code has not started, so that the recorder may change the environment.
static IS_EARLY: AtomicBool = AtomicBool::new(false);

/// `HAUL_RECORD_RUN=NAME`, terminated by a zero.
struct Run(UnsafeCell<[u8; VARIABLE.len() + NAME_BYTES]>);
// SAFETY: only the constructor writes it, before other threads exist; it is only read after that.
unsafe impl Sync for Run {}
static RUN: Run = Run(UnsafeCell::new([0; VARIABLE.len() + NAME_BYTES]));

/// The folder of `HAUL_RECORD_TOLD`, followed by a slash; empty if there is none. The path is a
/// copy, because programs overwrite their environment.
struct ReportFolder(UnsafeCell<([u8; PATH_BYTES], usize)>);
// SAFETY: only the constructor writes it, before other threads exist; it is only read after that.
unsafe impl Sync for ReportFolder {}
static REPORT_FOLDER: ReportFolder = ReportFolder(UnsafeCell::new(([0; PATH_BYTES], 0)));

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Names the run, if no earlier process has done so, and stores the folder for reports. Only the
/// constructor may call this.
pub(crate) fn begin(inherited: Option<&[u8]>, report_folder: Option<&[u8]>) {
    IS_EARLY.store(true, Ordering::Relaxed);
    // SAFETY: only the constructor runs.
    let (path, length) = unsafe { &mut *REPORT_FOLDER.0.get() };
    if let Some(report_folder) =
        report_folder.filter(|report_folder| report_folder.starts_with(b"/"))
        && let Some(place) = path.get_mut(..report_folder.len())
    {
        place.copy_from_slice(report_folder);
        if let Some(place) = path.get_mut(report_folder.len()) {
            *place = b'/';
            *length = report_folder.len() + 1;
        }
    }
    // SAFETY: only the constructor runs.
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
    // The time distinguishes processes with the same number: in microseconds, whose low 32 bits
    // repeat after an hour.
    put(decimal((file::clock_ns(libc::CLOCK_REALTIME) / 1000) as u32, &mut [0; 10]));
    let _ = export(run.as_mut_ptr());
}

/// Adds the variable to the environment, in memory that does not come from an allocator: the
/// program may change its environment.
fn export(variable: *mut u8) -> Option<()> {
    // SAFETY: the program's own code has not started, so nothing changes the environment.
    let old = unsafe { environ };
    let mut count = 0;
    while !old.is_null() {
        // SAFETY: the array ends with a null, which has not been reached yet.
        let entry = unsafe { old.add(count) };
        // SAFETY: as above.
        if unsafe { entry.read() }.is_null() {
            break;
        }
        count += 1;
    }
    let length = (count + 2) * size_of::<*mut c_char>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let new = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE)
    };
    let new = new.ok()?.cast::<*mut c_char>();
    // SAFETY: both have at least `count` entries, and the new one does not overlap the old one.
    unsafe { ptr::copy_nonoverlapping(old, new, count) };
    // SAFETY: the new array has room for two more entries, of which the last is null because it was
    // mapped as zeros.
    let last = unsafe { new.add(count) };
    // SAFETY: as above.
    unsafe { last.write(variable.cast()) };
    // SAFETY: as above; nothing reads it now.
    unsafe { environ = new };
    Some(())
}

/// Whether this process is the first of the run to report a failure with this number. The result
/// is also true if that is unknown, because a repeated line is better than a missing one.
pub(crate) fn is_first(base: &[u8], failure: u32) -> bool {
    let folder = base.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    // SAFETY: the constructor wrote it, and it has not been written since.
    let (report_folder, length) = unsafe { &*REPORT_FOLDER.0.get() };
    let report_folder = report_folder.get(..*length).unwrap_or_default();
    let places = [report_folder, base.get(..folder).unwrap_or_default()];
    let places = places.into_iter().filter(|place| !place.is_empty());
    for place in places {
        match create(place, failure) {
            Ok(()) => return true,
            Err(Errno::EXIST) => return false,
            // The folder of the reports may be the same folder as the one in which traces cannot
            // be written.
            Err(_) => {}
        }
    }
    let is_known = KNOWN_FAILURE.load(Ordering::Relaxed) == failure;
    if !is_known && IS_EARLY.load(Ordering::Relaxed) {
        append_failure(failure);
    }
    !is_known
}

/// Marks the start of the program's own code. From then on, the recorder does not change the
/// environment.
pub(crate) fn end_of_start() {
    IS_EARLY.store(false, Ordering::Relaxed);
}

/// Appends a failure to the run's name, which later processes inherit.
fn append_failure(failure: u32) {
    // SAFETY: `IS_EARLY` is set, so only the constructor runs.
    let run = unsafe { &mut *RUN.0.get() };
    let mut digits = [0; 10];
    let digits = decimal(failure, &mut digits);
    let end = run.iter().position(|byte| *byte == 0).unwrap_or(run.len());
    // A name without a failure leaves room for a failure and a zero.
    if let Some(room) = run.get_mut(end..).filter(|room| room.len() > digits.len() + 1) {
        for (place, byte) in room.iter_mut().zip(iter::once(&KNOWN).chain(digits)) {
            *place = *byte;
        }
    }
}

/// Creates the empty file of a failure in a folder. The folder's name must end with a slash.
fn create(folder: &[u8], failure: u32) -> Result<(), Errno> {
    let mut path = [0; PATH_BYTES];
    let mut length = 0;
    // SAFETY: the constructor wrote it, and it has not been written since.
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
