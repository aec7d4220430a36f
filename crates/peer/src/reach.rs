//! Access to another process's memory through the kernel. That process does not take part.

use std::io;

/// Whether this process can read the expected number at an address of the peer.
pub fn can_read(process: i32, address: u64, expected: u64) -> bool {
    let mut bytes = [0; 8];
    address != 0
        && read(process, address, &mut bytes).is_ok_and(|count| count == bytes.len())
        && u64::from_ne_bytes(bytes) == expected
}

/// Reads another process's memory, possibly fewer bytes than the target has.
pub fn read(process: i32, address: u64, target: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: target.len(),
    };
    // SAFETY: one vector at each side. The local one names a slice borrowed uniquely; the remote
    // one names another process's memory, which the kernel checks and only reads.
    let count =
        unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    match count {
        0 if !target.is_empty() => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        count if count >= 0 => Ok(count as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes to another process's memory, possibly fewer bytes than the slices have.
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
    // SAFETY: `count` local vectors that name borrowed slices, which the kernel only reads, and one
    // remote vector in another process, which the kernel checks.
    let written =
        unsafe { libc::process_vm_writev(process, local.as_ptr(), count, &raw const remote, 1, 0) };
    match written {
        1.. => Ok(written as usize),
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
