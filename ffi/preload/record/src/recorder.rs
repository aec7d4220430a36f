//! Whether to record, and the way of an event from a call into the file.

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

/// Names of DPDK's types that are told apart; later ones share the last tag.
const NAMES_MAX: usize = 512;

/// Keys below this have their value in the thread itself; glibc allocates room for later ones
/// (PTHREAD_KEY_2NDLEVEL_SIZE).
const KEY_MAX: u32 = 32;

/// The most that a process writes where `HAUL_RECORD_LIMIT` does not say, in bytes: some 500
/// million events, and less than a disk.
const LIMIT_BYTES: u64 = 4 << 30;

/// Everything that belongs to one process: in memory that is zeros again in a forked child.
struct State {
    phase: AtomicU32,
    file: File,
    /// A hash of each name; the tag is its place and 1.
    names: [AtomicU64; NAMES_MAX],
    threads: [Thread; THREADS_MAX],
}

/// What `State::phase` says. A child that was forked finds it unbegun.
const UNBEGUN: u32 = 0;
const BEGINNING: u32 = 1;
const RECORDING: u32 = 2;
const ENDED: u32 = 3;

/// Null where nothing is to be recorded.
static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
static KEY: AtomicU32 = AtomicU32::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(LIMIT_BYTES);

/// The number of the next thread that begins under a filter: above the kernel's (PID_MAX_LIMIT,
/// 2^22).
static UNNUMBERED: AtomicU32 = AtomicU32::new(1 << 31);

/// The process that recorded last: in a child, its parent.
static LAST_PROCESS: AtomicU32 = AtomicU32::new(0);

/// What the file's name is made of: absolute, for programs change their folder.
struct Base(UnsafeCell<([u8; PATH_BYTES], usize)>);
// SAFETY: written by the constructor alone, before `STATE` is set; read only where it is.
unsafe impl Sync for Base {}
static BASE: Base = Base(UnsafeCell::new(([0; PATH_BYTES], 0)));

/// Where a call's events go.
#[derive(Clone, Copy)]
pub(crate) struct Recorder {
    state: &'static State,
    pub(crate) thread: &'static Thread,
    number: u32,
}

impl Recorder {
    /// The calling thread's; `None` where nothing is recorded.
    pub(crate) fn current() -> Option<Self> {
        // SAFETY: it is null or a mapping that lasts as long as the process.
        let state = unsafe { STATE.load(Ordering::Acquire).as_ref() }?;
        let phase = state.phase.load(Ordering::Acquire);
        if phase != RECORDING && !begin(state, phase) {
            return None;
        }
        // SAFETY: the key was made before `STATE` was set, and is never deleted.
        let value = unsafe { libc::pthread_getspecific(KEY.load(Ordering::Relaxed)) }.addr() as u64;
        let process = u64::from(state.file.process.load(Ordering::Relaxed));
        let place = (value & 0xffff_ffff) as usize;
        // A child has its parent's values in its keys, and nobody has its places yet.
        let place = if value >> 32 == process { place } else { claim(state, process)? };
        let thread = state.threads.get(place)?;
        Some(Self { state, thread, number: thread.owner.load(Ordering::Relaxed) })
    }

    /// Maps beforehand what a process needs that makes no system call any more.
    pub(crate) fn reserve() {
        // SAFETY: as in `current`.
        let Some(state) = (unsafe { STATE.load(Ordering::Acquire).as_ref() }) else { return };
        if state.phase.load(Ordering::Acquire) == RECORDING {
            state.file.reserve();
        }
    }

    /// Ends the trace of a thread that may do nothing but read, write and end: it may not even
    /// read the processor's clock (prctl(2), PR_TSC_SIGSEGV).
    pub(crate) fn stop() {
        // SAFETY: as in `current`.
        let Some(state) = (unsafe { STATE.load(Ordering::Acquire).as_ref() }) else { return };
        if state.phase.swap(ENDED, Ordering::AcqRel) == RECORDING {
            say(&[
                b"the program allows itself only to read and write (seccomp, strict); what was \
              recorded is kept",
            ]);
        }
    }

    /// Whether a fault at the address was of a trace that somebody cut, and comes no more. The
    /// trace ends there.
    fn survives_cut(address: usize) -> bool {
        // SAFETY: as in `current`.
        let Some(state) = (unsafe { STATE.load(Ordering::Acquire).as_ref() }) else { return false };
        let (reserve, length) = state.file.reserved();
        let is_in = !reserve.is_null() && address.wrapping_sub(reserve.addr()) < length;
        // SAFETY: it is the whole reserve.
        let survives = (is_in && unsafe { guard::replace_page(reserve.addr(), length) })
            || state.threads.iter().any(|thread| thread.survives_cut(address));
        if survives {
            end(state, Failure::Cut);
        }
        survives
    }

    /// The clock that events are timed by.
    pub(crate) fn now() -> u64 {
        file::clock_ns(libc::CLOCK_MONOTONIC)
    }

    /// Records a call that began at `start`, by [`now`](Self::now), and ends now.
    pub(crate) fn record_since(self, start: u64, call: Call<'_>) {
        self.put(start, Self::now().saturating_sub(start), call);
    }

    /// Records a call that begins now.
    pub(crate) fn record(self, call: Call<'_>) {
        self.put(Self::now(), 0, call);
    }

    /// The tag of a DPDK type, whose name is recorded when it is first seen.
    pub(crate) fn tag(self, name: &[u8]) -> u16 {
        // FNV-1a, 64 bits (RFC draft-eastlake-fnv): names are few and short.
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

/// Begins the trace of this process: after a fork, in the child's first call.
#[cold]
fn begin(state: &State, phase: u32) -> bool {
    let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
    if phase != UNBEGUN || state.phase.compare_exchange(UNBEGUN, BEGINNING, order, relaxed).is_err()
    {
        return false;
    }
    if filter::is_on() {
        // A child of a process that filters its system calls, and so does it.
        state.phase.store(ENDED, Ordering::Release);
        return false;
    }
    let base = base();
    let parent = LAST_PROCESS.load(Ordering::Relaxed);
    match state.file.create(base, parent, LIMIT.load(Ordering::Relaxed)) {
        Ok(()) => {
            LAST_PROCESS.store(state.file.process.load(Ordering::Relaxed), Ordering::Relaxed);
            // A child inherits it. Where it cannot be had, a trace that is cut is the program's
            // end.
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

/// Takes a place for the calling thread.
#[cold]
fn claim(state: &State, process: u64) -> Option<usize> {
    let place = if filter::is_on() {
        // Nobody may be asked for the thread's number: one that the kernel gives to no thread.
        take(state, UNNUMBERED.fetch_add(1, Ordering::Relaxed))?
    } else {
        let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        take(state, number).or_else(|| {
            free_places_of_the_dead(state);
            take(state, number)
        })?
    };
    let value = ptr::without_provenance::<c_void>(((process << 32) | place as u64) as usize);
    // SAFETY: the key is ours, and below KEY_MAX, so that nothing is allocated.
    unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed), value) };
    Some(place)
}

fn take(state: &State, number: u32) -> Option<usize> {
    let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
    let is_taken =
        |thread: &Thread| thread.owner.compare_exchange(0, number, order, relaxed).is_ok();
    let place = state.threads.iter().position(is_taken)?;
    // Whoever had it may have died in the middle of a call.
    state.threads.get(place)?.reset();
    Some(place)
}

/// A thread may allocate after its keys were destroyed, and so take a place that it never leaves.
#[cold]
fn free_places_of_the_dead(state: &State) {
    let process = state.file.process.load(Ordering::Relaxed);
    // SAFETY: it has no conditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno is this thread's own, as long as it lives.
    let before = unsafe { errno.read() };
    for thread in &state.threads {
        let number = thread.owner.load(Ordering::Relaxed);
        // SAFETY: signal 0 is none: the kernel only looks whether the thread is there.
        let alive = unsafe { libc::syscall(libc::SYS_tgkill, process, number, 0) } == 0;
        if number != 0 && !alive {
            let (order, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = thread.owner.compare_exchange(number, 0, order, relaxed);
        }
    }
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// A thread ends: the next one goes on in its block.
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

/// What tells that a program has a malloc of its own, where the numbers of failures stand.
const PASSED_BY: u32 = 10_003;

/// Ends the trace of this process for good, and says so once.
#[cold]
fn end(state: &State, failure: Failure) {
    if state.phase.swap(ENDED, Ordering::AcqRel) == ENDED || filter::is_on() {
        return;
    }
    let number = match failure {
        Failure::System(errno) => errno.raw_os_error().unsigned_abs(),
        // Above every errno (MAX_ERRNO, 4095).
        Failure::Limit => 10_000,
        Failure::Replaced => 10_001,
        Failure::Cut => 10_002,
        Failure::Filtered => return,
    };
    // What a cut trace has to say is said in a signal handler, whose stack may have no room for a
    // path: once for each process.
    if matches!(failure, Failure::Cut) || tree::is_first(base(), number) {
        tell(failure);
    }
}

fn tell(failure: Failure) {
    match failure {
        Failure::System(errno) => {
            let mut digits = [0; 10];
            let errno = file::decimal(errno.raw_os_error().unsigned_abs(), &mut digits);
            say(&[
                b"cannot write the trace that HAUL_RECORD names: errno ",
                errno,
                b"; what was recorded is kept; make room, or name another file (told once for all \
                  processes of a run)",
            ]);
        }
        Failure::Limit => {
            say(&[b"the trace has come to its limit; what was recorded is kept; raise \
              HAUL_RECORD_LIMIT (bytes, default 4 GiB) or the process's file size limit"])
        }
        Failure::Replaced => say(&[
            b"another file stands where the trace was; nothing more is recorded; name a file in \
              HAUL_RECORD that nobody moves",
        ]),
        Failure::Cut => say(&[
            b"the trace was made shorter while it was written; nothing more is recorded; name a \
              file in HAUL_RECORD that nobody cuts",
        ]),
        Failure::Filtered => {}
    }
}

/// One line on standard error. Whether anybody reads it changes nothing.
fn say(parts: &[&[u8]]) {
    let mut line = [0; 512];
    let mut length = 0;
    for part in [&b"haul_record: "[..]].iter().chain(parts).chain(&[&b"\n"[..]]) {
        for (place, byte) in line.iter_mut().skip(length).zip(*part) {
            *place = *byte;
        }
        length = (length + part.len()).min(line.len());
    }
    // SAFETY: descriptor 2 is standard error, open or not: a write to a closed one fails.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(stderr, line.get(..length).unwrap_or_default());
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Runs before the program's own code, after libc's.
extern "C" fn constructor() {
    // Now, and not in the program's first call, which may be made in a signal handler.
    real::is_ready();
    // SAFETY: it reads what the kernel gave the process.
    let is_set_user_id = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // Whoever starts such a program must not choose where it writes.
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
    if real::is_passed_by() {
        // Said once for all processes of a run, as what ends a trace is.
        if tree::is_first(base(), PASSED_BY) {
            say(&[
                b"the program has a malloc of its own, which comes before every other: nothing of it is \
                  recorded; build it without, to record what it asks for",
            ]);
        }
        return Ok(());
    }
    let mut key = 0;
    // SAFETY: it writes the key, and calls `leave` with the value of each thread that ends.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) };
    if made != 0 || key >= KEY_MAX {
        return Err(b"the program has used up its thread keys; preload this library first");
    }
    KEY.store(key, Ordering::Relaxed);
    let state = map_state().ok_or(&b"no memory that a fork wipes; it needs Linux 4.14"[..])?;
    STATE.store(state.as_ptr(), Ordering::Release);
    // A name that cannot be used is told now, and not in the first call.
    let _ = Recorder::current();
    Ok(())
}

/// Keeps the name, made absolute. `None` where it is none, or too long.
fn set_base(name: &[u8]) -> Option<()> {
    /// Beside the name, the file's has a process, a number, and as many processes as it has `%p`.
    const NAME_MAX: usize = 4000;
    if name.is_empty() || name.len() > NAME_MAX || name.ends_with(b"/") {
        return None;
    }
    // SAFETY: the constructor is alone, and `STATE` is not set.
    let (path, length) = unsafe { &mut *BASE.0.get() };
    if !name.starts_with(b"/") {
        // SAFETY: it writes as many bytes at most.
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
    // SAFETY: the program's own code has not begun: nobody changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: null, or a C string of the environment, which outlives the constructor.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

fn map_state() -> Option<NonNull<State>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let length = size_of::<State>();
    // SAFETY: a new mapping, at no address that anything else has.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE)
    };
    let state = mapped.ok()?;
    // SAFETY: our own mapping, whole. It is wiped in a child alone.
    unsafe { rustix::mm::madvise(state, length, Advice::LinuxWipeOnFork) }.ok()?;
    // Zeros are a state: no phase, no file, no names, no threads. And a page is aligned enough.
    NonNull::new(state.cast())
}

const _: () = assert!(align_of::<State>() <= 4096);
