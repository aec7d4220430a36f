//! Logical processors, cores and NUMA nodes.

use std::collections::BTreeSet;

use rustix::thread::CpuSet;

use super::Sys;

/// The processors of the machine, and those that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The logical processors, in ascending order, that the affinity mask of the calling thread
    /// allows.
    pub allowed: Vec<usize>,
    /// The number of online logical processors; the number of allowed ones if `/sys` does not
    /// report it.
    pub online: usize,
    /// The number of cores that the online processors have; `None` if `/sys` does not report it.
    pub cores: Option<usize>,
    /// The number of NUMA nodes with processors or memory; `None` if `/sys` does not report it.
    pub numa_nodes: Option<usize>,
}

impl Sys {
    /// Processors and nodes. Costs one system call and two files per processor.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let mut allowed = affinity();
        if allowed.is_empty() {
            // At least one processor is allowed: the one that runs this thread.
            allowed.push(0);
        }
        let online = self.text("sys/devices/system/cpu/online").and_then(|t| parse_list(&t));
        Topology {
            cores: online.as_deref().and_then(|online| self.count_cores(online)),
            online: online.map_or(allowed.len(), |list| list.len()),
            allowed,
            numa_nodes: self
                .text("sys/devices/system/node/online")
                .and_then(|t| parse_list(&t))
                .map(|list| list.len()),
        }
    }

    fn count_cores(&self, online: &[usize]) -> Option<usize> {
        let core = |cpu: &usize| {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            let package = self.text(&format!("{folder}/physical_package_id"))?;
            Some((package, self.text(&format!("{folder}/core_id"))?))
        };
        online.iter().map(core).collect::<Option<BTreeSet<_>>>().map(|cores| cores.len())
    }
}

/// The processors, in ascending order, on which the calling thread may run. Empty if the kernel
/// does not report them.
#[must_use]
pub fn affinity() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Parses the kernel's list format: `0-3,8`. `None` if the text is malformed or has an open range.
pub(super) fn parse_list(text: &str) -> Option<Vec<usize>> {
    /// A limit above the number of processors in any machine. A range that exceeds the limit is
    /// rejected.
    const PROCESSORS_MAX: usize = 1 << 16;
    let mut list = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= PROCESSORS_MAX {
            return None;
        }
        list.extend(first..=last);
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tests::root_with;

    #[test]
    fn kernel_lists_are_parsed_and_malformed_ones_rejected() {
        assert_eq!(parse_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_list("0"), Some(vec![0]));
        for bad in ["", "a", "3-1", "0-", "0-18446744073709551615", "1,,2"] {
            assert_eq!(parse_list(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn siblings_share_a_core() {
        let topology = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/topology");
        let mut files = vec![
            ("sys/devices/system/cpu/online".to_owned(), "0-3".to_owned()),
            ("sys/devices/system/node/online".to_owned(), "0-1".to_owned()),
        ];
        for cpu in 0..4 {
            files.push((format!("{}/core_id", topology(cpu)), (cpu / 2).to_string()));
            files.push((format!("{}/physical_package_id", topology(cpu)), "0".to_owned()));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (&**p, &**t)).collect();
        let (_folder, sys) = root_with(&files);
        let topology = sys.topology();
        assert_eq!((topology.online, topology.cores, topology.numa_nodes), (4, Some(2), Some(2)));
    }

    #[test]
    fn affinity_mask_counts_without_sys() {
        let topology = Sys::at("/nonexistent").topology();
        assert!(!topology.allowed.is_empty());
        assert_eq!(topology.online, topology.allowed.len());
        assert_eq!((topology.cores, topology.numa_nodes), (None, None));
    }
}
