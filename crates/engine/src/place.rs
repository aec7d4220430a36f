//! The processors for a helper thread: those of its opener's NUMA node, so that it reads the
//! caller's memory from the same caches and memory controller.
//!
//! The thread may move among them. Of a large node, the opener's own core is left out, because two
//! threads of a core share its caches and execution units. Of a small one it is not: the caller may
//! move later, and then needs the thread elsewhere.

use std::fs;

use rustix::thread::CpuSet;

/// This many processors must remain if the opener's core is left out. A stated limit.
const REMAIN_MIN: u32 = 4;

/// The processors of the calling thread's node that this process may use; `None` if these are all
/// that it may use, or if they are not known.
pub(crate) fn near() -> Option<CpuSet> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let (cpu, node) = crate::sys::cpu_and_node()?;
    let read = |path: String| fs::read_to_string(path).ok().and_then(|text| listed(&text));
    let of_node = read(format!("/sys/devices/system/node/node{node}/cpulist"))?;
    let core = read(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    chosen(&allowed, &of_node, &core.unwrap_or_default())
}

/// The processors of the node that are allowed, without the core if enough remain. `None` if these
/// are all that are allowed, or none is.
fn chosen(allowed: &CpuSet, of_node: &[usize], core: &[usize]) -> Option<CpuSet> {
    let mut near = CpuSet::new();
    of_node.iter().filter(|cpu| allowed.is_set(**cpu)).for_each(|cpu| near.set(*cpu));
    let mut others = near;
    core.iter().for_each(|cpu| others.unset(*cpu));
    let chosen = if others.count() >= REMAIN_MIN { others } else { near };
    (chosen.count() > 0 && chosen != *allowed).then_some(chosen)
}

/// The numbers in a list of the kernel's, such as `0-3,8`; `None` for another text.
fn listed(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CpuSet::MAX_CPU {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.set(cpu));
        set
    }

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(listed("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(listed("5"), Some(vec![5]));
        for bad in ["", "\n", "a", "1-", "0-99999999999999", "1023-1024", "3,,4"] {
            assert_eq!(listed(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn thread_stays_on_the_openers_node_and_off_its_core() {
        let (node, core) = ([0, 1, 2, 3, 8, 9, 10, 11], [0, 8]);
        // Two nodes, all allowed.
        assert_eq!(chosen(&set(0..16), &node, &core), Some(set([1, 2, 3, 9, 10, 11])));
        // Only some of the node are allowed, so that the core stays in.
        assert_eq!(chosen(&set([0, 1, 4, 8]), &node, &core), Some(set([0, 1, 8])));
        // One small node: the kernel chooses.
        assert_eq!(chosen(&set(0..2), &[0, 1], &[0]), None);
        assert_eq!(chosen(&set(0..4), &[0, 1, 2, 3], &[0, 1]), None);
        // A node without allowed processors, as in a container that was moved meanwhile.
        assert_eq!(chosen(&set(4..8), &node, &core), None);
    }
}
