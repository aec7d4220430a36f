//! What both halves of a channel stand on: the shared memory seen as two directions, bells, and
//! how one waits for the other: spin, then sleep, never without a look at the peer and the clock.

use std::collections::VecDeque;
use std::hint;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::thread::{Timespec, futex};

use super::bell::{self, ASLEEP, POLLING};
use super::error::Error;
use super::handshake::Met;
use super::layout::{self, SumState};
use super::peer::Peer;
use super::region::Region;
use super::words::{Flags, Word};
use super::{Mechanism, Settings, idle, socket};

/// Looks at the other end's words before sleeping: some 50 us, about what a sleep and a wake-up
/// cost together.
const SPINS: u32 = 1000;
/// Looks where there is not a processor for each end: the other one needs this one to move.
const SPINS_BUSY: u32 = 20;
/// First sleep, after which the peer's life and the clock are looked at; each later one is longer.
const SLEEP_MIN: Duration = Duration::from_millis(5);
/// Longest sleep: how late the death of a peer is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Length of a packet that carries a descriptor: its kind, then a number.
const FILE_BYTES: usize = 9;

/// What a descriptor that comes with a packet is. A packet that begins with 0 only wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The memory of the message of this number.
    Memory = 1,
    /// The receiver's pool of this number.
    Pool = 2,
    /// The pipe that begins with the message of this number.
    Pipe = 3,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Memory, Self::Pool, Self::Pipe].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One end of a channel.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: OwnedFd,
    pub(super) peer: Peer,
    pub(super) region: Region,
    pub(super) chunk_bytes: usize,
    pub(super) is_trusted: bool,
    pub(super) can_pull: bool,
    pub(super) peer_can_pull: bool,
    pub(super) settings: Settings,
    /// A transfer failed in the middle: what the words say means nothing any more.
    pub(super) is_broken: AtomicBool,
    /// Descriptors that came and were not asked for yet.
    files: Mutex<VecDeque<(Kind, u64, OwnedFd)>>,
}

impl Link {
    pub(super) fn new(socket: OwnedFd, met: Met, settings: Settings) -> Self {
        Self {
            socket,
            peer: met.peer,
            region: met.region,
            chunk_bytes: met.chunk_bytes,
            is_trusted: met.is_trusted,
            can_pull: met.can_pull,
            peer_can_pull: met.peer_can_pull,
            settings,
            is_broken: AtomicBool::new(false),
            files: Mutex::default(),
        }
    }

    /// Whether the mechanism can be used to send to this peer.
    pub(super) fn offers(&self, mechanism: Mechanism) -> bool {
        match mechanism {
            Mechanism::Inline | Mechanism::Ring | Mechanism::Staged | Mechanism::Sealed => true,
            Mechanism::Lease | Mechanism::Vmsplice => self.is_trusted,
            Mechanism::Pull => self.is_trusted && self.peer_can_pull,
            Mechanism::Double => self.is_trusted && self.peer_can_pull && self.can_pull,
        }
    }

    /// # Errors
    /// [`Error::Broken`].
    pub(super) fn check_whole(&self) -> Result<(), Error> {
        if self.is_broken.load(Relaxed) { Err(Error::Broken) } else { Ok(()) }
    }

    /// Nothing after this is believed.
    pub(super) fn break_off(&self) {
        self.is_broken.store(true, Relaxed);
    }

    /// Hands a descriptor over, ahead of the word that tells of it.
    pub(super) fn send_file(
        &self,
        kind: Kind,
        number: u64,
        file: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let mut bytes = [kind as u8; FILE_BYTES];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        socket::send(&self.socket, &bytes, Some(file))
    }

    /// The descriptor of this kind that came with this number; those of lower numbers are closed.
    pub(super) fn take_file(&self, kind: Kind, number: u64) -> Option<OwnedFd> {
        self.read_socket();
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|&(of, with, _)| of != kind || with >= number);
        let index = files.iter().position(|&(of, with, _)| (of, with) == (kind, number))?;
        files.remove(index).map(|(.., file)| file)
    }

    /// Takes the packets that came. As many at once as a peer in order can have sent; what is
    /// malformed, or beyond what can be under way, is closed and forgotten.
    pub(super) fn read_socket(&self) {
        for _ in 0..4 * layout::SLOTS {
            let Ok(Some(packet)) = socket::receive(&self.socket) else { return };
            let Some((kind, number)) = named(&packet.bytes[..packet.length]) else { continue };
            let Some(file) = packet.file else { continue };
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            if (files.len() as u64) < layout::SLOTS + FILES_BESIDE {
                files.push_back((kind, number, file));
            }
        }
    }
}

/// Descriptors that can be under way beside those of messages: a pool and a pipe.
const FILES_BESIDE: u64 = 2;

/// What a packet that carries a descriptor says of it.
pub(super) fn named(bytes: &[u8]) -> Option<(Kind, u64)> {
    let (kind, number) = bytes.split_first()?;
    Some((Kind::of(*kind)?, u64::from_le_bytes(number.try_into().ok()?)))
}

/// One direction of a channel, seen by one end of it.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) link: Arc<Link>,
    /// 0: from the one that connected; 1: to it.
    index: usize,
    /// Where this end sleeps.
    own_bell: usize,
    /// Where the other end sleeps.
    other_bell: usize,
    /// System calls made so far.
    pub(super) system_calls: u64,
}

impl Lane {
    pub(super) fn for_sending(link: Arc<Link>, index: usize) -> Self {
        let (own_bell, other_bell) = (layout::SENDER_BELL, layout::RECEIVER_BELL);
        Self { link, index, own_bell, other_bell, system_calls: 0 }
    }

    pub(super) fn for_receiving(link: Arc<Link>, index: usize) -> Self {
        let (own_bell, other_bell) = (layout::RECEIVER_BELL, layout::SENDER_BELL);
        Self { link, index, own_bell, other_bell, system_calls: 0 }
    }

    /// Reads a word of the other end's, once.
    pub(super) fn load(&self, word: usize) -> u64 {
        // SYNC: word told.
        self.word(word).get()
    }

    /// A word that both ends change.
    pub(super) fn word(&self, word: usize) -> &AtomicU64 {
        self.link.region.word64(layout::words_start(self.index) + word)
    }

    /// Writes a word of this end's, and lets the other end know where it sleeps.
    pub(super) fn tell(&mut self, word: usize, value: u64) {
        // SYNC: word told: everything written before is seen by whoever reads the value.
        self.word(word).put(value);
        self.ring();
    }

    /// Writes a word of this end's; another one, told later, wakes who waits for it.
    pub(super) fn note(&self, word: usize, value: u64) {
        // SYNC: word told.
        self.word(word).put(value);
    }

    /// Writes the checksum of a message, if it is known now, into its slot.
    pub(super) fn put_sum(&self, message: u64, sum: SumState) {
        if let SumState::Known(_) = sum {
            let at = self.slot(message) + layout::SUM_AT;
            let [state, plain, weighted] = sum.words();
            self.link.region.word64(at + 8).store(plain, Relaxed);
            self.link.region.word64(at + 16).store(weighted, Relaxed);
            // SYNC: sum told.
            self.link.region.word64(at).put(state);
        }
    }

    /// The checksum of a message, if it is known by now.
    pub(super) fn sum(&self, message: u64) -> SumState {
        let at = self.slot(message) + layout::SUM_AT;
        // SYNC: sum told.
        let state = self.link.region.word64(at).get();
        let words = [8, 16].map(|place| self.link.region.word64(at + place).load(Relaxed));
        SumState::from_words([state, words[0], words[1]])
    }

    pub(super) fn state(&self, word: usize) -> u32 {
        self.link.region.word32(layout::words_start(self.index) + word).get()
    }

    /// Says that this end is done, or gave up; before anything that follows it in this thread.
    pub(super) fn set_state(&mut self, word: usize, state: u32) {
        self.link.region.word32(layout::words_start(self.index) + word).store(state, Release);
        fence(SeqCst);
        self.ring();
    }

    pub(super) fn slot(&self, message: u64) -> usize {
        layout::slot_start(self.index, message)
    }

    pub(super) fn chunk(&self, chunk: u64) -> usize {
        let index = (chunk % layout::CHUNKS) as usize;
        self.chunks() + index * self.link.chunk_bytes
    }

    /// Where the chunks of this direction begin.
    pub(super) fn chunks(&self) -> usize {
        layout::chunks_start(self.index, self.link.chunk_bytes)
    }

    /// Wakes the other end where it sleeps.
    pub(super) fn ring(&mut self) {
        let at = layout::words_start(self.index) + self.other_bell;
        let (word, how) = (self.link.region.word32(at), self.link.region.word32(at + 4));
        let sleeps = bell::look(how);
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
    fn announce(&self, way: u32) -> u32 {
        let at = layout::words_start(self.index) + self.own_bell;
        bell::announce(self.link.region.word32(at), self.link.region.word32(at + 4), way)
    }

    /// Sleeps until the bell that showed `seen` rings, or for so long.
    fn sleep(&mut self, seen: u32, time: Duration) {
        let bell = layout::words_start(self.index) + self.own_bell;
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let word = self.link.region.word32(bell);
        // Woken, interrupted, too late or over: in each case the caller looks again.
        let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&time));
        self.system_calls += 1;
    }

    /// See [`Peer::is_gone`].
    pub(super) fn is_peer_gone(&mut self) -> bool {
        self.system_calls += 1;
        self.link.peer.is_gone(&self.link.socket)
    }
}

/// What one look at a transfer brought.
#[derive(Debug)]
pub(super) enum Step<T> {
    /// It is complete.
    Done(T),
    /// Something moved, and more may.
    Moved,
    /// Nothing can move before the peer does.
    Blocked,
}

/// A transfer, or a part of one, that is moved on step by step and never waits by itself.
pub(super) trait Transfer {
    type Output;

    /// Moves what can be moved now.
    fn step(&mut self) -> Result<Step<Self::Output>, Error>;

    fn lane(&mut self) -> &mut Lane;

    /// `send` or `receive`.
    fn attempt(&self) -> &'static str;

    /// Bytes moved, and bytes there are.
    fn progress(&self) -> (u64, u64);

    /// Whether the peer has begun with this message: from then on it must go on.
    fn has_begun(&self) -> bool;
}

/// Moves a transfer on until it is complete, or the peer is gone, or the time is over.
pub(super) fn drive<T: Transfer>(transfer: &mut T) -> Result<T::Output, Error> {
    let mut clock = Clock::new(&transfer.lane().link.settings);
    let (mut spins, mut spins_max, mut announced, mut sleep) = (0, None, None, SLEEP_MIN);
    loop {
        match transfer.step()? {
            Step::Done(output) => return Ok(output),
            Step::Moved => {
                clock.check(transfer)?;
                (spins, announced, sleep) = (0, None, SLEEP_MIN);
            }
            Step::Blocked if spins < *spins_max.get_or_insert_with(spins_now) => {
                if spins == 0 {
                    clock.start();
                }
                spins += 1;
                hint::spin_loop();
            }
            Step::Blocked => {
                let Some(seen) = announced.take() else {
                    announced = Some(transfer.lane().announce(ASLEEP));
                    continue;
                };
                let time = sleep.min(clock.left(transfer));
                transfer.lane().sleep(seen, time);
                sleep = (sleep * 2).min(SLEEP_MAX);
                if transfer.lane().is_peer_gone() {
                    return finish_without_peer(transfer);
                }
                clock.check(transfer)?;
                spins = 0;
            }
        }
    }
}

/// How often to look before sleeping, as things are.
fn spins_now() -> u32 {
    match idle::processors() {
        1 => 0,
        _ if idle::is_one_for_each() => SPINS,
        _ => SPINS_BUSY,
    }
}

/// Moves a transfer on as far as it goes now; `None` where the socket tells when to come again.
pub(super) fn advance<T: Transfer>(transfer: &mut T) -> Result<Option<T::Output>, Error> {
    transfer.lane().link.read_socket();
    let mut has_announced = false;
    loop {
        match transfer.step()? {
            Step::Done(output) => return Ok(Some(output)),
            Step::Moved => {}
            Step::Blocked if has_announced => break,
            Step::Blocked => {
                transfer.lane().announce(POLLING);
                has_announced = true;
            }
        }
    }
    if transfer.lane().is_peer_gone() {
        return finish_without_peer(transfer).map(Some);
    }
    Ok(None)
}

/// What a peer told before it went still counts.
fn finish_without_peer<T: Transfer>(transfer: &mut T) -> Result<T::Output, Error> {
    loop {
        match transfer.step()? {
            Step::Done(output) => return Ok(output),
            Step::Moved => {}
            Step::Blocked => {
                let (done, size) = transfer.progress();
                let (done, size) = (Bytes(done), Bytes(size));
                return Err(Error::PeerGone { attempt: transfer.attempt(), done, size });
            }
        }
    }
}

/// How long it may last: until the peer begins, and from there to the end.
struct Clock {
    start: Option<Instant>,
    begun: Option<Instant>,
    wait: Option<Duration>,
    deadline: Duration,
}

impl Clock {
    /// Stands still until there is something to wait for: what is there already costs no look at
    /// the clock.
    fn new(settings: &Settings) -> Self {
        let (wait, deadline) = (settings.wait, settings.deadline);
        Self { start: None, begun: None, wait, deadline }
    }

    fn start(&mut self) -> Instant {
        *self.start.get_or_insert_with(Instant::now)
    }

    /// Time spent, and how much there is.
    fn spent<T: Transfer>(&mut self, transfer: &T) -> (Duration, Option<Duration>) {
        if self.begun.is_none() && transfer.has_begun() {
            self.begun = Some(Instant::now());
        }
        match self.begun {
            Some(begun) => (begun.elapsed(), Some(self.deadline)),
            None => (self.start().elapsed(), self.wait),
        }
    }

    fn left<T: Transfer>(&mut self, transfer: &T) -> Duration {
        let (spent, limit) = self.spent(transfer);
        limit.map_or(SLEEP_MAX, |limit| limit.saturating_sub(spent))
    }

    fn check<T: Transfer>(&mut self, transfer: &T) -> Result<(), Error> {
        let (waited, limit) = self.spent(transfer);
        let Some(limit) = limit.filter(|limit| waited >= *limit) else { return Ok(()) };
        let (done, size) = transfer.progress();
        let (done, size) = (Bytes(done), Bytes(size));
        Err(Error::Deadline { attempt: transfer.attempt(), done, size, waited, limit })
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
