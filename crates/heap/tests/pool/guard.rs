//! The kernel's pool of huge pages, for one test at a time.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The size in bytes of a page of the pool.
pub(crate) const PAGE: usize = 2 << 20;

/// How many pages a test puts into the pool.
pub(crate) const IN_POOL: usize = 8;

/// How long a test waits until another program no longer uses the pool.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pool of this machine, with pages for one test. Dropping this value empties the pool.
pub(crate) struct Pool {
    _turn: MutexGuard<'static, ()>,
}

impl Pool {
    const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

    /// Puts [`IN_POOL`] free pages into the pool. If this is not possible, prints the reason and
    /// returns `None`.
    pub(crate) fn take(what: &str) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if !Self::is_unused() {
            eprintln!(
                "SKIPPED: {what}: huge pages of others: write 0 to /proc/sys/vm/nr_hugepages"
            );
            return None;
        }
        if Self::number("nr_overcommit_hugepages").is_some_and(|pages| pages > 0) {
            eprintln!(
                "SKIPPED: {what}: surplus huge pages: write 0 to /proc/sys/vm/nr_overcommit_hugepages"
            );
            return None;
        }
        let pool = Self { _turn };
        if pool.fill() {
            return Some(pool);
        }
        eprintln!(
            "SKIPPED: {what}: no huge pages: as root, on a machine with 1 GiB of free memory"
        );
        None
    }

    /// Puts [`IN_POOL`] free pages into the pool, and returns whether this was possible. The kernel
    /// adds fewer pages while free memory is fragmented.
    fn fill(&self) -> bool {
        let start = Instant::now();
        while self.set(IN_POOL) {
            if self.free() == Some(IN_POOL) {
                return true;
            }
            if start.elapsed() > PATIENCE / 3 {
                break;
            }
            // Cached files lie between the free pages. Without them, the kernel can join those.
            let _ = fs::write("/proc/sys/vm/drop_caches", "1");
            let _ = fs::write("/proc/sys/vm/compact_memory", "1");
            thread::sleep(Duration::from_millis(200));
        }
        false
    }

    /// Whether no other program has pages in the pool, because the test would count and remove
    /// them. Only the first test waits for this.
    fn is_unused() -> bool {
        static IS_HOPELESS: AtomicBool = AtomicBool::new(false);
        let start = Instant::now();
        while Self::number("nr_hugepages").is_some_and(|pages| pages > 0) {
            if IS_HOPELESS.load(Relaxed) || start.elapsed() > PATIENCE {
                IS_HOPELESS.store(true, Relaxed);
                return false;
            }
            thread::sleep(Duration::from_millis(100));
        }
        true
    }

    fn number(name: &str) -> Option<usize> {
        fs::read_to_string(format!("{}/{name}", Self::FOLDER)).ok()?.trim().parse().ok()
    }

    /// Sets the number of pages in the pool, including the pages in use. Returns whether this was
    /// possible.
    pub(crate) fn set(&self, pages: usize) -> bool {
        fs::write(format!("{}/nr_hugepages", Self::FOLDER), pages.to_string()).is_ok()
    }

    /// Like [`pool_free`].
    pub(crate) fn free(&self) -> Option<usize> {
        pool_free()
    }
}

/// How many pages of the pool are free.
pub(crate) fn pool_free() -> Option<usize> {
    // The two numbers are read in sequence, and pages may be reserved in between.
    Some(Pool::number("free_hugepages")?.saturating_sub(Pool::number("resv_hugepages")?))
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A file that contains all free pages of the pool until it is closed.
pub(crate) fn hold_free_pages() -> fs::File {
    let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
    // SAFETY: the name is a C string, and the flags are valid for this call.
    let number = unsafe { libc::memfd_create(c"free-pages".as_ptr(), flags) };
    assert!(number >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor was just opened, for this value alone.
    let file = unsafe { fs::File::from_raw_fd(number) };
    match pool_free() {
        None | Some(0) => {}
        Some(pages) => allocate(&file, pages),
    }
    assert_eq!(pool_free(), Some(0));
    file
}

/// Allocates `pages` pages of the pool to a file.
pub(crate) fn allocate(file: &fs::File, pages: usize) {
    // SAFETY: the descriptor is open; no pointers are involved.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, (pages * PAGE) as i64) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
