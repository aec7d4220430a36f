//! A socket of packets and its two rings, TPACKET_V2 of packet(7).
//!
//! Each ring is an array of slots: a header, and room for a packet. The word at a slot's beginning
//! says whose it is. The kernel takes packets to be sent within [`Rings::send`] alone, in order; so
//! what it did not take then is taken back, and the caller knows of each packet whether it went.

use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use libc::{tpacket_req, tpacket_stats, tpacket2_hdr};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

use super::super::interface::{self, Mapping, State, get, set};
use super::super::pool::PACKET_BYTES_MAX;
use crate::peer::descriptor::kept;

/// Bytes of each ring.
const RING_BYTES: usize = 4 << 20;
/// Slots of a ring at least, where packets are long.
const SLOTS_MIN: usize = 256;
/// What the kernel has at once for some slots: a multiple of every length of a slot.
const BLOCK_BYTES: usize = 64 << 10;

/// In front of a packet that came, the kernel has its header, the sender's address, and up to the
/// next multiple of 16 twice: 80 B. A packet's tag and header come on top of the MTU.
const FRONT_BYTES: usize = 128;
/// Where a packet that is sent begins in its slot: `TPACKET2_HDRLEN - sizeof(sockaddr_ll)`.
const SENT_AT: usize = size_of::<tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

const STATUS: usize = offset_of!(tpacket2_hdr, tp_status);
const LENGTH: usize = offset_of!(tpacket2_hdr, tp_len);
const KEPT: usize = offset_of!(tpacket2_hdr, tp_snaplen);
const MAC: usize = offset_of!(tpacket2_hdr, tp_mac);
const TAG: usize = offset_of!(tpacket2_hdr, tp_vlan_tci);
const TAG_KIND: usize = offset_of!(tpacket2_hdr, tp_vlan_tpid);

/// Both Ethernet addresses, behind which a VLAN tag stands.
const ADDRESSES_BYTES: usize = 12;

/// The socket with its rings.
#[derive(Debug)]
pub(super) struct Rings {
    socket: OwnedFd,
    memory: Mapping,
    slot_bytes: usize,
    slots: usize,
    /// The slot that the next packet comes in.
    received: usize,
    /// The one that the kernel takes next, and how many are filled from there on.
    sent: usize,
    filled: usize,
}

/// A packet in its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    at: usize,
    kept: usize,
    /// The VLAN tag that the kernel took out of it.
    tag: Option<[u8; 4]>,
    /// Whether the slot had no room for all of it.
    pub(super) is_cut: bool,
}

impl Found {
    pub(super) fn length(&self) -> usize {
        self.kept + self.tag.map_or(0, |tag| tag.len())
    }
}

/// What became of the packets that the ring was filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// How many of them went, from the first on.
    pub(super) packets: usize,
    /// Whether the one behind those can never go.
    pub(super) is_refused: bool,
}

impl Rings {
    /// Rings on an interface, for packets of its MTU.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(state: &State) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Of no protocol yet: nothing comes before it is bound.
        let kind = SocketType::RAW;
        let socket = kept(rustix::net::socket_with(AddressFamily::PACKET, kind, flags, None))?;
        let packet = state.mtu.min(PACKET_BYTES_MAX);
        let slot_bytes = (packet + FRONT_BYTES).next_power_of_two().max(2048);
        let slots = (RING_BYTES / slot_bytes).max(SLOTS_MIN);
        let option = |name, value: i32| set(&socket, libc::SOL_PACKET, name, &value);
        option(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
        option(libc::PACKET_IGNORE_OUTGOING, 1)?;
        let blocks = slots * slot_bytes / BLOCK_BYTES;
        let request = tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_TX_RING, &request)?;
        let memory = Mapping::of(&socket, 2 * blocks * BLOCK_BYTES, 0)?;
        // As many as fill the ring may be under way, if the system allows that.
        let _ = sockopt::set_socket_send_buffer_size(&socket, RING_BYTES);
        interface::listen_to_all(&socket, state.index)?;
        bind(&socket, state.index)?;
        Ok(Self { socket, memory, slot_bytes, slots, received: 0, sent: 0, filled: 0 })
    }

    fn slot_received(&self) -> usize {
        self.received * self.slot_bytes
    }

    /// The slot that is filled `behind` the one that the kernel takes next.
    fn slot_sent(&self, behind: usize) -> usize {
        (self.slots + (self.sent + behind) % self.slots) * self.slot_bytes
    }

    /// The next packet that came; the same again until [`Rings::give_back`].
    #[inline]
    pub(super) fn peek(&self) -> Option<Found> {
        let slot = self.slot_received();
        let status = self.memory.word(slot + STATUS).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let kept = self.memory.number(slot + KEPT) as usize;
        let short = |at: usize| {
            let part = self.memory.part(slot + at, 2);
            u16::from_ne_bytes([part[0], part[1]])
        };
        let has_tag = status & libc::TP_STATUS_VLAN_VALID != 0 && kept >= ADDRESSES_BYTES;
        let tag = has_tag.then(|| {
            let has_kind = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let kind = if has_kind { short(TAG_KIND) } else { libc::ETH_P_8021Q as u16 };
            let ([a, b], [c, d]) = (kind.to_be_bytes(), short(TAG).to_be_bytes());
            [a, b, c, d]
        });
        let is_cut = kept < self.memory.number(slot + LENGTH) as usize;
        Some(Found { at: slot + usize::from(short(MAC)), kept, tag, is_cut })
    }

    /// Calls `write` with each part of a packet that came, and where in the packet it stands.
    #[inline]
    pub(super) fn read(&self, found: &Found, mut write: impl FnMut(usize, &[u8])) {
        let bytes = self.memory.part(found.at, found.kept);
        let Some(tag) = found.tag else { return write(0, bytes) };
        let (addresses, rest) = bytes.split_at(ADDRESSES_BYTES);
        write(0, addresses);
        write(ADDRESSES_BYTES, &tag);
        write(ADDRESSES_BYTES + tag.len(), rest);
    }

    /// Gives the kernel the slot of the packet that [`Rings::peek`] found.
    #[inline]
    pub(super) fn give_back(&mut self) {
        let word = self.memory.word(self.slot_received() + STATUS);
        word.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.received = (self.received + 1) % self.slots;
    }

    /// Has a packet of `length` bytes, which `read` writes, sent next; false where there is no
    /// room.
    #[inline]
    pub(super) fn fill(&mut self, length: usize, read: impl FnOnce(&mut [u8])) -> bool {
        let slot = self.slot_sent(self.filled);
        if self.filled == self.slots || SENT_AT + length > self.slot_bytes {
            return false;
        }
        let status = self.memory.word(slot + STATUS).load(Ordering::Acquire);
        if status != libc::TP_STATUS_AVAILABLE {
            return false;
        }
        read(self.memory.part_mut(slot + SENT_AT, length));
        self.memory.set_number(slot + LENGTH, length as u32);
        let word = self.memory.word(slot + STATUS);
        word.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.filled += 1;
        true
    }

    /// Has the kernel take what was filled in, and takes back what it did not.
    pub(super) fn send(&mut self) -> Sent {
        // What it says is in the slots, packet by packet. That the interface was down is said once,
        // when it is up again.
        let send = || rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT);
        if send() == Err(Errno::NETDOWN) {
            let _ = send();
        }
        let status =
            |behind| self.memory.word(self.slot_sent(behind) + STATUS).load(Ordering::Acquire);
        let is_left =
            |status| matches!(status, libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT);
        let packets = (0..self.filled).take_while(|behind| !is_left(status(*behind))).count();
        let is_refused = packets < self.filled && status(packets) == libc::TP_STATUS_WRONG_FORMAT;
        for behind in packets..self.filled {
            let word = self.memory.word(self.slot_sent(behind) + STATUS);
            word.store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        }
        self.sent = (self.sent + packets) % self.slots;
        self.filled = 0;
        Sent { packets, is_refused }
    }

    /// How many packets found no room in the ring since the last call.
    pub(super) fn lost(&mut self) -> u64 {
        let mut counts = tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let read = get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counts);
        read.map_or(0, |()| u64::from(counts.tp_drops))
    }
}

/// Has packets of every protocol come from an interface.
fn bind(socket: impl AsFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let pointer = (&raw const address).cast();
    // SAFETY: the address is as long as is said, and only read.
    let result = unsafe { libc::bind(socket.as_fd().as_raw_fd(), pointer, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
