//! The machine's resources for the tests, and the skips if they are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of pages of 2 MiB that a test run reserves: 1 GiB, which `memzone_autotest` and the
/// growth of 100,000 blocks need without the drop-in.
const HUGE_PAGES: u64 = 512;

/// The memory that DPDK allocates at its start, in MiB.
const AHEAD_MIB: u64 = 900;

/// How long the kernel is asked for the pages. It gives fewer while free memory is fragmented.
const PATIENCE: Duration = Duration::from_secs(20);

const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Only one DPDK application runs at a time, because all share the pool of huge pages and two
/// cores.
static TURN: Mutex<()> = Mutex::new(());

/// Prints why a test does not run, in the form that `scripts/test` counts.
pub(crate) fn skip(what: &str, why: &str, remedy: &str) {
    eprintln!("SKIPPED: {what}: {why}: {remedy}");
}

/// Whether a program can be started.
pub(crate) fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The machine's memory for DPDK while one test uses it.
pub(crate) struct Machine {
    /// The mount point of the huge pages; `None` without huge pages.
    pub(crate) huge_folder: Option<PathBuf>,
    _pool: Option<Pool>,
    _turn: MutexGuard<'static, ()>,
}

impl Machine {
    /// Takes the machine for a test of `what`. Without DPDK, prints the skip and returns `None`.
    pub(crate) fn take(what: &str) -> Option<Self> {
        if !is_here("dpdk-testpmd") {
            skip(what, "no dpdk-testpmd on PATH", "apt-get install dpdk-dev");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = Pool::fill();
        let huge_folder = pool.as_ref().map(|pool| pool.folder.clone());
        Some(Self { huge_folder, _pool: pool, _turn: turn })
    }

    /// Like [`Machine::take`], for a test that needs huge pages, for example for secondary
    /// processes.
    pub(crate) fn take_huge(what: &str) -> Option<Self> {
        let machine = Self::take(what)?;
        if machine.huge_folder.is_none() {
            skip(what, "no huge pages", "as root, on a machine with 1 GiB of free memory");
            return None;
        }
        Some(machine)
    }

    /// The options of every DPDK program: only named devices, huge pages if there are any, and a
    /// separate file prefix.
    pub(crate) fn options(&self, cores: &str) -> Vec<String> {
        options(cores, self.huge_folder.as_deref())
    }

    /// The same options, but all memory is allocated at the start: as much as a test needs, or
    /// the remainder of the pool if that is less.
    pub(crate) fn options_ahead(&self, cores: &str) -> Vec<String> {
        let mut options = self.options(cores);
        if self.huge_folder.is_some() {
            let mib = AHEAD_MIB.min(2 * available().unwrap_or(0));
            options.push(format!("--socket-mem={mib}"));
        }
        options
    }

    /// The same options without huge pages.
    pub(crate) fn plain_options(&self, cores: &str) -> Vec<String> {
        options(cores, None)
    }
}

fn options(cores: &str, huge_folder: Option<&Path>) -> Vec<String> {
    let mut options = vec![format!("-l{cores}"), "--no-pci".into(), "--iova-mode=va".into()];
    options.push(format!("--file-prefix=haul{}", std::process::id()));
    match huge_folder {
        Some(folder) => options.push(format!("--huge-dir={}", folder.display())),
        None => options.extend(["--no-huge".into(), "-m1024".into()]),
    }
    options
}

/// Pages that this process has added to the kernel's pool, and a mounted file system for them.
struct Pool {
    folder: PathBuf,
    added: u64,
}

impl Pool {
    fn fill() -> Option<Self> {
        let before = read(POOL)?;
        let added = HUGE_PAGES.saturating_sub(available()?);
        let start = Instant::now();
        while read(POOL)? < before + added {
            fs::write(POOL, (before + added).to_string()).ok()?;
            if read(POOL)? >= before + added || start.elapsed() > PATIENCE {
                break;
            }
            // Cached files lie between the free pages. Without them, the kernel can join those.
            let _ = fs::write("/proc/sys/vm/drop_caches", "1");
            let _ = fs::write("/proc/sys/vm/compact_memory", "1");
            thread::sleep(Duration::from_millis(200));
        }
        let pool = Self { folder: folder()?, added: read(POOL)?.saturating_sub(before) };
        let mount =
            Command::new("mount").args(["-t", "hugetlbfs", "haul"]).arg(&pool.folder).status();
        let is_mounted = mount.is_ok_and(|status| status.success());
        if pool.added < added || !is_mounted {
            eprintln!("the kernel added {} of {added} pages, mounted: {is_mounted}", pool.added);
            // Dropping the pool removes the added pages.
            return None;
        }
        Some(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
        // Other programs may have changed the pool meanwhile, so only the added pages are removed.
        if let Some(now) = read(POOL) {
            let _ = fs::write(POOL, now.saturating_sub(self.added).to_string());
        }
    }
}

/// Pages of 2 MiB that are free and not reserved.
pub(crate) fn available() -> Option<u64> {
    let number = |name| read(&format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"));
    Some(number("free_hugepages")?.saturating_sub(number("resv_hugepages")?))
}

fn read(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("huge");
    // A mount that a killed run left would hide the new mount.
    let _ = Command::new("umount").arg(&folder).stderr(std::process::Stdio::null()).status();
    fs::create_dir_all(&folder).ok()?;
    Some(folder)
}
