//! The constructor: maps the recording, and notes what the process is.

use core::cell::UnsafeCell;
use core::ffi::CStr;

use haul_model::stream::recording::layout::{BLOCK_BYTES, process};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};

use crate::recording::Recording;
use crate::state::State;
use crate::{filter, plain};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Runs after libc's constructors and before the program's own code.
extern "C" fn constructor() {
    plain::is_relocated();
    // SAFETY: the call reads the auxiliary vector that the kernel gave the process.
    let is_set_user_id = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // The user who starts a set-user-ID program must not choose the file to which it writes.
    let name = variable(c"HAUL_COPY_RECORD").filter(|_| !is_set_user_id);
    if let Some(name) = name {
        set_up(name);
    }
}

fn set_up(name: &CStr) -> Option<()> {
    if is_filtered() {
        filter::begin();
    }
    // SAFETY: only the constructor runs, once.
    let texts = unsafe { &mut *TEXTS.0.get() };
    let length = texts.read_maps();
    let mut program = [0; process::PROGRAM_BYTES];
    let program = read(c"/proc/self/comm", &mut program);
    let state = State::create()?;
    let recording = Recording::map(name)?;
    let reference = state.process(recording)?;
    let program = program.strip_suffix(b"\n").unwrap_or(program);
    recording.set_text(reference, process::PROGRAM, process::PROGRAM_BYTES, program);
    recording.set_text(reference, process::LIBC, process::LIBC_BYTES, libc_version());
    let blocks = length.div_ceil(BLOCK_BYTES) as u32;
    if let Some(maps) = recording.claim_blocks(blocks).filter(|_| blocks > 0) {
        recording.put_text(maps, texts.kept.get(..length)?);
        let number = |field| recording.process_number(reference, field);
        number(process::MAPS_BYTES).store(length as u32, core::sync::atomic::Ordering::Relaxed);
        number(process::MAPS).store(maps, core::sync::atomic::Ordering::Release);
    }
    Some(())
}

fn libc_version() -> &'static [u8] {
    // SAFETY: the call returns a string that lasts as long as the process.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: as above; it is a C string.
    unsafe { CStr::from_ptr(version) }.to_bytes()
}

/// The bytes of mappings that are kept: those of some hundred libraries.
const KEPT_BYTES: usize = 3 * BLOCK_BYTES;

/// The longest line of `/proc/self/maps` that is understood: a path and 100 bytes.
const LINE_BYTES: usize = 4096 + 100;

struct Texts {
    kept: [u8; KEPT_BYTES],
    line: [u8; LINE_BYTES],
    chunk: [u8; 4096],
}

/// Memory of the constructor.
struct Shared(UnsafeCell<Texts>);
// SAFETY: only the constructor uses it, once.
unsafe impl Sync for Shared {}
static TEXTS: Shared = Shared(UnsafeCell::new(Texts {
    kept: [0; KEPT_BYTES],
    line: [0; LINE_BYTES],
    chunk: [0; 4096],
}));

impl Texts {
    /// Reads the lines of this process's mappings that say where code is, and returns their length.
    fn read_maps(&mut self) -> usize {
        let Some(file) = open(c"/proc/self/maps") else { return 0 };
        let (mut length, mut line) = (0, 0);
        while let Ok(read) = rustix::io::read(&file, &mut self.chunk) {
            let chunk = self.chunk.get(..read).unwrap_or_default();
            if chunk.is_empty() {
                break;
            }
            for byte in chunk {
                if let Some(place) = self.line.get_mut(line) {
                    *place = *byte;
                    line += 1;
                }
                if *byte == b'\n' {
                    length = keep(self.line.get(..line), &mut self.kept, length);
                    line = 0;
                }
            }
        }
        length
    }
}

/// Appends a line if it is of a file, and has code or is the file's first.
fn keep(line: Option<&[u8]>, kept: &mut [u8], length: usize) -> usize {
    let Some(line) = line else { return length };
    let mut words = line.split(|byte| *byte == b' ');
    let rights = words.nth(1).unwrap_or_default();
    let offset = words.next().unwrap_or_default();
    let is_first = offset.iter().all(|digit| *digit == b'0');
    if !line.contains(&b'/') || !(is_first || rights.contains(&b'x')) {
        return length;
    }
    let end = length + line.len();
    let Some(place) = kept.get_mut(length..end) else { return length };
    place.iter_mut().zip(line).for_each(|(place, byte)| *place = *byte);
    end
}

/// Whether the process inherited a filter of system calls.
fn is_filtered() -> bool {
    let mut status = [0; 4096];
    let status = read(c"/proc/self/status", &mut status);
    let mut lines = status.split(|byte| *byte == b'\n');
    let mode = lines.find_map(|line| line.strip_prefix(b"Seccomp:\t"));
    mode.is_some_and(|mode| mode != b"0")
}

fn read<'a>(name: &CStr, bytes: &'a mut [u8]) -> &'a [u8] {
    let read = open(name).and_then(|file| rustix::io::read(&file, &mut *bytes).ok());
    bytes.get(..read.unwrap_or(0)).unwrap_or_default()
}

fn open(name: &CStr) -> Option<OwnedFd> {
    rustix::fs::openat(CWD, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the program's own code has not started, so nothing changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: the value is not null, so it is a C string of the environment, which outlives the
    // constructor.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}
