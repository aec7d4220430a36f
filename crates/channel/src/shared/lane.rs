//! One direction of a channel as one of its ends sees it: the words, slots and cells of the shared
//! memory, and the bells.

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
use super::error::Error;
use super::header::{Header, SUM_AT, SumState};
use super::link::{Half, Link};
use super::message::Message;
use super::turns::Turns;
use super::words::{Flags, Word};
use super::{closing, idle, layout, ticks};
use haul_peer::fork;
use haul_peer::life::Life;
use haul_peer::process::{Left, Peer};
use haul_peer::socket;

/// Where an end says how it is, among the words of a direction.
#[derive(Clone, Copy, Debug)]
struct Words {
    /// Where it sleeps.
    bell: usize,
    /// Where it may run.
    affinity: usize,
    /// Where it runs.
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
    /// 0: from the one that connected; 1: to it.
    index: usize,
    half: Half,
    /// Forks that had been noticed as it was used last, and whether there was one since the two
    /// ends met.
    forks: u64,
    has_copies: bool,
    /// What the half has in common with its copies in other processes.
    life: Option<Life>,
    /// When it was last asked whether the peer lives, in ticks.
    checked: u64,
    /// What this end says of itself, and what the other one does.
    own: Words,
    other: Words,
    /// Where this end may run, as last said, and when that was, see `idle`.
    affinity: Affinity,
    refreshed: u64,
    /// Both ends ran on one processor, as last seen.
    was_on_same_cpu: bool,
    turns: Turns,
    /// Both ends share the only processor that they may run on.
    has_one_cpu: bool,
    /// System calls made so far.
    pub(crate) system_calls: u64,
    /// How often this end slept, or gave way, until the other moved.
    pub(crate) sleeps: u64,
    /// How far the other end is.
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

    /// Whether both ends share the only processor that they may run on, as last seen.
    pub(crate) fn has_one_cpu(&self) -> bool {
        self.has_one_cpu
    }

    /// Says where this end may run, and sees where the other may, every 10 ms at most: threads are
    /// pinned before they meet and afterwards.
    pub(crate) fn refresh_affinity(&mut self) {
        let now = idle::now();
        if !idle::is_due(now, self.refreshed) {
            return;
        }
        self.refreshed = now;
        // The program may have set a handler of its own for SIGBUS since. What is refused is tried
        // again.
        let _ = guard::install();
        self.system_calls += 3;
        let affinity = Affinity::of_this_thread();
        if affinity != self.affinity {
            self.affinity = affinity;
            // A hint, which nothing else hangs on.
            self.word(self.own.affinity).store(affinity.word(), Relaxed);
        }
        let other = Affinity::from_word(self.word(self.other.affinity).load(Relaxed));
        self.has_one_cpu = idle::is_single() || affinity.is_the_one_of(other);
    }

    /// Says on which processor this end runs, in both directions unless each half of the channel
    /// has a thread of its own; sees whether the other end was on the same one when it last said
    /// so.
    pub(crate) fn update_same_cpu(&mut self) -> bool {
        let cpu = Cpu::of_this_thread();
        self.publish_cpu(cpu);
        let other = Cpu::from_word(self.word(self.other.cpu).load(Relaxed));
        self.was_on_same_cpu = cpu.is_the_one_of(other);
        self.was_on_same_cpu
    }

    /// As last seen.
    pub(crate) fn was_on_same_cpu(&self) -> bool {
        self.was_on_same_cpu
    }

    fn publish_cpu(&self, cpu: Cpu) {
        let own = self.word(self.own.cpu);
        // Written only as it changes: the other end looks at this line at each step.
        if own.load(Relaxed) != cpu.word() {
            own.store(cpu.word(), Relaxed);
            if !self.link.is_split.load(Relaxed) {
                let back = layout::words_start(1 - self.index) + self.other.cpu;
                self.link.region.word64(back).store(cpu.word(), Relaxed);
            }
        }
    }

    /// Whether this end, which waits, should let the other one run, so often in this wait already.
    pub(crate) fn may_give_way(&mut self, before: u32) -> bool {
        self.update_same_cpu() && self.turns.may(Instant::now(), before == 0)
    }

    /// Lets the other end run, which is on the same processor.
    pub(crate) fn give_way(&mut self) {
        let start = Instant::now();
        std::thread::yield_now();
        self.turns.note(start, start.elapsed());
        self.system_calls += 1;
        self.sleeps += 1;
    }

    /// Reads a word of the other end's, once.
    pub(crate) fn load(&self, word: usize) -> u64 {
        // SYNC: word told.
        self.word(word).get()
    }

    /// Whether a word of the other end's names this message.
    pub(crate) fn names(&self, word: usize, message: Message) -> bool {
        self.load(word) == message.count()
    }

    /// Whether the receiver has said that it cannot take all of a message the way it came.
    pub(crate) fn is_refused(&self, message: Message) -> bool {
        self.names(layout::REFUSED, message)
    }

    /// Reads a word of the other end's, once, of which `known` was seen before; sees how far the
    /// other end is.
    pub(crate) fn load_timed(&mut self, word: usize, known: u64) -> u64 {
        let mut distance = self.distance;
        let value = distance.timed(known, || self.load(word));
        self.distance = distance;
        value
    }

    /// A word that both ends change.
    pub(crate) fn word(&self, word: usize) -> &AtomicU64 {
        self.link.region.word64(layout::words_start(self.index) + word)
    }

    /// Writes a word of this end's, and lets the other end know where it sleeps.
    pub(crate) fn signal(&mut self, word: usize, value: u64) {
        // SYNC: word told: everything written before is seen by whoever reads the value.
        self.word(word).put(value);
        self.ring_bell();
    }

    /// As [`tell`](Self::tell); where both ends share a processor and this one goes on at once, the
    /// other end is left asleep until then: woken now it would take turns with this one at each
    /// piece.
    pub(crate) fn signal_lazily(&mut self, word: usize, value: u64, goes_on: bool) {
        match goes_on && self.was_on_same_cpu {
            true => self.store(word, value),
            false => self.signal(word, value),
        }
    }

    /// Writes a word of this end's; another one, told later, wakes who waits for it.
    pub(crate) fn store(&self, word: usize, value: u64) {
        // SYNC: word told.
        self.word(word).put(value);
    }

    /// Writes a message's header into its slot.
    pub(crate) fn put_header(&self, header: Header) {
        let words = self.link.region.line(self.slot(Message::after(header.message)));
        for (location, word) in words.iter().zip(header.words()) {
            location.store(word, Relaxed);
        }
    }

    /// Reads the header in a message's slot, each word of it once.
    pub(crate) fn header(&self, message: Message) -> Header {
        let words = self.link.region.line(self.slot(message));
        Header::from_words(words.each_ref().map(|word| word.load(Relaxed)))
    }

    /// Writes the checksum of a message, if it is known now, into its slot.
    pub(crate) fn put_sum(&self, message: Message, sum: SumState) {
        if let SumState::Known(_) = sum {
            let at = self.slot(message) + SUM_AT;
            let [state, plain, weighted] = sum.words();
            self.link.region.word64(at + 8).store(plain, Relaxed);
            self.link.region.word64(at + 16).store(weighted, Relaxed);
            // SYNC: sum told.
            self.link.region.word64(at).put(state);
        }
    }

    /// The checksum of a message, if it is known by now.
    pub(crate) fn sum(&self, message: Message) -> SumState {
        let at = self.slot(message) + SUM_AT;
        // SYNC: sum told.
        let state = self.link.region.word64(at).get();
        let words = [8, 16].map(|within| self.link.region.word64(at + within).load(Relaxed));
        SumState::from_words([state, words[0], words[1]])
    }

    pub(crate) fn state(&self, word: usize) -> u32 {
        self.state_word(word).get()
    }

    /// Whether an end is closed, see `closing`.
    pub(crate) fn state_word(&self, word: usize) -> &AtomicU32 {
        self.link.region.word32(layout::words_start(self.index) + word)
    }

    /// Says that this end is done, or gave up; before anything that follows it in this thread.
    pub(crate) fn set_state(&mut self, word: usize, state: u32) {
        closing::publish(self.state_word(word), state);
        self.ring_bell();
    }

    pub(crate) fn slot(&self, message: Message) -> usize {
        layout::slot_start(self.index, message.index())
    }

    /// Where a cell of the ring stands, counted over the life of the channel.
    pub(crate) fn cell(&self, cell: u64) -> usize {
        let index = (cell % self.cells()) as usize;
        self.chunks() + index * layout::CELL_BYTES
    }

    /// Cells of the ring.
    pub(crate) fn cells(&self) -> u64 {
        layout::cells(self.link.chunk_bytes)
    }

    /// Where the chunks of this direction begin.
    pub(crate) fn chunks(&self) -> usize {
        layout::chunks_start(self.index, self.link.chunk_bytes)
    }

    /// Wakes the other end where it sleeps.
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

    /// Announces that this end is about to sleep; it must look once more before it does.
    pub(crate) fn announce(&self, way: u32) -> u32 {
        let at = layout::words_start(self.index) + self.own.bell;
        bell::announce(self.link.region.word32(at), self.link.region.word32(at + 4), way)
    }

    /// Sleeps until the bell that showed `seen` rings, or for so long: false where it is known that
    /// nobody rang.
    pub(crate) fn sleep(&mut self, seen: u32, time: Duration) -> bool {
        let bell = layout::words_start(self.index) + self.own.bell;
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let word = self.link.region.word32(bell);
        // Woken, interrupted, too late or over: in each case the caller looks again.
        let result = futex::wait(word, futex::Flags::empty(), seen, Some(&time));
        self.system_calls += 1;
        self.sleeps += 1;
        result != Err(Errno::TIMEDOUT)
    }

    /// Says that this end has something to do in this direction without being told; see
    /// [`Poller::set_pending`].
    pub(crate) fn set_pending(&self) -> bool {
        self.link.poller.set_pending(self.index)
    }

    /// What was left in this direction is looked at now.
    pub(crate) fn clear_pending(&self) {
        self.link.poller.clear_pending(self.index);
    }

    /// A call to this half begins. The first one after a fork takes the half over from the process
    /// that used it, if nothing has happened to it since, as `is_current` says; true where it did.
    ///
    /// # Errors
    /// [`Error::TakenOver`], [`Error::System`], [`Error::Broken`].
    #[inline]
    pub(crate) fn enter(&mut self, is_current: impl FnOnce(&Self) -> bool) -> Result<bool, Error> {
        let is_new = if self.has_copies || self.forks != fork::forks() {
            self.enter_a_copy(is_current)?
        } else {
            false
        };
        self.link.check_whole()?;
        Ok(is_new)
    }

    #[cold]
    fn enter_a_copy(&mut self, is_current: impl FnOnce(&Self) -> bool) -> Result<bool, Error> {
        self.has_copies = true;
        let (user, word) = self.link.user(self.half);
        if !user.is_last(word) {
            return Err(Error::TakenOver { by: "another process" });
        }
        let is_new = !user.is_here();
        if is_new {
            if !is_current(self) || self.state(self.own_state()) != layout::OPEN {
                return Err(Error::TakenOver { by: "the process that forked this one" });
            }
            self.take_over()?;
        }
        self.forks = fork::forks();
        Ok(is_new)
    }

    /// This process uses the half from now on, and the peer hears of it.
    fn take_over(&mut self) -> Result<(), Error> {
        let (user, word) = self.link.user(self.half);
        let number = user.next();
        match self.link.send_user(self.half, number) {
            // A peer that is gone is found as it is needed.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {}
            Err(reason) => {
                return Err(Error::system("tell the peer which process goes on")(reason));
            }
        }
        if !user.take_over(word, number) {
            return Err(Error::TakenOver { by: "another process" });
        }
        (self.affinity, self.refreshed) = (Affinity::default(), 0);
        Ok(())
    }

    /// Whether this process uses the half; in the others that have it nothing is to be done for the
    /// peer.
    pub(crate) fn is_own(&self) -> bool {
        self.link.is_own(self.half)
    }

    /// A call goes on with what this process has begun.
    ///
    /// # Errors
    /// [`Error::TakenOver`] where another process has begun it, or uses the half by now.
    pub(crate) fn check_own(&mut self) -> Result<(), Error> {
        if self.has_copies || self.forks != fork::forks() {
            if !self.is_own() {
                return Err(Error::TakenOver { by: "another process" });
            }
            (self.has_copies, self.forks) = (true, fork::forks());
        }
        Ok(())
    }

    fn own_state(&self) -> usize {
        match self.half {
            Half::Sending => layout::SENDER_STATE,
            Half::Receiving => layout::RECEIVER_STATE,
        }
    }

    /// As the half is dropped: says that it is closed, unless another process may go on with it. A
    /// process may that has a copy of it, and of which this one has not used it since.
    pub(crate) fn close(&mut self) {
        let (user, word) = self.link.user(self.half);
        let is_used_since = user.is_here() && self.forks == fork::forks();
        let is_last_user = user.is_last(word);
        let was_last = self.life.take().is_none_or(Life::was_last);
        let is_over = was_last || is_used_since && is_last_user;
        if !is_over {
            return;
        }
        self.link.end_half();
        if is_last_user && self.state(self.own_state()) == layout::OPEN {
            self.set_state(self.own_state(), layout::CLOSED);
        }
    }

    /// The process that uses the other end of this half.
    pub(crate) fn peer(&self) -> Arc<Peer> {
        let word = match self.half {
            Half::Sending => layout::RECEIVER_USER,
            Half::Receiving => layout::SENDER_USER,
        };
        // SYNC: user told.
        self.link.peer(self.half, self.load(word))
    }

    /// Whether the peer may have memory of this process's as it is, and can see that it is alone
    /// with it: of a file of another user the kernel tells the superuser alone.
    pub(crate) fn may_give_memory(&self) -> bool {
        let (own, peer) = (rustix::process::geteuid().as_raw(), self.peer().identity.user);
        self.link.is_trusted && (peer == own || peer == 0)
    }

    /// Whether nothing more comes of the peer. One that died while another process has its end of
    /// the socket, which it forked, may go on with the next message there; not in the middle of
    /// one.
    pub(crate) fn is_peer_gone(&mut self, is_under_way: bool) -> bool {
        self.system_calls += 1;
        self.is_gone(is_under_way)
    }

    fn is_gone(&self, is_under_way: bool) -> bool {
        match self.peer().left(&self.link.socket) {
            Left::All => false,
            Left::Socket => is_under_way,
            Left::Nothing => true,
        }
    }

    /// Whether the peer is known to be gone. The kernel is asked where that was a while ago, so
    /// that small messages go without a system call.
    #[inline]
    pub(crate) fn is_known_gone(&mut self) -> bool {
        let now = ticks::now();
        now.wrapping_sub(self.checked) >= ticks::of_a_while() && self.check_gone(now)
    }

    #[cold]
    fn check_gone(&mut self, now: u64) -> bool {
        // No part of the message, and so in no account.
        let is_gone = self.is_gone(false);
        if !is_gone {
            self.checked = now;
        }
        is_gone
    }
}
