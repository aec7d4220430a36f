//! Two AF_PACKET sockets with a ring each, TPACKET_V2 of packet(7): one socket receives packets,
//! the other only sends them.
//!
//! Each ring is an array of slots: a header, and room for a packet. The first word of a slot
//! names its owner. The kernel consumes packets to be sent only within [`Sending::send`], in
//! order. This call then takes back the packets that the kernel did not consume, so that the
//! caller knows whether each packet was sent.
//!
//! A received packet that is longer than a slot also lies in the socket's queue, complete
//! (PACKET_COPY_THRESH). Slots can therefore be short, and merged packets still arrive complete.
//! A header in front of each packet describes the work that was left to a device
//! (PACKET_VNET_HDR). Sent packets leave no work and have no such header.

use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use libc::{tpacket_req, tpacket_stats, tpacket2_hdr};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::interface::{self, Mapping, Offload, State, get, set};
use crate::pool::PACKET_BYTES_MAX;
use haul_peer::descriptor::kept;

/// The size of each ring in bytes.
const RING_BYTES: usize = 4 << 20;
/// The smallest number of slots of a ring, even if its slots are long.
const SLOTS_MIN: usize = 256;
/// The unit in which the kernel allocates slots: a multiple of every slot length.
const BLOCK_BYTES: usize = 64 << 10;

/// The largest number of bytes of packets that may wait in the socket's queue, as the kernel
/// counts them: about a hundred packets that are longer than a slot.
const QUEUE_BYTES: usize = 32 << 20;

/// In front of a received packet, the kernel stores its own header and the sender's address, each
/// rounded up to a multiple of 16, and the header that describes the work left: 90 B in all. The
/// rest is for the packet's Ethernet header and tag, which the MTU does not include.
const FRONT_BYTES: usize = 128;
/// Offset of a sent packet in its slot: `TPACKET2_HDRLEN - sizeof(sockaddr_ll)`.
const SENT_AT: usize = size_of::<tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

const STATUS: usize = offset_of!(tpacket2_hdr, tp_status);
const LENGTH: usize = offset_of!(tpacket2_hdr, tp_len);
const KEPT: usize = offset_of!(tpacket2_hdr, tp_snaplen);
const MAC: usize = offset_of!(tpacket2_hdr, tp_mac);
const TAG: usize = offset_of!(tpacket2_hdr, tp_vlan_tci);
const TAG_KIND: usize = offset_of!(tpacket2_hdr, tp_vlan_tpid);

/// Both Ethernet addresses; a VLAN tag follows them.
const ADDRESSES_BYTES: usize = 12;

/// A ring, and its next slot.
#[derive(Debug)]
struct Slots {
    socket: OwnedFd,
    memory: Mapping,
    bytes: usize,
    count: usize,
    next: usize,
}

impl Slots {
    /// A socket with a ring for packets of an interface of this MTU.
    ///
    /// # Errors
    /// The system's error.
    fn open(
        mtu: usize,
        ring: i32,
        set_up: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol, no packet arrives before the socket is bound.
        let kind = SocketType::RAW;
        let socket = kept(rustix::net::socket_with(AddressFamily::PACKET, kind, flags, None))?;
        let packet = mtu.min(PACKET_BYTES_MAX);
        let bytes = (packet + FRONT_BYTES).next_power_of_two().max(2048);
        let count = (RING_BYTES / bytes).max(SLOTS_MIN);
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        set_up(&socket)?;
        let blocks = count * bytes / BLOCK_BYTES;
        let request = tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: bytes as u32,
            tp_frame_nr: count as u32,
        };
        set(&socket, libc::SOL_PACKET, ring, &request)?;
        let memory = Mapping::of(&socket, blocks * BLOCK_BYTES, 0)?;
        Ok(Self { socket, memory, bytes, count, next: 0 })
    }

    /// The offset of the slot `behind` slots after the next one.
    #[inline]
    fn slot(&self, behind: usize) -> usize {
        (self.next + behind) % self.count * self.bytes
    }

    fn pass(&mut self, count: usize) {
        self.next = (self.next + count) % self.count;
    }
}

/// A received packet in its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotPacket {
    at: usize,
    kept: usize,
    /// The original length, without the tag.
    original: usize,
    /// The VLAN tag that the kernel removed from the packet.
    tag: Option<[u8; 4]>,
    /// The work left to a device, for the packet as the ring holds it: without the tag.
    pub(super) offload: Offload,
    /// Whether the whole packet lies in the socket's queue, because the slot has no room.
    pub(super) is_queued: bool,
}

impl SlotPacket {
    /// Bytes of the packet, with its tag.
    #[inline]
    pub(super) fn length(&self) -> usize {
        self.original + self.tag.map_or(0, |tag| tag.len())
    }

    /// Whether the slot holds the whole packet, and no work is left.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.kept == self.original && !self.is_queued && self.offload.is_plain()
    }
}

/// The result of sending the filled slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendResult {
    /// How many packets were sent, from the first on.
    pub(super) packets: usize,
    /// Whether the packet after these can never be sent.
    pub(super) is_refused: bool,
}

/// The receiving socket.
#[derive(Debug)]
pub(super) struct Receiving(Slots);

impl Receiving {
    /// A ring on an interface, for packets of its MTU.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open(state: &State) -> io::Result<Self> {
        let slots = Slots::open(state.mtu, libc::PACKET_RX_RING, |socket| {
            let option = |name, value: i32| set(socket, libc::SOL_PACKET, name, &value);
            option(libc::PACKET_IGNORE_OUTGOING, 1)?;
            option(libc::PACKET_VNET_HDR, 1)?;
            option(libc::PACKET_COPY_THRESH, 1)?;
            // As much as the system allows, if it does not allow all.
            if sockopt::set_socket_recv_buffer_size_force(socket, QUEUE_BYTES).is_err() {
                let _ = sockopt::set_socket_recv_buffer_size(socket, QUEUE_BYTES);
            }
            Ok(())
        })?;
        interface::listen_to_all(&slots.socket, state.index)?;
        bind(&slots.socket, state.index, libc::ETH_P_ALL as u16)?;
        Ok(Self(slots))
    }

    /// The next received packet; the same packet until [`Receiving::release`].
    #[inline]
    pub(super) fn peek(&self) -> Option<SlotPacket> {
        let Slots { memory, .. } = &self.0;
        let slot = self.0.slot(0);
        let status = memory.word(slot + STATUS).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let kept = memory.number(slot + KEPT) as usize;
        let short = |at: usize| {
            let part = memory.part(slot + at, 2);
            u16::from_ne_bytes([part[0], part[1]])
        };
        let has_tag = status & libc::TP_STATUS_VLAN_VALID != 0 && kept >= ADDRESSES_BYTES;
        let tag = has_tag.then(|| {
            let has_kind = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let kind = if has_kind { short(TAG_KIND) } else { libc::ETH_P_8021Q as u16 };
            let ([a, b], [c, d]) = (kind.to_be_bytes(), short(TAG).to_be_bytes());
            [a, b, c, d]
        });
        let at = slot + usize::from(short(MAC));
        let header = memory.part(at - Offload::BYTES, Offload::BYTES);
        let offload = header.first_chunk().map(Offload::parse).unwrap_or_default();
        let original = memory.number(slot + LENGTH) as usize;
        let is_queued = status & libc::TP_STATUS_COPY != 0;
        Some(SlotPacket { at, kept, original, tag, offload, is_queued })
    }

    /// Calls `write` with each part of a received packet, and the part's offset in the packet.
    #[inline]
    pub(super) fn read(&self, found: &SlotPacket, mut write: impl FnMut(usize, &[u8])) {
        let bytes = self.0.memory.part(found.at, found.kept);
        let Some(tag) = found.tag else { return write(0, bytes) };
        let (addresses, rest) = bytes.split_at(ADDRESSES_BYTES);
        write(0, addresses);
        write(ADDRESSES_BYTES, &tag);
        write(ADDRESSES_BYTES + tag.len(), rest);
    }

    /// Reads a packet into a buffer, from the slot or from the queue. Returns how many of its
    /// bytes the buffer then holds, and the work left. If the queue had no room for the packet
    /// either, the buffer holds only its first bytes.
    #[cold]
    pub(super) fn read_all(&self, found: &SlotPacket, buffer: &mut Vec<u8>) -> (usize, Offload) {
        let tag = found.tag.map_or(0, |tag| tag.len());
        let offload = if tag > 0 { found.offload.behind_tag() } else { found.offload };
        if !found.is_queued {
            buffer.resize(found.kept + tag, 0);
            self.read(found, |at, part| buffer[at..at + part.len()].copy_from_slice(part));
            return (buffer.len(), offload);
        }
        // The queue's packet begins with the header that the slot holds as well.
        let front = Offload::BYTES + tag;
        buffer.resize(front + found.original, 0);
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let read = rustix::net::recv(&self.0.socket, &mut buffer[tag..], flags);
        let came = read.map_or(0, |(count, _)| count.saturating_sub(Offload::BYTES));
        if let Some(tag) = found.tag {
            let addresses = front..front + ADDRESSES_BYTES;
            buffer.copy_within(addresses, Offload::BYTES);
            let at = Offload::BYTES + ADDRESSES_BYTES;
            buffer[at..at + tag.len()].copy_from_slice(&tag);
        }
        buffer.drain(..Offload::BYTES);
        buffer.truncate(came + tag);
        (buffer.len(), offload)
    }

    /// Returns to the kernel the slot of the packet that [`Receiving::peek`] found.
    #[inline]
    pub(super) fn release(&mut self) {
        let word = self.0.memory.word(self.0.slot(0) + STATUS);
        word.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.0.pass(1);
    }

    /// How many packets found no room in the ring since the last call.
    pub(super) fn lost(&mut self) -> u64 {
        let mut counts = tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let read = get(&self.0.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counts);
        read.map_or(0, |()| u64::from(counts.tp_drops))
    }
}

/// The sending socket.
#[derive(Debug)]
pub(super) struct Sending {
    slots: Slots,
    /// How many slots are filled, beginning with the slot that the kernel consumes next.
    filled: usize,
}

impl Sending {
    /// A ring on an interface, for packets of its MTU.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open(state: &State) -> io::Result<Self> {
        let slots = Slots::open(state.mtu, libc::PACKET_TX_RING, |_| Ok(()))?;
        // Allows as many bytes in flight as the ring holds, if the system permits it.
        let _ = sockopt::set_socket_send_buffer_size(&slots.socket, RING_BYTES);
        bind(&slots.socket, state.index, 0)?;
        Ok(Self { slots, filled: 0 })
    }

    /// Fills the next slot with a packet of `length` bytes, which `read` writes; false if there is
    /// no room.
    #[inline]
    pub(super) fn fill(&mut self, length: usize, read: impl FnOnce(&mut [u8])) -> bool {
        let slot = self.slots.slot(self.filled);
        let Slots { memory, bytes, count, .. } = &mut self.slots;
        if self.filled == *count || SENT_AT + length > *bytes {
            return false;
        }
        let status = memory.word(slot + STATUS).load(Ordering::Acquire);
        if status != libc::TP_STATUS_AVAILABLE {
            return false;
        }
        read(memory.part_mut(slot + SENT_AT, length));
        memory.set_number(slot + LENGTH, length as u32);
        let word = memory.word(slot + STATUS);
        word.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.filled += 1;
        true
    }

    /// Makes the kernel consume the filled slots, and takes back those that it did not consume.
    pub(super) fn send(&mut self) -> SendResult {
        let Slots { socket, memory, .. } = &self.slots;
        // The slots hold the result of each packet. Once an interface is up again, the first call
        // still reports that it was down, so the call is repeated.
        let send = || rustix::net::send(socket, &[], SendFlags::DONTWAIT);
        if send() == Err(Errno::NETDOWN) {
            let _ = send();
        }
        let status = |behind| memory.word(self.slots.slot(behind) + STATUS).load(Ordering::Acquire);
        let is_left =
            |status| matches!(status, libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT);
        let packets = (0..self.filled).take_while(|behind| !is_left(status(*behind))).count();
        let is_refused = packets < self.filled && status(packets) == libc::TP_STATUS_WRONG_FORMAT;
        for behind in packets..self.filled {
            let word = memory.word(self.slots.slot(behind) + STATUS);
            word.store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        }
        self.slots.pass(packets);
        self.filled = 0;
        SendResult { packets, is_refused }
    }
}

/// Receives packets of a protocol from an interface; with protocol 0, the socket only sends.
fn bind(socket: impl AsFd, index: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let pointer = (&raw const address).cast();
    // SAFETY: the address has the given length, and is only read.
    let result = unsafe { libc::bind(socket.as_fd().as_raw_fd(), pointer, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
