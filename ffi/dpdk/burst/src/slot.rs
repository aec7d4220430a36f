//! The counters of one queue in one direction.
//!
//! One thread polls a queue, so only one thread writes its counters, without locks or exchanges.
//! A burst costs a load and a store of its size's counter, and a load of one word. The word's
//! line is in the cache already, because it also contains the counter of empty polls. The costly
//! work (the clock, the packets' sizes) is done for one burst in [`PERIOD`].
//!
//! ```text
//! count(burst):  counters[size] += 1
//!                if that is a multiple of 128, or a copy is requested: rare(burst)
//! rare(burst):   sizes of this burst, the time to the next, a requested copy of all counters
//! read():        if two reads of all counters are equal, they had these values between the two
//!                else the thread is busy: request a copy, which it makes between two bursts
//! ```
//!
//! A reader therefore gets all counters of one moment, and their sums agree. Tried without
//! success: a sequence number around each burst, which a reader of 500 counters never finds
//! unchanged while an empty poll takes 20 ns; totals in addition to the counters, which cost one
//! more store per burst although they are the sum of the counters; a countdown to the next sample
//! (1 ns of an empty poll).

use core::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;
use crate::dpdk::Mbuf;

/// The largest burst that has a separate counter. This size is larger than the bursts of testpmd
/// (MAX_PKT_BURST) and of other known programs.
pub(crate) const BATCH_MAX: usize = 512;
/// The counter of bursts of more than [`BATCH_MAX`] packets.
pub(crate) const LARGER: usize = BATCH_MAX + 1;
/// The counter of the packets in those bursts.
pub(crate) const LARGER_PACKETS: usize = LARGER + 1;
/// The counter of packets whose sizes were added to [`BYTES`].
pub(crate) const PACKETS_SIZED: usize = LARGER_PACKETS + 1;
pub(crate) const BYTES: usize = PACKETS_SIZED + 1;
/// The sum of the cycles from each sampled burst to the next burst.
pub(crate) const GAP_CYCLES: usize = BYTES + 1;
/// The first of [`GAPS`] counters of gaps: one per number of bits in a gap's cycle count.
pub(crate) const FIRST_GAP: usize = GAP_CYCLES + 1;
pub(crate) const GAPS: usize = 65;
pub(crate) const WORDS: usize = FIRST_GAP + GAPS;

/// Of this many bursts of one size, one is a sample. The 3 reads of the clock, some 30 ns, then
/// cost 0.2 ns per burst. The counter of the size decides, so that no other counter is needed and
/// each size is sampled in proportion.
const PERIOD: u64 = 128;

/// How long a reader waits for the polling thread. The polling thread polls about every
/// microsecond; if the thread is idle instead, two reads agree.
const PATIENCE: Duration = Duration::from_millis(500);
/// The time between two checks whether the copy is complete.
const PAUSE: Duration = Duration::from_micros(20);
/// The number of checks before two reads are compared again, because the thread may have become
/// idle.
const CHECKS: u32 = 50;

/// The next burst ends a gap, or every burst is a sample. Only the polling thread writes this bit.
const OPEN: u32 = 1;
/// All bits except [`OPEN`]: the state of a copy.
const COPY: u32 = !OPEN;
/// No reader requests a copy.
const IDLE: u32 = 0;
/// A reader requests a copy.
const REQUESTED: u32 = 2;
/// The polling thread makes the copy.
const COPYING: u32 = 4;
/// The copy is complete.
const COMPLETE: u32 = 6;

/// All counters at one moment.
pub(crate) type Counters = Box<[u64; WORDS]>;

/// The counters of one queue in one direction, see the module.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// The time of the previous burst if that was a sample, else 0. Only the polling thread uses
    /// this field.
    last: AtomicU64,
    /// [`OPEN`] and the state of a copy, in one word, so that a burst loads only one word. If the
    /// word is not zero, the burst takes the rare path. SYNC: copy of a slot.
    state: AtomicU32,
    /// Whether every burst is a sample, so that the size of every packet is added.
    is_exact: bool,
    counters: [AtomicU64; WORDS],
    copy: [AtomicU64; WORDS],
    /// The time at which the slot was created.
    pub(crate) since: u64,
    /// Admits one reader at a time.
    reader: Mutex<()>,
}

impl Slot {
    pub(crate) fn new(is_exact: bool) -> Self {
        Self {
            last: AtomicU64::new(0),
            state: AtomicU32::new(if is_exact { OPEN } else { IDLE }),
            is_exact,
            counters: [const { AtomicU64::new(0) }; WORDS],
            copy: [const { AtomicU64::new(0) }; WORDS],
            since: clock::cycles(),
            reader: Mutex::new(()),
        }
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Counts a burst and returns `count`. Only the thread that polls the queue may call this. The
    /// rare path is a tail call, so that a burst keeps nothing on the stack for it.
    ///
    /// # Safety
    /// `packets` points to `count` pointers to packets, all valid for reads.
    #[inline]
    unsafe fn count(&self, packets: *const *const Mbuf, count: u16) -> u16 {
        if usize::from(count) > BATCH_MAX {
            // SAFETY: the caller's promise.
            return unsafe { self.count_larger(packets, count) };
        }
        let is_sample = self.add(usize::from(count), 1).is_multiple_of(PERIOD);
        // SYNC: copy of a slot. Relaxed: the rare path loads the state again.
        if is_sample || self.state.load(Ordering::Relaxed) != IDLE {
            // SAFETY: the caller's promise.
            return unsafe { self.rare(is_sample, packets, count) };
        }
        count
    }

    #[cold]
    #[inline(never)]
    unsafe fn count_larger(&self, packets: *const *const Mbuf, count: u16) -> u16 {
        let is_sample = self.add(LARGER, 1).is_multiple_of(PERIOD);
        self.add(LARGER_PACKETS, u64::from(count));
        // SAFETY: the caller's promise.
        unsafe { self.rare(is_sample, packets, count) }
    }

    #[cold]
    #[inline(never)]
    unsafe fn rare(&self, is_sample: bool, packets: *const *const Mbuf, count: u16) -> u16 {
        let (now, last) = (clock::cycles(), self.last.load(Ordering::Relaxed));
        if is_sample || self.is_exact {
            // SAFETY: the caller's promise.
            let bytes = unsafe { bytes_of(packets, count) };
            self.add(PACKETS_SIZED, u64::from(count));
            self.add(BYTES, bytes);
        }
        if last > 0 {
            let gap = now.saturating_sub(last);
            self.add(GAP_CYCLES, gap);
            self.add(FIRST_GAP + (u64::BITS - gap.leading_zeros()) as usize, 1);
            self.last.store(0, Ordering::Relaxed);
            if !self.is_exact {
                self.state.fetch_and(!OPEN, Ordering::Relaxed);
            }
        }
        self.copy_if_requested();
        if is_sample || self.is_exact {
            self.state.fetch_or(OPEN, Ordering::Relaxed);
            // The clock is read last, so that the gap contains little of this function. 0 means
            // that there is no sample.
            self.last.store(clock::cycles().max(1), Ordering::Relaxed);
        }
        // If the compiler knew that the result is the argument, it would spill the argument in
        // every burst.
        core::hint::black_box(count)
    }

    /// The state of a copy.
    fn copy_state(&self) -> u32 {
        self.state.load(Ordering::Acquire) & COPY
    }

    /// Changes the state of the copy from `from` to `to`. Returns whether the state was `from`.
    fn change(&self, from: u32, to: u32) -> bool {
        let next = |state: u32| (state & COPY == from).then_some(state & OPEN | to);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).is_ok()
    }

    /// Adds to a counter and returns the new value. Only the polling thread writes counters, so a
    /// load and a store suffice.
    #[inline]
    fn add(&self, word: usize, more: u64) -> u64 {
        let counter = &self.counters[word];
        let sum = counter.load(Ordering::Relaxed).wrapping_add(more);
        // Release: a reader that sees a later burst also sees every counter of an earlier burst.
        counter.store(sum, Ordering::Release);
        sum
    }

    fn copy_if_requested(&self) {
        // SYNC: copy of a slot. The change of state is an exchange, because if a program breaks
        // DPDK's rule and two threads poll one queue, only one of them may make the copy.
        if self.change(REQUESTED, COPYING) {
            for (copy, counter) in self.copy.iter().zip(&self.counters) {
                copy.store(counter.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.change(COPYING, COMPLETE);
        }
    }

    /// All counters of one moment. `None` if the polling thread is not idle and does not answer,
    /// for example because it was stopped in the middle of a copy.
    ///
    /// Cost: some microseconds, and up to [`PATIENCE`].
    pub(crate) fn read(&self) -> Option<Counters> {
        let _turn = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + PATIENCE;
        loop {
            // SYNC: copy of a slot. This exchange drops a copy that an earlier reader did not
            // wait for.
            self.change(COMPLETE, IDLE);
            if let Some(counters) = self.read_idle() {
                return Some(counters);
            }
            self.change(IDLE, REQUESTED);
            for _ in 0..CHECKS {
                if self.copy_state() == COMPLETE {
                    let counters = read(&self.copy);
                    self.change(COMPLETE, IDLE);
                    return Some(counters);
                }
                std::thread::sleep(PAUSE);
            }
            self.change(REQUESTED, IDLE);
            if Instant::now() >= end {
                return None;
            }
        }
    }

    /// The counters, if two reads of them are equal. Counters only grow, so all of them had these
    /// values from the end of the first read to the beginning of the second read.
    fn read_idle(&self) -> Option<Counters> {
        let (first, second) = (read(&self.counters), read(&self.counters));
        (first == second).then_some(second)
    }
}

fn read(words: &[AtomicU64; WORDS]) -> Counters {
    let mut counters = Box::new([0; WORDS]);
    for (counter, word) in counters.iter_mut().zip(words) {
        *counter = word.load(Ordering::Acquire);
    }
    counters
}

/// The number of bytes in all packets of a burst.
///
/// # Safety
/// `packets` points to `count` pointers to packets, all valid for reads.
unsafe fn bytes_of(packets: *const *const Mbuf, count: u16) -> u64 {
    let mut bytes = 0;
    for index in 0..usize::from(count) {
        // SAFETY: within the burst, by the caller's promise.
        let place = unsafe { packets.add(index) };
        // SAFETY: likewise a pointer that may be read.
        let packet = unsafe { place.read() };
        // SAFETY: likewise a packet that may be read.
        bytes += u64::from(unsafe { (*packet).packet_bytes });
    }
    bytes
}

/// DPDK calls this after each receive burst, even if the burst is empty; `slot` is a [`Slot`].
pub(crate) unsafe extern "C" fn received(
    _port: u16,
    _queue: u16,
    packets: *const *const Mbuf,
    count: u16,
    _most: u16,
    slot: *mut c_void,
) -> u16 {
    // SAFETY: the slot was registered with this function, and lives until the callback is removed
    // and every thread has left it.
    let slot = unsafe { &*slot.cast_const().cast::<Slot>() };
    // SAFETY: DPDK passes `count` packets.
    unsafe { slot.count(packets, count) }
}

/// DPDK calls this before each transmit burst, with the packets that the program sends.
pub(crate) unsafe extern "C" fn sending(
    _port: u16,
    _queue: u16,
    packets: *const *const Mbuf,
    count: u16,
    slot: *mut c_void,
) -> u16 {
    // SAFETY: the slot was registered with this function, and lives until the callback is removed
    // and every thread has left it.
    let slot = unsafe { &*slot.cast_const().cast::<Slot>() };
    // SAFETY: the program passes `count` packets, which DPDK's driver requires as well.
    unsafe { slot.count(packets, count) }
}

/// Counts nothing. This callback shows the time that DPDK itself needs to call a callback after a
/// receive burst.
pub(crate) unsafe extern "C" fn nothing_received(
    _port: u16,
    _queue: u16,
    _packets: *const *const Mbuf,
    count: u16,
    _most: u16,
    _slot: *mut c_void,
) -> u16 {
    count
}

/// Counts nothing before a transmit burst.
pub(crate) unsafe extern "C" fn nothing_sending(
    _port: u16,
    _queue: u16,
    _packets: *const *const Mbuf,
    count: u16,
    _slot: *mut c_void,
) -> u16 {
    count
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// The number of all packets. Checks that this number agrees with the other counters of the
    /// moment.
    fn packets(counters: &Counters) -> u64 {
        (0..=BATCH_MAX).map(|size| size as u64 * counters[size]).sum::<u64>()
            + counters[LARGER_PACKETS]
    }

    fn polls(counters: &Counters) -> u64 {
        counters[..=LARGER].iter().sum()
    }

    fn burst(slot: &Slot, count: u16) {
        let packet = Mbuf::of(100);
        let packets = vec![&raw const packet; usize::from(count)];
        // SAFETY: `count` pointers to a live packet.
        assert_eq!(unsafe { slot.count(packets.as_ptr(), count) }, count);
    }

    #[test]
    fn count_increments_counter_of_size() {
        let slot = Slot::new(true);
        for size in [0, 1, 1, 512, 513, 65_535] {
            burst(&slot, size);
        }
        let counters = slot.read().unwrap();
        assert_eq!((counters[0], counters[1], counters[512], counters[LARGER]), (1, 2, 1, 2));
        assert_eq!(packets(&counters), 2 + 512 + 513 + 65_535);
        assert_eq!((counters[PACKETS_SIZED], counters[BYTES]), (packets(&counters), 6_656_200));
    }

    #[test]
    fn slot_samples_one_burst_in_a_period() {
        let slot = Slot::new(false);
        for _ in 0..10 * PERIOD + 1 {
            burst(&slot, 4);
        }
        let counters = slot.read().unwrap();
        let gaps: u64 = counters[FIRST_GAP..].iter().sum();
        assert_eq!(gaps, 10);
        assert_eq!(counters[BYTES], counters[PACKETS_SIZED] * 100);
        assert_eq!(counters[PACKETS_SIZED], 10 * 4);
    }

    #[test]
    fn read_returns_counters_of_one_moment_during_bursts() {
        let (slot, stop) = (Slot::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // The sizes are 1, 2, ..., 8, 1, ..., so their counters differ by at most one at
            // every moment.
            scope.spawn(|| {
                for size in (1..=8).cycle() {
                    burst(&slot, size);
                    if size == 8 && stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let mut before = 0;
            for _ in 0..200 {
                let counters = slot.read().expect("the thread answers");
                let sizes = &counters[1..=8];
                assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
                assert!(sizes[0] - sizes[7] <= 1, "{sizes:?}");
                assert!(polls(&counters) >= before);
                before = polls(&counters);
            }
            stop.store(true, Ordering::Relaxed);
        });
        let counters = slot.read().expect("no thread writes any more");
        assert_eq!(packets(&counters), polls(&counters) / 8 * 36);
    }
}
