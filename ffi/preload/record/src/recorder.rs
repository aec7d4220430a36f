//! The state of the recording, and the path of an event from a call to the file.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use haul_heap::guard;
use haul_model::trace::{Call, Event};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::file::{self, Failure, File, PATH_BYTES};
use crate::filter;
use crate::real;
use crate::thread::{THREADS_MAX, Thread};
use crate::tree;

/// The number of DPDK's type names that have a separate tag. Later names share the last tag.
const NAMES_MAX: usize = 512;

/// Keys below this number store their value in the thread itself; glibc allocates memory for the
/// values of later keys (PTHREAD_KEY_2NDLEVEL_SIZE).
const KEY_MAX: u32 = 32;

/// The default of `HAUL_RECORD_LIMIT`, the largest trace of a process in bytes: some 500 million
/// events, and less than a disk.
const LIMIT_BYTES: u64 = 4 << 30;

/// The state of one process, in memory that the kernel sets to zeros in a forked child.
struct State {
    phase: AtomicU32,
    file: File,
    /// A hash of each name; the tag of a name is its index plus 1.
    names: [AtomicU64; NAMES_MAX],
    threads: [Thread; THREADS_MAX],
}

/// The values of `State::phase`. A forked child starts with `UNBEGUN`.
const UNBEGUN: u32 = 0;
const BEGINNING: u32 = 1;
const RECORDING: u32 = 2;
const ENDED: u32 = 3;

/// Null if nothing is recorded.
static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
static KEY: AtomicU32 = AtomicU32::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(LIMIT_BYTES);

/// The number of the next thread that starts under a filter. The number is above the kernel's
/// thread IDs (PID_MAX_LIMIT, 2^22).
static UNNUMBERED: AtomicU32 = AtomicU32::new(1 << 31);

/// The process that recorded last. In a forked child, that process is the parent.
static LAST_PROCESS: AtomicU32 = AtomicU32::new(0);

/// The base of the file's name. The base is an absolute path, because programs change their
/// working directory.
struct Base(UnsafeCell<([u8; PATH_BYTES], usize)>);
// SAFETY: only the constructor writes it, before `STATE` is set; it is not read before `STATE` is
// set.
unsafe impl Sync for Base {}
static BASE: Base = Base(UnsafeCell::new(([0; PATH_BYTES], 0)));

/// The destination of a call's events.
#[derive(Clone, Copy)]
pub(crate) struct Recorder {
    state: &'static State,
    pub(crate) thread: &'static Thread,
    number: u32,
}

impl Recorder {
    /// The recorder of the calling thread; `None` if nothing is recorded.
    pub(crate) fn current() -> Option<Self> {
        // SAFETY: the pointer is null, or leads to a mapping that lasts as long as the process.
        let state = unsafe { STATE.load(Ordering::Acquire).as_ref() }?;
        let phase = state.phase.load(Ordering::Acquire);
        if phase != RECORDING && !begin(state, phase) {
            return None;
        }
        // SAFETY: the key was created before `STATE` was set, and is never deleted.
        let value = unsafe { libc::pthread_getspecific(KEY.load(Ordering::Relaxed)) }.addr() as u64;
        let process = u64::from(state.file.process.load(Ordering::Relaxed));
        let place = (value & 0xffff_ffff) as usize;
        // A forked child has its parent's key values, but its own thread slots are not claimed yet.
        let place = if value >> 32 == process { place } else { claim(state, process)? };
        let thread = state.threads.get(place)?;
        Some(Self { state, thread, number: thread.owner.load(Ordering::Relaxed) })
    }

    /// Maps blocks in advance for a process that will make no more system calls.
    pub(crate) fn reserve() {
        // SAFETY: as in `current`.
        let Some(state) = (unsafe { STATE.load(Ordering::Acquire).as_ref() }) else { return };
        if state.phase.load(Ordering::Acquire) == RECORDING {
            state.file.reserve();
        }
    }

    /// Ends the trace of a thread that may only read, write and exit. Such a thread may not even
    /// read the processor's clock (prctl(2), PR_TSC_SIGSEGV).
    pub(crate) fn stop() {
        // SAFETY: as in `current`.
        let Some(state) = (unsafe { STATE.load(Ordering::Acquire).as_ref() }) else { return };
        if state.phase.swap(ENDED, Ordering::AcqRel) == RECORDING {
            say(&[
                b"the program restricts itself to read and write (seccomp, strict); the trace up \
              to here is kept",
            ]);
        }
    }

    /// Whether a fault at the address came from a trace that was truncated, and will not recur.
    /// If so, the trace ends.
    fn survives_cut(address: usize) -> bool {
        // SAFETY: as in `current`.
        let Some(state) = (unsafe { STATE.load(Ordering::Acquire).as_ref() }) else { return false };
        let (reserve, length) = state.file.reserved();
        let is_in = !reserve.is_null() && address.wrapping_sub(reserve.addr()) < length;
        // SAFETY: the range is the whole reserve.
        let survives = (is_in && unsafe { guard::replace_page(reserve.addr(), length) })
            || state.threads.iter().any(|thread| thread.survives_cut(address));
        if survives {
            end(state, Failure::Cut);
        }
        survives
    }

    /// The time of the clock that times events.
    pub(crate) fn now() -> u64 {
        file::clock_ns(libc::CLOCK_MONOTONIC)
    }

    /// Records a call that began at `start`, a time of [`now`](Self::now), and ends now.
    pub(crate) fn record_since(self, start: u64, call: Call<'_>) {
        self.put(start, Self::now().saturating_sub(start), call);
    }

    /// Records a call that begins now.
    pub(crate) fn record(self, call: Call<'_>) {
        self.put(Self::now(), 0, call);
    }

    /// The tag of a DPDK type. The first use of a name records it.
    pub(crate) fn tag(self, name: &[u8]) -> u16 {
        // FNV-1a, 64 bits (RFC draft-eastlake-fnv). This hash is sufficient, because names are
        // few and short.
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let hash = hash.max(1);
        for (index, slot) in self.state.names.iter().enumerate() {
            let tag = index as u16 + 1;
            let found = match slot.load(Ordering::Relaxed) {
                0 => slot.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed),
                taken => Err(taken),
            };
            match found {
                Ok(_) => {
                    self.record(Call::Name { tag, name });
                    return tag;
                }
                Err(other) if other == hash => return tag,
                Err(_) => {}
            }
        }
        NAMES_MAX as u16
    }

    fn put(self, start: u64, took_ns: u64, call: Call<'_>) {
        let time_ns = self.state.file.since_start_ns(start);
        let event = Event { time_ns, took_ns, thread: self.number, call };
        if let Err(failure) = self.thread.record(&self.state.file, &event) {
            end(self.state, failure);
        }
    }
}

/// Begins the trace of this process. A forked child begins its trace in its first call.
#[cold]
fn begin(state: &State, phase: u32) -> bool {
    let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
    if phase != UNBEGUN || state.phase.compare_exchange(UNBEGUN, BEGINNING, order, relaxed).is_err()
    {
        return false;
    }
    if filter::is_on() {
        // The parent filters its system calls, and the child inherits the filter.
        state.phase.store(ENDED, Ordering::Release);
        return false;
    }
    let base = base();
    let parent = LAST_PROCESS.load(Ordering::Relaxed);
    match state.file.create(base, parent, LIMIT.load(Ordering::Relaxed)) {
        Ok(()) => {
            LAST_PROCESS.store(state.file.process.load(Ordering::Relaxed), Ordering::Relaxed);
            // A child inherits the handler. If the handler cannot be installed, truncating the
            // trace ends the program.
            if !guard::is_on() {
                let _ = guard::install_for(Recorder::survives_cut);
            }
            state.phase.store(RECORDING, Ordering::Release);
            true
        }
        Err(failure) => {
            end(state, failure);
            false
        }
    }
}

fn base() -> &'static [u8] {
    // SAFETY: the constructor wrote it before `STATE` was set.
    let (path, length) = unsafe { &*BASE.0.get() };
    path.get(..*length).unwrap_or_default()
}

/// Claims a slot for the calling thread.
#[cold]
fn claim(state: &State, process: u64) -> Option<usize> {
    let place = if filter::is_on() {
        // The kernel cannot be asked for the thread's ID, so the thread gets a number that the
        // kernel does not use.
        take(state, UNNUMBERED.fetch_add(1, Ordering::Relaxed))?
    } else {
        let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        take(state, number).or_else(|| {
            free_places_of_the_dead(state);
            take(state, number)
        })?
    };
    let value = ptr::without_provenance::<c_void>(((process << 32) | place as u64) as usize);
    // SAFETY: the recorder created the key, and it is below KEY_MAX, so nothing is allocated.
    unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed), value) };
    Some(place)
}

fn take(state: &State, number: u32) -> Option<usize> {
    let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
    let is_taken =
        |thread: &Thread| thread.owner.compare_exchange(0, number, order, relaxed).is_ok();
    let place = state.threads.iter().position(is_taken)?;
    // The previous owner may have ended in the middle of a call.
    state.threads.get(place)?.reset();
    Some(place)
}

/// Frees the slots of threads that have ended. A thread may allocate after its keys were destroyed,
/// and claim a slot that it never releases.
#[cold]
fn free_places_of_the_dead(state: &State) {
    let process = state.file.process.load(Ordering::Relaxed);
    // SAFETY: the call has no conditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno belongs to this thread and lives as long as it.
    let before = unsafe { errno.read() };
    for thread in &state.threads {
        let number = thread.owner.load(Ordering::Relaxed);
        // SAFETY: signal 0 is not sent: the kernel only checks whether the thread exists.
        let alive = unsafe { libc::syscall(libc::SYS_tgkill, process, number, 0) } == 0;
        if number != 0 && !alive {
            let (order, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = thread.owner.compare_exchange(number, 0, order, relaxed);
        }
    }
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// Releases the slot of a thread that ends. The next owner continues in the slot's block.
unsafe extern "C" fn leave(value: *mut c_void) {
    let value = value.addr() as u64;
    // SAFETY: as in `current`.
    let Some(state) = (unsafe { STATE.load(Ordering::Acquire).as_ref() }) else { return };
    if value >> 32 == u64::from(state.file.process.load(Ordering::Relaxed))
        && let Some(thread) = state.threads.get((value & 0xffff_ffff) as usize)
    {
        thread.owner.store(0, Ordering::Release);
    }
}

/// The number that stands for the report that a program has its own malloc. The number is used
/// like a failure's number.
const HAS_OWN_MALLOC: u32 = 10_003;

/// Ends the trace of this process permanently, and reports it once.
#[cold]
fn end(state: &State, failure: Failure) {
    if state.phase.swap(ENDED, Ordering::AcqRel) == ENDED || filter::is_on() {
        return;
    }
    let number = match failure {
        Failure::System(errno) => errno.raw_os_error().unsigned_abs(),
        // These numbers are above every errno (MAX_ERRNO, 4095).
        Failure::Limit => 10_000,
        Failure::Replaced => 10_001,
        Failure::Cut => 10_002,
        Failure::Filtered => return,
    };
    // A truncated trace is reported in a signal handler, whose stack may have no room for a path.
    // A truncated trace is therefore reported once for each process.
    if matches!(failure, Failure::Cut) || tree::is_first(base(), number) {
        report(failure);
    }
}

fn report(failure: Failure) {
    match failure {
        Failure::System(errno) => {
            let mut digits = [0; 10];
            let errno = file::decimal(errno.raw_os_error().unsigned_abs(), &mut digits);
            say(&[
                b"cannot write the trace that HAUL_RECORD names: errno ",
                errno,
                b"; the trace up to here is kept; make room, or name another file (reported once \
                  for all processes of a run)",
            ]);
        }
        Failure::Limit => {
            say(&[b"the trace has reached its limit; the trace up to here is kept; raise \
              HAUL_RECORD_LIMIT (bytes, default 4 GiB) or the process's file size limit"])
        }
        Failure::Replaced => {
            say(&[b"another file has the trace's name; nothing more is recorded; name a file in \
              HAUL_RECORD that no program moves or replaces"])
        }
        Failure::Cut => say(&[
            b"the trace was truncated while it was written; nothing more is recorded; name a file \
              in HAUL_RECORD that no program truncates",
        ]),
        Failure::Filtered => {}
    }
}

/// Writes one line to standard error and ignores errors.
fn say(parts: &[&[u8]]) {
    let mut line = [0; 512];
    let mut length = 0;
    for part in [&b"haul_record: "[..]].iter().chain(parts).chain(&[&b"\n"[..]]) {
        for (place, byte) in line.iter_mut().skip(length).zip(*part) {
            *place = *byte;
        }
        length = (length + part.len()).min(line.len());
    }
    // SAFETY: descriptor 2 is standard error, open or not: a write to a closed descriptor fails.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(stderr, line.get(..length).unwrap_or_default());
}

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
