//! The counters of one queue in one direction.
//!
//! One thread polls a queue, so one thread writes its counters: no counter is ever locked or
//! exchanged. A burst costs one load and store of the counter of its size, and a look at one word
//! of a cache line that is there already, which that of empty polls is in as well. Whatever costs
//! more (the clock, the packets' sizes) is done for one burst in [`PERIOD`].
//!
//! ```text
//! count(burst):  counters[size] += 1
//!                if that is a multiple of 128, or something is wanted: rare(burst)
//! rare(burst):   sizes of this burst and the time to the next one; a wanted copy of all counters
//! read():        two equal reads of all counters -> they were so between the two
//!                else the thread is busy: ask it for a copy, which it makes between two bursts
//! ```
//!
//! A reader thus gets all counters of one moment, and sums of them agree. Tried and lost: a
//! sequence number around each burst, which a reader of 500 counters never finds unchanged while
//! empty polls come every 20 ns; totals beside the counters, one more store a burst that the sum
//! over the counters gives for nothing; a countdown to the next sample (1 ns of an empty poll).

use core::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;
use crate::dpdk::Mbuf;

/// The largest burst with a counter of its own; larger than testpmd's (MAX_PKT_BURST) and than
/// those of the programs that we know.
pub(crate) const BATCH_MAX: usize = 512;
/// Bursts above [`BATCH_MAX`].
pub(crate) const LARGER: usize = BATCH_MAX + 1;
/// Their packets.
pub(crate) const LARGER_PACKETS: usize = LARGER + 1;
/// Packets whose sizes were added to [`BYTES`].
pub(crate) const PACKETS_SIZED: usize = LARGER_PACKETS + 1;
pub(crate) const BYTES: usize = PACKETS_SIZED + 1;
/// Cycles from a burst to the next, where that was taken.
pub(crate) const GAP_CYCLES: usize = BYTES + 1;
/// How often it was taken, by the number of bits of the cycles: [`GAPS`] of them from here on.
pub(crate) const FIRST_GAP: usize = GAP_CYCLES + 1;
pub(crate) const GAPS: usize = 65;
pub(crate) const WORDS: usize = FIRST_GAP + GAPS;

/// One burst in these many of its size is a sample: 3 reads of the clock, some 30 ns, are 0.2 ns a
/// burst then. Its size's own counter tells, so that nothing more is counted, and each size is
/// sampled as often as it comes.
const PERIOD: u64 = 128;

/// How long the polling thread is given to answer; it polls every microsecond or so, or it is idle
/// and two reads agree.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks at its answer.
const NAP: Duration = Duration::from_micros(20);
/// How many looks before two reads are compared again: the thread may have gone idle.
const LOOKS: u32 = 50;

/// The next burst ends a gap, or every burst is a sample. The polling thread's own bit.
const OPEN: u32 = 1;
/// The other bits: how far a copy is.
const COPY: u32 = !OPEN;
/// Nobody wants a copy.
const IDLE: u32 = 0;
/// A reader wants one.
const WANTED: u32 = 2;
/// The polling thread makes it.
const COPYING: u32 = 4;
/// It is there.
const THERE: u32 = 6;

/// All counters at one moment.
pub(crate) type Counters = Box<[u64; WORDS]>;

/// See the module.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// When the burst before this one was, where that was a sample; else 0. The polling thread's
    /// alone.
    last: AtomicU64,
    /// Whether a burst is one of the rare ones: [`OPEN`], and how far a copy is. One word, so that
    /// a burst looks at one. SYNC: copy of a slot.
    state: AtomicU32,
    /// Whether every packet's size is added, not those of samples alone; every burst is a sample
    /// then.
    is_exact: bool,
    counters: [AtomicU64; WORDS],
    copy: [AtomicU64; WORDS],
    /// When it was made.
    pub(crate) since: u64,
    /// One reader at a time.
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

    /// Counts a burst; called by the thread that polls the queue.
    ///
    /// # Safety
    /// `packets` points to `count` pointers to packets, all valid for reads.
    ///
    /// Returns `count`, and ends in the rare path where it takes that: so nothing is kept on the
    /// stack for it.
    #[inline]
    unsafe fn count(&self, packets: *const *const Mbuf, count: u16) -> u16 {
        if usize::from(count) > BATCH_MAX {
            // SAFETY: the caller's promise.
            return unsafe { self.larger(packets, count) };
        }
        let is_sample = self.add(usize::from(count), 1).is_multiple_of(PERIOD);
        // SYNC: copy of a slot. Relaxed: the rare path looks again.
        if is_sample || self.state.load(Ordering::Relaxed) != IDLE {
            // SAFETY: the caller's promise.
            return unsafe { self.rare(is_sample, packets, count) };
        }
        count
    }

    #[cold]
    #[inline(never)]
    unsafe fn larger(&self, packets: *const *const Mbuf, count: u16) -> u16 {
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
        self.copy_if_wanted();
        if is_sample || self.is_exact {
            self.state.fetch_or(OPEN, Ordering::Relaxed);
            // Last, so that the gap holds little of this function. 0 means none.
            self.last.store(clock::cycles().max(1), Ordering::Relaxed);
        }
        // A compiler that knew that it is the argument would keep that on the stack of every burst.
        core::hint::black_box(count)
    }

    /// How far a copy is.
    fn copying(&self) -> u32 {
        self.state.load(Ordering::Acquire) & COPY
    }

    /// Goes from one state of the copy to another; false where it is in none of the first.
    fn go(&self, from: u32, to: u32) -> bool {
        let next = |state: u32| (state & COPY == from).then_some(state & OPEN | to);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).is_ok()
    }

    /// Only the polling thread writes, so that a load and a store are enough. The new value.
    #[inline]
    fn add(&self, word: usize, more: u64) -> u64 {
        let counter = &self.counters[word];
        let sum = counter.load(Ordering::Relaxed).wrapping_add(more);
        // Release: who reads two counters sees none of a later burst without all of an earlier one.
        counter.store(sum, Ordering::Release);
        sum
    }

    fn copy_if_wanted(&self) {
        // SYNC: copy of a slot. An exchange: where a program breaks DPDK's rule and two threads are
        // here at once, one of them makes the copy.
        if self.go(WANTED, COPYING) {
            for (copy, counter) in self.copy.iter().zip(&self.counters) {
                copy.store(counter.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.go(COPYING, THERE);
        }
    }

    /// All counters of one moment; `None` where the polling thread neither rests nor answers, which
    /// a thread does that is stopped in the midst of a copy.
    ///
    /// Cost: some microseconds, and up to [`PATIENCE`].
    pub(crate) fn read(&self) -> Option<Counters> {
        let _turn = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + PATIENCE;
        loop {
            // SYNC: copy of a slot. A copy that an earlier reader did not wait for is dropped.
            self.go(THERE, IDLE);
            if let Some(counters) = self.at_rest() {
                return Some(counters);
            }
            self.go(IDLE, WANTED);
            for _ in 0..LOOKS {
                if self.copying() == THERE {
                    let counters = read(&self.copy);
                    self.go(THERE, IDLE);
                    return Some(counters);
                }
                std::thread::sleep(NAP);
            }
            self.go(WANTED, IDLE);
            if Instant::now() >= end {
                return None;
            }
        }
    }

    /// The counters, where two reads of them are equal: they only grow, so that all had these
    /// values from the end of the first read to the beginning of the second.
    fn at_rest(&self) -> Option<Counters> {
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

/// Bytes of all packets of a burst.
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

/// What DPDK calls after each receive burst, empty ones too; `slot` is a [`Slot`].
pub(crate) unsafe extern "C" fn received(
    _port: u16,
    _queue: u16,
    packets: *const *const Mbuf,
    count: u16,
    _most: u16,
    slot: *mut c_void,
) -> u16 {
    // SAFETY: it was given with this function, and lives until the callback was taken off and every
    // thread has left it.
    let slot = unsafe { &*slot.cast_const().cast::<Slot>() };
    // SAFETY: DPDK gives as many packets as it says.
    unsafe { slot.count(packets, count) }
}

/// What DPDK calls before each transmit burst, with the packets that the program wants sent.
pub(crate) unsafe extern "C" fn sending(
    _port: u16,
    _queue: u16,
    packets: *const *const Mbuf,
    count: u16,
    slot: *mut c_void,
) -> u16 {
    // SAFETY: it was given with this function, and lives until the callback was taken off and every
    // thread has left it.
    let slot = unsafe { &*slot.cast_const().cast::<Slot>() };
    // SAFETY: the program gives as many packets as it says, as DPDK's driver relies on as well.
    unsafe { slot.count(packets, count) }
}

/// Counts nothing: what DPDK itself takes to call a callback after a receive burst.
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

/// The same before a transmit burst.
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

    /// What any counters at one moment have in common.
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
        // SAFETY: as many pointers to a live packet as are said.
        assert_eq!(unsafe { slot.count(packets.as_ptr(), count) }, count);
    }

    #[test]
    fn every_burst_is_counted_in_its_size() {
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
    fn samples_are_one_burst_in_a_period() {
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
    fn what_is_read_is_of_one_moment_while_bursts_go_on() {
        let (slot, stop) = (Slot::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Sizes 1, 2, ..., 8, 1, ...: at every moment sizes differ by one burst at most.
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
        let counters = slot.read().expect("nobody writes any more");
        assert_eq!(packets(&counters), polls(&counters) / 8 * 36);
    }
}
