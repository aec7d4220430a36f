//! The memory of a virtual machine, or of a process that behaves like a virtual machine. A peer's
//! memory is mapped under one of two contracts; this is the second contract.
//!
//! The first contract, [`Sealed`](super::memory::Sealed), requires a size that cannot change. A
//! guest's memory is not sealed, so this contract has other rules:
//!
//! - Files are memory files, or files in a file system whose pages only the kernel provides:
//!   tmpfs, hugetlbfs, or a local disk. An access to a page that another process or machine
//!   provides (FUSE, NFS, 9P) could wait forever. The kernel reports the kind of file system. A
//!   guest's owner cannot mount a file system of a local disk.
//! - A region must be inside its file when it is mapped. If the file is truncated later, an
//!   access to the missing part reads zeros, and [`is_broken`](Guest::is_broken) returns true
//!   from then on: see [`haul_heap::guard`].
//! - Regions do not overlap, neither in the guest's addresses nor in the addresses of the peer's
//!   process.
//! - Before an address from the peer is used, it is looked up together with the length of the
//!   access. Each value is read only once.

mod mapped;

use std::ptr::NonNull;
use std::sync::Arc;

use haul_heap::guard::Guard;
use rustix::fd::AsFd;

use self::mapped::{FileSystem, Mapped};
use super::error::Error;

/// The peer's description of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// The region's address in the guest.
    pub guest: u64,
    /// The region's address in the peer's process.
    pub peer: u64,
    /// The region's length in bytes.
    pub bytes: u64,
    /// The region's offset in its file.
    pub offset: u64,
}

/// The largest sum of all regions' sizes: 1 TiB, so that the address space has room for the
/// regions.
const BYTES_MAX: u64 = 1 << 40;

/// The largest number of regions. It is the number of descriptors that vhost-user's messages can
/// carry, and the number of memory slots.
pub const REGIONS_MAX: usize = 32;

/// Describes the error for memory that was refused.
pub fn said(error: &Error) -> String {
    match error {
        Error::Memory { found, expected } => format!("{found}; {expected} is expected"),
        Error::System { attempt, reason } => format!("cannot {attempt}: {reason}"),
        other => format!("{other:?}"),
    }
}

/// The mapped memory of a guest. Regions can be shared with a memory that this one was made of.
#[derive(Debug, Default)]
pub struct Guest {
    regions: Vec<Arc<Mapped>>,
}

/// The region of the last lookup. Most lookups find the next address in the same region.
#[derive(Clone, Copy, Debug)]
pub struct Cached {
    start: u64,
    bytes: u64,
    /// The address of the region's first byte in this process.
    first: NonNull<u8>,
}

impl Default for Cached {
    /// No region.
    fn default() -> Self {
        Self { start: 0, bytes: 0, first: NonNull::dangling() }
    }
}

// SAFETY: it contains only an address in a mapping, and its user keeps the mapping.
unsafe impl Send for Cached {}

impl Guest {
    /// Maps the regions that a peer describes. Each region comes with its file.
    ///
    /// # Errors
    /// [`Error::Memory`] if a region does not meet the contract; [`Error::System`].
    pub fn map<F: AsFd>(regions: &[(Described, F)]) -> Result<Self, Error> {
        check(&regions.iter().map(|(region, _)| *region).collect::<Vec<_>>())?;
        let mapped = regions.iter().map(|(region, file)| Mapped::new(*region, file).map(Arc::new));
        Ok(Self { regions: mapped.collect::<Result<_, _>>()? })
    }

    /// This memory and one more region. The other regions stay mapped where they are.
    ///
    /// # Errors
    /// As [`Guest::map`].
    pub fn with(&self, region: Described, file: impl AsFd) -> Result<Self, Error> {
        let mut described: Vec<_> = self.regions.iter().map(|region| region.described).collect();
        described.push(region);
        check(&described)?;
        let mut regions = self.regions.clone();
        regions.push(Arc::new(Mapped::new(region, file)?));
        Ok(Self { regions })
    }

    /// This memory without the region of these addresses and this length, whatever its offset.
    /// `None` if there is no such region. The region is unmapped with the last memory that has it.
    pub fn without(&self, region: Described) -> Option<Self> {
        let is_it = |other: &Described| {
            (other.guest, other.peer, other.bytes) == (region.guest, region.peer, region.bytes)
        };
        let at = self.regions.iter().position(|mapped| is_it(&mapped.described))?;
        let mut regions = self.regions.clone();
        regions.remove(at);
        Some(Self { regions })
    }

    /// Whether a page of the memory was missing at an access.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.regions.iter().any(|region| region.guard.as_ref().is_some_and(Guard::is_broken))
    }

    /// The reason if accesses to this memory may be slow; else `None`.
    pub fn slow(&self) -> Option<String> {
        self.regions.iter().find_map(|region| match region.system {
            FileSystem::Disk(name) => Some(format!(
                "the guest\u{2019}s memory lies in a file of {name}: the kernel writes it to the \
                 disk, and a burst may wait for that; a memory file does not \
                 (memory-backend-memfd), nor one of tmpfs or hugetlbfs"
            )),
            _ => None,
        })
    }

    /// Translates the address `guest` in the guest to an address in this process, if all `bytes`
    /// bytes there are in one region.
    #[inline(always)]
    pub fn at(&self, cached: &mut Cached, guest: u64, bytes: u64) -> Option<NonNull<u8>> {
        let offset = guest.wrapping_sub(cached.start);
        if offset < cached.bytes && bytes <= cached.bytes - offset {
            // SAFETY: the offset is inside the region, whose mapping lives as long as `self`.
            return Some(unsafe { cached.first.add(offset as usize) });
        }
        self.find(cached, guest, bytes)
    }

    #[cold]
    #[inline]
    fn find(&self, cached: &mut Cached, guest: u64, bytes: u64) -> Option<NonNull<u8>> {
        let (at, here) = self.part(cached, guest)?;
        (bytes <= here).then_some(at)
    }

    /// Translates the address `guest` in the guest to an address in this process. Also returns
    /// the number of bytes from there to the end of the region.
    #[inline]
    pub fn part(&self, cached: &mut Cached, guest: u64) -> Option<(NonNull<u8>, u64)> {
        let is_in = |region: &&Arc<Mapped>| {
            guest.wrapping_sub(region.described.guest) < region.described.bytes
        };
        let region = self.regions.iter().find(is_in)?;
        let Described { guest: start, bytes, .. } = region.described;
        *cached = Cached { start, bytes, first: region.first };
        let offset = guest - start;
        // SAFETY: as in `at`.
        Some((unsafe { region.first.add(offset as usize) }, bytes - offset))
    }

    /// Translates the address `peer` in the peer's process to an address in this process, if all
    /// `bytes` bytes there are in one region and the result is a multiple of `align`.
    #[inline]
    pub fn at_peer(&self, peer: u64, bytes: u64, align: usize) -> Option<NonNull<u8>> {
        self.regions.iter().find_map(|region| {
            let offset = peer.wrapping_sub(region.described.peer);
            let has_all =
                offset < region.described.bytes && bytes <= region.described.bytes - offset;
            // SAFETY: as in `at`.
            let at = has_all.then(|| unsafe { region.first.add(offset as usize) })?;
            at.as_ptr().addr().is_multiple_of(align).then_some(at)
        })
    }
}

/// Checks that regions do not overlap, and are not too many or too large.
fn check(regions: &[Described]) -> Result<(), Error> {
    let expected = "regions that do not overlap, of 1 TiB at most in all";
    let refuse = |found: String| Err(Error::Memory { found, expected });
    if regions.len() > REGIONS_MAX {
        return refuse(format!("{} regions", regions.len()));
    }
    let mut sum = 0_u64;
    for (index, region) in regions.iter().enumerate() {
        sum = sum.saturating_add(region.bytes);
        let ends = (region.guest.checked_add(region.bytes), region.peer.checked_add(region.bytes));
        if ends.0.is_none() || ends.1.is_none() || sum > BYTES_MAX {
            return refuse(format!("a region of {} B", region.bytes));
        }
        for other in &regions[..index] {
            if overlap(region.guest, region.bytes, other.guest, other.bytes)
                || overlap(region.peer, region.bytes, other.peer, other.bytes)
            {
                return refuse("two regions that overlap".into());
            }
        }
    }
    Ok(())
}

fn overlap(a: u64, a_bytes: u64, b: u64, b_bytes: u64) -> bool {
    a < b + b_bytes && b < a + a_bytes
}

#[cfg(test)]
mod tests {
    use rustix::fd::OwnedFd;

    use super::*;
    use crate::memory;

    const BASE: u64 = 0x7000_0000_0000;

    fn file(bytes: u64) -> OwnedFd {
        memory::create_filled(bytes as usize, false).unwrap()
    }

    fn region(guest: u64, bytes: u64, offset: u64) -> Described {
        Described { guest, peer: BASE + guest, bytes, offset }
    }

    fn read(at: NonNull<u8>) -> u8 {
        // SAFETY: callers pass an address inside a mapped region.
        unsafe { at.as_ptr().read_volatile() }
    }

    #[test]
    fn at_finds_exactly_addresses_whose_bytes_are_in_one_region() {
        let (one, two) = (file(1 << 16), file(1 << 16));
        rustix::io::pwrite(&one, &[1], 0x5123).unwrap();
        rustix::io::pwrite(&two, &[2], 0xFFFF).unwrap();
        let regions = [
            (region(0x1000, 0x8000, 0x5000), one.as_fd()),
            (region(0x10000, 1 << 16, 0), two.as_fd()),
        ];
        let guest = Guest::map(&regions).unwrap();
        let mut cached = Cached::default();
        assert_eq!(read(guest.at(&mut cached, 0x1123, 1).unwrap()), 1);
        assert_eq!(read(guest.at(&mut cached, 0x1FFFF, 1).unwrap()), 2);
        for (address, bytes) in [
            (0, 1),
            (0xFFF, 1),
            (0xFFF, 2),
            (0x9000, 1),
            (0x8FFF, 2),
            (0x1000, 0x8001),
            (0x1FFFF, 2),
            (u64::MAX, 1),
            (u64::MAX, u64::MAX),
            (0x1000, u64::MAX),
        ] {
            assert!(guest.at(&mut cached, address, bytes).is_none(), "{bytes} B at {address:#x}");
        }
        assert!(guest.at(&mut cached, 0x1000, 0x8000).is_some());
        assert_eq!(guest.part(&mut cached, 0x8FFF).unwrap().1, 1);
        assert!(guest.at_peer(BASE + 0x1000, 0x8000, 4096).is_some());
        assert!(guest.at_peer(BASE + 0x1001, 16, 16).is_none());
        assert!(guest.at_peer(0x1000, 16, 1).is_none());
    }

    #[test]
    fn added_and_removed_regions_leave_the_others_in_place() {
        let memory = file(1 << 16);
        rustix::io::pwrite(&memory, &[3], 0x2001).unwrap();
        let (low, high) = (region(0, 0x1000, 0), region(1 << 20, 0x1000, 0x2000));
        let one = Guest::default().with(low, &memory).unwrap();
        let two = one.with(high, &memory).unwrap();
        let mut cached = Cached::default();
        assert!(one.at(&mut cached, 1 << 20, 1).is_none());
        assert_eq!(one.at(&mut cached, 0, 1), two.at(&mut cached, 0, 1));
        drop(one);
        let at = two.at(&mut cached, (1 << 20) + 1, 1).unwrap();
        assert_eq!(read(at), 3);
        for wrong in [region(0, 0x2000, 0), Described { peer: 0, ..low }, region(0x1000, 1, 0)] {
            assert!(two.without(wrong).is_none(), "{wrong:?}");
        }
        // The message that removes a region need not repeat its offset.
        let rest = two.without(Described { offset: 7, ..low }).unwrap();
        drop(two);
        assert_eq!(rest.at(&mut Cached::default(), (1 << 20) + 1, 1), Some(at));
        assert!(rest.at(&mut Cached::default(), 0, 1).is_none());
        assert!(rest.without(high).unwrap().without(high).is_none());
        for wrong in [high, region((1 << 20) - 1, 0x1000, 0), region(0, (1 << 16) + 1, 0)] {
            assert!(matches!(rest.with(wrong, &memory), Err(Error::Memory { .. })), "{wrong:?}");
        }
        let mut all = Guest::default();
        for index in 0..REGIONS_MAX as u64 {
            all = all.with(region(index << 12, 0x1000, 0), &memory).unwrap();
        }
        assert!(all.with(region(1 << 30, 0x1000, 0), &memory).is_err());
    }

    #[test]
    fn map_refuses_regions_that_break_contract() {
        let memory = file(1 << 16);
        for wrong in [
            vec![region(0, 0, 0)],
            vec![region(0, (1 << 16) + 1, 0)],
            vec![region(0, 1 << 16, 1)],
            vec![region(0, 4096, u64::MAX - 100)],
            vec![region(u64::MAX - BASE - 10, 4096, 0)],
            vec![region(0, 8192, 0), region(4096, 8192, 8192)],
            vec![region(0, 4096, 0), Described { peer: BASE + 100, ..region(8192, 4096, 0) }],
            (0..33).map(|index| region(index * 4096, 4096, 0)).collect(),
        ] {
            let regions: Vec<_> = wrong.iter().map(|region| (*region, memory.as_fd())).collect();
            assert!(matches!(Guest::map(&regions), Err(Error::Memory { .. })), "{wrong:?}");
        }
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        for other in [reader, std::fs::File::open("/proc/self/maps").unwrap().into()] {
            let result = Guest::map(&[(region(0, 16, 0), &other)]);
            assert!(matches!(result, Err(Error::Memory { .. })), "{result:?}");
        }
    }

    #[test]
    fn map_accepts_or_refuses_memory_by_its_file_system() {
        for (number, expected) in [
            (0x0102_1994, FileSystem::Memory),
            (0x9584_58f6, FileSystem::Memory),
            // The number is sign-extended, like on some machines.
            (0xffff_ffff_9584_58f6, FileSystem::Memory),
            (0xef53, FileSystem::Disk("ext4")),
            (0x6573_5546, FileSystem::Served("FUSE")),
            (0x6969, FileSystem::Served("NFS")),
            (0x5345_434d, FileSystem::Unknown(0x5345_434d)),
        ] {
            assert_eq!(FileSystem::of(number), expected, "{number:#x}");
        }
        let bytes = 1 << 16;
        let memory = Guest::map(&[(region(0, bytes, 0), file(bytes))]).unwrap();
        assert_eq!(memory.slow(), None);
        // A file that the kernel provides, without a size, which is in none of these file
        // systems.
        let other = std::fs::File::open("/proc/self/maps").unwrap();
        let refused = Guest::map(&[(region(0, 16, 0), other)]).unwrap_err();
        assert!(said(&refused).contains("of type 0x9fa0; a memory file (memfd)"), "{refused:?}");
    }

    #[test]
    fn truncated_file_reads_as_zeros_and_breaks_guest() {
        let bytes = 1 << 16;
        let (one, two) = (file(bytes), file(bytes));
        rustix::io::pwrite(&two, &[7], 100).unwrap();
        let guest =
            Guest::map(&[(region(0, bytes, 0), &one), (region(1 << 20, bytes, 0), &two)]).unwrap();
        let mut cached = Cached::default();
        let at = guest.at(&mut cached, 0x8000, 8).unwrap();
        // SAFETY: inside the mapping.
        unsafe { at.as_ptr().write_volatile(9) };
        assert!(!guest.is_broken());
        rustix::fs::ftruncate(&one, 4096).unwrap();
        assert_eq!(read(at), 0);
        assert!(guest.is_broken());
        // SAFETY: as above.
        unsafe { at.as_ptr().write_volatile(9) };
        assert_eq!(read(guest.at(&mut cached, (1 << 20) + 100, 1).unwrap()), 7, "the other one");
        drop(guest);
        let again = Guest::map(&[(region(0, bytes, 0), &two)]).unwrap();
        assert!(!again.is_broken());
    }
}
