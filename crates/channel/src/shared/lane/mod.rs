//! One direction of a channel as one of its ends sees it: the words, slots and cells of the shared
//! memory, and the bells.

mod users;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use haul_heap::guard;
use rustix::io::Errno;
use rustix::thread::{Timespec, futex};

use super::affinity::Affinity;
use super::bell::{self, ASLEEP, POLLING};
use super::cpu::Cpu;
use super::distance::Distance;
use super::header::{Header, SUM_AT, SumState};
use super::link::{Half, Link};
use super::message::Message;
use super::turns::Turns;
use super::words::{Flags, Word};
use super::{closing, idle, layout, ticks};
use haul_peer::fork;
use haul_peer::life::Life;
use haul_peer::socket;

/// The offsets of the words in which an end publishes its state.
#[derive(Clone, Copy, Debug)]
struct Words {
    /// The bell on which the end sleeps.
    bell: usize,
    /// The processors on which the end may run.
    affinity: usize,
    /// The processor on which the end runs.
    cpu: usize,
}

const SENDER: Words =
    Words { bell: layout::SENDER_BELL, affinity: layout::SENDER_AFFINITY, cpu: layout::SENDER_CPU };
const RECEIVER: Words = Words {
    bell: layout::RECEIVER_BELL,
    affinity: layout::RECEIVER_AFFINITY,
    cpu: layout::RECEIVER_CPU,
};

/// One direction of a channel, seen by one end of it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) link: Arc<Link>,
    /// 0: from the connecting end; 1: to the connecting end.
    index: usize,
    half: Half,
    /// The number of forks noticed at the last call, and whether a fork happened since the
    /// handshake.
    forks: u64,
    has_copies: bool,
    /// Shared with the copies of this half in other processes.
    life: Option<Life>,
    /// The time of the last check whether the peer lives, in ticks.
    checked: u64,
    /// The words of this end and of the other end.
    own: Words,
    other: Words,
    /// The affinity that this end last published, and the time of its publication, see `idle`.
    affinity: Affinity,
    refreshed: u64,
    /// Whether both ends ran on one processor at the last check.
    was_on_same_cpu: bool,
    turns: Turns,
    /// Whether both ends share the only processor that they may run on.
    has_one_cpu: bool,
    /// System calls made so far.
    pub(crate) system_calls: u64,
    /// How often this end slept or yielded until the other end moved bytes.
    pub(crate) sleeps: u64,
    /// The distance of the other end's cache.
    pub(crate) distance: Distance,
}

impl Lane {
    pub(crate) fn for_sending(link: Arc<Link>, index: usize, life: Life) -> Self {
        Self::new(link, (index, Half::Sending), [SENDER, RECEIVER], life)
    }

    pub(crate) fn for_receiving(link: Arc<Link>, index: usize, life: Life) -> Self {
        Self::new(link, (index, Half::Receiving), [RECEIVER, SENDER], life)
    }

    fn new(
        link: Arc<Link>,
        (index, half): (usize, Half),
        [own, other]: [Words; 2],
        life: Life,
    ) -> Self {
        let mut lane = Self {
            link,
            index,
            half,
            forks: fork::forks(),
            has_copies: false,
            life: Some(life),
            checked: ticks::now(),
            own,
            other,
            affinity: Affinity::default(),
            refreshed: 0,
            was_on_same_cpu: false,
            turns: Turns::default(),
            has_one_cpu: idle::is_single(),
            system_calls: 0,
            sleeps: 0,
            distance: Distance::default(),
        };
        lane.refresh_affinity();
        lane
    }

    /// Whether both ends shared the only processor that they may run on at the last check.
    pub(crate) fn has_one_cpu(&self) -> bool {
        self.has_one_cpu
    }

    /// Publishes the processors that this end may run on and reads the other end's processors, at
    /// most every 10 ms: a program may pin its threads before the handshake or afterwards.
    pub(crate) fn refresh_affinity(&mut self) {
        let now = idle::now();
        if !idle::is_due(now, self.refreshed) {
            return;
        }
        self.refreshed = now;
        // The program may have set its own handler for SIGBUS since the last call. If the kernel
        // refuses, a later call tries again.
        let _ = guard::install();
        self.system_calls += 3;
        let affinity = Affinity::of_this_thread();
        if affinity != self.affinity {
            self.affinity = affinity;
            // A hint: nothing else depends on it.
            self.word(self.own.affinity).store(affinity.word(), Relaxed);
        }
        let other = Affinity::from_word(self.word(self.other.affinity).load(Relaxed));
        self.has_one_cpu = idle::is_single() || affinity.is_the_one_of(other);
    }

    /// Publishes the processor that this end runs on, in both directions unless the channel is
    /// split into two threads. Returns whether the other end last published the same processor.
    pub(crate) fn update_same_cpu(&mut self) -> bool {
        let cpu = Cpu::of_this_thread();
        self.publish_cpu(cpu);
        let other = Cpu::from_word(self.word(self.other.cpu).load(Relaxed));
        self.was_on_same_cpu = cpu.is_the_one_of(other);
        self.was_on_same_cpu
    }

    /// The result of the last [`update_same_cpu`](Self::update_same_cpu).
    pub(crate) fn was_on_same_cpu(&self) -> bool {
        self.was_on_same_cpu
    }

    fn publish_cpu(&self, cpu: Cpu) {
        let own = self.word(self.own.cpu);
        // Written only when the value changes, because the other end reads this line at each
        // step.
        if own.load(Relaxed) != cpu.word() {
            own.store(cpu.word(), Relaxed);
            if !self.link.is_split.load(Relaxed) {
                let back = layout::words_start(1 - self.index) + self.other.cpu;
                self.link.region.word64(back).store(cpu.word(), Relaxed);
            }
        }
    }

    /// Whether this end, which waits, should yield to the other end. This end has already yielded
    /// `before` times in this wait.
    pub(crate) fn may_give_way(&mut self, before: u32) -> bool {
        self.update_same_cpu() && self.turns.may(Instant::now(), before == 0)
    }

    /// Yields to the other end, which is on the same processor.
    pub(crate) fn give_way(&mut self) {
        let start = Instant::now();
        std::thread::yield_now();
        self.turns.note(start, start.elapsed());
        self.system_calls += 1;
        self.sleeps += 1;
    }

    /// Reads a word of the other end once.
    pub(crate) fn load(&self, word: usize) -> u64 {
        // SYNC: word published.
        self.word(word).get()
    }

    /// Whether a word of the other end names this message.
    pub(crate) fn names(&self, word: usize, message: Message) -> bool {
        self.load(word) == message.count()
    }

    /// Whether the receiver has reported that it cannot receive all of a message by its first
    /// mechanism.
    pub(crate) fn is_refused(&self, message: Message) -> bool {
        self.names(layout::REFUSED, message)
    }

    /// Reads a word of the other end once and measures the distance of the other end. The word's
    /// last value was `known`.
    pub(crate) fn load_timed(&mut self, word: usize, known: u64) -> u64 {
        let mut distance = self.distance;
        let value = distance.timed(known, || self.load(word));
        self.distance = distance;
        value
    }

    /// A word of this direction.
    pub(crate) fn word(&self, word: usize) -> &AtomicU64 {
        self.link.region.word64(layout::words_start(self.index) + word)
    }

    /// Writes a word of this end, and wakes the other end if it sleeps.
    pub(crate) fn signal(&mut self, word: usize, value: u64) {
        // SYNC: word published: an end that reads the value also sees everything written before.
        self.word(word).put(value);
        self.ring_bell();
    }

    /// Like [`signal`](Self::signal). But if both ends share a processor and this end continues
    /// immediately, it does not wake the other end yet: otherwise the ends would alternate at
    /// each piece.
    pub(crate) fn signal_lazily(&mut self, word: usize, value: u64, goes_on: bool) {
        match goes_on && self.was_on_same_cpu {
            true => self.store(word, value),
            false => self.signal(word, value),
        }
    }

    /// Writes a word of this end without a wake-up: a later [`signal`](Self::signal) wakes the
    /// other end.
    pub(crate) fn store(&self, word: usize, value: u64) {
        // SYNC: word published.
        self.word(word).put(value);
    }

    /// Writes a message's header into its slot.
    pub(crate) fn put_header(&self, header: Header) {
        let words = self.link.region.line(self.slot(Message::after(header.message)));
        for (location, word) in words.iter().zip(header.words()) {
            location.store(word, Relaxed);
        }
    }

    /// Reads the header in a message's slot: each word once.
    pub(crate) fn header(&self, message: Message) -> Header {
        let words = self.link.region.line(self.slot(message));
        Header::from_words(words.each_ref().map(|word| word.load(Relaxed)))
    }

    /// Writes the checksum of a message into its slot, if it is known.
    pub(crate) fn put_sum(&self, message: Message, sum: SumState) {
        if let SumState::Known(_) = sum {
            let at = self.slot(message) + SUM_AT;
            let [state, plain, weighted] = sum.words();
            self.link.region.word64(at + 8).store(plain, Relaxed);
            self.link.region.word64(at + 16).store(weighted, Relaxed);
            // SYNC: sum published.
            self.link.region.word64(at).put(state);
        }
    }

    /// The checksum of a message, if it is published.
    pub(crate) fn sum(&self, message: Message) -> SumState {
        let at = self.slot(message) + SUM_AT;
        // SYNC: sum published.
        let state = self.link.region.word64(at).get();
        let words = [8, 16].map(|within| self.link.region.word64(at + within).load(Relaxed));
        SumState::from_words([state, words[0], words[1]])
    }

    pub(crate) fn state(&self, word: usize) -> u32 {
        self.state_word(word).get()
    }

    /// The word with the state of an end, see `closing`.
    pub(crate) fn state_word(&self, word: usize) -> &AtomicU32 {
        self.link.region.word32(layout::words_start(self.index) + word)
    }

    /// Publishes that this end is closed, or gave up. The other end sees this before the effects
    /// of any later operation of this thread.
    pub(crate) fn set_state(&mut self, word: usize, state: u32) {
        closing::publish(self.state_word(word), state);
        self.ring_bell();
    }

    pub(crate) fn slot(&self, message: Message) -> usize {
        layout::slot_start(self.index, message.index())
    }

    /// The offset of a ring cell, which is counted over the life of the channel.
    pub(crate) fn cell(&self, cell: u64) -> usize {
        let index = (cell % self.cells()) as usize;
        self.chunks() + index * layout::CELL_BYTES
    }

    /// Number of cells of the ring.
    pub(crate) fn cells(&self) -> u64 {
        layout::cells(self.link.chunk_bytes)
    }

    /// The offset of the chunks of this direction.
    pub(crate) fn chunks(&self) -> usize {
        layout::chunks_start(self.index, self.link.chunk_bytes)
    }

    /// Wakes the other end if it sleeps.
    #[inline]
    pub(crate) fn ring_bell(&mut self) {
        let at = layout::words_start(self.index) + self.other.bell;
        let sleeps = bell::sleep_state(self.link.region.word32(at + 4));
        if sleeps != 0 {
            self.wake(sleeps);
        }
    }

    #[cold]
    fn wake(&mut self, sleeps: u32) {
        let at = layout::words_start(self.index) + self.other.bell;
        let (word, how) = (self.link.region.word32(at), self.link.region.word32(at + 4));
        self.publish_cpu(Cpu::of_this_thread());
        if sleeps & ASLEEP != 0 {
            bell::ring(word, how);
            let _ = futex::wake(word, futex::Flags::empty(), 1);
            self.system_calls += 1;
        }
        if sleeps & POLLING != 0 {
            how.clear(POLLING);
            socket::nudge(&self.link.socket);
            self.system_calls += 1;
        }
    }

    /// Announces that this end is about to sleep. The caller must poll once more before it sleeps.
    pub(crate) fn announce(&self, way: u32) -> u32 {
        let at = layout::words_start(self.index) + self.own.bell;
        bell::announce(self.link.region.word32(at), self.link.region.word32(at + 4), way)
    }

    /// Sleeps until the bell, whose value was `seen`, rings, at most for `time`. Returns false if
    /// the time ended.
    pub(crate) fn sleep(&mut self, seen: u32, time: Duration) -> bool {
        let bell = layout::words_start(self.index) + self.own.bell;
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let word = self.link.region.word32(bell);
        // Woken, interrupted, already rung or timed out: in each case the caller polls again.
        let result = futex::wait(word, futex::Flags::empty(), seen, Some(&time));
        self.system_calls += 1;
        self.sleeps += 1;
        result != Err(Errno::TIMEDOUT)
    }

    /// Marks that this end has work left in this direction that no event of the peer signals; see
    /// [`Poller`](haul_peer::poller::Poller).
    pub(crate) fn set_pending(&self) -> bool {
        self.link.poller.set_pending(self.index)
    }

    /// Clears the mark of [`set_pending`](Self::set_pending).
    pub(crate) fn clear_pending(&self) {
        self.link.poller.clear_pending(self.index);
    }

    /// Makes the event of the engine's copies unreadable, before a call that does not wait.
    pub(crate) fn clear_copied(&self) {
        if let Some(beside) = &self.link.beside {
            match self.half {
                Half::Sending => beside.clear_for_sender(),
                Half::Receiving => beside.clear_for_receiver(),
            }
        }
    }
}
