//! What the processes of one run know of each other: which failures were told, so that a script of
//! a thousand commands on a full disk says one line.
//!
//! The first process gives the run a name, by an environment variable that the others inherit.
//! Whoever fails creates an empty file of that name beside the traces; who finds it there says
//! nothing.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::ptr;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::file::{self, PATH_BYTES, decimal};

const VARIABLE: &[u8] = b"HAUL_RECORD_RUN=";

/// Two numbers of ten digits, what is between them and a zero.
const NAME_BYTES: usize = 32;

/// `HAUL_RECORD_RUN=NAME` and a zero.
struct Run(UnsafeCell<[u8; VARIABLE.len() + NAME_BYTES]>);
// SAFETY: written by the constructor alone, which is alone; only read after that.
unsafe impl Sync for Run {}
static RUN: Run = Run(UnsafeCell::new([0; VARIABLE.len() + NAME_BYTES]));

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Names the run, where no process before has. From the constructor alone.
pub(crate) fn begin(inherited: Option<&[u8]>) {
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
        put(name);
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
    let mut path = [0; PATH_BYTES];
    let mut length = 0;
    let folder = base.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    // SAFETY: it was written by the constructor, and never since.
    let run = unsafe { &*RUN.0.get() };
    let name = run.get(VARIABLE.len()..).and_then(|name| CStr::from_bytes_until_nul(name).ok());
    let mut digits = [0; 10];
    for part in [
        base.get(..folder).unwrap_or_default(),
        b".haul_record.",
        name.unwrap_or_default().to_bytes(),
        b".",
        decimal(failure, &mut digits),
    ] {
        let Some(place) = path.get_mut(length..length + part.len()) else { return true };
        place.copy_from_slice(part);
        length += part.len();
    }
    let Ok(path) = CStr::from_bytes_until_nul(&path) else { return true };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let created = rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR);
    !matches!(created, Err(Errno::EXIST))
}
