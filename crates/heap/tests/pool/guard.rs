//! The kernel's pool of huge pages, for one test at a time.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a page of the pool.
pub(crate) const PAGE: usize = 2 << 20;

/// Pages that a test has in the pool.
pub(crate) const IN_POOL: usize = 8;

/// How long another program's use of the pool is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pool of this machine, with pages for one test, and empty again when this goes.
pub(crate) struct Pool {
    _turn: MutexGuard<'static, ()>,
}

impl Pool {
    const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

    /// A pool with [`IN_POOL`] pages that nobody has; says so and gives `None` where that cannot be
    /// had.
    pub(crate) fn take(what: &str) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if !Self::is_nobodys() {
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
        if pool.set(IN_POOL) && pool.free() == Some(IN_POOL) {
            return Some(pool);
        }
        eprintln!(
            "SKIPPED: {what}: no huge pages: as root, on a machine with 1 GiB of free memory"
        );
        None
    }

    /// Whether no other program has pages there: they would be counted as ours, and go with it. It
    /// is waited for once, not by each test.
    fn is_nobodys() -> bool {
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

    /// Whether the pool could be given so many pages, those that somebody has among them.
    pub(crate) fn set(&self, pages: usize) -> bool {
        fs::write(format!("{}/nr_hugepages", Self::FOLDER), pages.to_string()).is_ok()
    }

    /// As [`pool_free`].
    pub(crate) fn free(&self) -> Option<usize> {
        pool_free()
    }
}

/// Pages of the pool that nobody has.
pub(crate) fn pool_free() -> Option<usize> {
    // Read one after the other: some may be reserved between the two.
    Some(Pool::number("free_hugepages")?.saturating_sub(Pool::number("resv_hugepages")?))
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A file with all pages of the pool that nobody has, until it is closed.
pub(crate) fn hold_the_rest() -> fs::File {
    let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
    // SAFETY: the name is a string, and the flags are of this call.
    let number = unsafe { libc::memfd_create(c"the-rest".as_ptr(), flags) };
    assert!(number >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: just opened, for this value alone.
    let file = unsafe { fs::File::from_raw_fd(number) };
    match pool_free() {
        None | Some(0) => {}
        Some(pages) => allocate(&file, pages),
    }
    assert_eq!(pool_free(), Some(0));
    file
}

/// Has a file of the pool have so many of its pages.
pub(crate) fn allocate(file: &fs::File, pages: usize) {
    // SAFETY: the descriptor is open; no pointers are involved.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, (pages * PAGE) as i64) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
