//! Memory, its limits, and huge pages.

use super::Sys;

/// The memory of the machine, and the part that this process can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory of the machine in bytes; 0 if unknown.
    pub total_bytes: u64,
    /// Memory that this process can use without swapping, limited to what its control group
    /// allows.
    pub available_bytes: u64,
    /// The control group's limit, if it has one.
    pub limit_bytes: Option<u64>,
}

/// A control group's memory limit, and the memory that the group uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// The memory that the kernel charges to the group, without the memory that it can drop at
    /// once (inactive pages of files).
    pub used_bytes: u64,
    /// The file that contains the limit. At the limit in `memory.high`, the kernel slows
    /// processes down. At another limit, it kills a process.
    pub file: String,
}

impl GroupLimit {
    /// How many more bytes the group may use.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }
}

/// The pools of explicit huge pages, and the mode of transparent huge pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// The pools of `hugetlbfs`, smallest pages first.
    pub pools: Vec<Pool>,
    /// `always`, `madvise` or `never`; `None` if `/sys` does not report it.
    pub transparent: Option<String>,
}

/// One pool of explicit huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Size of a page in bytes.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Unused pages.
    pub free: u64,
}

impl Sys {
    /// The current memory. Never fails: without `/proc` it uses a system call.
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

    /// [`Memory::available_bytes`] from `/proc`; `None` if `/proc` does not report it, because
    /// the system call counts only unused memory.
    #[must_use]
    pub fn memory_available_bytes(&self) -> Option<u64> {
        Some(at_most_left(self.meminfo_bytes("MemAvailable:")?, self.control_group()))
    }

    fn meminfo_bytes(&self, name: &str) -> Option<u64> {
        field_bytes(&self.text("proc/meminfo")?, name)
    }

    /// The current huge pages.
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

    /// The hard memory limit that leaves the least memory, and the memory used, in bytes.
    /// Considers this process's control groups of both versions.
    fn control_group(&self) -> Option<(u64, u64)> {
        let limits = self.group_limits()?.into_iter().filter(|group| !group.is_soft);
        let all = limits.map(|Group { limit, used, .. }| (limit, used));
        all.min_by_key(|(limit, used)| limit.saturating_sub(*used))
    }

    /// The memory limits of this process's control groups and their ancestors, in both versions.
    /// The limit that leaves the least memory is first. `None` if the system does not report the
    /// limits.
    #[must_use]
    pub fn memory_limits(&self) -> Option<Vec<GroupLimit>> {
        let limits = self.group_limits()?.into_iter();
        let of = |Group { limit, used, droppable, file, .. }: Group| GroupLimit {
            limit_bytes: limit,
            used_bytes: used.saturating_sub(droppable),
            file: format!("/{file}"),
        };
        let mut limits: Vec<GroupLimit> = limits.map(of).collect();
        limits.sort_by_key(GroupLimit::left_bytes);
        Some(limits)
    }

    /// All memory limits that apply to this process; `None` if its control groups are unknown.
    fn group_limits(&self) -> Option<Vec<Group>> {
        let membership = self.text("proc/self/cgroup")?;
        let mut limits = Vec::new();
        for line in membership.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let version = match controllers {
                "" => &VERSION_2,
                _ if controllers.split(',').any(|it| it == "memory") => &VERSION_1,
                _ => continue,
            };
            // The limits of all ancestors also apply. In a container, the path may name a folder
            // that is not visible there. In this case, the container's own group is the mount
            // itself, which is the last ancestor.
            for group in ancestors(path) {
                self.add_limits(version, &format!("{}{group}", version.mount), &mut limits);
            }
        }
        Some(limits)
    }

    fn add_limits(&self, version: &Version, folder: &str, limits: &mut Vec<Group>) {
        for (name, is_soft) in version.limits {
            let file = format!("{folder}/{name}");
            // Version 1 expresses "no limit" as the largest multiple of the page size.
            let Some(limit) = self.number(&file).filter(|limit| *limit < 1 << 62) else { continue };
            let used = self.number(&format!("{folder}/{}", version.used)).unwrap_or(0);
            let stat = self.text(&format!("{folder}/memory.stat")).unwrap_or_default();
            let droppable = stat.lines().find_map(|line| line.strip_prefix(version.droppable));
            let droppable = droppable.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0);
            limits.push(Group { limit, used, droppable, is_soft: *is_soft, file });
        }
    }
}

/// A limit of a control group.
struct Group {
    limit: u64,
    used: u64,
    /// The part of `used`, in bytes, that the kernel can drop at once.
    droppable: u64,
    /// Whether the kernel slows processes down at the limit, instead of killing a process.
    is_soft: bool,
    file: String,
}

/// The files of one version of control groups.
struct Version {
    mount: &'static str,
    /// The files that contain limits, and for each whether the kernel slows processes down at the
    /// limit, instead of killing a process.
    limits: &'static [(&'static str, bool)],
    used: &'static str,
    droppable: &'static str,
}

const VERSION_1: Version = Version {
    mount: "sys/fs/cgroup/memory",
    limits: &[("memory.limit_in_bytes", false)],
    used: "memory.usage_in_bytes",
    droppable: "total_inactive_file ",
};

const VERSION_2: Version = Version {
    mount: "sys/fs/cgroup",
    limits: &[("memory.max", false), ("memory.high", true)],
    used: "memory.current",
    droppable: "inactive_file ",
};

/// `/a/b` -> `/a/b`, `/a`, ``. A path with `..`, which a nested namespace can show (`/../..`),
/// becomes the mount.
fn ancestors(path: &str) -> Vec<&str> {
    let mut rest = if path.contains("..") { "" } else { path.trim_end_matches('/') };
    let mut all = vec![rest];
    while let Some((parent, _)) = rest.rsplit_once('/') {
        rest = parent;
        all.push(rest);
    }
    all
}

/// Free and total memory in bytes, from a system call.
fn kernel_memory_bytes() -> (u64, u64) {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    (info.freeram.saturating_mul(unit), info.totalram.saturating_mul(unit))
}

/// The available memory, limited to the memory that the control group may still use.
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
    use super::*;
    use crate::sys::tests::root_with;

    const MEMINFO: &str = "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:    524288 kB\n";

    #[test]
    fn control_group_limits_available_memory() {
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
    fn unlimited_group_does_not_limit() {
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
    fn memory_is_known_without_proc() {
        let memory = Sys::at("/nonexistent").memory();
        assert!(memory.total_bytes > 1 << 20);
        assert!(memory.available_bytes <= memory.total_bytes);
    }

    #[test]
    fn pools_and_mode_are_read_and_malformed_files_left_out() {
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
