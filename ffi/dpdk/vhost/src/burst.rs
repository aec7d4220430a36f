//! Packets: this library moves those from the first on that need only copies and the flag of a
//! checksum, and DPDK moves the others.

use core::ffi::c_int;
use std::sync::atomic::Ordering;

use haul_forward::{DeviceRing, Progress};

use crate::device::{Device, Regions, Ring};
use crate::dpdk::Functions;
use crate::gate::Side;
use crate::layout::{Mbuf, Mempool};
use crate::mbuf::{self, KNOWN, Packets, Taking};
use crate::statistics::add;
use crate::turns;

/// DPDK must go on at the first packet.
const STOPPED: Progress = Progress { packets: 0, is_stopped: true };

/// A ring of a device, for one burst.
#[derive(Clone, Copy)]
pub(crate) struct Burst {
    pub(crate) functions: &'static Functions,
    pub(crate) device: &'static Device,
    pub(crate) number: c_int,
    pub(crate) index: u16,
}

impl Burst {
    /// Sends packets to the guest: `rte_vhost_enqueue_burst`.
    ///
    /// # Safety
    /// `packets` holds `count` valid packets of the caller.
    #[inline]
    pub(crate) unsafe fn enqueue(self, packets: *mut *mut Mbuf, count: u16) -> u16 {
        let Self { functions, number, index, .. } = self;
        // SAFETY: the caller's promise.
        let all = unsafe { slice(packets, count) };
        let ours = |ring: &mut DeviceRing<Regions>| {
            let Some(first) = all.first() else { return STOPPED };
            if !KNOWN.is_checked() && !KNOWN.check_pool_of(functions, *first) {
                return STOPPED;
            }
            ring.enqueue(&Packets(all), all.len())
        };
        let theirs = |done: u16| {
            // SAFETY: `done` is at most `count`.
            let rest = unsafe { packets.add(done.into()) };
            // SAFETY: the rest of the caller's packets.
            unsafe { (functions.rte_vhost_enqueue_burst)(number, index, rest, count - done) }
        };
        // SAFETY: all are the caller's packets.
        unsafe { self.run(count, packets, ours, theirs) }
    }

    /// Receives packets of the guest: `rte_vhost_dequeue_burst`.
    ///
    /// # Safety
    /// `packets` has room for `count` packets of `pool`, which is valid.
    #[inline]
    pub(crate) unsafe fn dequeue(
        self,
        pool: *mut Mempool,
        packets: *mut *mut Mbuf,
        count: u16,
    ) -> u16 {
        let Self { functions, device, number, index } = self;
        if device.owes_calls.load(Ordering::Relaxed) {
            self.pay_calls();
        }
        let ours = |ring: &mut DeviceRing<Regions>| {
            let Some(room) = KNOWN.room(functions, pool) else { return STOPPED };
            // SAFETY: the caller's promise.
            let all = unsafe { slice(packets, count) };
            // SAFETY: the pool was just found, and this thread calls no function of it meanwhile.
            let taking = unsafe { Taking::new(functions, pool, room, all) };
            let Some(mut taking) = taking else { return STOPPED };
            let progress = ring.dequeue(&mut taking, room.bytes.into(), count.into());
            let lacking = taking.complete(device.is_compliant.load(Ordering::Relaxed));
            if lacking > 0 {
                device.lacking.fetch_add(lacking, Ordering::Relaxed);
            }
            progress
        };
        let theirs = |done: u16| {
            // SAFETY: `done` is at most `count`.
            let rest = unsafe { packets.add(done.into()) };
            let rest_count = count - done;
            // SAFETY: the rest of the caller's array.
            let moved = unsafe {
                (functions.rte_vhost_dequeue_burst)(number, index, pool, rest, rest_count)
            };
            let forwards = device.rings.get(usize::from(index)).map(|ring| &ring.forwards);
            if moved > 0 && forwards.is_some_and(|it| it.load(Ordering::Relaxed) > 0) {
                // SAFETY: DPDK has put a packet at the first place.
                let first = unsafe { *rest };
                // SAFETY: DPDK's packets are valid.
                if unsafe { mbuf::is_announcement(first) } {
                    device.forward(0);
                }
            }
            moved
        };
        // SAFETY: the first packets of the array are valid once `ours` has put them there.
        unsafe { self.run(count, packets, ours, theirs) }
    }

    /// Runs a burst: `ours` first, if the ring is this library's, then `theirs` behind a number
    /// of packets.
    ///
    /// # Safety
    /// `packets` holds as many valid packets as `ours` returns.
    #[inline]
    unsafe fn run(
        self,
        count: u16,
        packets: *mut *mut Mbuf,
        ours: impl FnOnce(&mut DeviceRing<Regions>) -> Progress,
        theirs: impl FnOnce(u16) -> u16,
    ) -> u16 {
        let Some(ring) = self.device.rings.get(usize::from(self.index)) else { return theirs(0) };
        if !self.device.takes_turns {
            // SAFETY: the caller's promise.
            return unsafe { self.enter(ring, count, packets, ours, theirs) };
        }
        let all = &turns::PROCESS;
        let moved = if all.at(turns::since_start()) == Side::Theirs {
            Self::pass(ring, theirs)
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.enter(ring, count, packets, ours, theirs) }
        };
        all.count(moved);
        moved
    }

    /// A burst in DPDK's turn, whose packets are neither served nor handed over.
    #[inline]
    fn pass(ring: &Ring, theirs: impl FnOnce(u16) -> u16) -> u16 {
        if ring.gate.enter() == Side::Ours {
            ring.gate.hand_over();
        }
        let moved = theirs(0);
        ring.gate.leave(Side::Theirs);
        moved
    }

    /// [`run`](Self::run) on a ring, whatever the turn.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline]
    unsafe fn enter(
        self,
        ring: &Ring,
        count: u16,
        packets: *mut *mut Mbuf,
        ours: impl FnOnce(&mut DeviceRing<Regions>) -> Progress,
        theirs: impl FnOnce(u16) -> u16,
    ) -> u16 {
        if ring.gate.enter() == Side::Theirs {
            let moved = theirs(0);
            ring.gate.leave(Side::Theirs);
            return handed(ring, moved);
        }
        let (progress, published) = self.serve(ring, ours);
        let done = progress.packets.min(count.into()) as u16;
        if done > 0 {
            add(&ring.served, done.into());
            if self.device.has_statistics.load(Ordering::Relaxed) {
                // SAFETY: the caller's promise.
                let served = unsafe { slice(packets, done) };
                // SAFETY: as above; a served packet has a header of Ethernet, or more bytes in its
                // buffer.
                let sized = |packet: &*mut Mbuf| unsafe { mbuf::size_and_target(*packet) };
                ring.statistics.count(served.iter().map(sized));
            }
        }
        // After the statistics, so that the check waits less for what was published.
        if published.is_some_and(|own| own.may_want_call()) {
            self.call(ring);
        }
        if !progress.is_stopped || done == count {
            ring.gate.leave(Side::Ours);
            return done;
        }
        ring.gate.hand_over();
        let moved = theirs(done);
        ring.gate.leave(Side::Theirs);
        done + handed(ring, moved)
    }

    /// The part of this library: goes on at DPDK's progress, and sets it. Also returns the ring if
    /// something was published, for which the guest may want a call.
    #[inline]
    fn serve(
        self,
        ring: &Ring,
        ours: impl FnOnce(&mut DeviceRing<Regions>) -> Progress,
    ) -> (Progress, Option<&DeviceRing<Regions>>) {
        let forwards = ring.forwards.load(Ordering::Relaxed);
        if forwards > 0 {
            ring.forwards.store(forwards - 1, Ordering::Relaxed);
            return (STOPPED, None);
        }
        let Self { functions, number, index, .. } = self;
        // SAFETY: this burst is inside the open gate.
        let Some(own) = (unsafe { ring.ring() }) else { return (STOPPED, None) };
        let (mut available, mut used) = (0, 0);
        // SAFETY: writes two words; the ring exists while the gate is open.
        let result = unsafe {
            (functions.rte_vhost_get_vring_base)(number, index, &raw mut available, &raw mut used)
        };
        // A ring in which DPDK holds chains that it has not used yet is DPDK's.
        if result != 0 || available != used || !own.resume(available) {
            return (STOPPED, None);
        }
        let progress = ours(own);
        let Some(next) = own.publish() else { return (progress, None) };
        // SAFETY: sets two words of the ring, which exists while the gate is open.
        unsafe { (functions.rte_vhost_set_vring_base)(number, index, next, next) };
        (progress, Some(own))
    }

    /// Calls the guest if it wants a call. The call takes DPDK's lock of the ring. If another
    /// thread holds the lock, the call is left to the next dequeue: the holder may be handling a
    /// message and wait for this burst.
    fn call(self, ring: &Ring) {
        // SAFETY: the ring exists while the gate is open.
        let result =
            unsafe { (self.functions.rte_vhost_vring_call_nonblock)(self.number, self.index) };
        if result == -libc::EAGAIN {
            ring.owes_call.store(true, Ordering::Relaxed);
            self.device.owes_calls.store(true, Ordering::Relaxed);
        }
    }

    /// Calls the guest for bursts that could not.
    #[cold]
    fn pay_calls(self) {
        self.device.owes_calls.store(false, Ordering::Relaxed);
        for (index, ring) in self.device.rings.iter().enumerate() {
            if !ring.owes_call.load(Ordering::Relaxed) {
                continue;
            }
            let side = ring.gate.enter();
            if side == Side::Ours {
                ring.owes_call.store(false, Ordering::Relaxed);
                Self { index: index as u16, ..self }.call(ring);
            } else {
                self.device.owes_calls.store(true, Ordering::Relaxed);
            }
            ring.gate.leave(side);
        }
    }
}

#[inline]
fn handed(ring: &Ring, moved: u16) -> u16 {
    if moved > 0 {
        ring.handed.fetch_add(moved.into(), Ordering::Relaxed);
    }
    moved
}

/// An array of a program, which may be NULL if it is empty.
///
/// # Safety
/// The array has `count` places, which only this call uses.
#[inline]
unsafe fn slice<'a>(packets: *mut *mut Mbuf, count: u16) -> &'a mut [*mut Mbuf] {
    if count == 0 || packets.is_null() {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(packets, count.into()) }
}
