//! What DPDK could not give: whether idle memory of the heaps would make up for it, and the giving
//! back of as much as that takes.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::dpdk::{SocketStats, error_number};
use crate::dropin::Dropin;
use crate::lifecycle;
use crate::wish::Wish;

/// The largest request for which idle memory is given back to DPDK, in bytes: beyond it, a size is
/// a mistake and not a wish (1 TiB; DPDK reserves addresses for 512 GiB at most, RTE_MAX_MEM_MB).
const WISH_MAX: usize = 1 << 40;

/// How often DPDK is asked again at most. Each time twice as much was given, so this is for extents
/// on their way only.
const ROUNDS: u32 = 64;

/// How long one on its way is waited for: DPDK takes some 10 ms to clear and unmap the longest.
const PATIENCE: Duration = Duration::from_millis(100);

/// A folder for each size of huge pages, with the numbers of the kernel's pool (hugetlbpage.rst).
const POOLS: &str = "/sys/kernel/mm/hugepages";

/// Threads of this process that ask DPDK for memory just now, or give it some.
static PASSING: AtomicU32 = AtomicU32::new(0);

/// While one lives, this thread asks DPDK for memory, or gives it some: that can take long, under
/// DPDK's lock.
pub(crate) struct Passing {
    /// What [`Directory::settled`](crate::directory::Directory::settled) said when it began.
    before: Option<u32>,
}

impl Passing {
    pub(crate) fn begin() -> Self {
        lifecycle::note_asked();
        PASSING.fetch_add(1, Relaxed);
        let dropin = lifecycle::current().filter(|_| !lifecycle::is_over());
        Self { before: dropin.and_then(|dropin| dropin.directory.settled()) }
    }

    /// Whether an extent set out or arrived since it began.
    fn has_seen_one(&self, dropin: &Dropin) -> bool {
        self.before.is_none() || dropin.directory.settled() != self.before
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        PASSING.fetch_sub(1, Relaxed);
    }
}

/// Whether a thread of this process asks DPDK for memory just now: who needs none at once does not
/// ask then, for DPDK's locks spin, perhaps on the processor that the other thread needs.
pub(crate) fn is_dpdk_busy() -> bool {
    PASSING.load(Relaxed) != 0
}

impl Wish {
    /// Asks DPDK, and again as the heaps give back what they do not use, in steps that double: each
    /// costs DPDK some milliseconds for 64 MiB, which it clears, and an answer that it still has
    /// none tens of microseconds.
    ///
    /// `ask_heaps` asks those that were not asked before: first, for of what is given back DPDK
    /// makes two to three times fewer small blocks than they; and last, for what was on its way
    /// meanwhile.
    pub(crate) fn ask<T>(self, ask: impl Fn() -> *mut T, ask_heaps: impl Fn() -> *mut T) -> *mut T {
        let passing = Passing::begin();
        let ways: [&dyn Fn() -> *mut T; 4] =
            [&ask, &ask_heaps, &|| self.ask_again(&passing, &ask), &ask_heaps];
        ways.iter().map(|way| way()).find(|given| !given.is_null()).unwrap_or(null_mut())
    }

    /// As [`Wish::ask`], for functions that say in `rte_errno` why they do not give.
    pub(crate) fn ask_telling<T>(self, ask: impl Fn() -> *mut T) -> *mut T {
        let passing = Passing::begin();
        let given = ask();
        let is_memory_lacking = || error_number().is_none_or(|number| number == libc::ENOMEM);
        if given.is_null() && is_memory_lacking() { self.ask_again(&passing, ask) } else { given }
    }

    #[cold]
    fn ask_again<T>(self, passing: &Passing, ask: impl Fn() -> *mut T) -> *mut T {
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
        // Another's may have arrived since DPDK was asked.
        let mut has_more = passing.has_seen_one(dropin);
        for _ in 0..ROUNDS {
            // What another thread is giving back may be what is missing.
            has_more |= dropin.give_back(step) > 0 || Self::has_waited(dropin);
            // A refusal can cost DPDK as much as the memory: it gets what pages there are, and
            // returns them.
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

    /// Whether an extent was on its way, and arrived.
    fn has_waited(dropin: &Dropin) -> bool {
        let is_settled = || dropin.directory.settled().is_some();
        let was_settled = is_settled();
        let start = Instant::now();
        while !is_settled() && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        !was_settled && is_settled()
    }

    /// Whether it is a request that DPDK could meet.
    fn is_sound(self, dropin: &Dropin) -> bool {
        self.bytes.wrapping_sub(1) < WISH_MAX
            && self.align & self.align.wrapping_sub(1) == 0
            && dropin.has_heap_of(self.socket)
    }

    /// Whether the heaps' `idle` bytes, with what DPDK has free, came to as much if it were in one
    /// piece; or with the kernel's pool, of which DPDK takes the whole block anew. Where it does
    /// not, giving back is in vain: DPDK would look for the memory once more, which takes it as
    /// long as having it, and the heaps would have to take theirs anew.
    fn is_within_reach(self, dropin: &Dropin, idle: usize) -> bool {
        let is_with = |more: usize| self.bytes <= idle.saturating_add(more);
        let sockets = dropin.heaps.iter().map(|each| each.range.socket);
        let free: usize = sockets.map(|socket| free_bytes(dropin, socket)).sum();
        // The kernel is asked last: that takes longer than the rest.
        is_with(free) || (dropin.has_sockets && is_with(pool_bytes(Path::new(POOLS))))
    }
}

/// What DPDK itself has free on a socket.
fn free_bytes(dropin: &Dropin, socket: c_int) -> usize {
    let mut stats = SocketStats::default();
    // SAFETY: the structure is DPDK's, and takes what the function writes.
    let result = unsafe { (dropin.functions.rte_malloc_get_socket_stats)(socket, &raw mut stats) };
    if result == 0 { stats.free_bytes } else { 0 }
}

/// What the kernel may give of huge pages, in bytes: as much as one likes where nobody can tell.
fn pool_bytes(pools: &Path) -> usize {
    let Ok(sizes) = fs::read_dir(pools) else {
        return usize::MAX;
    };
    sizes.fold(0, |sum: usize, size| {
        let of_size = size.ok().and_then(|size| bytes_of_size(&size.path()));
        sum.saturating_add(of_size.unwrap_or(usize::MAX))
    })
}

/// The same of one size, whose folder is named like `hugepages-2048kB`.
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
    fn the_pool_is_what_is_free_and_what_may_be_added() {
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
        assert_eq!(pool_bytes(&pools), usize::MAX, "a number that nobody can read is no limit");
        fs::remove_dir_all(&pools).expect("the folder can be removed");
        assert_eq!(pool_bytes(&pools), usize::MAX);
    }
}
