//! The one place of system calls and of `/proc`.
//!
//! What a machine does not tell is `None`: no call here fails because `/proc` or `/sys` is absent
//! or because a container forbids something. [`Proc::at`] reads another root, so that tests can
//! take `/proc` away.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::Duration;
use std::{fs, io};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::CpuSet;
use rustix::time::ClockId;

/// What the kernel counted for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu: Duration,
    /// Page faults served without reading from a disk.
    pub faults_minor: u64,
    /// Page faults that read from a disk.
    pub faults_major: u64,
    /// How often the kernel took the CPU away.
    pub switches_involuntary: u64,
}

/// The CPUs that this thread may run on, ascending. Empty where the kernel does not tell.
#[must_use]
pub fn affinity() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Lets this thread run on these CPUs only; false where the kernel refuses.
#[must_use]
pub fn set_affinity(cpus: &[usize]) -> bool {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    !cpus.is_empty() && rustix::thread::sched_setaffinity(None, &set).is_ok()
}

/// Nanoseconds of CLOCK_MONOTONIC_RAW: not slewed by NTP, from an arbitrary start.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicRaw);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What the kernel counted for the calling thread so far. Two system calls.
#[must_use]
pub fn usage_thread() -> Usage {
    usage(libc::RUSAGE_THREAD, ClockId::ThreadCPUTime)
}

/// What the kernel counted for this process so far, all its threads together. Two system calls.
#[must_use]
pub fn usage_process() -> Usage {
    usage(libc::RUSAGE_SELF, ClockId::ProcessCPUTime)
}

fn usage(who: libc::c_int, clock: ClockId) -> Usage {
    // SAFETY: `rusage` is plain integers, for which all zeros is a value.
    let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole, writable `rusage` that outlives the call.
    let status = unsafe { libc::getrusage(who, &raw mut raw) };
    if status != 0 {
        return Usage::default();
    }
    // rusage's own times stand still between scheduler ticks; this clock does not.
    let cpu = rustix::time::clock_gettime(clock);
    Usage {
        cpu: Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32),
        faults_minor: raw.ru_minflt as u64,
        faults_major: raw.ru_majflt as u64,
        switches_involuntary: raw.ru_nivcsw as u64,
    }
}

/// The size of a base page in bytes.
#[must_use]
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Lets another thread run on this CPU.
pub fn yield_now() {
    std::thread::yield_now();
}

/// Maps private, zeroed memory. [`unmap`] gives it back.
///
/// # Errors
/// What the kernel says: no memory, a limit.
pub(crate) fn map(bytes: NonZeroUsize) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without a fixed address an anonymous mapping takes no memory from anyone.
    let address = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            bytes.get(),
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )
    }?;
    NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

/// Gives back what [`map`] mapped.
///
/// # Safety
/// `start` and `bytes` are those of one [`map`], and nothing refers to the memory any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's obligation, word for word. A failure would leave the memory mapped,
    // which nobody can act on.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), bytes) };
}

/// Advises huge pages (or, with `false`, against them) for mapped memory; false where the kernel
/// has none.
///
/// # Safety
/// The range lies in one mapping made by [`map`].
pub(crate) unsafe fn advise_huge(start: NonNull<u8>, bytes: usize, huge: bool) -> bool {
    let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: the range is the caller's own mapping, and this advice never changes its contents.
    unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, advice) }.is_ok()
}

/// Reads `/proc` and `/sys`, or what stands in for them.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

impl Default for Proc {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Proc {
    /// Reads below this root: `/` for the machine's own.
    #[must_use]
    pub fn at(root: impl AsRef<Path>) -> Self {
        Self { root: root.as_ref().into() }
    }

    /// Seconds of all CPUs that the hypervisor gave to others, and seconds of all CPUs together.
    /// From the first line of `/proc/stat` (proc(5)), in hundredths.
    #[must_use]
    pub fn steal_and_total_seconds(&self) -> Option<(f64, f64)> {
        let text = self.read("proc/stat")?;
        let line = text.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is in user already.
        let total: f64 = ticks.get(..8)?.iter().sum();
        Some((ticks[7] / 100.0, total / 100.0))
    }

    /// Bytes of memory that can be had without swapping: what the system has, or what the control
    /// group has left, whichever is less.
    #[must_use]
    pub fn memory_available_bytes(&self) -> Option<u64> {
        let text = self.read("proc/meminfo")?;
        let system = kibibytes_of(&text, "MemAvailable:")?;
        Some(self.group_available_bytes().map_or(system, |group| group.min(system)))
    }

    /// The most memory this process has had at once, in bytes, since [`Proc::reset_peak`].
    #[must_use]
    pub fn peak_bytes(&self) -> Option<u64> {
        kibibytes_of(&self.read("proc/self/status")?, "VmHWM:")
    }

    /// Makes [`Proc::peak_bytes`] count from now on; false where the kernel does not.
    #[must_use]
    pub fn reset_peak(&self) -> bool {
        fs::write(self.root.join("proc/self/clear_refs"), "5").is_ok()
    }

    /// Memory that this process has in its pages now, in bytes, huge ones of every kind included
    /// (proc(5), `smaps_rollup`: `Rss` leaves out what comes from hugetlbfs).
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let text = self.read("proc/self/smaps_rollup")?;
        let huge = ["Shared_Hugetlb:", "Private_Hugetlb:"].map(|key| kibibytes_of(&text, key));
        let huge: u64 = huge.into_iter().flatten().sum();
        kibibytes_of(&text, "Rss:")?.checked_add(huge)
    }

    /// Memory in this process's pages that is no file's: its own, and what it shares with others
    /// (proc(5), `status`: RssAnon and RssShmem).
    #[must_use]
    pub fn own_and_shared_bytes(&self) -> Option<u64> {
        let text = self.read("proc/self/status")?;
        kibibytes_of(&text, "RssAnon:")?.checked_add(kibibytes_of(&text, "RssShmem:")?)
    }

    /// Bytes that the control group (version 2, then 1) may still take.
    fn group_available_bytes(&self) -> Option<u64> {
        let groups = self.read("proc/self/cgroup").unwrap_or_default();
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let candidates = [
            (
                format!("sys/fs/cgroup/{path}/memory.max"),
                format!("sys/fs/cgroup/{path}/memory.current"),
            ),
            ("sys/fs/cgroup/memory.max".into(), "sys/fs/cgroup/memory.current".into()),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes".into(),
                "sys/fs/cgroup/memory/memory.usage_in_bytes".into(),
            ),
        ];
        let number = |file: &str| self.read(file)?.trim().parse::<u64>().ok();
        candidates
            .iter()
            .filter_map(|(limit, used)| {
                Some(number(limit)?.saturating_sub(number(used).unwrap_or(0)))
            })
            .min()
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.root.join(file)).ok()
    }
}

/// The value in bytes of a line such as `VmHWM:    1234 kB`.
fn kibibytes_of(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_without_proc() {
        let empty = tempfile::tempdir().unwrap();
        let absent = Proc::at(empty.path());
        assert_eq!(absent.steal_and_total_seconds(), None);
        assert_eq!(absent.memory_available_bytes(), None);
        assert_eq!(absent.peak_bytes(), None);
        assert_eq!(absent.resident_bytes(), None);
        assert!(!absent.reset_peak());
    }

    #[test]
    fn nothing_from_garbage() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/stat"), "cpu 1 2 x").unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemAvailable: 99999999999999999999 kB")
            .unwrap();
        fs::write(root.path().join("proc/self/status"), "VmHWM: 18446744073709551615 kB").unwrap();
        let garbage = Proc::at(root.path());
        assert_eq!(garbage.steal_and_total_seconds(), None);
        assert_eq!(garbage.memory_available_bytes(), None);
        assert_eq!(garbage.peak_bytes(), None);
    }

    #[test]
    fn huge_pages_are_resident_too() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let text = "Rss:  8 kB\nShared_Hugetlb:  2048 kB\nPrivate_Hugetlb:  4096 kB\n";
        fs::write(root.path().join("proc/self/smaps_rollup"), text).unwrap();
        assert_eq!(Proc::at(root.path()).resident_bytes(), Some((8 + 2048 + 4096) * 1024));
        // The machine's own, where it tells.
        assert!(Proc::default().resident_bytes().is_none_or(|bytes| bytes > 4096));
    }

    #[test]
    fn the_group_limits_memory() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::create_dir_all(root.path().join("sys/fs/cgroup/job")).unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemAvailable:  4096 kB\n").unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "0::/job\n").unwrap();
        let proc = Proc::at(root.path());
        assert_eq!(proc.memory_available_bytes(), Some(4096 * 1024));
        fs::write(root.path().join("sys/fs/cgroup/job/memory.max"), "3000000\n").unwrap();
        fs::write(root.path().join("sys/fs/cgroup/job/memory.current"), "1000000\n").unwrap();
        assert_eq!(proc.memory_available_bytes(), Some(2_000_000));
        fs::write(root.path().join("sys/fs/cgroup/job/memory.max"), "max\n").unwrap();
        assert_eq!(proc.memory_available_bytes(), Some(4096 * 1024));
    }

    #[test]
    fn usage_counts_faults_and_time() {
        let before = usage_thread();
        let bytes = NonZeroUsize::new(64 * page_bytes()).unwrap();
        let start = map(bytes).unwrap();
        // SAFETY: the range is the mapping made a line above.
        let _ = unsafe { advise_huge(start, bytes.get(), false) };
        for page in 0..64 {
            // SAFETY: the page is one of the 64 of the mapping.
            let byte = unsafe { start.as_ptr().add(page * page_bytes()) };
            // SAFETY: the byte lies in the mapping, which nothing else refers to.
            unsafe { byte.write_volatile(1) };
        }
        // SAFETY: start and length are those of `map`, and no reference into it exists.
        unsafe { unmap(start, bytes.get()) };
        assert!(usage_thread().faults_minor >= before.faults_minor + 64);
    }
}
