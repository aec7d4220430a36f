//! What DPDK could not give: whether idle memory of the heaps would make up for it, and the giving
//! back of as much as that takes.

use core::ffi::c_int;
use core::ptr::null_mut;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::dpdk::{SocketStats, error_number};
use crate::dropin::Dropin;
use crate::lifecycle;
use crate::wish::Wish;

/// The largest request for which idle memory is given back to DPDK, in bytes: beyond it, a size is a
/// mistake and not a wish (1 TiB; DPDK reserves addresses for 512 GiB at most, RTE_MAX_MEM_MB).
const WISH_MAX: usize = 1 << 40;

/// How often DPDK is asked again at most. Each time twice as much was given, so this is for extents on
/// their way only.
const ROUNDS: u32 = 64;

/// How long one on its way is waited for: DPDK takes some 10 ms to clear and unmap the longest.
const PATIENCE: Duration = Duration::from_millis(100);

/// A folder for each size of huge pages, with the numbers of the kernel's pool (hugetlbpage.rst).
const POOLS: &str = "/sys/kernel/mm/hugepages";

impl Wish {
    /// Asks DPDK, and again as the heaps give back what they do not use, in steps that double: each
    /// costs DPDK some milliseconds for 64 MiB, which it clears, and an answer that it still has none
    /// tens of microseconds.
    ///
    /// `ask_heaps` asks those that were not asked before: first, for of what is given back DPDK makes two
    /// to three times fewer small blocks than they; and last, for what was on its way meanwhile.
    pub(crate) fn ask<T>(self, ask: impl Fn() -> *mut T, ask_heaps: impl Fn() -> *mut T) -> *mut T {
        lifecycle::note_asked();
        let ways: [&dyn Fn() -> *mut T; 4] =
            [&ask, &ask_heaps, &|| self.ask_again(&ask), &ask_heaps];
        ways.iter().map(|way| way()).find(|given| !given.is_null()).unwrap_or(null_mut())
    }

    /// As [`Wish::ask`], for functions that say in `rte_errno` why they do not give.
    pub(crate) fn ask_telling<T>(self, ask: impl Fn() -> *mut T) -> *mut T {
        lifecycle::note_asked();
        let given = ask();
        let is_memory_lacking = || error_number().is_none_or(|number| number == libc::ENOMEM);
        if given.is_null() && is_memory_lacking() { self.ask_again(ask) } else { given }
    }

    #[cold]
    fn ask_again<T>(self, ask: impl Fn() -> *mut T) -> *mut T {
        let mut given = null_mut();
        if lifecycle::is_over() {
            return given;
        }
        let Some(dropin) = lifecycle::current().filter(|dropin| self.is_within_reach(dropin))
        else {
            return given;
        };
        dropin.trim();
        let mut step = self.bytes;
        for _ in 0..ROUNDS {
            // What another thread is giving back may be what is missing.
            let may_help = dropin.give_back(step) > 0 || Self::has_waited(dropin);
            // Also where it does not: another's may have arrived since DPDK was asked.
            given = ask();
            if !given.is_null() || !may_help {
                break;
            }
            step = step.saturating_mul(2);
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

    /// Whether everything that is free, if it were in one piece, came to as much. Where it does not,
    /// giving back is in vain, and the heaps would have to take the memory anew.
    fn is_within_reach(self, dropin: &Dropin) -> bool {
        let is_sound = self.bytes.wrapping_sub(1) < WISH_MAX
            && self.align & self.align.wrapping_sub(1) == 0
            && dropin.has_heap_of(self.socket);
        if !is_sound {
            return false;
        }
        let held: usize = dropin.directory.extents().map(|extent| extent.cost_bytes()).sum();
        let sockets = dropin.heaps.iter().map(|each| each.range.socket);
        let free: usize = sockets.map(|socket| free_bytes(dropin, socket)).sum();
        let own = held.saturating_add(free);
        // The kernel is asked last: that takes longer than the rest.
        self.bytes <= own || self.bytes <= own.saturating_add(pool_bytes(Path::new(POOLS)))
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
