//! What both halves of a channel stand on: the socket and what came by it, the shared memory seen as two
//! directions, and the bells.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::thread::{Timespec, futex};

use super::bell::{self, ASLEEP, POLLING};
use super::closing;
use super::distance::Distance;
use super::error::Error;
use super::handshake::Met;
use super::idle;
use super::layout::{self, Header, SumState};
use super::peer::Peer;
use super::place::Place;
use super::poller::Poller;
use super::received::Received;
use super::region::Region;
use super::socket::Socket;
use super::words::{Flags, Word};
use super::{Mechanism, Settings, socket};

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
    pub(super) socket: Socket,
    poller: Poller,
    pub(super) peer: Peer,
    pub(super) region: Region,
    pub(super) chunk_bytes: usize,
    pub(super) is_trusted: bool,
    pub(super) can_pull: bool,
    pub(super) peer_can_pull: bool,
    pub(super) settings: Settings,
    /// A transfer failed in the middle: what the words say means nothing any more.
    pub(super) is_broken: AtomicBool,
    /// Descriptors that came and were not asked for yet, or what came in the place of one and could not be
    /// kept.
    came: Mutex<VecDeque<(Kind, u64, Received)>>,
}

impl Link {
    /// Whether the peer may have memory of this process's as it is, and can see that it is alone with it:
    /// of a file of another user the kernel tells the superuser alone.
    pub(super) fn may_give_memory(&self) -> bool {
        let (own, peer) = (rustix::process::geteuid().as_raw(), self.peer.identity.user);
        self.is_trusted && (peer == own || peer == 0)
    }

    /// # Errors
    /// [`Error::System`] where there is no descriptor to poll.
    pub(super) fn new(socket: Socket, met: Met, settings: Settings) -> Result<Self, Error> {
        let poller = Poller::new(socket.as_fd())?;
        Ok(Self {
            socket,
            poller,
            peer: met.peer,
            region: met.region,
            chunk_bytes: met.chunk_bytes,
            is_trusted: met.is_trusted,
            can_pull: met.can_pull,
            peer_can_pull: met.peer_can_pull,
            settings,
            is_broken: AtomicBool::new(false),
            came: Mutex::default(),
        })
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
    ///
    /// # Errors
    /// As [`Received::file`].
    pub(super) fn take_file(
        &self,
        kind: Kind,
        number: u64,
        expected: &'static str,
    ) -> Result<OwnedFd, Error> {
        self.read_socket();
        let mut came = self.came();
        came.retain(|&(of, with, _)| of != kind || with >= number);
        let index = came.iter().position(|&(of, with, _)| (of, with) == (kind, number));
        let found = index.and_then(|index| came.remove(index));
        found.map_or(Received::Nothing, |(.., file)| file).file(expected)
    }

    fn came(&self) -> MutexGuard<'_, VecDeque<(Kind, u64, Received)>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the packets that came. As many at once as a peer in order can have sent; what is
    /// malformed, or beyond what can be under way, is closed and forgotten. A peer that hands over what
    /// is none of a channel's is at its end.
    pub(super) fn read_socket(&self) {
        for _ in 0..4 * layout::SLOTS {
            if self.is_broken.load(Relaxed) {
                return;
            }
            let Ok(Some(packet)) = socket::receive(&self.socket, self.is_trusted) else { return };
            match packet.file {
                Received::Nothing => continue,
                Received::Foreign => self.break_off(),
                _ => {}
            }
            let Some((kind, number)) = named(&packet.bytes[..packet.length]) else { continue };
            let mut came = self.came();
            if (came.len() as u64) < layout::SLOTS + FILES_BESIDE {
                came.push_back((kind, number, packet.file));
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
    /// Where this end says where it may run, and where the other one does.
    places: [usize; 2],
    /// Where this end may run, as last said, and when that was, see `idle`.
    place: Place,
    looked: u64,
    /// Both ends share the only processor that they may run on.
    is_alone: bool,
    /// System calls made so far.
    pub(super) system_calls: u64,
    /// How often this end slept until the other moved.
    pub(super) sleeps: u64,
    /// How far the other end is.
    pub(super) distance: Distance,
}

impl Lane {
    pub(super) fn for_sending(link: Arc<Link>, index: usize) -> Self {
        let (own_bell, other_bell) = (layout::SENDER_BELL, layout::RECEIVER_BELL);
        let places = [layout::SENDER_PLACE, layout::RECEIVER_PLACE];
        Self::new(link, index, own_bell, other_bell, places)
    }

    pub(super) fn for_receiving(link: Arc<Link>, index: usize) -> Self {
        let (own_bell, other_bell) = (layout::RECEIVER_BELL, layout::SENDER_BELL);
        let places = [layout::RECEIVER_PLACE, layout::SENDER_PLACE];
        Self::new(link, index, own_bell, other_bell, places)
    }

    fn new(
        link: Arc<Link>,
        index: usize,
        own_bell: usize,
        other_bell: usize,
        places: [usize; 2],
    ) -> Self {
        let mut lane = Self {
            link,
            index,
            own_bell,
            other_bell,
            places,
            place: Place::default(),
            looked: 0,
            is_alone: idle::is_single(),
            system_calls: 0,
            sleeps: 0,
            distance: Distance::default(),
        };
        lane.look_around();
        lane
    }

    /// Whether both ends share the only processor that they may run on, as last seen.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Says where this end may run, and sees where the other may, every 10 ms at most: threads are pinned
    /// before they meet and afterwards.
    pub(super) fn look_around(&mut self) {
        let now = idle::now();
        if !idle::is_due(now, self.looked) {
            return;
        }
        self.looked = now;
        self.system_calls += 1;
        let place = Place::of_this_thread();
        if place != self.place {
            self.place = place;
            // A hint, which nothing else hangs on.
            self.word(self.places[0]).store(place.word(), Relaxed);
        }
        let other = Place::from_word(self.word(self.places[1]).load(Relaxed));
        self.is_alone = idle::is_single() || place.is_the_one_of(other);
    }

    /// Reads a word of the other end's, once.
    pub(super) fn load(&self, word: usize) -> u64 {
        // SYNC: word told.
        self.word(word).get()
    }

    /// Reads a word of the other end's, once, of which `known` was seen before; sees how far the other
    /// end is.
    pub(super) fn load_timed(&mut self, word: usize, known: u64) -> u64 {
        let mut distance = self.distance;
        let value = distance.timed(known, || self.load(word));
        self.distance = distance;
        value
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

    /// Writes a message's header into its slot.
    pub(super) fn put_header(&self, header: Header) {
        let words = self.link.region.line(self.slot(header.message));
        for (place, word) in words.iter().zip(header.words()) {
            place.store(word, Relaxed);
        }
    }

    /// Reads the header in a message's slot, each word of it once.
    pub(super) fn header(&self, message: u64) -> Header {
        let words = self.link.region.line(self.slot(message));
        Header::from_words(words.each_ref().map(|word| word.load(Relaxed)))
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
        self.state_word(word).get()
    }

    /// Whether an end is closed, see `closing`.
    pub(super) fn state_word(&self, word: usize) -> &AtomicU32 {
        self.link.region.word32(layout::words_start(self.index) + word)
    }

    /// Says that this end is done, or gave up; before anything that follows it in this thread.
    pub(super) fn set_state(&mut self, word: usize, state: u32) {
        closing::say(self.state_word(word), state);
        self.ring();
    }

    pub(super) fn slot(&self, message: u64) -> usize {
        layout::slot_start(self.index, message)
    }

    /// Where a cell of the ring stands, counted over the life of the channel.
    pub(super) fn cell(&self, cell: u64) -> usize {
        let index = (cell % self.cells()) as usize;
        self.chunks() + index * layout::CELL_BYTES
    }

    /// Cells of the ring.
    pub(super) fn cells(&self) -> u64 {
        layout::cells(self.link.chunk_bytes)
    }

    /// Where the chunks of this direction begin.
    pub(super) fn chunks(&self) -> usize {
        layout::chunks_start(self.index, self.link.chunk_bytes)
    }

    /// Wakes the other end where it sleeps.
    #[inline]
    pub(super) fn ring(&mut self) {
        let at = layout::words_start(self.index) + self.other_bell;
        let sleeps = bell::look(self.link.region.word32(at + 4));
        if sleeps != 0 {
            self.wake(sleeps);
        }
    }

    #[cold]
    fn wake(&mut self, sleeps: u32) {
        let at = layout::words_start(self.index) + self.other_bell;
        let (word, how) = (self.link.region.word32(at), self.link.region.word32(at + 4));
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
    pub(super) fn announce(&self, way: u32) -> u32 {
        let at = layout::words_start(self.index) + self.own_bell;
        bell::announce(self.link.region.word32(at), self.link.region.word32(at + 4), way)
    }

    /// Sleeps until the bell that showed `seen` rings, or for so long.
    pub(super) fn sleep(&mut self, seen: u32, time: Duration) {
        let bell = layout::words_start(self.index) + self.own_bell;
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let word = self.link.region.word32(bell);
        // Woken, interrupted, too late or over: in each case the caller looks again.
        let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&time));
        self.system_calls += 1;
        self.sleeps += 1;
    }

    /// Says that this end has something to do in this direction without being told; see [`Poller::leave`].
    pub(super) fn leave(&self) -> bool {
        self.link.poller.leave(self.index)
    }

    /// What was left in this direction is looked at now.
    pub(super) fn take_up(&self) {
        self.link.poller.take_up(self.index);
    }

    /// See [`Peer::is_gone`].
    pub(super) fn is_peer_gone(&mut self) -> bool {
        self.system_calls += 1;
        self.link.peer.is_gone(&self.link.socket)
    }
}

impl AsFd for Link {
    /// What an event loop polls.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
