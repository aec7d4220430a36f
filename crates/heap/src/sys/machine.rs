//! Facts about the machine that the heap needs: memory, huge pages, nodes. They are read from
//! `/proc` and `/sys` into buffers on the stack. A fact that cannot be read counts as absent.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::huge::HugeSize;
use super::limit::{self, Resource};
use super::{file, raw};

/// The most bytes that are read from a file with one line: node lists, pool counts, settings in
/// brackets.
const LINE_BYTES: usize = 256;

/// The most NUMA nodes that the heap distinguishes. The heap does not place memory on higher
/// nodes.
pub(crate) const NODES_MAX: usize = 8;

const _: () = assert!(NODES_MAX <= raw::NODES_MAX as usize);

/// The pool of one size of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    /// Pages in the pool, in use or free.
    pub(crate) pages: u64,
    /// Pages that are neither in use nor reserved.
    pub(crate) free: u64,
}

/// When the kernel uses transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transparent {
    /// Everywhere.
    Always,
    /// In memory for which a program requests them (madvise).
    Asked,
    /// Never, or the kernel does not support them.
    Never,
}

/// The kernel's numbers for the NUMA nodes that have memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    numbers: [u8; NODES_MAX],
    count: usize,
}

impl Nodes {
    /// The kernel's numbers, ascending; never empty.
    pub(crate) fn numbers(&self) -> &[u8] {
        &self.numbers[..self.count]
    }

    /// Parses a list like "0-1,4".
    fn parse(text: &[u8]) -> Option<Self> {
        let mut nodes = Self { numbers: [0; NODES_MAX], count: 0 };
        let line = text.split(|byte| *byte == b'\n').next()?;
        for range in line.split(|byte| *byte == b',') {
            let mut ends = range.splitn(2, |byte| *byte == b'-');
            let first = file::parse_number(ends.next()?)?;
            let last = ends.next().map_or(Some(first), file::parse_number)?;
            for number in first..=last.min(first.saturating_add(1024)) {
                // The heap does not distinguish nodes with higher numbers.
                let Ok(number) = u8::try_from(number) else { break };
                if nodes.count == NODES_MAX || u32::from(number) >= raw::NODES_MAX {
                    break;
                }
                nodes.numbers[nodes.count] = number;
                nodes.count += 1;
            }
        }
        (nodes.count > 0).then_some(nodes)
    }
}

/// Bytes of the smallest page. Reads a file on the first call.
///
/// rustix also has this number, but for this it reads the vDSO. Under valgrind, no vDSO is mapped
/// at the address that the kernel reports.
pub(crate) fn page_bytes() -> usize {
    /// The assumption if the kernel does not report the size. It is the only size on x86-64.
    const DEFAULT: usize = 4096;
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let known = BYTES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut buffer = [0; 1024];
    let record = file::read_small(c"/proc/self/auxv", &mut buffer).unwrap_or_default();
    let bytes = auxiliary(record, AT_PAGESZ).filter(|bytes| bytes.is_power_of_two());
    let bytes = bytes.unwrap_or(DEFAULT);
    BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

/// The entry of the auxiliary vector with the page size: `include/uapi/linux/auxvec.h`.
const AT_PAGESZ: usize = 6;

/// The value of the entry `kind` in the auxiliary vector. Each entry contains a kind and a value.
fn auxiliary(record: &[u8], kind: usize) -> Option<usize> {
    let (words, _) = record.as_chunks::<{ size_of::<usize>() }>();
    let entries =
        words.chunks_exact(2).map(|entry| entry.iter().map(|word| usize::from_ne_bytes(*word)));
    entries
        .filter_map(|mut entry| Some((entry.next()?, entry.next()?)))
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// Whether the kernel counts writable memory, even unused memory, and refuses more than a limit
/// of the process (RLIMIT_DATA) or of the machine. One system call, and three more if the process
/// has no such limit.
pub(crate) fn is_writable_counted() -> bool {
    limit::of(Resource::Data) != u64::MAX || is_commit_strict()
}

/// Whether the machine commits no more memory than it has (`vm.overcommit_memory` is 2).
pub(crate) fn is_commit_strict() -> bool {
    let mut buffer = [0; LINE_BYTES];
    file::read_small(c"/proc/sys/vm/overcommit_memory", &mut buffer)
        .is_ok_and(|text| text.first() == Some(&b'2'))
}

/// How many bytes of addresses, and of private writable memory, this process uses: the values
/// that RLIMIT_AS and RLIMIT_DATA limit. 0 if the kernel does not report them.
pub(crate) fn used_bytes() -> [u64; 2] {
    let mut buffer = [0; LINE_BYTES];
    let text = file::read_small(c"/proc/self/statm", &mut buffer).unwrap_or_default();
    // proc_pid_statm(5): the first number is the size of the address space, the sixth number is
    // the size of the data.
    let field = |index| {
        text.split(|byte| *byte == b' ').nth(index).and_then(file::parse_number).unwrap_or(0)
    };
    [0, 5].map(|index| field(index) * page_bytes() as u64)
}

/// CPUs that this thread may run on; 1 if the kernel does not report them. One system call.
pub(crate) fn cpus() -> usize {
    if cfg!(miri) {
        return 1;
    }
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1) as usize)
}

/// Bytes of memory in this machine.
pub(crate) fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// The pool of one size of huge pages; `None` if the kernel has no such pool.
pub(crate) fn pool(size: HugeSize) -> Option<Pool> {
    let value = |name| number_in(&[b"/sys/kernel/mm/hugepages/", size.folder(), b"/", name]);
    let (free, reserved) = (value(b"free_hugepages")?, value(b"resv_hugepages").unwrap_or(0));
    Some(Pool { pages: value(b"nr_hugepages")?, free: free.saturating_sub(reserved) })
}

/// When private memory gets transparent huge pages.
pub(crate) fn transparent() -> Transparent {
    choice(c"/sys/kernel/mm/transparent_hugepage/enabled")
}

/// When shared memory gets transparent huge pages.
pub(crate) fn transparent_shared() -> Transparent {
    choice(c"/sys/kernel/mm/transparent_hugepage/shmem_enabled")
}

/// The nodes that have memory; node 0 alone if the kernel does not report them.
pub(crate) fn nodes() -> Nodes {
    let mut buffer = [0; LINE_BYTES];
    file::read_small(c"/sys/devices/system/node/has_memory", &mut buffer)
        .ok()
        .and_then(Nodes::parse)
        .unwrap_or(Nodes { numbers: [0; NODES_MAX], count: 1 })
}

/// The kernel's number for the node on which this thread runs. One system call.
pub(crate) fn own_node() -> u32 {
    raw::current_node().unwrap_or(0)
}

/// The physical address of a byte of this process; `None` if the page is not present or the kernel
/// does not report it. Three system calls.
pub(crate) fn physical_address(address: usize) -> Option<u64> {
    /// Bytes per entry. There is one entry per page of the address space: the kernel's
    /// `Documentation/admin-guide/mm/pagemap.rst`.
    const ENTRY: usize = 8;
    /// Bit 63: the page is present.
    const PRESENT: u64 = 1 << 63;
    /// Bits 0 to 54: the page frame number. The kernel reports zero if it does not show the
    /// number to the process.
    const FRAME: u64 = (1 << 55) - 1;
    let mut bytes = [0; ENTRY];
    let page = page_bytes();
    let offset = (address / page * ENTRY) as u64;
    if !file::read_path_at(c"/proc/self/pagemap", &mut bytes, offset).ok()? {
        return None;
    }
    let entry = u64::from_ne_bytes(bytes);
    let frame = entry & FRAME;
    (entry & PRESENT != 0 && frame != 0).then_some(frame * page as u64 + (address % page) as u64)
}

fn choice(path: &core::ffi::CStr) -> Transparent {
    let mut buffer = [0; LINE_BYTES];
    let Ok(text) = file::read_small(path, &mut buffer) else {
        return Transparent::Never;
    };
    match chosen(text) {
        // within_size has the effect of "always" for a file of this size, and force is a setting
        // for tests.
        b"always" | b"within_size" | b"force" => Transparent::Always,
        b"madvise" | b"advise" => Transparent::Asked,
        _ => Transparent::Never,
    }
}

/// The word in brackets.
fn chosen(text: &[u8]) -> &[u8] {
    let mut pieces = text.split(|byte| matches!(byte, b'[' | b']'));
    pieces.nth(1).unwrap_or_default()
}

fn number_in(pieces: &[&[u8]]) -> Option<u64> {
    let mut path = file::Path::<128>::new();
    pieces.iter().for_each(|piece| path.push(piece));
    number_at(&path)
}

fn number_at(path: &file::Path<128>) -> Option<u64> {
    let mut buffer = [0; LINE_BYTES];
    file::parse_number(file::read_small(path.as_c_str().ok()?, &mut buffer).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;
    use std::vec;

    #[test]
    fn page_size_equals_that_of_the_c_library() {
        // SAFETY: asks for a number.
        let known = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        assert_eq!(page_bytes(), known as usize);
        assert_eq!(auxiliary(&[0; 7], 6), None);
    }

    #[test]
    fn node_list_is_parsed() {
        let numbers = |text: &str| Nodes::parse(text.as_bytes()).map(|n| n.numbers().to_vec());
        assert_eq!(numbers("0\n"), Some(vec![0]));
        assert_eq!(numbers("0-1,4\n"), Some(vec![0, 1, 4]));
        assert_eq!(numbers("0-99999999999\n").map(|n| n.len()), Some(NODES_MAX));
        for bad in ["", "\n", "x", "-1"] {
            assert_eq!(numbers(bad), None, "{bad}");
        }
    }

    #[test]
    fn choice_in_brackets_is_parsed() {
        assert_eq!(chosen(b"always [madvise] never\n"), b"madvise");
        assert_eq!(chosen(b"nothing"), b"");
        assert_eq!(chosen(b""), b"");
    }

    #[test]
    fn this_machine_has_memory_and_a_node() {
        assert!(memory_bytes() > 1 << 20);
        assert!(!nodes().numbers().is_empty());
        assert!(page_bytes().is_power_of_two());
    }
}
