//! The facts as one [`Machine`] line, and the machine id for which a tuning holds.

use std::collections::BTreeMap;

use haul_copy::Isa;
use haul_model::record::MACHINE_SCHEMA;
use haul_model::{Bytes, Machine};

use super::{Caches, HugePages, Permissions, Processor, Sys, Topology};

impl Sys {
    /// All facts about this machine that a reader of records needs. Contains no host name and no
    /// user name.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let (processor, caches, topology) = (self.processor(), self.caches(), self.topology());
        let memory = self.memory();
        let mut facts = BTreeMap::new();
        let mut fact = |name: &str, value: String| {
            facts.insert(name.to_owned(), value);
        };
        fact("kernel", self.kernel());
        fact("libc", self.libc());
        fact("hypervisor", self.hypervisor().unwrap_or_else(|| "none".into()));
        fact("memory_available", Bytes(memory.available_bytes).approximate());
        if let Some(limit) = memory.limit_bytes {
            fact("memory_limit", Bytes(limit).approximate());
        }
        for (name, value) in processor_facts(&processor)
            .into_iter()
            .chain(topology_facts(&topology))
            .chain(cache_facts(&caches))
            .chain(page_facts(&self.huge_pages()))
            .chain(permission_facts(&self.permissions()))
            .chain(self.device_facts())
        {
            fact(name, value);
        }
        let not_mounted = self.not_mounted();
        if !not_mounted.is_empty() {
            fact("not_mounted", not_mounted.join(" "));
        }
        Machine {
            schema: MACHINE_SCHEMA.into(),
            id: id_of(&processor, &caches, topology.online),
            cpu: processor.name,
            isa: isa_names(),
            processors: topology.allowed.len(),
            caches_bytes: caches.levels.iter().map(|cache| cache.size_bytes).collect(),
            memory_bytes: memory.total_bytes,
            facts,
        }
    }

    /// Only the machine's id. Costs less than [`Sys::machine`].
    ///
    /// The id contains the properties on which the best thresholds depend, in readable form:
    /// `amd-25-17-1-avx2-l2-1MiB-l3-32MiB-2cpu`. The number of processors includes all online
    /// processors, even if the affinity mask does not allow them, because a pinned program is on
    /// the same machine.
    #[must_use]
    pub fn machine_id(&self) -> String {
        id_of(&self.processor(), &self.caches(), self.topology().online)
    }

    fn device_facts(&self) -> Vec<(&'static str, String)> {
        let devices = self.devices();
        let list = |names: &[String]| match names {
            [] => "none".to_owned(),
            names => names.join(" "),
        };
        let dpdk = devices.dpdk.map(|dpdk| dpdk.version.unwrap_or_else(|| dpdk.folder.clone()));
        vec![
            ("dsa", list(&devices.dsa)),
            ("pmu_core", list(&devices.pmu_core)),
            ("pmu_uncore", list(&devices.pmu_uncore)),
            ("dpdk", dpdk.unwrap_or_else(|| "none".into())),
        ]
    }
}

fn id_of(processor: &Processor, caches: &Caches, online: usize) -> String {
    let Processor { vendor, family, model, stepping, .. } = processor;
    let isa = instruction_set().name();
    let mut id = format!("{vendor}-{family}-{model}-{stepping}-{isa}");
    for level in [2, 3] {
        if let Some(size_bytes) = caches.size_bytes(level) {
            let size = Bytes(size_bytes).to_string().replace(' ', "");
            id += &format!("-l{level}-{size}");
        }
    }
    id + &format!("-{online}cpu")
}

/// The instruction set in a machine's id: the last available set, but never AVX-512 with 64
/// bytes, independently of the set that copies use.
fn instruction_set() -> Isa {
    Isa::available().filter(|&isa| isa != Isa::Avx512).last().unwrap_or(Isa::Scalar)
}

fn isa_names() -> Vec<String> {
    Isa::available().map(|isa| isa.name().to_owned()).collect()
}

fn processor_facts(processor: &Processor) -> Vec<(&'static str, String)> {
    let Processor { vendor, family, model, stepping, .. } = processor;
    vec![("processor", format!("{vendor} family {family} model {model} stepping {stepping}"))]
}

fn topology_facts(topology: &Topology) -> Vec<(&'static str, String)> {
    let known = |count: Option<usize>| count.map_or("not known".to_owned(), |n| n.to_string());
    vec![
        ("processors_online", topology.online.to_string()),
        ("cores", known(topology.cores)),
        ("numa_nodes", known(topology.numa_nodes)),
    ]
}

fn cache_facts(caches: &Caches) -> Vec<(&'static str, String)> {
    const NAMES: [&str; 3] = ["cache_l1d", "cache_l2", "cache_l3"];
    let mut facts: Vec<(&str, String)> = caches
        .levels
        .iter()
        .filter_map(|cache| {
            let name = NAMES.get(cache.level as usize - 1)?;
            let size = Bytes(cache.size_bytes);
            Some(match cache.shared_by {
                0 => (*name, size.to_string()),
                n => (*name, format!("{size}, shared by {n}")),
            })
        })
        .collect();
    if !caches.disbelieved.is_empty() {
        facts.push(("cache_disbelieved", caches.disbelieved.join("; ")));
    }
    facts
}

fn page_facts(pages: &HugePages) -> Vec<(&'static str, String)> {
    let pools: Vec<String> = pages
        .pools
        .iter()
        .map(|pool| format!("{}: {} free of {}", Bytes(pool.page_bytes), pool.free, pool.total))
        .collect();
    let pools = if pools.is_empty() { "not known".to_owned() } else { pools.join(", ") };
    let transparent = pages.transparent.clone().unwrap_or_else(|| "not known".into());
    vec![("huge_pages", pools), ("huge_pages_transparent", transparent)]
}

fn permission_facts(permissions: &Permissions) -> Vec<(&'static str, String)> {
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let show = |bytes| Bytes(bytes).to_string();
    let known = |text: Option<String>| text.unwrap_or_else(|| "not known".into());
    vec![
        ("cross_memory_attach", yes_no(permissions.cross_memory_attach)),
        ("ptrace_scope", permissions.ptrace_scope.map_or("no Yama".into(), |n| n.to_string())),
        ("locked_memory_max", permissions.locked_bytes_max.map_or("unlimited".into(), show)),
        ("perf_event_paranoid", known(permissions.perf_event_paranoid.map(|n| n.to_string()))),
        ("vmsplice", yes_no(permissions.vmsplice)),
        ("pipe_max", known(permissions.pipe_bytes_max.map(show))),
        ("sealed_memory", yes_no(permissions.sealed_memory)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Cache;

    #[test]
    fn id_contains_what_thresholds_depend_on() {
        let processor = Processor {
            name: "AMD EPYC".into(),
            vendor: "amd".into(),
            family: 25,
            model: 17,
            stepping: 1,
        };
        let level = |level, size_bytes| Cache { level, size_bytes, shared_by: 0 };
        let caches = Caches {
            levels: vec![level(1, 32 << 10), level(2, 1 << 20), level(3, 32 << 20)],
            disbelieved: Vec::new(),
        };
        let isa = instruction_set().name();
        assert_eq!(
            id_of(&processor, &caches, 2),
            format!("amd-25-17-1-{isa}-l2-1MiB-l3-32MiB-2cpu")
        );
        assert_eq!(id_of(&processor, &Caches::default(), 2), format!("amd-25-17-1-{isa}-2cpu"));
    }

    #[test]
    fn id_is_stable_and_equal_from_both_functions() {
        let sys = Sys::new();
        assert_eq!(sys.machine().id, sys.machine_id());
        assert_eq!(sys.machine_id(), sys.machine_id());
    }

    #[test]
    fn machine_without_proc_and_sys_is_reported_as_such() {
        let machine = Sys::at("/nonexistent").machine();
        assert_eq!(machine.facts["not_mounted"], "/proc /sys");
        assert!(machine.processors >= 1);
        assert!(machine.memory_bytes > 0);
        assert!(!machine.isa.is_empty());
        let line = haul_model::Line::from(machine.clone()).to_json();
        assert_eq!(haul_model::Line::parse(&line).unwrap(), haul_model::Line::Machine(machine));
    }

    #[test]
    fn affinity_mask_does_not_change_the_id() {
        let before = Sys::new().machine_id();
        let pinned = std::thread::spawn(|| {
            let allowed = Sys::new().topology().allowed;
            let mut one = rustix::thread::CpuSet::new();
            one.set(allowed[0]);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            assert_eq!(Sys::new().machine().processors, 1);
            Sys::new().machine_id()
        });
        let pinned = pinned.join().unwrap();
        if Sys::new().not_mounted().contains(&"/sys") {
            eprintln!("SKIPPED: id under an affinity mask: no file /sys/devices: mount /sys");
        } else {
            assert_eq!(pinned, before);
        }
    }
}
