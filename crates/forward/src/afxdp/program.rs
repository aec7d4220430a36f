//! The XDP program that redirects an interface's packets to a socket.
//!
//! The program is constant, and loaded through bpf(2) alone. A link attaches it to the interface:
//! when the link's descriptor is closed, or the process is killed, the kernel detaches the
//! program.
//!
//! A driver may keep a packet's VLAN tag outside the packet, where XDP does not see it. If the
//! kernel has a function that reports the tag (Linux 6.8, `bpf_xdp_metadata_rx_vlan_tag`), the
//! program inserts the tag into the packet again. Only programs that declare a licence compatible
//! with the GPL may call such functions; MIT allows this.

use std::io;

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::btf;
use haul_peer::descriptor::keep;

/// The constants of linux/bpf.h that are used here.
mod bpf {
    pub(super) const MAP_CREATE: i64 = 0;
    pub(super) const MAP_UPDATE_ELEM: i64 = 2;
    pub(super) const PROG_LOAD: i64 = 5;
    pub(super) const LINK_CREATE: i64 = 28;
    pub(super) const MAP_TYPE_XSKMAP: u32 = 17;
    pub(super) const PROG_TYPE_XDP: u32 = 6;
    pub(super) const ATTACH_XDP: u32 = 37;
    pub(super) const PSEUDO_MAP_FD: u8 = 1;
    pub(super) const PSEUDO_KFUNC_CALL: u8 = 2;
    pub(super) const FUNC_ADJUST_HEAD: i32 = 44;
    pub(super) const FUNC_REDIRECT_MAP: i32 = 51;
    /// A program that is loaded for one interface, and may call its driver.
    pub(super) const F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
    pub(super) const XDP_PASS: i32 = 2;
    /// Offset of the queue's number in `struct xdp_md`.
    pub(super) const RX_QUEUE_INDEX: i16 = 16;
}

/// Where the program is attached, `XDP_FLAGS_*` of linux/if_link.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attachment {
    /// In the driver, before the kernel allocates its own packet.
    Driver,
    /// In the kernel's network stack, with every driver.
    Generic,
}

/// The attached program.
#[derive(Debug)]
pub(super) struct Program {
    _link: OwnedFd,
    pub(super) attachment: Attachment,
    /// Whether the program inserts into packets the tags that the driver reports.
    pub(super) restores_tags: bool,
}

/// The kernel's function that reports a packet's tag.
const TAG_FUNCTION: &str = "bpf_xdp_metadata_rx_vlan_tag";

impl Program {
    /// Redirects packets of queue `queue` of an interface to `socket`; packets of other queues
    /// continue into the kernel.
    ///
    /// # Errors
    /// The system's error.
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
        // If the kernel or the driver does not report tags, or does not report them at this
        // attachment, packets arrive without tags.
        let tagging_program = btf::function(TAG_FUNCTION).and_then(|function| {
            let program = load(&tagging(map.as_raw_fd(), queue, function), Some(index)).ok()?;
            link_to(&program, index, Attachment::Driver, true).ok()
        });
        if let Some(program) = tagging_program {
            return Ok(program);
        }
        let program = load(&plain(map.as_raw_fd()), None)?;
        match link_to(&program, index, Attachment::Driver, false) {
            Err(reason) if is_of_driver(&reason) => {
                link_to(&program, index, Attachment::Generic, false)
            }
            result => result,
        }
    }
}

/// Attaches a program to an interface.
fn link_to(
    program: &OwnedFd,
    index: u32,
    attachment: Attachment,
    restores_tags: bool,
) -> io::Result<Program> {
    let flags = match attachment {
        Attachment::Driver => 1 << 2,
        Attachment::Generic => 1 << 1,
    };
    let program = program.as_raw_fd() as u32;
    let attributes = LinkCreate { program, index, attach: bpf::ATTACH_XDP, flags };
    let link = descriptor(bpf::LINK_CREATE, &attributes)?;
    Ok(Program { _link: link, attachment, restores_tags })
}

/// Whether a refusal concerns only the driver, and not the kernel.
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
fn plain(map: i32) -> Vec<u64> {
    // r2 = *(u32 *)(r1 + 16)
    [vec![instruction(0x61, 2, 1, bpf::RX_QUEUE_INDEX, 0)], redirect(map)].concat()
}

/// Redirects to the map's socket of the queue in r2.
fn redirect(map: i32) -> Vec<u64> {
    vec![
        // r1 = map, in two words
        instruction(0x18, 1, bpf::PSEUDO_MAP_FD, 0, map),
        0,
        // r3 = XDP_PASS: the result if the map has no socket for the queue
        instruction(0xb7, 3, 0, 0, bpf::XDP_PASS),
        instruction(0x85, 0, 0, 0, bpf::FUNC_REDIRECT_MAP),
        instruction(0x95, 0, 0, 0, 0),
    ]
}

/// Like `plain`, but inserts the tag that the driver reports into the packet, behind the packet's
/// addresses. Packets of other queues continue unchanged.
///
/// ```text
/// if (ctx->rx_queue_index != queue)
///         return XDP_PASS;
/// if (!report(ctx, &kind, &tag) && !bpf_xdp_adjust_head(ctx, -4)) {
///         memmove(ctx->data, ctx->data + 4, 12);
///         ctx->data[12..14] = kind;
///         ctx->data[14..16] = htons(tag);
/// }
/// return bpf_redirect_map(&map, queue, XDP_PASS);
/// ```
fn tagging(map: i32, queue: u32, function: i32) -> Vec<u64> {
    const KIND: i16 = -8;
    const TAG: i16 = -16;
    let end = [instruction(0xb7, 2, 0, 0, queue as i32)];
    let insert = [
        // r2, r3 = data and its end; the whole new header must lie between them
        instruction(0x61, 2, 6, 0, 0),
        instruction(0x61, 3, 6, 4, 0),
        instruction(0xbf, 4, 2, 0, 0),
        instruction(0x07, 4, 0, 0, 16),
        instruction(0x2d, 4, 3, 11, 0),
        // the addresses, four bytes at a time
        instruction(0x61, 5, 2, 4, 0),
        instruction(0x63, 2, 5, 0, 0),
        instruction(0x61, 5, 2, 8, 0),
        instruction(0x63, 2, 5, 4, 0),
        instruction(0x61, 5, 2, 12, 0),
        instruction(0x63, 2, 5, 8, 0),
        // the tag's kind unchanged, the tag in network byte order
        instruction(0x69, 5, 10, KIND, 0),
        instruction(0x6b, 2, 5, 12, 0),
        instruction(0x69, 5, 10, TAG, 0),
        instruction(0xdc, 5, 0, 0, 16),
        instruction(0x6b, 2, 5, 14, 0),
    ];
    let behind = insert.len() as i16;
    let ask = [
        // if (r2 == queue), in 32 bits, continue
        instruction(0xbf, 6, 1, 0, 0),
        instruction(0x61, 2, 1, bpf::RX_QUEUE_INDEX, 0),
        instruction(0x16, 2, 0, 2, queue as i32),
        instruction(0xb7, 0, 0, 0, bpf::XDP_PASS),
        instruction(0x95, 0, 0, 0, 0),
        // stack space for the tag's kind and the tag
        instruction(0x7a, 10, 0, KIND, 0),
        instruction(0x7a, 10, 0, TAG, 0),
        instruction(0xbf, 2, 10, 0, 0),
        instruction(0x07, 2, 0, 0, KIND as i32),
        instruction(0xbf, 3, 10, 0, 0),
        instruction(0x07, 3, 0, 0, TAG as i32),
        instruction(0x85, 0, bpf::PSEUDO_KFUNC_CALL, 0, function),
        // without a tag, or without room in front, skip the insertion
        instruction(0x55, 0, 0, behind + 4, 0),
        instruction(0xbf, 1, 6, 0, 0),
        instruction(0xb7, 2, 0, 0, -4),
        instruction(0x85, 0, 0, 0, bpf::FUNC_ADJUST_HEAD),
        instruction(0x55, 0, 0, behind, 0),
    ];
    [&ask[..], &insert, &end, &redirect(map)].concat()
}

/// Loads a program. With `index`, the program is for this interface only, and may call its
/// driver.
fn load(instructions: &[u64], index: Option<u32>) -> io::Result<OwnedFd> {
    let licence = if index.is_some() { c"Dual MIT/GPL" } else { c"MIT OR Apache-2.0" };
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
            flags: index.map_or(0, |_| bpf::F_XDP_DEV_BOUND_ONLY),
            name: *b"haul_redirect\0\0\0",
            index: index.unwrap_or(0),
            attach: 0,
        },
    )
}

/// The argument of a bpf(2) call: as much of `union bpf_attr` as the call reads, without gaps.
///
/// # Safety
/// The type has no gaps, and the addresses in it refer to memory that the call may read.
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
    /// The interface of the program, and the kind of its attachment; 0 for any.
    index: u32,
    attach: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    index: u32,
    attach: u32,
    flags: u32,
}

const _: () = assert!(size_of::<MapCreate>() == 16 && size_of::<MapUpdate>() == 32);
const _: () = assert!(size_of::<ProgramLoad>() == 72 && size_of::<LinkCreate>() == 16);

// SAFETY: no addresses, no gaps.
unsafe impl Attributes for MapCreate {}
// SAFETY: no gaps; created here alone, with a key and a value that live until the call has ended.
unsafe impl Attributes for MapUpdate {}
// SAFETY: no gaps; created here alone, with instructions and a licence that live until the call has
// ended.
unsafe impl Attributes for ProgramLoad {}
// SAFETY: no addresses, no gaps.
unsafe impl Attributes for LinkCreate {}

fn call<T: Attributes>(command: i64, attributes: &T) -> io::Result<i64> {
    let (pointer, length) = (std::ptr::from_ref(attributes), size_of::<T>());
    // SAFETY: the attributes have the given length, and the memory that they refer to is valid.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i64) }
}

/// Makes a call that creates a descriptor, which the kernel closes on exec.
fn descriptor<T: Attributes>(command: i64, attributes: &T) -> io::Result<OwnedFd> {
    let number = call(command, attributes)? as i32;
    // SAFETY: the kernel has just created the descriptor, for this caller alone.
    let made = unsafe { OwnedFd::from_raw_fd(number) };
    Ok(keep(made)?)
}
