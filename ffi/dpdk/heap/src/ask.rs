//! Handles requests that DPDK refused: decides whether idle memory of the heaps would suffice,
//! and returns as much of this memory to DPDK as the request needs.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::dpdk::{SocketStats, error_number};
use crate::dropin::Dropin;
use crate::lifecycle;
use crate::request::Request;

/// The largest request for which idle memory is returned to DPDK, in bytes. A larger size is a
/// mistake (1 TiB; DPDK reserves addresses for 512 GiB at most, RTE_MAX_MEM_MB).
const REQUEST_MAX: usize = 1 << 40;

/// The largest number of retries with DPDK. Before each retry twice as much memory is returned as
/// before the previous retry, so this limit matters only while extents are in transit.
const ROUNDS: u32 = 64;

/// How long to wait for an extent in transit. DPDK needs some 10 ms to clear and unmap the
/// longest extent.
const PATIENCE: Duration = Duration::from_millis(100);

/// Contains a folder for each size of huge pages, with the counters of the kernel's pool
/// (hugetlbpage.rst).
const POOLS: &str = "/sys/kernel/mm/hugepages";

/// Threads of this process that are allocating from DPDK or returning memory to it.
static DPDK_CALLS: AtomicU32 = AtomicU32::new(0);

/// Marks that this thread allocates from DPDK or returns memory to it, which can take long under
/// DPDK's lock.
pub(crate) struct DpdkCall {
    /// The result of [`Directory::transit_epoch`](crate::directory::Directory::transit_epoch) when
    /// the call began.
    before: Option<u32>,
}

impl DpdkCall {
    pub(crate) fn begin() -> Self {
        lifecycle::note_dpdk_use();
        DPDK_CALLS.fetch_add(1, Relaxed);
        let dropin = lifecycle::current().filter(|_| !lifecycle::is_over());
        Self { before: dropin.and_then(|dropin| dropin.directory.transit_epoch()) }
    }

    /// Whether an extent started or ended a transit since the call began.
    fn has_seen_transit(&self, dropin: &Dropin) -> bool {
        self.before.is_none() || dropin.directory.transit_epoch() != self.before
    }
}

impl Drop for DpdkCall {
    fn drop(&mut self) {
        DPDK_CALLS.fetch_sub(1, Relaxed);
    }
}

/// Whether a thread of this process is allocating from DPDK. During that time, a thread that does
/// not need memory at once should not ask DPDK, because DPDK's locks spin, possibly on the
/// processor that the other thread needs.
pub(crate) fn is_dpdk_busy() -> bool {
    DPDK_CALLS.load(Relaxed) != 0
}

impl Request {
    /// Asks DPDK, and asks again after the heaps have returned idle memory, in steps that double
    /// in size. Each step costs DPDK some milliseconds per 64 MiB, which it clears; a refusal
    /// costs tens of microseconds.
    ///
    /// `ask_heaps` asks the heaps that were not asked before. `ask_heaps` runs before memory is
    /// returned, because from the same memory a heap makes two to three times as many small
    /// blocks as DPDK. `ask_heaps` runs again at the end, because memory may have been in transit
    /// meanwhile.
    pub(crate) fn ask<T>(self, ask: impl Fn() -> *mut T, ask_heaps: impl Fn() -> *mut T) -> *mut T {
        let call = DpdkCall::begin();
        let sources: [&dyn Fn() -> *mut T; 4] =
            [&ask, &ask_heaps, &|| self.ask_again(&call, &ask), &ask_heaps];
        sources.iter().map(|source| source()).find(|given| !given.is_null()).unwrap_or(null_mut())
    }

    /// Like [`Request::ask`], for functions that report the reason for a failure in `rte_errno`.
    pub(crate) fn ask_with_errno<T>(self, ask: impl Fn() -> *mut T) -> *mut T {
        let call = DpdkCall::begin();
        let given = ask();
        let is_memory_lacking = || error_number().is_none_or(|number| number == libc::ENOMEM);
        if given.is_null() && is_memory_lacking() { self.ask_again(&call, ask) } else { given }
    }

    #[cold]
    fn ask_again<T>(self, call: &DpdkCall, ask: impl Fn() -> *mut T) -> *mut T {
        let mut given = null_mut();
        if lifecycle::is_over() {
            return given;
        }
        let Some(dropin) = lifecycle::current().filter(|dropin| self.is_sound(dropin)) else {
            return given;
        };
        let held = dropin.directory.extents().map(|extent| extent.cost_bytes()).sum();
        if !self.is_within_reach(dropin, held) {
            return given;
        }
        dropin.trim();
        if !self.is_within_reach(dropin, dropin.directory.idle_bytes()) {
            return given;
        }
        let mut step = self.bytes;
        // The extent of another thread may have arrived since DPDK was asked.
        let mut has_more = call.has_seen_transit(dropin);
        for _ in 0..ROUNDS {
            // Memory that another thread is returning may be sufficient.
            has_more |= dropin.give_back(step) > 0 || Self::has_waited(dropin);
            // A refusal can cost DPDK as much as an allocation: it takes the available pages from
            // the kernel and returns them.
            if !has_more {
                break;
            }
            given = ask();
            if !given.is_null() {
                break;
            }
            step = step.saturating_mul(2);
            has_more = false;
        }
        given
    }

    /// Waits for an extent in transit. Returns whether an extent was in transit and has arrived.
    fn has_waited(dropin: &Dropin) -> bool {
        let has_arrived = || dropin.directory.transit_epoch().is_some();
        let had_arrived = has_arrived();
        let start = Instant::now();
        while !has_arrived() && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        !had_arrived && has_arrived()
    }

    /// Whether DPDK could serve the request.
    fn is_sound(self, dropin: &Dropin) -> bool {
        self.bytes.wrapping_sub(1) < REQUEST_MAX
            && self.align & self.align.wrapping_sub(1) == 0
            && dropin.has_heap_of(self.socket)
    }

    /// Whether the heaps' `idle` bytes together with DPDK's free memory would suffice if they
    /// were contiguous, or the idle bytes together with the kernel's pool, from which DPDK takes
    /// the whole block. If not, returning memory is useless: DPDK would search again, which takes
    /// as long as an allocation, and the heaps would have to allocate their memory again.
    fn is_within_reach(self, dropin: &Dropin, idle: usize) -> bool {
        let is_with = |more: usize| self.bytes <= idle.saturating_add(more);
        let sockets = dropin.heaps.iter().map(|each| each.range.socket);
        let free: usize = sockets.map(|socket| free_bytes(dropin, socket)).sum();
        // The kernel is asked last, because its answer takes longest.
        is_with(free) || (dropin.has_sockets && is_with(pool_bytes(Path::new(POOLS))))
    }
}

/// DPDK's own free memory on a socket, in bytes.
fn free_bytes(dropin: &Dropin, socket: c_int) -> usize {
    let mut stats = SocketStats::default();
    // SAFETY: the structure is DPDK's, and the function writes it.
    let result = unsafe { (dropin.functions.rte_malloc_get_socket_stats)(socket, &raw mut stats) };
    if result == 0 { stats.free_bytes } else { 0 }
}

/// The huge pages that the kernel may still provide, in bytes; unlimited if that is unknown.
fn pool_bytes(pools: &Path) -> usize {
    let Ok(sizes) = fs::read_dir(pools) else {
        return usize::MAX;
    };
    sizes.fold(0, |sum: usize, size| {
        let of_size = size.ok().and_then(|size| bytes_of_size(&size.path()));
        sum.saturating_add(of_size.unwrap_or(usize::MAX))
    })
}

/// The huge pages of one size, whose folder has a name like `hugepages-2048kB`.
fn bytes_of_size(folder: &Path) -> Option<usize> {
    let name = folder.file_name()?.to_str()?;
    let kib: usize = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let number = |file: &str| -> Option<usize> {
        fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
    };
    let pages = number("free_hugepages")?.saturating_add(number("nr_overcommit_hugepages")?);
    Some(pages.saturating_mul(kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_counts_free_and_overcommit_pages() {
        let pools = std::env::temp_dir().join(format!("haul-pools-{}", std::process::id()));
        let write = |size: &str, free: &str, more: &str| {
            let folder = pools.join(size);
            fs::create_dir_all(&folder).expect("the folder can be made");
            fs::write(folder.join("free_hugepages"), free).expect("the file can be written");
            fs::write(folder.join("nr_overcommit_hugepages"), more).expect("and this one");
        };
        write("hugepages-2048kB", "3\n", "2\n");
        write("hugepages-1048576kB", "1\n", "0\n");
        assert_eq!(pool_bytes(&pools), (5 << 21) + (1 << 30));
        write("hugepages-2048kB", "many\n", "0\n");
        assert_eq!(pool_bytes(&pools), usize::MAX, "an unreadable number is no limit");
        fs::remove_dir_all(&pools).expect("the folder can be removed");
        assert_eq!(pool_bytes(&pools), usize::MAX);
    }
}
