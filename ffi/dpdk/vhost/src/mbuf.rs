//! DPDK's packets and their pools: packets of a program for a guest, and packets from a pool for
//! those of a guest. [`Known`] checks the layout of a pool's packets once, on a packet of known
//! content that DPDK makes.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use haul_forward::{Checksum, Header, Incoming, Outgoing, Segment};

use crate::checksum::{self, send};
use crate::dpdk::{self, Functions};
use crate::layout::{CACHE_MAX, Cache, Mbuf, Mempool};

/// The flag of a packet in a buffer outside of its pool, for good if a free packet has it
/// (RTE_MBUF_F_EXTERNAL).
const EXTERNAL: u64 = 1 << 61;

/// No port (RTE_MBUF_PORT_INVALID).
const NO_PORT: u16 = u16::MAX;

/// A program's packets.
pub(crate) struct Packets<'a>(pub(crate) &'a [*mut Mbuf]);

impl Packets<'_> {
    #[inline(always)]
    fn get(&self, index: usize) -> &Mbuf {
        // SAFETY: the program passes valid packets, which only this call uses meanwhile.
        unsafe { &*self.0[index] }
    }
}

// SAFETY: the program owns the packets during the call.
unsafe impl Outgoing for Packets<'_> {
    #[inline(always)]
    fn length(&self, index: usize) -> usize {
        self.get(index).packet_bytes as usize
    }

    #[inline(always)]
    fn is_one(&self, index: usize) -> bool {
        let packet = self.get(index);
        packet.segments == 1
            && u32::from(packet.data_bytes) == packet.packet_bytes
            && packet.data_bytes > 0
            && is_served(packet)
    }

    #[inline(always)]
    fn first(&self, index: usize) -> Segment {
        let packet = self.get(index);
        Segment { pointer: data(packet), length: packet.data_bytes.into() }
    }

    fn is_plain(&self, index: usize) -> bool {
        let packet = self.get(index);
        let lengths = self.segments(index).map(|segment| segment.length as u64);
        packet.data_bytes > 0
            && lengths.sum::<u64>() == u64::from(packet.packet_bytes)
            && is_served(packet)
    }

    fn segments(&self, index: usize) -> impl Iterator<Item = Segment> {
        let first = self.get(index);
        let later = |packet: &&Mbuf| {
            // SAFETY: a packet's segments are valid, and only this call uses them meanwhile.
            unsafe { packet.next.as_ref() }
        };
        let all = std::iter::successors(Some(first), later).take(first.segments.into());
        all.map(|packet| Segment { pointer: data(packet), length: packet.data_bytes.into() })
    }

    #[inline(always)]
    fn header(&self, index: usize) -> Header {
        let packet = self.get(index);
        if packet.flags & send::ASKED == 0 {
            return Header::default();
        }
        // SAFETY: the program owns the packet during the call, and the ring sends only served ones.
        unsafe { send::header(packet) }
    }
}

/// Whether the packet's header says all that it asks for.
#[inline(always)]
fn is_served(packet: &Mbuf) -> bool {
    // SAFETY: the program owns the packet during the call.
    packet.flags & send::ASKED == 0 || unsafe { send::is_served(packet) }
}

/// A packet's first byte.
#[inline(always)]
fn data(packet: &Mbuf) -> NonNull<u8> {
    let at = packet.buffer.wrapping_add(packet.data_offset.into());
    // SAFETY: a packet's bytes lie in a mapped buffer.
    unsafe { NonNull::new_unchecked(at) }
}

/// A packet's size in bytes, and the first six of them.
///
/// # Safety
/// The packet is valid, and its buffer has at least six bytes there.
#[inline]
pub(crate) unsafe fn size_and_target(packet: *const Mbuf) -> (u64, [u8; 6]) {
    // SAFETY: the caller's promise.
    let packet = unsafe { &*packet };
    // SAFETY: the caller's promise.
    let target = unsafe { data(packet).cast::<[u8; 6]>().read() };
    (packet.packet_bytes.into(), target)
}

/// Whether a packet is a reverse ARP, with which a switch learns where an address is now.
///
/// # Safety
/// The packet is valid.
#[cold]
pub(crate) unsafe fn is_announcement(packet: *const Mbuf) -> bool {
    /// The Ethernet type of reverse ARP (RFC 903), and its place behind the two addresses.
    const TYPE: [u8; 2] = 0x8035_u16.to_be_bytes();
    const TYPE_AT: usize = 12;
    // SAFETY: the caller's promise.
    let packet = unsafe { &*packet };
    if usize::from(packet.data_bytes) < TYPE_AT + TYPE.len() {
        return false;
    }
    let at = data(packet).as_ptr().wrapping_add(TYPE_AT).cast::<[u8; 2]>();
    // SAFETY: the packet has these bytes.
    let kind = unsafe { at.read() };
    kind == TYPE
}

/// Free packets of a pool, which a dequeue takes and appends to the program's array.
pub(crate) struct Taking<'a> {
    pool: *mut Mempool,
    take: unsafe extern "C" fn(*mut Mempool, *mut *mut Mbuf, c_uint) -> c_int,
    /// This core's free packets.
    cache: Option<NonNull<Cache>>,
    room: Room,
    functions: &'static Functions,
    packets: &'a mut [*mut Mbuf],
    taken: usize,
    /// Whether a packet has a [`MARK`].
    has_marks: bool,
}

/// The bit of [`Mbuf::transmit`] in a taken packet that lacks a checksum. The bits below hold the
/// guest's values until the packet is copied.
const MARK: u64 = 1 << 32;

impl<'a> Taking<'a> {
    /// `None` if the pool has properties that this library does not expect.
    ///
    /// # Safety
    /// The pool is valid and [`Known`], and this thread calls no function of it meanwhile.
    #[inline]
    pub(crate) unsafe fn new(
        functions: &'static Functions,
        pool: *mut Mempool,
        room: Room,
        packets: &'a mut [*mut Mbuf],
    ) -> Option<Self> {
        // SAFETY: the caller's promise.
        let fields = unsafe { &*pool };
        let index = usize::try_from(fields.operations).ok()?;
        let take = functions.rte_mempool_ops_table.operations.get(index)?.take?;
        let cache = match dpdk::core() {
            Some(core) if fields.cache_size > 0 => {
                // SAFETY: a pool with caches has one for each core.
                let cache = NonNull::new(unsafe { fields.caches.add(core) })?;
                // SAFETY: the cache of this thread's core belongs to this thread.
                let Cache { size, length, .. } = unsafe { cache.as_ref() };
                let is_known = *size == fields.cache_size && *size as usize <= CACHE_MAX;
                if !is_known || *length as usize > 2 * CACHE_MAX {
                    return None;
                }
                Some(cache)
            }
            _ => None,
        };
        Some(Self { pool, take, cache, room, functions, packets, taken: 0, has_marks: false })
    }

    /// The cache's last packet. An empty cache is filled to its size, never above: releases differ
    /// in how far they let it grow.
    #[inline]
    fn pop(&mut self) -> Option<*mut Mbuf> {
        let Some(mut cache) = self.cache else { return self.take_one() };
        // SAFETY: the cache belongs to this thread, and no reference to it exists.
        let cache = unsafe { cache.as_mut() };
        if cache.length == 0 {
            // SAFETY: the array has room for as many packets, by `new`.
            let result = unsafe { (self.take)(self.pool, cache.packets.as_mut_ptr(), cache.size) };
            if result < 0 {
                return self.take_one();
            }
            cache.length = cache.size;
        }
        cache.length -= 1;
        Some(cache.packets[cache.length as usize])
    }

    /// Completes the packets that lack a checksum, after all were copied, and returns their number.
    /// For `is_compliant` see [`checksum::set`].
    #[inline]
    pub(crate) fn complete(self, is_compliant: bool) -> u64 {
        if !self.has_marks {
            return 0;
        }
        let mut count = 0;
        for packet in &self.packets[..self.taken] {
            // SAFETY: a packet that was taken, and is still this call's.
            let request = std::mem::take(unsafe { &mut (**packet).transmit });
            if request & MARK != 0 {
                let (start, offset) = ((request >> 16) as u16, request as u16);
                let checksum = Checksum { start, offset };
                // SAFETY: as above; it has one segment.
                unsafe { checksum::set(self.functions, *packet, checksum, is_compliant) };
                count += 1;
            }
        }
        count
    }

    #[cold]
    fn take_one(&self) -> Option<*mut Mbuf> {
        let mut packet = null_mut();
        // SAFETY: room for one packet.
        let result = unsafe { (self.take)(self.pool, &raw mut packet, 1) };
        (result >= 0).then_some(packet)
    }
}

// SAFETY: a free packet's buffer is not used by others, and its size is checked.
unsafe impl Incoming for Taking<'_> {
    const CHECKS_HEADERS: bool = true;

    #[inline(always)]
    fn take(&mut self, length: usize) -> Option<NonNull<u8>> {
        let place = self.packets.get_mut(self.taken).map(std::ptr::from_mut)?;
        let mut at = self.pop()?;
        // SAFETY: a free packet of the pool, which is this call's now.
        let packet = unsafe { &mut *at };
        let room = usize::from(packet.buffer_bytes).wrapping_sub(self.room.offset.into());
        if packet.references.load(Ordering::Relaxed) != 1
            || room > usize::from(u16::MAX)
            || length > room
        {
            // SAFETY: a packet that was just taken.
            unsafe { (self.functions.rte_pktmbuf_free_bulk)(&raw mut at, 1) };
            return None;
        }
        packet.data_offset = self.room.offset;
        (packet.segments, packet.port) = (1, NO_PORT);
        packet.flags &= EXTERNAL;
        packet.packet_type = 0;
        (packet.packet_bytes, packet.data_bytes) = (length as u32, length as u16);
        (packet.vlan, packet.outer_vlan) = (0, 0);
        (packet.next, packet.transmit) = (null_mut(), 0);
        // SAFETY: a place of the program's array.
        unsafe { place.write(at) };
        self.taken += 1;
        Some(data(packet))
    }

    #[inline(always)]
    fn lacks(&mut self, checksum: Checksum) {
        let Checksum { start, offset } = checksum;
        let Some(last) = self.packets[..self.taken].last() else { return };
        // SAFETY: a packet that was just taken.
        let packet = unsafe { &mut **last };
        packet.transmit = MARK | u64::from(start) << 16 | u64::from(offset);
        self.has_marks = true;
    }
}

/// Where a pool's packets begin in their buffers, and how many bytes fit behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    offset: u16,
    pub(crate) bytes: u16,
}

/// Pools whose packets have the expected layout, and their rooms; an entry is written once.
pub(crate) struct Known {
    pools: [AtomicPtr<Mempool>; POOLS_MAX],
    rooms: [AtomicU32; POOLS_MAX],
}

/// The largest number of pools that are served.
const POOLS_MAX: usize = 64;

/// The pools of this process.
pub(crate) static KNOWN: Known = Known {
    pools: [const { AtomicPtr::new(null_mut()) }; POOLS_MAX],
    rooms: [const { AtomicU32::new(0) }; POOLS_MAX],
};

/// Whether a pool had another layout: this library then touches no packet.
static IS_FOREIGN: AtomicBool = AtomicBool::new(false);

impl Known {
    /// Whether packets have the expected layout: a pool was checked, and none had another one.
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        !IS_FOREIGN.load(Ordering::Relaxed) && !self.pools[0].load(Ordering::Acquire).is_null()
    }

    /// The room of a pool's packets. Checks a new pool, which takes a packet from it for a moment;
    /// `None` if the pool is empty, has another layout, or too many pools are known.
    #[inline]
    pub(crate) fn room(&self, functions: &Functions, pool: *mut Mempool) -> Option<Room> {
        if IS_FOREIGN.load(Ordering::Relaxed) {
            return None;
        }
        for (known, room) in self.pools.iter().zip(&self.rooms) {
            let at = known.load(Ordering::Acquire);
            if at == pool {
                return Some(Room::of(room.load(Ordering::Acquire))).filter(|room| room.bytes > 0);
            }
            if at.is_null() {
                return self.check(functions, pool);
            }
        }
        None
    }

    /// Whether packets have the expected layout, for a program that only sends: checks the pool of
    /// a packet, if it is one of DPDK's pools. Tries again in one of 64 calls.
    #[cold]
    pub(crate) fn check_pool_of(&self, functions: &Functions, packet: *const Mbuf) -> bool {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        const CALLS_PER_TRY: u32 = 64;
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        if IS_FOREIGN.load(Ordering::Relaxed) || !call.is_multiple_of(CALLS_PER_TRY) {
            return false;
        }
        // SAFETY: a packet has at least this line in every layout. In another layout, this is not
        // its pool, and is only compared.
        let mut asked = Asked { pool: unsafe { (*packet).pool }, is_there: false };
        // SAFETY: `is_asked` accesses the value of this call alone.
        unsafe { (functions.rte_mempool_walk)(is_asked, (&raw mut asked).cast()) };
        asked.is_there && self.check(functions, asked.pool).is_some()
    }

    #[cold]
    fn check(&self, functions: &Functions, pool: *mut Mempool) -> Option<Room> {
        // SAFETY: the program passes a valid pool of packets.
        let mut packet = unsafe { (functions.rte_net_make_rarp_packet)(pool, &PROBE) };
        if packet.is_null() {
            return None;
        }
        // SAFETY: the packet has at least two lines, of which only the offsets are in question;
        // the buffer is read only where the fields agree.
        let room = unsafe { probe(packet, pool) };
        // SAFETY: the packet is this call's.
        unsafe { (functions.rte_pktmbuf_free_bulk)(&raw mut packet, 1) };
        let Some(room) = room else {
            IS_FOREIGN.store(true, Ordering::Relaxed);
            crate::notice::print(format_args!(
                "DPDK's packets have another layout than from 22.11 to 26.07; DPDK serves all"
            ));
            return None;
        };
        for (known, known_room) in self.pools.iter().zip(&self.rooms) {
            let (order, none) = (Ordering::AcqRel, null_mut());
            match known.compare_exchange(none, pool, order, Ordering::Acquire) {
                Ok(_) => {
                    known_room.store(room.word(), Ordering::Release);
                    return Some(room);
                }
                Err(at) if at == pool => return Some(room),
                Err(_) => {}
            }
        }
        None
    }
}

/// A pool, and whether it is one of DPDK's.
struct Asked {
    pool: *mut Mempool,
    is_there: bool,
}

/// Compares a pool with the one that [`Known::check_pool_of`] asks for.
unsafe extern "C" fn is_asked(pool: *mut Mempool, asked: *mut c_void) {
    // SAFETY: the value of the call, which waits for this one.
    let asked = unsafe { &mut *asked.cast::<Asked>() };
    asked.is_there |= pool == asked.pool;
}

impl Room {
    fn word(self) -> u32 {
        u32::from(self.offset) << 16 | u32::from(self.bytes)
    }

    fn of(word: u32) -> Self {
        Self { offset: (word >> 16) as u16, bytes: word as u16 }
    }
}

/// The address in the packet by which a layout is checked: a locally administered one.
const PROBE: [u8; 6] = [0x02, 0x48, 0x41, 0x55, 0x4C, 0x5A];

/// The size of the packet that `rte_net_make_rarp_packet` makes (lib/net/rte_arp.c).
const PROBE_BYTES: u16 = 64;

/// The room of a packet that has the expected layout.
///
/// # Safety
/// The packet was just made by `rte_net_make_rarp_packet` with [`PROBE`].
unsafe fn probe(packet: *const Mbuf, pool: *mut Mempool) -> Option<Room> {
    // SAFETY: the caller's promise.
    let packet = unsafe { &*packet };
    let is_known = packet.pool == pool
        && !packet.buffer.is_null()
        && packet.io_address != 0
        && (packet.references.load(Ordering::Relaxed), packet.segments) == (1, 1)
        && packet.packet_bytes == u32::from(PROBE_BYTES)
        && packet.data_bytes == PROBE_BYTES
        && packet.next.is_null()
        && packet.transmit == 0
        && packet.flags & !EXTERNAL == 0;
    let bytes = packet.buffer_bytes.checked_sub(packet.data_offset)?;
    if !is_known || bytes < PROBE_BYTES {
        return None;
    }
    // SAFETY: the packet has 64 bytes.
    let start = unsafe { data(packet).cast::<[u8; 14]>().read() };
    let is_probe = start[..6] == [0xFF; 6] && start[6..12] == PROBE && start[12..] == [0x80, 0x35];
    is_probe.then_some(Room { offset: packet.data_offset, bytes })
}
