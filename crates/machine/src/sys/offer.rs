//! What this machine offers, what is missing, and how to get it: the lines of `haul doctor`.
//!
//! haul works without all these items. Each line of a missing item says what the item would make
//! faster or measurable.

use haul_copy::Isa;
use haul_engine::dsa::{Step, Sysfs};
use haul_model::Bytes;

use super::{Permissions, Sys};

/// Whether an item is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The item is present, and this process can use it.
    Ok,
    /// Absent or not usable.
    Missing,
    /// The item is present and disturbs measurements.
    Disturbs,
    /// The machine does not report the item.
    Unknown,
}

/// An item that a machine may offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its name: `huge pages`.
    pub name: &'static str,
    /// Its state.
    pub state: State,
    /// The details found.
    pub detail: String,
    /// How to get a missing item, and the item's benefit; `None` if the item is present.
    pub remedy: Option<String>,
}

impl Offer {
    pub(super) fn ok(name: &'static str, detail: String) -> Self {
        Self { name, state: State::Ok, detail, remedy: None }
    }

    fn missing(name: &'static str, detail: impl Into<String>, remedy: &str) -> Self {
        Self { name, state: State::Missing, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn unknown(name: &'static str, remedy: &str) -> Self {
        let detail = "this machine does not report it".to_owned();
        Self { name, state: State::Unknown, detail, remedy: Some(remedy.into()) }
    }
}

impl Sys {
    /// All items. The items of the processor come first.
    #[must_use]
    pub fn offers(&self) -> Vec<Offer> {
        let permissions = self.permissions();
        let mut offers = vec![
            instruction_sets(),
            self.offer_processors(),
            self.offer_caches(),
            self.offer_numa(),
            self.offer_memory(),
            self.offer_group(),
            self.offer_huge_pages(),
            self.offer_transparent_pages(),
            cross_memory(&permissions),
            vmsplice(&permissions),
            sealed_memory(&permissions),
            locked_memory(&permissions),
            self.offer_core_counters(&permissions),
        ];
        offers.extend(self.offer_devices());
        offers.extend(self.offer_dsa());
        let not_mounted = self.not_mounted();
        if !not_mounted.is_empty() {
            offers.push(Offer::missing(
                "system files",
                format!("not mounted here: {}", not_mounted.join(" ")),
                "mount them for facts that the processor and system calls do not report; haul \
                 works without",
            ));
        }
        offers
    }

    fn offer_processors(&self) -> Offer {
        let topology = self.topology();
        let (allowed, online) = (topology.allowed.len(), topology.online);
        let cores = topology.cores.map_or(String::new(), |n| format!(" on {n} cores"));
        let detail = format!("{allowed} of {online} logical processors allowed{cores}");
        if allowed >= 2 {
            return Offer::ok("processors", detail);
        }
        Offer::missing(
            "processors",
            detail,
            "allow more than one (taskset -c 0-1 haul ..., or more for the container): with one, \
             nothing can be measured on two threads",
        )
    }

    fn offer_caches(&self) -> Offer {
        let caches = self.caches();
        let levels: Vec<String> = caches
            .levels
            .iter()
            .map(|cache| format!("L{} {}", cache.level, Bytes(cache.size_bytes)))
            .collect();
        if let Some(sentence) = caches.disbelieved.first() {
            return Offer {
                name: "caches",
                state: State::Unknown,
                detail: format!("{}; {sentence}", levels.join(", ")),
                remedy: Some("`haul copy tune` measures instead of relying on such figures".into()),
            };
        }
        if levels.is_empty() {
            return Offer::unknown("caches", "mount /sys, or tune: `haul copy tune` measures them");
        }
        Offer::ok("caches", levels.join(", "))
    }

    fn offer_numa(&self) -> Offer {
        match self.topology().numa_nodes {
            Some(nodes) => Offer::ok("NUMA nodes", nodes.to_string()),
            None => Offer::unknown("NUMA nodes", "mount /sys; haul assumes one node"),
        }
    }

    fn offer_memory(&self) -> Offer {
        let memory = self.memory();
        let limit = memory
            .limit_bytes
            .map_or(String::new(), |limit| format!(", limited to {}", Bytes(limit).approximate()));
        let detail = format!(
            "{} available of {}{limit}",
            Bytes(memory.available_bytes).approximate(),
            Bytes(memory.total_bytes).approximate()
        );
        // The survey's largest copy needs 256 MiB for the source and 256 MiB for the target, in
        // addition to the cold buffers.
        if memory.available_bytes >= 1 << 30 {
            return Offer::ok("memory", detail);
        }
        Offer::missing(
            "memory",
            detail,
            "free 1 GiB to measure the largest copies; smaller ones need less",
        )
    }

    /// The memory that the control group may still use. This matters because the kernel charges a
    /// page of a guest's memory to the process that touches it first, which may be haul.
    fn offer_group(&self) -> Offer {
        const NAME: &str = "control group's memory";
        let Some(limits) = self.memory_limits() else {
            return Offer::unknown(NAME, "mount /proc; haul assumes no limit");
        };
        let Some(limit) = limits.first() else { return Offer::ok(NAME, "no limit".into()) };
        let (all, left) = (limit.limit_bytes, limit.left_bytes());
        let detail = format!(
            "{} left of {}, by {}",
            Bytes(left).approximate(),
            Bytes(all).approximate(),
            limit.file
        );
        // A small guest has 1 GiB of memory. The last tenth of a limit can fill up before an
        // administrator reacts.
        if left >= 1 << 30 && left >= all / 10 {
            return Offer::ok(NAME, detail);
        }
        Offer::missing(
            NAME,
            detail,
            "the limit is near: pages of a guest's memory that haul touches first, packet pools, \
             heaps and channels are charged to this group, and at the limit the kernel slows down \
             or kills a process of it; raise the limit (systemctl set-property UNIT \
             MemoryMax=..., docker run --memory=...), or have the guest's memory allocated by its \
             hypervisor (prealloc=on)",
        )
    }

    fn offer_huge_pages(&self) -> Offer {
        let pages = self.huge_pages();
        let pools: Vec<String> = pages
            .pools
            .iter()
            .map(|p| format!("{} of {} free at {}", p.free, p.total, Bytes(p.page_bytes)))
            .collect();
        if pages.pools.iter().any(|pool| pool.free > 0) {
            return Offer::ok("huge pages", pools.join(", "));
        }
        if pools.is_empty() {
            return Offer::unknown("huge pages", "mount /sys, or run a kernel with hugetlbfs");
        }
        Offer::missing(
            "huge pages",
            pools.join(", "),
            "reserve some for fewer TLB misses: echo 64 | sudo tee \
             /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        )
    }

    fn offer_transparent_pages(&self) -> Offer {
        const NAME: &str = "transparent huge pages";
        match self.huge_pages().transparent {
            Some(mode) if mode != "never" => Offer::ok(NAME, mode),
            Some(mode) => Offer::missing(
                NAME,
                mode,
                "allow them on request: echo madvise | sudo tee \
                 /sys/kernel/mm/transparent_hugepage/enabled",
            ),
            None => Offer::unknown(NAME, "mount /sys, or run a kernel with them"),
        }
    }

    fn offer_core_counters(&self, permissions: &Permissions) -> Offer {
        const NAME: &str = "core counters (PMU)";
        let units = self.devices().pmu_core;
        if units.is_empty() {
            return Offer::missing(
                NAME,
                "the kernel shows none",
                "have the hypervisor expose the PMU (QEMU: -cpu host,pmu=on; clouds: a metal \
                 instance) to see cycles and cache misses",
            );
        }
        match permissions.perf_event_paranoid {
            Some(level) if level > 2 && !rustix::process::geteuid().is_root() => Offer::missing(
                NAME,
                format!("{}, but perf_event_paranoid is {level}", units.join(" ")),
                "allow a process to count its own events: sudo sysctl kernel.perf_event_paranoid=2",
            ),
            _ => Offer::ok(NAME, units.join(" ")),
        }
    }

    /// The chain from a copy engine to this process, up to its first broken link.
    fn offer_dsa(&self) -> Vec<Offer> {
        let steps = haul_engine::dsa::chain(&Sysfs::at(&self.root));
        let offer = |step: Step| Offer {
            name: step.link.name(),
            state: match step.state {
                haul_engine::dsa::State::Holds => State::Ok,
                haul_engine::dsa::State::Broken => State::Missing,
                haul_engine::dsa::State::Unknown => State::Unknown,
            },
            detail: step.detail,
            remedy: step.remedy,
        };
        steps.into_iter().map(offer).collect()
    }

    fn offer_devices(&self) -> [Offer; 2] {
        let devices = self.devices();
        let uncore = if devices.pmu_uncore.is_empty() {
            Offer::missing(
                "memory counters (PMU)",
                "the kernel shows none",
                "run on bare metal to see the memory controller's and PCIe's own counters; haul \
                 estimates them otherwise",
            )
        } else {
            Offer::ok("memory counters (PMU)", devices.pmu_uncore.join(" "))
        };
        let dpdk = match devices.dpdk {
            Some(dpdk) => {
                let version = dpdk.version.unwrap_or_else(|| "of unknown version".into());
                Offer::ok("DPDK", format!("{version} in {}", dpdk.folder))
            }
            None => Offer::missing(
                "DPDK",
                "not installed",
                "install dpdk-dev (Debian, Ubuntu) or dpdk-devel (Fedora, RHEL) to compare with it",
            ),
        };
        [uncore, dpdk]
    }
}

fn instruction_sets() -> Offer {
    let names: Vec<&str> = Isa::available().map(|isa| isa.name()).collect();
    Offer::ok("instruction sets", names.join(" "))
}

fn cross_memory(permissions: &Permissions) -> Offer {
    const NAME: &str = "cross-memory attach";
    if !permissions.cross_memory_attach {
        return Offer::missing(
            NAME,
            "process_vm_readv is refused",
            "allow it in the container's seccomp profile (docker run --cap-add SYS_PTRACE), for \
             one copy between processes instead of two",
        );
    }
    match permissions.ptrace_scope {
        None | Some(0) => Offer::ok(NAME, "between processes of the same user".into()),
        Some(1) => Offer::missing(
            NAME,
            "ptrace_scope is 1: only a parent may read its children",
            "sudo sysctl kernel.yama.ptrace_scope=0, or have the peer call \
             prctl(PR_SET_PTRACER, pid)",
        ),
        Some(scope) => Offer::missing(
            NAME,
            format!("ptrace_scope is {scope}: administrators at most"),
            "sudo sysctl kernel.yama.ptrace_scope=0 (from 3 only by a reboot)",
        ),
    }
}

fn vmsplice(permissions: &Permissions) -> Offer {
    let pipe = permissions
        .pipe_bytes_max
        .map_or("of unknown size".to_owned(), |max| format!("up to {}", Bytes(max)));
    if permissions.vmsplice {
        return Offer::ok("vmsplice", format!("works, pipes {pipe}"));
    }
    Offer::missing(
        "vmsplice",
        "refused",
        "allow it in the container's seccomp profile, or leave gVisor, to move pages through pipes",
    )
}

fn sealed_memory(permissions: &Permissions) -> Offer {
    if permissions.sealed_memory {
        return Offer::ok("sealed memory", "memfd_create with seals works".into());
    }
    Offer::missing(
        "sealed memory",
        "memfd_create is refused",
        "allow it in the container's seccomp profile, for shared memory that the peer cannot shrink",
    )
}

fn locked_memory(permissions: &Permissions) -> Offer {
    match permissions.locked_bytes_max {
        None => Offer::ok("locked memory", "unlimited".into()),
        // An NVMe or NIC driver in user space pins at least this much; the kernel's default is 8
        // MiB.
        Some(max) if max >= 64 << 20 => Offer::ok("locked memory", format!("up to {}", Bytes(max))),
        Some(max) => Offer::missing(
            "locked memory",
            format!("up to {}", Bytes(max)),
            "raise it before large buffers are pinned: ulimit -l unlimited, or \
             /etc/security/limits.conf",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tests::root_with;

    fn find<'a>(offers: &'a [Offer], name: &str) -> &'a Offer {
        offers.iter().find(|offer| offer.name == name).unwrap()
    }

    #[test]
    fn every_line_that_is_not_ok_has_a_remedy() {
        for sys in [Sys::new(), Sys::at("/nonexistent")] {
            for offer in sys.offers() {
                let has_remedy = offer.remedy.as_deref().is_some_and(|remedy| !remedy.is_empty());
                assert_eq!(has_remedy, offer.state != State::Ok, "{offer:?}");
                assert!(!offer.detail.is_empty(), "{offer:?}");
            }
        }
    }

    #[test]
    fn bare_machine_reports_missing_items() {
        let offers = Sys::at("/nonexistent").offers();
        for name in ["DPDK", "DSA: device", "core counters (PMU)", "system files"] {
            assert_eq!(find(&offers, name).state, State::Missing, "{name}");
        }
        assert_eq!(find(&offers, "NUMA nodes").state, State::Unknown);
    }

    #[test]
    fn near_limit_of_any_ancestor_group_is_reported() {
        const MIB: u64 = 1 << 20;
        let offer = |group: &str, files: &[(&str, String)]| {
            let mut all = vec![("proc/self/cgroup", group)];
            all.extend(files.iter().map(|(path, text)| (*path, text.as_str())));
            let (_folder, sys) = root_with(&all);
            find(&sys.offers(), "control group's memory").clone()
        };
        let (near, far) = ((100 * MIB).to_string(), (8192 * MIB).to_string());
        for (group, limit, used) in [
            ("0::/a/b", "sys/fs/cgroup/a/b/memory.max", "sys/fs/cgroup/a/b/memory.current"),
            ("0::/a/b", "sys/fs/cgroup/a/memory.high", "sys/fs/cgroup/a/memory.current"),
            ("0::/", "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
            (
                "4:memory:/a/b",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "sys/fs/cgroup/memory/a/memory.usage_in_bytes",
            ),
            (
                "4:cpu,memory:/a",
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "sys/fs/cgroup/memory/memory.usage_in_bytes",
            ),
        ] {
            let files = |bytes: &String| [(limit, far.clone()), (used, bytes.clone())];
            let offered = offer(group, &files(&near));
            assert_eq!(offered.state, State::Ok, "{limit}: {offered:?}");
            let offered = offer(group, &files(&(8000 * MIB).to_string()));
            assert_eq!(offered.state, State::Missing, "{limit}: {offered:?}");
            assert!(offered.detail.contains(&format!("by /{limit}")), "{offered:?}");
            assert!(offered.remedy.unwrap().contains("the limit is near"));
        }
        // Memory that the kernel can drop at once does not count as used.
        let (max, current) = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current");
        let stat = ("sys/fs/cgroup/memory.stat", format!("anon 1\ninactive_file {}\n", 6000 * MIB));
        let full = [(max, far.clone()), (current, (8000 * MIB).to_string()), stat];
        assert_eq!(offer("0::/", &full).state, State::Ok);
        assert_eq!(offer("0::/", &[(max, "max".to_owned())]).detail, "no limit");
        assert_eq!(
            find(&Sys::at("/nonexistent").offers(), "control group's memory").state,
            State::Unknown
        );
    }

    #[test]
    fn yama_and_seccomp_refusals_are_distinguished() {
        for (scope, state) in [("0", State::Ok), ("1", State::Missing), ("3", State::Missing)] {
            let (_folder, sys) = root_with(&[("proc/sys/kernel/yama/ptrace_scope", scope)]);
            let mut permissions = sys.permissions();
            permissions.cross_memory_attach = true;
            assert_eq!(cross_memory(&permissions).state, state, "ptrace_scope {scope}");
            permissions.cross_memory_attach = false;
            assert!(cross_memory(&permissions).remedy.unwrap().contains("seccomp"));
        }
    }

    #[test]
    fn fully_used_pool_counts_as_missing() {
        let folder = "sys/kernel/mm/hugepages/hugepages-2048kB";
        for (free, state) in [("0", State::Missing), ("3", State::Ok)] {
            let (_folder, sys) = root_with(&[
                (&format!("{folder}/nr_hugepages"), "8"),
                (&format!("{folder}/free_hugepages"), free),
            ]);
            assert_eq!(find(&sys.offers(), "huge pages").state, state, "{free} free");
        }
    }
}
