//! A socket of XDP on a queue of an interface, with its memory, its rings and its program.

use std::io;

use rustix::fd::{AsFd, OwnedFd};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::super::interface::{self, Mapping, State};
use super::program::{Place, Program};
use super::ring::{DESCRIPTOR_BYTES, Descriptor, PLACE_BYTES, Ring};
use haul_peer::descriptor::kept;

/// Entries of each ring, and chunks of memory for each direction: a millisecond of a million
/// packets a second.
const LENGTH: u32 = 1024;

/// In front of a packet that comes, the kernel keeps so many bytes for programs:
/// `XDP_PACKET_HEADROOM`.
const FRONT_BYTES: usize = 256;
/// The two lengths of a chunk that a kernel with pages of 4 KiB takes.
const CHUNK_BYTES: [usize; 2] = [2048, 4096];

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    /// Goes first: nothing comes to a socket that is closed.
    program: Program,
    socket: OwnedFd,
    /// A socket by which packets for other addresses come too.
    _listener: OwnedFd,
    memory: Mapping,
    chunk_bytes: usize,
    fill: Ring,
    received: Ring,
    sent: Ring,
    completed: Ring,
    /// Chunks that packets can be sent from; the last one freed is the next one used.
    free: Vec<u64>,
    is_zero_copy: bool,
    /// What the kernel said of lost packets at the last look.
    lost: u64,
}

impl Session {
    /// A session on a queue, which packets come to from now on.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(state: &State, queue: u32) -> io::Result<Self> {
        let [short, long] = CHUNK_BYTES;
        let longest = interface::longest(state.mtu);
        if longest > long - FRONT_BYTES {
            let reason = format!("its MTU is {}, of 3822 that XDP takes", state.mtu);
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
        let mut fill = ring(&at.fr, XDP_UMEM_PGOFF_FILL_RING, PLACE_BYTES)?;
        let completed = ring(&at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, PLACE_BYTES)?;
        let received = ring(&at.rx, XDP_PGOFF_RX_RING, DESCRIPTOR_BYTES)?;
        let sent = ring(&at.tx, XDP_PGOFF_TX_RING, DESCRIPTOR_BYTES)?;
        let chunk = |index: u32| u64::from(index) * chunk_bytes as u64;
        (0..LENGTH).for_each(|index| fill.put_place(chunk(index)));
        fill.publish();
        // Without a copy where the driver can, else with one, as the kernel chooses.
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

    /// Whether the driver writes packets straight to the memory, and where the program runs.
    pub(super) fn how(&self) -> (bool, bool) {
        (self.is_zero_copy, self.program.place == Place::Driver)
    }

    /// Whether VLAN tags that the driver tells of are put back into packets.
    pub(super) fn asks_for_tags(&self) -> bool {
        self.program.asks_for_tags
    }

    /// The longest packet that can be sent.
    pub(super) fn longest(&self) -> usize {
        self.chunk_bytes
    }

    /// Calls `take` with the bytes of each packet that came, at most `most`, until it says no.
    #[inline]
    pub(super) fn receive(&mut self, most: usize, mut take: impl FnMut(&[u8]) -> bool) {
        let found = self.received.found().min(most as u32);
        let mut taken = 0;
        while taken < found {
            let Descriptor { at, length } = self.received.peek();
            if !take(self.memory.part(at as usize, length as usize)) {
                break;
            }
            self.received.pass();
            // Every chunk of this direction has its place there.
            self.fill.put_place(at & !(self.chunk_bytes as u64 - 1));
            taken += 1;
        }
        if taken > 0 {
            self.received.give_back();
            self.fill.publish();
        }
        if self.fill.wants_wakeup() {
            // A driver that ran out of chunks looks again.
            let nothing: &mut [u8] = &mut [];
            let _ = rustix::net::recv(&self.socket, nothing, RecvFlags::DONTWAIT);
        }
    }

    /// Has a packet of `length` bytes, which `read` writes, sent next; false where there is no
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

    /// Has the kernel take what was filled in, as much as it does now.
    #[inline]
    pub(super) fn send(&mut self) {
        self.sent.publish();
        self.push();
    }

    /// Has the kernel go on with what it has; whether it has taken all.
    pub(super) fn push(&mut self) -> bool {
        // One call takes 32 packets or more, where the kernel copies.
        for _ in 0..LENGTH / 32 {
            if self.sent.is_taken() || !self.sent.wants_wakeup() {
                break;
            }
            let sent = rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT);
            match sent {
                // More than one call takes.
                Err(rustix::io::Errno::AGAIN) | Ok(_) => {}
                Err(_) => break,
            }
        }
        self.reclaim();
        self.sent.is_taken()
    }

    /// Takes back the chunks whose packets have left.
    pub(super) fn reclaim(&mut self) {
        let found = self.completed.found();
        for _ in 0..found {
            let at = self.completed.take_place();
            self.free.push(at);
        }
        if found > 0 {
            self.completed.give_back();
        }
    }

    /// How many packets found no room, or no chunk, since the last call.
    pub(super) fn lost(&mut self) -> u64 {
        let Ok(counts) = sockopt::xdp_statistics(&self.socket) else { return 0 };
        let lost = counts.rx_dropped + counts.rx_ring_full.unwrap_or(0);
        lost - std::mem::replace(&mut self.lost, lost)
    }
}
