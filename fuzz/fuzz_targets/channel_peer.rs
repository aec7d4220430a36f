//! A peer that may send anything: greetings, packets and descriptors over the socket; words,
//! headers and tables in shared memory; memory with any seals for messages and pools. The victim
//! receives, and sends with every mechanism to a peer that may or may not answer. In every case,
//! each call of the victim ends in time, with an error or with a whole message.
#![no_main]

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

use haul::channel::{Buffer, Building, Channel, Mechanism, Settings, pair};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, UCred,
};

/// The offsets of the words for the two lanes: first the lane on which the victim receives, then
/// the lane on which it sends.
const LANES: [u64; 2] = [0, 4096];
const SLOTS: u64 = 8192;
const SLOT_BYTES: u64 = 8320;
const SOON: Duration = Duration::from_millis(2);

#[derive(Arbitrary, Debug)]
struct Life {
    /// Flipped bits in the greetings of steps 1 and 3: the byte, and the bits.
    flips: Vec<(u8, u8)>,
    is_trusted: bool,
    /// The mechanism with which the victim sends: see `mechanism_of`.
    mechanism: u8,
    has_integrity: bool,
    acts: Vec<Act>,
}

#[derive(Arbitrary, Debug)]
enum Act {
    /// Writes a word at the start of a line of 128 B in a lane.
    Word {
        lane: bool,
        line: u8,
        word: u8,
        value: Value,
    },
    /// Writes a word in a slot.
    Slot {
        slot: u8,
        word: u8,
        value: Value,
    },
    /// Publishes a header that is valid except for these values.
    Message {
        kind: u8,
        length: Value,
        entries: Value,
        sum: u8,
    },
    Packet {
        bytes: Vec<u8>,
        file: u8,
    },
    Descriptor {
        kind: u8,
        number: u8,
        file: u8,
    },
    /// Sends a message in separate memory, with any seals, and publishes it.
    Memory {
        is_built: bool,
        length: u16,
        /// Bits, from the second bit on: one page too many, holes, truncated, and missing seals.
        /// See `sealed`.
        flaws: u8,
    },
    /// Offers a location in a pool for the victim's next message.
    Offer {
        size: u16,
        at: Value,
        flaws: u8,
    },
    /// Refuses the victim's next message from the offset `at` on.
    Refuse {
        at: Value,
    },
    Receive {
        is_polled: bool,
        will_write: (u16, u16),
    },
    Send {
        length: u16,
        is_large: bool,
        is_built: bool,
        /// The peer's actions while the victim sends: see `answer`.
        answers: u8,
    },
}

/// Numbers that are often close to valid numbers.
#[derive(Arbitrary, Debug)]
enum Value {
    Small(u8),
    Shifted(u8, u8),
    Below(u8),
    Any(u64),
}

impl Value {
    fn number(&self) -> u64 {
        match *self {
            Self::Small(value) => value.into(),
            Self::Shifted(value, shift) => u64::from(value) << (shift % 64),
            Self::Below(value) => u64::MAX - u64::from(value),
            Self::Any(value) => value,
        }
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmCredentials(UCred {
        pid: rustix::process::getpid(),
        uid: rustix::process::getuid(),
        gid: rustix::process::getgid(),
    }));
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags);
}

/// The next packet and its descriptor, if one arrives soon.
fn receive(socket: &OwnedFd) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let time = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut set = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    rustix::event::poll(&mut set, Some(&time)).ok().filter(|count| *count > 0)?;
    let mut bytes = vec![0; 64];
    let mut space = [MaybeUninit::uninit(); 256];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let vector = &mut [std::io::IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket, vector, &mut control, RecvFlags::DONTWAIT).ok()?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.last(),
        _ => None,
    });
    Some((bytes, file)).filter(|_| received.bytes == 64)
}

fn greeting(step: u64, life: &Life, echo: [u8; 8], probe: u64) -> Vec<u8> {
    let magic = u64::from_le_bytes(*b"haulchan");
    let flags = if life.is_trusted { if step == 1 { 1 } else { 3 } } else { 0 };
    let words = [magic, 8 | step << 32, 0, flags, 4711, u64::from_le_bytes(echo), probe, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (index, bits) in &life.flips {
        let index = usize::from(*index);
        if index / 64 == step as usize / 2 {
            bytes[index % 64] ^= bits;
        }
    }
    bytes
}

fn file_of(number: u8, memory: &File) -> Option<OwnedFd> {
    match number % 6 {
        0 => None,
        1 => File::open("/dev/zero").ok().map(OwnedFd::from),
        2 => memory.try_clone().ok().map(OwnedFd::from),
        3 => rustix::pipe::pipe().ok().map(|ends| ends.0),
        4 => pair().ok().map(|ends| ends.0),
        _ => rustix::fs::memfd_create("liar", rustix::fs::MemfdFlags::ALLOW_SEALING).ok(),
    }
}

/// Words of a lane.
const PUBLISHED: u64 = 0;
const CONSUMED: u64 = 128;
const FILLED: u64 = 256;
const DRAINED: u64 = 384;
const REFUSED: u64 = 4 * 128;
const OFFERED: u64 = 9 * 128;

/// Memory of `size` equal bytes, with every page present and all seals. `flaws` says what is
/// wrong with it; an even number means nothing, because valid input reaches most of the code.
fn sealed(size: u64, seed: u8, flaws: u8, is_constant: bool) -> Option<OwnedFd> {
    use rustix::fs::SealFlags;
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
    let file = File::from(rustix::fs::memfd_create("liar", flags).ok()?);
    let flaws = if flaws & 1 == 0 { 0 } else { flaws >> 1 };
    let is = |flaw: u8| flaws >> flaw & 1 != 0;
    file.set_len(size + u64::from(is(0)) * 4096).ok()?;
    if !is(1) {
        file.write_all_at(&vec![seed; size as usize], 0).ok()?;
    }
    if is(2) {
        file.set_len(size / 2).ok()?;
    }
    let mut seals = SealFlags::empty();
    let all = [SealFlags::SHRINK, SealFlags::GROW, SealFlags::WRITE, SealFlags::SEAL];
    for (index, seal) in all.into_iter().enumerate() {
        let is_missing = is(3 + index as u8) || seal == SealFlags::WRITE && !is_constant;
        seals |= if is_missing { SealFlags::empty() } else { seal };
    }
    rustix::fs::fcntl_add_seals(&file, seals).ok()?;
    Some(file.into())
}

/// The mechanism with which the victim sends. `double` is never used, because it writes to an
/// address that the peer sends, and the peer is this process.
fn mechanism_of(life: &Life) -> Option<Mechanism> {
    use Mechanism::{Inline, Lease, Pull, Ring, Staged};
    if life.is_trusted {
        Some([Ring, Staged, Pull, Lease, Inline][usize::from(life.mechanism % 5)])
    } else {
        [None, Some(Ring), Some(Staged), Some(Inline)][usize::from(life.mechanism % 4)]
    }
}

/// The peer, and the victim.
struct Both {
    socket: OwnedFd,
    memory: File,
    victim: Channel,
    /// The number of messages that the peer has sent. `sealed` contains the messages in separate
    /// memory.
    message: u64,
    sealed: Vec<(u64, File)>,
    received: u64,
}

impl Both {
    fn poke(&self, at: u64, value: u64) {
        poke(&self.memory, at, value);
    }

    /// The number of the victim's next message, counted from 1.
    fn next(&self) -> u64 {
        peek(&self.memory, LANES[1] + PUBLISHED).wrapping_add(1)
    }

    fn descriptor(&self, kind: u8, number: u64, file: Option<&OwnedFd>) {
        let mut bytes = vec![kind];
        bytes.extend(number.to_le_bytes());
        send(&self.socket, &bytes, file.map(AsFd::as_fd));
    }

    fn publish(&mut self, words: [u64; 5]) {
        let at = SLOTS + self.message % 16 * SLOT_BYTES;
        for (index, word) in (0..).zip(words) {
            self.poke(at + 8 * index, word);
        }
        self.message += 1;
        self.poke(LANES[0] + PUBLISHED, self.message);
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Word { lane, line, word, value } => {
                let at = u64::from(line % 12) * 128 + u64::from(word % 4) * 8;
                self.poke(LANES[usize::from(*lane)] + at, value.number());
            }
            Act::Slot { slot, word, value } => {
                let at = u64::from(slot % 16) * SLOT_BYTES + u64::from(*word) * 8;
                self.poke(SLOTS + at, value.number());
            }
            Act::Message { kind, length, entries, sum } => {
                let (kind, sum) = ((*kind % 10).into(), u64::from(*sum));
                self.publish([self.message, kind, length.number(), entries.number(), sum]);
            }
            Act::Packet { bytes, file } => {
                let file = file_of(*file, &self.memory);
                let bytes = &bytes[..bytes.len().min(200)];
                send(&self.socket, bytes, file.as_ref().map(AsFd::as_fd));
            }
            Act::Descriptor { kind, number, file } => {
                let file = file_of(*file, &self.memory);
                self.descriptor(kind % 5, (*number).into(), file.as_ref());
            }
            Act::Memory { is_built, length, flaws } => self.hand_over(*is_built, *length, *flaws),
            Act::Offer { size, at, flaws } => {
                let pool = sealed(u64::from(*size), 1, *flaws, false);
                let next = self.next();
                self.descriptor(2, next, pool.as_ref());
                for (place, word) in [(8, at.number()), (16, next), (24, u64::MAX), (0, next)] {
                    self.poke(LANES[1] + OFFERED + place, word);
                }
            }
            Act::Refuse { at } => {
                self.poke(LANES[1] + REFUSED + 8, at.number());
                self.poke(LANES[1] + REFUSED, self.next());
            }
            // This is encoded in the existing start and length, so that inputs that were found
            // earlier keep their meaning.
            Act::Receive { is_polled: false, will_write: (start, length) } if start % 4 == 3 => {
                self.receive_into(usize::from(*length));
            }
            Act::Receive { is_polled, will_write } => self.receive(*is_polled, *will_write),
            Act::Send { length, is_large, is_built, answers } => {
                let length = usize::from(*length) << (u8::from(*is_large) * 5);
                self.send(length, *is_built, *answers);
            }
        }
    }

    fn hand_over(&mut self, is_built: bool, length: u16, flaws: u8) {
        let (number, length) = (self.message, u64::from(length));
        let file = sealed(length, 1 + number as u8, flaws, true);
        self.descriptor(1, number, file.as_ref());
        if let Some(file) = file {
            self.sealed.push((number, file.into()));
        }
        self.publish([number, if is_built { 5 } else { 3 }, length, 0, 0]);
    }

    /// Receives into the victim's own memory. A message in its slot then takes a shorter path.
    fn receive_into(&mut self, length: usize) {
        let mut target = vec![0; length];
        let Ok(account) = self.victim.recv_into(&mut target) else { return };
        assert!(account.size_bytes <= length as u64);
        self.received += 1;
    }

    fn receive(&mut self, is_polled: bool, (start, length): (u16, u16)) {
        let got = match is_polled {
            true => self.victim.try_recv().ok().flatten(),
            false => self.victim.recv().ok(),
        };
        let Some(got) = got else { return };
        assert_eq!(got.len() as u64, got.account().size_bytes);
        let file = self.sealed.iter().find(|(number, _)| *number == self.received);
        self.received += 1;
        let by_memory = [Mechanism::Staged, Mechanism::Sealed].contains(&got.account().mechanism);
        if let Some((_, file)) = file.filter(|_| by_memory) {
            assert_private(got, file, usize::from(start)..usize::from(start) + usize::from(length));
        }
    }

    fn send(&mut self, length: usize, is_built: bool, answers: u8) {
        let Self { victim, memory, socket, .. } = self;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (over, memory, socket) = (&is_over, &*memory, &*socket);
            let answering = scope.spawn(move || {
                while !answers.is_multiple_of(8) && !over.load(Relaxed) {
                    answer(memory, socket, answers);
                    thread::yield_now();
                }
            });
            if is_built {
                if let Ok(mut building) = Building::new(length) {
                    building.fill(7);
                    let _ = victim.send_built(building);
                }
            } else {
                let _ = victim.send(&vec![7; length]);
            }
            is_over.store(true, Relaxed);
            answering.join().unwrap();
        });
    }
}

/// Asserts that a message in memory has the content of the file, and that neither end can change
/// the bytes of the other end.
fn assert_private(mut got: Buffer, file: &File, dirty: std::ops::Range<usize>) {
    let content = || {
        let mut bytes = vec![0; got.len()];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    let Ok(before) = content() else {
        panic!("a file that is shorter than its message was accepted")
    };
    assert!(got[..] == before, "the message differs from the file");
    let _ = (file.set_len(0), file.write_all_at(&[9; 100], 0));
    assert!(got[..] == before, "the peer has changed the message");
    let dirty = dirty.start.min(got.len())..dirty.end.min(got.len());
    got.will_write(dirty.clone());
    assert!(got[..] == before, "will_write has changed the message");
    got[dirty].fill(3);
    let mut after = vec![0; before.len()];
    file.read_exact_at(&mut after, 0).unwrap();
    assert!(after == before, "the receiver has written to the peer's memory");
}

fn peek(memory: &File, at: u64) -> u64 {
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, at).unwrap();
    u64::from_le_bytes(bytes)
}

fn poke(memory: &File, at: u64, value: u64) {
    memory.write_all_at(&value.to_le_bytes(), at).unwrap();
}

/// The peer's actions while the victim sends. Bits: it empties the ring, it marks the messages as
/// consumed, it receives from the socket.
fn answer(memory: &File, socket: &OwnedFd, answers: u8) {
    let copy = |from, to| poke(memory, LANES[1] + to, peek(memory, LANES[1] + from));
    if answers & 1 != 0 {
        copy(FILLED, DRAINED);
    }
    if answers & 2 != 0 {
        copy(PUBLISHED, CONSUMED);
    }
    if answers & 4 != 0 {
        let mut bytes = [0; 64];
        let _ = rustix::net::recv(socket, &mut bytes, RecvFlags::DONTWAIT);
    }
}

fn live(life: &Life) {
    static NONCE: u64 = 4711;
    let is_trusted = life.is_trusted;
    let (own, other) = pair().unwrap();
    rustix::net::sockopt::set_socket_passcred(&own, true).unwrap();
    let settings = Settings {
        // The handshake must also end within this time.
        deadline: 10 * SOON,
        wait: Some(SOON),
        size_max: 1 << 20,
        trusts_peer: is_trusted,
        integrity: life.has_integrity,
        mechanism: mechanism_of(life),
        ..Settings::default()
    };
    let victim = thread::spawn(move || Channel::accept_over(other, &settings));
    let probe = if is_trusted { (&raw const NONCE).expose_provenance() as u64 } else { 0 };
    send(&own, &greeting(1, life, [0; 8], probe), None);
    let mut memory = None;
    if let Some((bytes, file)) = receive(&own) {
        memory = file;
        send(&own, &greeting(3, life, bytes[32..40].try_into().unwrap(), probe), None);
        receive(&own);
    } else {
        // The victim must not wait for a proof that never arrives.
        let _ = rustix::net::shutdown(&own, rustix::net::Shutdown::Both);
    }
    let (Ok(victim), Some(memory)) = (victim.join().unwrap(), memory) else { return };
    let (memory, sealed) = (File::from(memory), Vec::new());
    let mut both = Both { socket: own, memory, victim, message: 0, sealed, received: 0 };
    let start = Instant::now();
    for each in life.acts.iter().take(24) {
        both.act(each);
    }
    drop(both);
    assert!(start.elapsed() < Duration::from_secs(20), "the calls lasted {:?}", start.elapsed());
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fuzz_target!(|life: Life| {
    /// The lowest thread count so far is used, because threads that have just ended may still be
    /// counted.
    static LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);
    LEAST.fetch_min(threads(), Relaxed);
    let start = Instant::now();
    live(&life);
    // The thread that closes descriptors must end before libFuzzer searches for leaks.
    while threads() > LEAST.load(Relaxed) && start.elapsed() < Duration::from_secs(20) {
        thread::yield_now();
    }
});
