//! An AF_XDP socket on a queue of an interface, with its memory, its rings and its program.

use std::io;

use rustix::fd::{AsFd, OwnedFd};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::program::{Attachment, Program};
use super::ring::{ADDRESS_BYTES, DESCRIPTOR_BYTES, Descriptor, Ring};
use crate::interface::{self, Mapping, State};
use haul_peer::descriptor::kept;

/// The number of entries per ring, and of memory chunks per direction: enough for a millisecond
/// at a million packets a second.
const LENGTH: u32 = 1024;

/// The number of bytes in front of a received packet that the kernel keeps for programs:
/// `XDP_PACKET_HEADROOM`.
const FRONT_BYTES: usize = 256;
/// The two lengths of a chunk that a kernel with pages of 4 KiB accepts.
const CHUNK_BYTES: [usize; 2] = [2048, 4096];

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    /// Dropped before the socket, because a closed socket receives no packet.
    program: Program,
    socket: OwnedFd,
    /// A socket that makes the interface receive packets for other addresses as well.
    _listener: OwnedFd,
    memory: Mapping,
    chunk_bytes: usize,
    fill: Ring,
    received: Ring,
    sent: Ring,
    completed: Ring,
    /// Free chunks for sending; the chunk that was freed last is used next.
    free: Vec<u64>,
    is_zero_copy: bool,
    /// The kernel's count of lost packets at the last call.
    lost: u64,
}

impl Session {
    /// Opens a session on a queue, which receives packets from now on.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open(state: &State, queue: u32) -> io::Result<Self> {
        let [short, long] = CHUNK_BYTES;
        let longest = interface::longest(state.mtu);
        if longest > long - FRONT_BYTES {
            let reason = format!("its MTU is {}, and XDP supports at most 3822", state.mtu);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::RAW;
        let listener = kept(rustix::net::socket_with(AddressFamily::PACKET, kind, flags, None))?;
        interface::listen_to_all(&listener, state.index)?;
        let socket = kept(rustix::net::socket_with(AddressFamily::XDP, kind, flags, None))?;
        let chunk_bytes = if longest <= short - FRONT_BYTES { short } else { long };
        let memory = Mapping::private(2 * LENGTH as usize * chunk_bytes)?;
        let region = XdpUmemReg {
            addr: memory.base().as_ptr().expose_provenance() as u64,
            len: memory.bytes() as u64,
            chunk_size: chunk_bytes as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, region)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, LENGTH)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, LENGTH)?;
        sockopt::set_xdp_rx_ring_size(&socket, LENGTH)?;
        sockopt::set_xdp_tx_ring_size(&socket, LENGTH)?;
        let at = sockopt::xdp_mmap_offsets(&socket)?;
        let ring = |offset, page, bytes| Ring::map(&socket, offset, page, LENGTH, bytes);
        let mut fill = ring(&at.fr, XDP_UMEM_PGOFF_FILL_RING, ADDRESS_BYTES)?;
        let completed = ring(&at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, ADDRESS_BYTES)?;
        let received = ring(&at.rx, XDP_PGOFF_RX_RING, DESCRIPTOR_BYTES)?;
        let sent = ring(&at.tx, XDP_PGOFF_TX_RING, DESCRIPTOR_BYTES)?;
        let chunk = |index: u32| u64::from(index) * chunk_bytes as u64;
        (0..LENGTH).for_each(|index| fill.put_address(chunk(index)));
        fill.publish();
        // The kernel chooses: without a copy if the driver supports that, else with a copy.
        let how = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        rustix::net::bind(&socket, &SocketAddrXdp::new(how, state.index, queue))?;
        let program = Program::attach(socket.as_fd(), state.index, queue)?;
        let options = sockopt::xdp_options(&socket)?;
        Ok(Self {
            program,
            _listener: listener,
            memory,
            chunk_bytes,
            fill,
            received,
            sent,
            completed,
            free: (LENGTH..2 * LENGTH).map(chunk).collect(),
            is_zero_copy: options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY),
            lost: 0,
            socket,
        })
    }

    /// Whether the driver writes packets directly to the memory, and whether the program runs in
    /// the driver.
    pub(super) fn attachment(&self) -> (bool, bool) {
        (self.is_zero_copy, self.program.attachment == Attachment::Driver)
    }

    /// Whether the program inserts into packets the VLAN tags that the driver reports.
    pub(super) fn restores_tags(&self) -> bool {
        self.program.restores_tags
    }

    /// The longest packet that can be sent.
    pub(super) fn longest(&self) -> usize {
        self.chunk_bytes
    }

    /// Calls `take` with the bytes of each received packet, at most `most`, until it returns false.
    #[inline]
    pub(super) fn receive(&mut self, most: usize, mut take: impl FnMut(&[u8]) -> bool) {
        let found = self.received.available().min(most as u32);
        let mut taken = 0;
        while taken < found {
            let Descriptor { at, length } = self.received.peek();
            if !take(self.memory.part(at as usize, length as usize)) {
                break;
            }
            self.received.pass();
            // The ring has room for every chunk of this direction.
            self.fill.put_address(at & !(self.chunk_bytes as u64 - 1));
            taken += 1;
        }
        if taken > 0 {
            self.received.release();
            self.fill.publish();
        }
        if self.fill.wants_wakeup() {
            // Wakes a driver that ran out of chunks, so that it checks the ring again.
            let nothing: &mut [u8] = &mut [];
            let _ = rustix::net::recv(&self.socket, nothing, RecvFlags::DONTWAIT);
        }
    }

    /// Fills a chunk with a packet of `length` bytes, which `read` writes; false if there is no
    /// room.
    #[inline]
    pub(super) fn fill(&mut self, length: usize, read: impl FnOnce(&mut [u8])) -> bool {
        if self.free.is_empty() || self.sent.room(1) == 0 {
            return false;
        }
        let Some(at) = self.free.pop() else { return false };
        read(self.memory.part_mut(at as usize, length));
        self.sent.put(Descriptor { at, length: length as u32 });
        true
    }

    /// Makes the kernel send the filled packets, as many as it accepts now.
    #[inline]
    pub(super) fn send(&mut self) {
        self.sent.publish();
        self.push();
    }

    /// Makes the kernel continue; returns whether it has consumed all packets.
    pub(super) fn push(&mut self) -> bool {
        // If the kernel copies, one call consumes at least 32 packets.
        for _ in 0..LENGTH / 32 {
            if self.sent.is_consumed() || !self.sent.wants_wakeup() {
                break;
            }
            let sent = rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT);
            match sent {
                // The ring holds more packets than one call consumes.
                Err(rustix::io::Errno::AGAIN) | Ok(_) => {}
                Err(_) => break,
            }
        }
        self.reclaim();
        self.sent.is_consumed()
    }

    /// Takes back the chunks whose packets were sent.
    pub(super) fn reclaim(&mut self) {
        let found = self.completed.available();
        for _ in 0..found {
            let at = self.completed.take_address();
            self.free.push(at);
        }
        if found > 0 {
            self.completed.release();
        }
    }

    /// How many packets found no room in the ring, or no chunk, since the last call.
    pub(super) fn lost(&mut self) -> u64 {
        let Ok(counts) = sockopt::xdp_statistics(&self.socket) else { return 0 };
        let lost = counts.rx_dropped + counts.rx_ring_full.unwrap_or(0);
        lost - std::mem::replace(&mut self.lost, lost)
    }
}
