//! The program of XDP that hands an interface's packets to a socket.
//!
//! It is constant: seven words, by bpf(2) alone. A link holds it to the interface: when the link's
//! descriptor goes, also by a kill, the program goes with it.

use std::io;

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::peer::descriptor::keep;

/// What of linux/bpf.h is used here.
mod bpf {
    pub(super) const MAP_CREATE: i64 = 0;
    pub(super) const MAP_UPDATE_ELEM: i64 = 2;
    pub(super) const PROG_LOAD: i64 = 5;
    pub(super) const LINK_CREATE: i64 = 28;
    pub(super) const MAP_TYPE_XSKMAP: u32 = 17;
    pub(super) const PROG_TYPE_XDP: u32 = 6;
    pub(super) const ATTACH_XDP: u32 = 37;
    pub(super) const PSEUDO_MAP_FD: u8 = 1;
    pub(super) const FUNC_REDIRECT_MAP: i32 = 51;
    pub(super) const XDP_PASS: i32 = 2;
    /// Where in `struct xdp_md` the queue's number is.
    pub(super) const RX_QUEUE_INDEX: i16 = 16;
}

/// Where the program runs, `XDP_FLAGS_*` of linux/if_link.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the driver, before the kernel has made a packet of its own of what came.
    Driver,
    /// In the kernel's network, with every driver.
    Generic,
}

/// The program, where it is attached.
#[derive(Debug)]
pub(super) struct Program {
    _link: OwnedFd,
    pub(super) place: Place,
}

impl Program {
    /// Hands what comes by queue `queue` of an interface to `socket`; what comes by other queues
    /// goes on into the kernel.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn attach(socket: BorrowedFd<'_>, index: u32, queue: u32) -> io::Result<Self> {
        let entries = queue.checked_add(1).ok_or(io::ErrorKind::InvalidInput)?;
        let map = descriptor(
            bpf::MAP_CREATE,
            &MapCreate { kind: bpf::MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, entries },
        )?;
        let value = socket.as_raw_fd();
        call(
            bpf::MAP_UPDATE_ELEM,
            &MapUpdate {
                map: map.as_raw_fd() as u32,
                zero: 0,
                key: (&raw const queue).expose_provenance() as u64,
                value: (&raw const value).expose_provenance() as u64,
                flags: 0,
            },
        )?;
        let program = load(map.as_raw_fd())?;
        let link = |place| {
            let flags = match place {
                Place::Driver => 1 << 2,
                Place::Generic => 1 << 1,
            };
            let program = program.as_raw_fd() as u32;
            let attributes = LinkCreate { program, index, attach: bpf::ATTACH_XDP, flags };
            descriptor(bpf::LINK_CREATE, &attributes).map(|link| Self { _link: link, place })
        };
        match link(Place::Driver) {
            Err(reason) if is_of_driver(&reason) => link(Place::Generic),
            result => result,
        }
    }
}

/// Whether a driver's refusal says nothing of the kernel's.
fn is_of_driver(reason: &io::Error) -> bool {
    !matches!(
        reason.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::EBUSY | libc::EEXIST | libc::ENODEV)
    )
}

/// An instruction: operation, target and source registers, offset, value.
const fn instruction(code: u8, target: u8, source: u8, offset: i16, value: i32) -> u64 {
    let registers =
        if cfg!(target_endian = "little") { source << 4 | target } else { target << 4 | source };
    let [a, b] = offset.to_ne_bytes();
    let [c, d, e, f] = value.to_ne_bytes();
    u64::from_ne_bytes([code, registers, a, b, c, d, e, f])
}

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`.
fn load(map: i32) -> io::Result<OwnedFd> {
    let instructions = [
        // r2 = *(u32 *)(r1 + 16)
        instruction(0x61, 2, 1, bpf::RX_QUEUE_INDEX, 0),
        // r1 = map, in two words
        instruction(0x18, 1, bpf::PSEUDO_MAP_FD, 0, map),
        0,
        // r3 = XDP_PASS: what is done where the map has no socket for the queue
        instruction(0xb7, 3, 0, 0, bpf::XDP_PASS),
        instruction(0x85, 0, 0, 0, bpf::FUNC_REDIRECT_MAP),
        instruction(0x95, 0, 0, 0, 0),
    ];
    let licence = c"MIT OR Apache-2.0";
    descriptor(
        bpf::PROG_LOAD,
        &ProgramLoad {
            kind: bpf::PROG_TYPE_XDP,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr().expose_provenance() as u64,
            licence: licence.as_ptr().expose_provenance() as u64,
            log_level: 0,
            log_size: 0,
            log: 0,
            version: 0,
            flags: 0,
            name: *b"haul_redirect\0\0\0",
        },
    )
}

/// What a call of bpf(2) is given: as much of `union bpf_attr` as it reads, without gaps.
///
/// # Safety
/// It has no gaps, and the addresses in it are of memory that the call may read.
unsafe trait Attributes {}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    index: u32,
    attach: u32,
    flags: u32,
}

const _: () = assert!(size_of::<MapCreate>() == 16 && size_of::<MapUpdate>() == 32);
const _: () = assert!(size_of::<ProgramLoad>() == 64 && size_of::<LinkCreate>() == 16);

// SAFETY: no addresses, no gaps.
unsafe impl Attributes for MapCreate {}
// SAFETY: no gaps; made here alone, of a key and a value that live until the call has ended.
unsafe impl Attributes for MapUpdate {}
// SAFETY: no gaps; made here alone, of instructions and a licence that live until the call has
// ended.
unsafe impl Attributes for ProgramLoad {}
// SAFETY: no addresses, no gaps.
unsafe impl Attributes for LinkCreate {}

fn call<T: Attributes>(command: i64, attributes: &T) -> io::Result<i64> {
    let (pointer, length) = (std::ptr::from_ref(attributes), size_of::<T>());
    // SAFETY: the attributes are as long as is said, and what they point to is there.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i64) }
}

/// A call that makes a descriptor, which the kernel closes on exec.
fn descriptor<T: Attributes>(command: i64, attributes: &T) -> io::Result<OwnedFd> {
    let number = call(command, attributes)? as i32;
    // SAFETY: the kernel has just made it, for this caller alone.
    let made = unsafe { OwnedFd::from_raw_fd(number) };
    Ok(keep(made)?)
}
