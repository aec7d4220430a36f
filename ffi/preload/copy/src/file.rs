//! The file that all processes of a run map. The first process creates it, with all its disk
//! space, because a store into a hole would end a process on a full disk.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use haul_model::profile::layout::{
    FILE_BYTES, HEADER_BYTES, MAGIC, MODULES, PROCESSES, SITES, THREADS, Table, VERSION,
    WORK_PER_SAMPLE, head, module, process, site, thread,
};

use crate::policy::{PATH_BYTES, join};
use crate::sys::{self, CREATE_NEW, File, NOFOLLOW, NONBLOCK, READ_WRITE};

const RELAXED: Ordering = Ordering::Relaxed;

/// The mapped file; null if nothing is profiled. The mapping lasts as long as the process.
static MAPPED: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Maps the file with this name, and creates it first if there is none. `None` if it is not a
/// profile of this version and user, or cannot be created. Only the constructor calls it.
pub(crate) fn map(name: &CStr) -> Option<()> {
    /// No such file (`asm-generic/errno-base.h`).
    const ABSENT: isize = -2;
    let open = || File::open(name, READ_WRITE | NOFOLLOW | NONBLOCK);
    let file = match open() {
        Ok(file) => file,
        Err(ABSENT) => {
            create(name)?;
            open().ok()?
        }
        Err(_) => return None,
    };
    let length = file.length_if_own()?;
    if length != FILE_BYTES {
        return None;
    }
    let mapped = file.map(length)?;
    MAPPED.store(mapped, Ordering::Release);
    let is_known = long(0)?.load(Ordering::Acquire) == u64::from_ne_bytes(MAGIC)
        && number(head::VERSION_AT)?.load(RELAXED) == VERSION;
    if !is_known {
        MAPPED.store(ptr::null_mut(), Ordering::Release);
    }
    is_known.then_some(())
}

/// Creates the file under another name, and gives it its own name once it is complete. Another
/// process that did the same meanwhile does no harm.
fn create(name: &CStr) -> Option<()> {
    let mut digits = *b".0000000000.new";
    let mut id = sys::process_id();
    for place in digits.get_mut(1..11)?.iter_mut().rev() {
        *place = b'0'.wrapping_add((id % 10) as u8);
        id /= 10;
    }
    let mut path = MaybeUninit::<[u8; PATH_BYTES]>::uninit();
    let path = join(sys::zeroed(&mut path), [name.to_bytes(), &digits])?;
    let file = File::open(path, READ_WRITE | CREATE_NEW | NOFOLLOW).ok()?;
    let mut header = MaybeUninit::<[u8; HEADER_BYTES]>::uninit();
    let header = sys::zeroed(&mut header);
    put(header, head::VERSION_AT, &VERSION.to_ne_bytes());
    put(header, head::WORK_PER_SAMPLE, &WORK_PER_SAMPLE.to_ne_bytes());
    put(header, 0, &MAGIC);
    if file.reserve(FILE_BYTES) && file.write_at(header, 0) {
        sys::link(path, name);
    }
    sys::unlink(path);
    Some(())
}

fn put(header: &mut [u8], at: usize, bytes: &[u8]) {
    let places = header.iter_mut().skip(at);
    places.zip(bytes).for_each(|(place, byte)| *place = *byte);
}

/// A 64-bit number of the file.
#[inline(always)]
pub(crate) fn long(at: usize) -> Option<&'static AtomicU64> {
    let mapped = MAPPED.load(Ordering::Acquire);
    if mapped.is_null() || at > FILE_BYTES - 8 {
        return None;
    }
    // SAFETY: the offset lies in the mapping, which has the length of the layout.
    let place = unsafe { mapped.add(at) };
    // SAFETY: the layout aligns numbers, and the mapping lasts as long as the process.
    Some(unsafe { AtomicU64::from_ptr(place.cast()) })
}

/// A 32-bit number of the file.
pub(crate) fn number(at: usize) -> Option<&'static AtomicU32> {
    let mapped = MAPPED.load(Ordering::Acquire);
    if mapped.is_null() || at > FILE_BYTES - 4 {
        return None;
    }
    // SAFETY: the offset lies in the mapping, which has the length of the layout.
    let place = unsafe { mapped.add(at) };
    // SAFETY: the layout aligns numbers, and the mapping lasts as long as the process.
    Some(unsafe { AtomicU32::from_ptr(place.cast()) })
}

/// Adds to a number of the file.
#[inline(always)]
pub(crate) fn add(at: usize, more: u64) {
    if let Some(number) = long(at) {
        number.fetch_add(more, RELAXED);
    }
}

/// Writes a text into a field, as much as fits.
fn set_text(at: usize, bytes: usize, text: &[u8]) {
    for (index, chunk) in text.chunks(8).take(bytes / 8).enumerate() {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(place, byte)| *place = *byte);
        if let Some(place) = long(at + index * 8) {
            place.store(u64::from_ne_bytes(word), RELAXED);
        }
    }
}

/// Claims the next entry of a table; 0, the entry of the others, if there is no room.
fn claim(table: Table, next: usize) -> u32 {
    let Some(next) = number(next) else { return 0 };
    // The counter stops not far beyond the room, so that it never wraps.
    if next.load(RELAXED) as usize >= table.entries {
        return 0;
    }
    let reference = next.fetch_add(1, RELAXED).wrapping_add(1);
    if (reference as usize) < table.entries { reference } else { 0 }
}

/// Claims an entry for this process.
pub(crate) fn claim_process(id: u32, parent: u32) -> u32 {
    let reference = claim(PROCESSES, head::PROCESSES);
    if reference != 0 {
        let at = PROCESSES.entry(reference as usize);
        for (field, value) in [(process::ID, id), (process::PARENT, parent)] {
            if let Some(place) = number(at + field) {
                place.store(value, RELAXED);
            }
        }
    }
    reference
}

/// Notes what a process is.
pub(crate) fn describe(process: u32, program: &[u8], isa: &str, is_from_file: bool) {
    let at = PROCESSES.entry(process as usize);
    set_text(at + process::PROGRAM, process::PROGRAM_BYTES, program);
    set_text(at + process::ISA, process::ISA_BYTES, isa.as_bytes());
    if let Some(place) = number(at + process::HAS_POLICY_FILE) {
        place.store(u32::from(is_from_file), RELAXED);
    }
}

/// Claims an entry for a thread.
pub(crate) fn claim_thread(process: u32) -> u32 {
    let reference = claim(THREADS, head::THREADS);
    if reference != 0
        && let Some(place) = number(THREADS.entry(reference as usize) + thread::PROCESS)
    {
        place.store(process, RELAXED);
    }
    reference
}

/// The reference of the module with this path, which is stored if it is new; 0 without room.
pub(crate) fn module(path: &[u8]) -> u32 {
    // FNV-1a (Fowler, Noll, Vo), 64 bits.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in path {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let hash = hash.max(1);
    let Some((at, reference, is_new)) = find(MODULES, module::HASH, hash) else { return 0 };
    if is_new {
        let path = path.get(path.len().saturating_sub(module::PATH_BYTES)..).unwrap_or(path);
        set_text(at + module::PATH, module::PATH_BYTES, path);
        if let Some(place) = number(at + module::LENGTH) {
            place.store(path.len() as u32, Ordering::Release);
        }
    }
    reference
}

/// The offset of a call site's entry: that of the others if there is no room.
pub(crate) fn site(module: u32, offset: usize) -> usize {
    const OFFSET_BITS: u32 = 48;
    let offset = offset as u64 & ((1 << OFFSET_BITS) - 1);
    let key = u64::from(module) << OFFSET_BITS | offset;
    match find(SITES, site::KEY, key) {
        Some((at, ..)) if key != 0 => at,
        _ => SITES.entry(0),
    }
}

/// The entries of a table that are tried before it counts as full.
const TRIES: usize = 64;

/// Finds the entry of a table whose field has this value, or gives a free entry the value. Returns
/// its offset, its reference and whether it is new. Entry 0 is never found.
fn find(table: Table, field: usize, value: u64) -> Option<(usize, u32, bool)> {
    let mixed = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let usable = table.entries - 1;
    for step in 0..TRIES {
        let reference = 1 + (mixed as usize).wrapping_add(step) % usable;
        let at = table.entry(reference);
        let place = long(at + field)?;
        let found = match place.load(Ordering::Acquire) {
            0 => place.compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire),
            other => Err(other),
        };
        match found {
            Ok(_) => return Some((at, reference as u32, true)),
            Err(other) if other == value => return Some((at, reference as u32, false)),
            Err(_) => {}
        }
    }
    None
}
