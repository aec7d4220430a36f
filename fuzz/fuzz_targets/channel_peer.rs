//! A peer that may say anything: greetings, packets and descriptors over the socket, words, headers
//! and tables in shared memory. Whatever it says, each call of the victim's ends in time, in an error
//! or in a message that is whole by what was said.
#![no_main]

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use haul::channel::{Channel, Mechanism, Settings, pair};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, UCred,
};

/// Where the words of the lane that the victim receives on begin, then those that it sends on.
const LANES: [u64; 2] = [0, 4096];
const SLOTS: u64 = 8192;
const SLOT_BYTES: u64 = 4096;
const SOON: Duration = Duration::from_millis(2);

#[derive(Arbitrary, Debug)]
struct Life {
    /// Bits that are flipped in the greetings of steps 1 and 3: which byte, and how.
    flips: Vec<(u8, u8)>,
    is_trusted: bool,
    is_sent_to: bool,
    acts: Vec<Act>,
}

#[derive(Arbitrary, Debug)]
enum Act {
    /// A word of a lane: lines of 128 B, and the words at their beginning.
    Word {
        lane: bool,
        line: u8,
        word: u8,
        value: Value,
    },
    /// A word of a slot.
    Slot {
        slot: u8,
        word: u8,
        value: Value,
    },
    /// A header that is right but for what is said here, and its publication.
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
    Receive,
    Send {
        length: u16,
    },
}

/// Numbers that are often nearly right.
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

/// The next packet and its descriptor, if one comes soon.
fn receive(socket: &OwnedFd) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let time = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut set = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    rustix::event::poll(&mut set, Some(&time)).ok().filter(|count| *count > 0)?;
    let mut bytes = vec![0; 64];
    let mut space = [MaybeUninit::uninit(); 256];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let vector = &mut [std::io::IoSliceMut::new(&mut bytes)];
    let told = rustix::net::recvmsg(socket, vector, &mut control, RecvFlags::DONTWAIT).ok()?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.last(),
        _ => None,
    });
    Some((bytes, file)).filter(|_| told.bytes == 64)
}

fn greeting(step: u64, life: &Life, echo: [u8; 8], probe: u64) -> Vec<u8> {
    let magic = u64::from_le_bytes(*b"haulchan");
    let flags = if life.is_trusted { if step == 1 { 1 } else { 3 } } else { 0 };
    let words = [magic, 5 | step << 32, 0, flags, 4711, u64::from_le_bytes(echo), probe, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (place, bits) in &life.flips {
        let place = usize::from(*place);
        if place / 64 == step as usize / 2 {
            bytes[place % 64] ^= bits;
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

fn act(act: &Act, message: &mut u64, socket: &OwnedFd, memory: &File, victim: &mut Channel) {
    let poke = |at: u64, value: u64| memory.write_all_at(&value.to_le_bytes(), at).unwrap();
    match act {
        Act::Word { lane, line, word, value } => {
            let at = u64::from(line % 12) * 128 + u64::from(word % 3) * 8;
            poke(LANES[usize::from(*lane)] + at, value.number());
        }
        Act::Slot { slot, word, value } => {
            let at = u64::from(slot % 16) * SLOT_BYTES + u64::from(*word) * 8;
            poke(SLOTS + at, value.number());
        }
        Act::Message { kind, length, entries, sum } => {
            let at = SLOTS + *message % 16 * SLOT_BYTES;
            let words = [*message, (*kind % 10).into(), length.number(), entries.number()];
            for (index, word) in (0..).zip(words.into_iter().chain([u64::from(*sum)])) {
                poke(at + 8 * index, word);
            }
            *message += 1;
            poke(LANES[0], *message);
        }
        Act::Packet { bytes, file } => {
            let file = file_of(*file, memory);
            send(socket, &bytes[..bytes.len().min(200)], file.as_ref().map(AsFd::as_fd));
        }
        Act::Descriptor { kind, number, file } => {
            let mut bytes = vec![kind % 5];
            bytes.extend(u64::from(*number).to_le_bytes());
            let file = file_of(*file, memory);
            send(socket, &bytes, file.as_ref().map(AsFd::as_fd));
        }
        Act::Receive => {
            if let Ok(got) = victim.recv() {
                assert_eq!(got.len() as u64, got.account().size_bytes);
            }
        }
        Act::Send { length } => {
            let _ = victim.send(&vec![7; usize::from(*length)]);
        }
    }
}

fuzz_target!(|life: Life| {
    static NONCE: u64 = 4711;
    // A trusted peer may have the victim write wherever it says, in this very process: such a victim
    // only receives.
    let is_trusted = life.is_trusted;
    let (own, other) = pair().unwrap();
    rustix::net::sockopt::set_socket_passcred(&own, true).unwrap();
    let settings = Settings {
        // The handshake has to be through in this time as well.
        deadline: 10 * SOON,
        wait: Some(SOON),
        size_max: 1 << 20,
        trusts_peer: is_trusted,
        mechanism: Some(Mechanism::Ring).filter(|_| life.is_sent_to),
        ..Settings::default()
    };
    let victim = thread::spawn(move || Channel::accept_over(other, &settings));
    let probe = if is_trusted { (&raw const NONCE).expose_provenance() as u64 } else { 0 };
    send(&own, &greeting(1, &life, [0; 8], probe), None);
    let mut memory = None;
    if let Some((bytes, file)) = receive(&own) {
        memory = file;
        send(&own, &greeting(3, &life, bytes[32..40].try_into().unwrap(), probe), None);
        receive(&own);
    } else {
        // Nobody waits for a proof that never comes.
        drop(rustix::net::shutdown(&own, rustix::net::Shutdown::Both));
    }
    let (Ok(mut victim), Some(memory)) = (victim.join().unwrap(), memory) else { return };
    let memory = File::from(memory);
    let mut message = 0;
    let start = Instant::now();
    for each in life.acts.iter().take(24) {
        if is_trusted && matches!(each, Act::Send { .. }) {
            continue;
        }
        act(each, &mut message, &own, &memory, &mut victim);
    }
    assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
});
