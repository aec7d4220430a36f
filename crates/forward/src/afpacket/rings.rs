//! Two sockets of packets with a ring each, TPACKET_V2 of packet(7): one that packets come to, and
//! one that they are sent by, which nothing comes to.
//!
//! Each ring is an array of slots: a header, and room for a packet. The word at a slot's beginning
//! says whose it is. The kernel takes packets to be sent within [`Sending::send`] alone, in order;
//! so what it did not take then is taken back, and the caller knows of each packet whether it went.
//!
//! A packet that came and is longer than a slot lies in the socket's queue as well, whole
//! (PACKET_COPY_THRESH): slots can be short, and packets that the kernel merged are had all the
//! same. In front of each stands what was left to a device (PACKET_VNET_HDR). Packets to be sent
//! leave nothing to one, and have no such header.

use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use libc::{tpacket_req, tpacket_stats, tpacket2_hdr};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::super::interface::{self, Mapping, Offload, State, get, set};
use super::super::pool::PACKET_BYTES_MAX;
use haul_peer::descriptor::kept;

/// Bytes of each ring.
const RING_BYTES: usize = 4 << 20;
/// Slots of a ring at least, where packets are long.
const SLOTS_MIN: usize = 256;
/// What the kernel has at once for some slots: a multiple of every length of a slot.
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of packets that may wait in the socket's queue, as the kernel counts them: some hundred of
/// those that are longer than a slot.
const QUEUE_BYTES: usize = 32 << 20;

/// In front of a packet that came, the kernel has its header, the sender's address, up to the next
/// multiple of 16 twice, and what is left to a device: 90 B. A packet's tag and header come on top
/// of the MTU.
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

/// A ring, and whose turn it is.
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
    /// What the system says.
    fn open(
        mtu: usize,
        ring: i32,
        set_up: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Of no protocol yet: nothing comes before it is bound.
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

    /// The slot that is `behind` the next one.
    #[inline]
    fn slot(&self, behind: usize) -> usize {
        (self.next + behind) % self.count * self.bytes
    }

    fn pass(&mut self, count: usize) {
        self.next = (self.next + count) % self.count;
    }
}

/// A packet in its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    at: usize,
    kept: usize,
    /// Bytes that it had, without the tag.
    original: usize,
    /// The VLAN tag that the kernel took out of it.
    tag: Option<[u8; 4]>,
    /// What was left to a device, where the packet stands as it came: without the tag.
    pub(super) offload: Offload,
    /// Whether all of it lies in the socket's queue, for the slot has no room.
    pub(super) is_queued: bool,
}

impl Found {
    /// Bytes of the packet, with its tag.
    #[inline]
    pub(super) fn length(&self) -> usize {
        self.original + self.tag.map_or(0, |tag| tag.len())
    }

    /// Whether the slot has all of it, and nothing is left to do.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.kept == self.original && !self.is_queued && self.offload.is_plain()
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

/// Where packets come to.
#[derive(Debug)]
pub(super) struct Receiving(Slots);

impl Receiving {
    /// A ring on an interface, for packets of its MTU.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(state: &State) -> io::Result<Self> {
        let slots = Slots::open(state.mtu, libc::PACKET_RX_RING, |socket| {
            let option = |name, value: i32| set(socket, libc::SOL_PACKET, name, &value);
            option(libc::PACKET_IGNORE_OUTGOING, 1)?;
            option(libc::PACKET_VNET_HDR, 1)?;
            option(libc::PACKET_COPY_THRESH, 1)?;
            // As much as the system allows, where it does not allow all.
            if sockopt::set_socket_recv_buffer_size_force(socket, QUEUE_BYTES).is_err() {
                let _ = sockopt::set_socket_recv_buffer_size(socket, QUEUE_BYTES);
            }
            Ok(())
        })?;
        interface::listen_to_all(&slots.socket, state.index)?;
        bind(&slots.socket, state.index, libc::ETH_P_ALL as u16)?;
        Ok(Self(slots))
    }

    /// The next packet that came; the same again until [`Receiving::give_back`].
    #[inline]
    pub(super) fn peek(&self) -> Option<Found> {
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
        Some(Found { at, kept, original, tag, offload, is_queued })
    }

    /// Calls `write` with each part of a packet that came, and where in the packet it stands.
    #[inline]
    pub(super) fn read(&self, found: &Found, mut write: impl FnMut(usize, &[u8])) {
        let bytes = self.0.memory.part(found.at, found.kept);
        let Some(tag) = found.tag else { return write(0, bytes) };
        let (addresses, rest) = bytes.split_at(ADDRESSES_BYTES);
        write(0, addresses);
        write(ADDRESSES_BYTES, &tag);
        write(ADDRESSES_BYTES + tag.len(), rest);
    }

    /// Reads a packet into a buffer, from the slot or from the queue, with what is left to do in
    /// it, and says how many of its bytes are there: of one that the queue had no room for either,
    /// the first ones.
    #[cold]
    pub(super) fn read_all(&self, found: &Found, buffer: &mut Vec<u8>) -> (usize, Offload) {
        let tag = found.tag.map_or(0, |tag| tag.len());
        let offload = if tag > 0 { found.offload.behind_tag() } else { found.offload };
        if !found.is_queued {
            buffer.resize(found.kept + tag, 0);
            self.read(found, |at, part| buffer[at..at + part.len()].copy_from_slice(part));
            return (buffer.len(), offload);
        }
        // In front stands what the slot says as well.
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

    /// Gives the kernel the slot of the packet that [`Receiving::peek`] found.
    #[inline]
    pub(super) fn give_back(&mut self) {
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

/// Where packets are sent.
#[derive(Debug)]
pub(super) struct Sending {
    slots: Slots,
    /// How many are filled, from the one on that the kernel takes next.
    filled: usize,
}

impl Sending {
    /// A ring on an interface, for packets of its MTU.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(state: &State) -> io::Result<Self> {
        let slots = Slots::open(state.mtu, libc::PACKET_TX_RING, |_| Ok(()))?;
        // As many as fill the ring may be under way, if the system allows that.
        let _ = sockopt::set_socket_send_buffer_size(&slots.socket, RING_BYTES);
        bind(&slots.socket, state.index, 0)?;
        Ok(Self { slots, filled: 0 })
    }

    /// Has a packet of `length` bytes, which `read` writes, sent next; false where there is no
    /// room.
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

    /// Has the kernel take what was filled in, and takes back what it did not.
    pub(super) fn send(&mut self) -> Sent {
        let Slots { socket, memory, .. } = &self.slots;
        // What it says is in the slots, packet by packet. That the interface was down is said once,
        // when it is up again.
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
        Sent { packets, is_refused }
    }
}

/// Has packets of a protocol come from an interface; of none, packets are sent there alone.
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
    // SAFETY: the address is as long as is said, and only read.
    let result = unsafe { libc::bind(socket.as_fd().as_raw_fd(), pointer, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
