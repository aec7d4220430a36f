//! Breakpoints of the processor on a target: whether the program reads its first bytes, and when.
//!
//! A sample is two perf events of the calling thread: one counts reads and writes, one counts
//! writes. Their rings, which the kernel writes, say when. The descriptors are closed at once,
//! because the mappings of the rings keep the events alive. Each event ends by itself after its
//! last hit, so that a target that is used in a loop costs no more than one that is used once.
//!
//! A hit costs microseconds, mostly in the exception. Two reads by the recorder measure that: the
//! time between the second one and the program's, less the time between the two, is the program's.

use core::ffi::c_long;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::{filter, sys};

/// The samples of a process that may be armed at the same time.
const ARMED_MAX: usize = 8;

/// The ticks after which a target counts as not read: some 0.1 ms, which is far above the 1 us that
/// replays ask about, and as long as the sample itself takes.
const WINDOW_TICKS: u64 = 1 << 18;

/// The ticks after which another thread may end the sample of a thread that makes no more calls:
/// some 0.3 s.
const STALE_TICKS: u64 = 1 << 30;

/// The reads by the recorder, before the program's first access.
const OWN_HITS: usize = 2;

/// The owner of a sample that a thread is changing.
const BUSY: u32 = u32::MAX;

/// The samples of a process. All zeros mean that none is armed; a forked child starts so.
pub(crate) struct Samples([Armed; ARMED_MAX]);

#[derive(Debug)]
struct Armed {
    /// A reference to the thread, `BUSY`, or 0.
    owner: AtomicU32,
    accesses: AtomicUsize,
    writes: AtomicUsize,
    since_ticks: AtomicU64,
    call: AtomicU64,
    site: AtomicU64,
}

/// The state of a thread's sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// The program has not used the target yet.
    Pending,
    /// The sample ended without a result.
    Lost,
    /// The call, its site, and the time until its target was read.
    Done { call: u64, site: u64, read_ns: Option<u64> },
}

/// The reason why a sample was not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another sample may be armed later.
    Now,
    /// The kernel does not let this process use breakpoints.
    Always,
}

impl Samples {
    /// Arms a sample of a call that has just ended. Returns a reference to it.
    ///
    /// # Safety
    /// `size` bytes at `target` must be readable, and `size` above 0.
    pub(crate) unsafe fn arm(
        &self,
        owner: u32,
        (call, site): (u64, u64),
        target: *const u8,
        size: usize,
    ) -> Result<u32, Refusal> {
        let index = self.0.iter().position(Armed::claim).ok_or(Refusal::Now)?;
        let armed = self.0.get(index).ok_or(Refusal::Now)?;
        let bytes = watched_bytes(target, size);
        let rings = Ring::open(HW_BREAKPOINT_W, target, bytes, 1).and_then(|writes| {
            // The hit that ends the event has a late time, so it is not the one that counts.
            let hits = OWN_HITS as u64 + 2;
            match Ring::open(HW_BREAKPOINT_RW, target, bytes, hits) {
                Ok(accesses) => Ok((accesses, writes)),
                Err(refusal) => {
                    writes.close();
                    Err(refusal)
                }
            }
        });
        let (accesses, writes) = match rings {
            Ok(rings) => rings,
            Err(refusal) => {
                armed.owner.store(0, Ordering::Release);
                return Err(refusal);
            }
        };
        armed.accesses.store(accesses.0.expose_provenance(), Ordering::Relaxed);
        armed.writes.store(writes.0.expose_provenance(), Ordering::Relaxed);
        armed.call.store(call, Ordering::Relaxed);
        armed.site.store(site, Ordering::Relaxed);
        for _ in 0..OWN_HITS {
            // SAFETY: the caller's promise.
            let _ = unsafe { target.read_volatile() };
        }
        armed.since_ticks.store(sys::ticks(), Ordering::Relaxed);
        armed.owner.store(owner, Ordering::Release);
        Ok(index as u32 + 1)
    }

    /// Checks the sample of a thread. Unless it is pending, it has ended.
    pub(crate) fn check(&self, owner: u32, reference: u32) -> Checked {
        let Some(armed) = self.0.get(reference as usize - 1) else { return Checked::Lost };
        if !armed.lock(owner) {
            // Another thread ended it, because this one made no call for a long time.
            return Checked::Lost;
        }
        let accesses = Ring(ptr::with_exposed_provenance_mut(armed.accesses.load(RELAXED)));
        let writes = Ring(ptr::with_exposed_provenance_mut(armed.writes.load(RELAXED)));
        let is_over = armed.age() > WINDOW_TICKS;
        let hits = accesses.hits();
        let is_used = hits > OWN_HITS;
        if !is_used && !is_over {
            armed.owner.store(owner, Ordering::Release);
            return Checked::Pending;
        }
        let read_ns = if is_used { read_ns(accesses, writes) } else { None };
        let (call, site) = (armed.call.load(RELAXED), armed.site.load(RELAXED));
        armed.end();
        match hits >= OWN_HITS {
            true => Checked::Done { call, site, read_ns },
            // The processor is emulated, and its breakpoints do not work.
            false => Checked::Lost,
        }
    }
}

const RELAXED: Ordering = Ordering::Relaxed;

impl Armed {
    /// Claims a sample that is not armed, or whose thread makes no more calls.
    fn claim(&self) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        if owner == 0 {
            return self.lock(0);
        }
        if owner == BUSY || self.age() < STALE_TICKS || !self.lock(owner) {
            return false;
        }
        self.close();
        true
    }

    fn lock(&self, owner: u32) -> bool {
        let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        self.owner.compare_exchange(owner, BUSY, order, relaxed).is_ok()
    }

    fn age(&self) -> u64 {
        sys::ticks().saturating_sub(self.since_ticks.load(RELAXED))
    }

    fn close(&self) {
        for ring in [&self.accesses, &self.writes] {
            Ring(ptr::with_exposed_provenance_mut(ring.load(RELAXED))).close();
        }
    }

    fn end(&self) {
        self.close();
        self.owner.store(0, Ordering::Release);
    }
}

/// The time until the program read the target; `None` if it wrote first.
fn read_ns(accesses: Ring, writes: Ring) -> Option<u64> {
    let [first, second, third] = [0, 1, 2].map(|index| accesses.hit(index));
    let own_ns = second.1.saturating_sub(first.1);
    let is_write = writes.hits() > 0 && {
        let write = writes.hit(0);
        write.0 == third.0 && write.1.abs_diff(third.1) < own_ns.max(1)
    };
    (!is_write).then(|| third.1.saturating_sub(second.1).saturating_sub(own_ns))
}

/// The bytes from the target on that one breakpoint watches: a power of two to which the target is
/// aligned, at most 8.
fn watched_bytes(target: *const u8, size: usize) -> u64 {
    let bytes =
        [8, 4, 2].into_iter().find(|bytes| target.addr().is_multiple_of(*bytes) && *bytes <= size);
    bytes.unwrap_or(1) as u64
}

/// `linux/hw_breakpoint.h`.
const HW_BREAKPOINT_W: u32 = 2;
const HW_BREAKPOINT_RW: u32 = 3;

/// `struct perf_event_attr` of `linux/perf_event.h`, in its fifth size.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
    bp_len: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
}

const _: () = assert!(size_of::<Attributes>() == 104);

/// The ring of an event: a page of facts and a page of hits. Its address may be null.
#[derive(Clone, Copy)]
struct Ring(*mut u8);

/// The offset of `data_head` in the page of facts (`struct perf_event_mmap_page`).
const DATA_HEAD: usize = 1024;

/// The bytes of a hit: a header, the address of the instruction and the time.
const HIT_BYTES: usize = 24;

impl Ring {
    /// Opens an event that ends after `hits` hits.
    fn open(kind: u32, target: *const u8, bytes: u64, hits: u64) -> Result<Self, Refusal> {
        const PERF_TYPE_BREAKPOINT: u32 = 5;
        const PERF_SAMPLE_IP: u64 = 1;
        const PERF_SAMPLE_TIME: u64 = 1 << 2;
        const DISABLED: u64 = 1;
        const EXCLUDE_KERNEL: u64 = 1 << 5;
        const EXCLUDE_HV: u64 = 1 << 6;
        const USE_CLOCKID: u64 = 1 << 25;
        const PERF_FLAG_FD_CLOEXEC: u64 = 1 << 3;
        let attributes = Attributes {
            kind: PERF_TYPE_BREAKPOINT,
            size: size_of::<Attributes>() as u32,
            sample_period: 1,
            sample_type: PERF_SAMPLE_IP | PERF_SAMPLE_TIME,
            flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HV | USE_CLOCKID,
            bp_type: kind,
            bp_addr: target.addr() as u64,
            bp_len: bytes,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let at = (&raw const attributes).expose_provenance() as u64;
        let any = u64::MAX;
        // SAFETY: the kernel reads the attributes, a local variable, and returns a descriptor.
        let file = unsafe {
            sys::call(libc::SYS_perf_event_open, [at, 0, any, any, PERF_FLAG_FD_CLOEXEC, 0])
        };
        let file = u64::try_from(file).map_err(|_| refusal(file))?;
        let ring = Self::begin(file, hits);
        // SAFETY: the descriptor was just opened, and nothing else refers to it.
        unsafe { sys::call(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
        ring
    }

    fn begin(file: u64, hits: u64) -> Result<Self, Refusal> {
        /// `PERF_EVENT_IOC_REFRESH`: enables the event for a number of hits.
        const REFRESH: u64 = 0x2402;
        let protection = u64::from((ProtFlags::READ | ProtFlags::WRITE).bits());
        let flags = u64::from(MapFlags::SHARED.bits());
        let length = Self::length() as u64;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let mapped = unsafe { sys::call(libc::SYS_mmap, [0, length, protection, flags, file, 0]) };
        let mapped = usize::try_from(mapped).map_err(|_| Refusal::Now)?;
        let ring = Self(ptr::with_exposed_provenance_mut(mapped));
        // SAFETY: the call changes the event of this descriptor only.
        let begun = unsafe { sys::call(libc::SYS_ioctl, [file, REFRESH, hits, 0, 0, 0]) };
        if begun < 0 {
            ring.close();
            return Err(Refusal::Now);
        }
        Ok(ring)
    }

    fn length() -> usize {
        2 * rustix::param::page_size()
    }

    /// The number of hits.
    fn hits(self) -> usize {
        // SAFETY: the ring is mapped, and its first page has the field.
        let head = unsafe { self.0.add(DATA_HEAD) };
        // SAFETY: the field is aligned, and the kernel stores it atomically.
        let head = unsafe { AtomicU64::from_ptr(head.cast()) };
        head.load(Ordering::Acquire) as usize / HIT_BYTES
    }

    /// The address of the instruction of a hit, and its time. The hit must have been counted.
    fn hit(self, index: usize) -> (u64, u64) {
        let at = rustix::param::page_size() + index * HIT_BYTES;
        let word = |word: usize| {
            // SAFETY: the second page of the ring has the hits from its start on; there are at most
            // four.
            let place = unsafe { self.0.add(at + 8 * word) }.cast::<u64>();
            // SAFETY: hits are aligned to words, and the kernel wrote it before it counted it.
            unsafe { place.read_volatile() }
        };
        (word(1), word(2))
    }

    /// Ends the event.
    fn close(self) {
        // SAFETY: it is the whole mapping of a ring, which its owner uses no more.
        let _ = unsafe { rustix::mm::munmap(self.0.cast(), Self::length()) };
    }
}

/// What an error of `perf_event_open` says about later attempts.
fn refusal(error: i64) -> Refusal {
    match (-error) as i32 {
        // All breakpoints of the processor are in use, or the process has no descriptor left.
        libc::ENOSPC | libc::EBUSY | libc::EMFILE | libc::ENFILE | libc::ENOMEM => Refusal::Now,
        _ => Refusal::Always,
    }
}

/// Whether the process may make the system calls of a sample.
pub(crate) fn is_allowed() -> bool {
    !filter::is_on()
}

const _: () = assert!(size_of::<c_long>() == 8);
