//! Memory, its limits, and huge pages.

use super::Sys;

/// How much memory there is and how much of it this process can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory of the machine in bytes; 0 where nothing tells.
    pub total_bytes: u64,
    /// What can be used without swapping, at most what the control group leaves.
    pub available_bytes: u64,
    /// The control group's limit, where it has one.
    pub limit_bytes: Option<u64>,
}

/// Explicit huge pages by size, and the mode of transparent ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// The pools of `hugetlbfs`, smallest pages first.
    pub pools: Vec<Pool>,
    /// `always`, `madvise` or `never`; `None` where `/sys` does not tell.
    pub transparent: Option<String>,
}

/// One pool of explicit huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Size of a page in bytes.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages that nobody holds.
    pub free: u64,
}

impl Sys {
    /// Memory now. Never fails: without `/proc` a system call tells.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let (free, total) = kernel_memory_bytes();
        let total_bytes = self.meminfo_bytes("MemTotal:").unwrap_or(total);
        let available = self.meminfo_bytes("MemAvailable:").unwrap_or(free);
        let group = self.control_group();
        Memory {
            total_bytes,
            available_bytes: at_most_left(available, group),
            limit_bytes: group.map(|(limit, _)| limit).filter(|&limit| limit < total_bytes),
        }
    }

    /// [`Memory::available_bytes`] as `/proc` has it; `None` where it does not tell, for a system
    /// call knows only of memory that nothing at all is in.
    #[must_use]
    pub fn memory_available_bytes(&self) -> Option<u64> {
        Some(at_most_left(self.meminfo_bytes("MemAvailable:")?, self.control_group()))
    }

    fn meminfo_bytes(&self, name: &str) -> Option<u64> {
        field_bytes(&self.text("proc/meminfo")?, name)
    }

    /// Huge pages now.
    #[must_use]
    pub fn huge_pages(&self) -> HugePages {
        let folder = "sys/kernel/mm/hugepages";
        let pool = |name: &String| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            Some(Pool {
                page_bytes: kib.checked_mul(1024)?,
                total: self.number(&format!("{folder}/{name}/nr_hugepages"))?,
                free: self.number(&format!("{folder}/{name}/free_hugepages"))?,
            })
        };
        let mut pools: Vec<Pool> = self.names(folder).iter().filter_map(pool).collect();
        pools.sort_by_key(|pool| pool.page_bytes);
        let mode = self.text("sys/kernel/mm/transparent_hugepage/enabled");
        HugePages { pools, transparent: mode.and_then(|text| chosen(&text)) }
    }

    /// The tightest memory limit of this process's control groups and what counts against it, in
    /// bytes; both versions of control groups.
    fn control_group(&self) -> Option<(u64, u64)> {
        let membership = self.text("proc/self/cgroup")?;
        let mut tightest: Option<(u64, u64)> = None;
        for line in membership.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let (mount, limit_file, used_file) = match controllers {
                "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
                "memory" => {
                    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
                }
                _ => continue,
            };
            // Every ancestor limits too. In a container the path may name a folder that is not
            // visible here; its own group is then at the mount itself, the last one tried.
            for group in ancestors(path) {
                let Some(limit) = self.number(&format!("{mount}{group}/{limit_file}")) else {
                    continue;
                };
                let used = self.number(&format!("{mount}{group}/{used_file}")).unwrap_or(0);
                let left = limit.saturating_sub(used);
                if tightest.is_none_or(|(l, u)| left < l.saturating_sub(u)) {
                    tightest = Some((limit, used));
                }
            }
        }
        // Version 1 says "no limit" with the largest multiple of the page size.
        tightest.filter(|&(limit, _)| limit < 1 << 62)
    }
}

/// `/a/b` -> `/a/b`, `/a`, ``. A path that climbs (`/../..`, seen from a nested namespace) is
/// reduced to the mount.
fn ancestors(path: &str) -> Vec<&str> {
    let mut rest = if path.contains("..") { "" } else { path.trim_end_matches('/') };
    let mut all = vec![rest];
    while let Some((parent, _)) = rest.rsplit_once('/') {
        rest = parent;
        all.push(rest);
    }
    all
}

/// Free and total memory in bytes by system call.
fn kernel_memory_bytes() -> (u64, u64) {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    (info.freeram.saturating_mul(unit), info.totalram.saturating_mul(unit))
}

/// What is available of this much where the control group leaves only part of it.
fn at_most_left(available: u64, group: Option<(u64, u64)>) -> u64 {
    group.map_or(available, |(limit, used)| available.min(limit.saturating_sub(used)))
}

/// `MemTotal:  123 kB` -> bytes.
pub(super) fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// `always [madvise] never` -> `madvise`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(mode, _)| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::root_with;
    use super::*;

    const MEMINFO: &str = "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:    524288 kB\n";

    #[test]
    fn a_control_group_limits_what_is_available() {
        for (group, folder) in [
            ("0::/a/b", "sys/fs/cgroup/a"), // the limit is an ancestor's
            ("0::/gone", "sys/fs/cgroup"),  // the group is not visible from inside
            ("0::/../..", "sys/fs/cgroup"),
        ] {
            let (_folder, sys) = root_with(&[
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", group),
                (&format!("{folder}/memory.max"), "268435456"),
                (&format!("{folder}/memory.current"), "1048576"),
            ]);
            let memory = sys.memory();
            assert_eq!(memory.limit_bytes, Some(256 << 20), "{group}");
            assert_eq!(memory.available_bytes, 255 << 20, "{group}");
            assert_eq!(sys.memory_available_bytes(), Some(255 << 20), "{group}");
            assert_eq!(memory.total_bytes, 1 << 30);
        }
    }

    #[test]
    fn no_limit_is_no_limit() {
        for (group, file, value) in [
            ("0::/", "sys/fs/cgroup/memory.max", "max"),
            ("4:memory:/", "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
        ] {
            let (_folder, sys) =
                root_with(&[("proc/meminfo", MEMINFO), ("proc/self/cgroup", group), (file, value)]);
            let memory = sys.memory();
            assert_eq!((memory.limit_bytes, memory.available_bytes), (None, 512 << 20));
        }
    }

    #[test]
    fn without_proc_the_kernel_tells_how_much_memory_there_is() {
        let memory = Sys::at("/nonexistent").memory();
        assert!(memory.total_bytes > 1 << 20);
        assert!(memory.available_bytes <= memory.total_bytes);
    }

    #[test]
    fn pools_and_mode_are_read_and_nonsense_is_left_out() {
        let (_folder, sys) = root_with(&[
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "0"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "16"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "12"),
            ("sys/kernel/mm/hugepages/hugepages-99999999999999999kB/nr_hugepages", "1"),
            ("sys/kernel/mm/hugepages/readme/nr_hugepages", "1"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ]);
        let pages = sys.huge_pages();
        assert_eq!(pages.pools.len(), 2);
        assert_eq!(pages.pools[0], Pool { page_bytes: 2 << 20, total: 16, free: 12 });
        assert_eq!(pages.transparent.as_deref(), Some("madvise"));
    }
}
