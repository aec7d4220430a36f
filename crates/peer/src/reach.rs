//! Accesses another process's memory through the kernel. That process runs no code for this.

use std::io;

/// Whether this process can read the expected number at an address of the peer.
pub fn can_read(process: i32, address: u64, expected: u64) -> bool {
    let mut bytes = [0; 8];
    address != 0
        && read(process, address, &mut bytes).is_ok_and(|count| count == bytes.len())
        && u64::from_ne_bytes(bytes) == expected
}

/// Reads another process's memory. Returns how many bytes it read, possibly fewer than `target`
/// has room for.
pub fn read(process: i32, address: u64, target: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: target.len(),
    };
    // SAFETY: there is one local and one remote vector. The local vector names a slice that is
    // borrowed mutably. The remote vector names another process's memory, which the kernel checks
    // and only reads.
    let count =
        unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    match count {
        0 if !target.is_empty() => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        count if count >= 0 => Ok(count as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes to another process's memory. Returns how many bytes it wrote, possibly fewer than the
/// slices contain.
pub fn write(process: i32, slices: &[&[u8]], address: u64) -> io::Result<usize> {
    let local: Vec<libc::iovec> = slices
        .iter()
        .map(|s| libc::iovec { iov_base: s.as_ptr().cast_mut().cast(), iov_len: s.len() })
        .collect();
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: slices.iter().map(|slice| slice.len()).sum(),
    };
    let count = local.len() as libc::c_ulong;
    // SAFETY: `count` local vectors name borrowed slices, which the kernel only reads. One remote
    // vector names memory of another process, which the kernel checks.
    let written =
        unsafe { libc::process_vm_writev(process, local.as_ptr(), count, &raw const remote, 1, 0) };
    match written {
        1.. => Ok(written as usize),
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
