//! A back end that may write anything: used rings in both layouts, indices that jump, packet
//! headers, and holes in the memory, between any two polls. In every case, the port counts each
//! sent packet, every buffer returns to the pool, and the next back end gets new rings.
#![no_main]

use std::cell::Cell;
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use haul::forward::{DropReason, Link, Pool, Port, Virtio, VirtioSettings};
use haul_fuzz::victim::Victim;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// VIRTIO_F_VERSION_1 and VHOST_USER_F_PROTOCOL_FEATURES, the optional features, and
/// VHOST_USER_PROTOCOL_F_REPLY_ACK.
const ALWAYS: u64 = 1 << 32 | 1 << 30;
const MERGEABLE: u64 = 1 << 15;
const PACKED: u64 = 1 << 34;
const IN_ORDER: u64 = 1 << 35;
const REPLY_ACK: u64 = 1 << 3;

/// Descriptors of a ring.
const SIZE: u16 = 64;

#[derive(Arbitrary, Debug)]
struct Life {
    is_mergeable: bool,
    is_packed: bool,
    is_in_order: bool,
    acts: Vec<Act>,
}

#[derive(Arbitrary, Debug)]
enum Act {
    /// Writes entries to a used ring, which may be valid, and then the index.
    Use {
        ring: bool,
        ids: Vec<u8>,
        length: u16,
        jump: i8,
    },
    /// Writes an entry to a packed ring, which may be valid, at the next index or another index.
    Mark {
        ring: bool,
        id: u8,
        length: u16,
        flags: u8,
        jump: i8,
    },
    /// Writes any bytes to a ring.
    Write {
        ring: bool,
        at: u16,
        bytes: Vec<u8>,
    },
    /// Writes the number of a packet's buffers to the packet's header.
    Header {
        id: u8,
        buffers: u8,
    },
    /// Punches a hole into the memory.
    Hole {
        at: u16,
    },
    Poll {
        packets: u8,
        length: u16,
    },
}

/// A ring, with the addresses of its areas from the front end.
#[derive(Clone, Copy, Default)]
struct Ring {
    areas: [u64; 3],
    next: u16,
}

struct Back {
    socket: UnixStream,
    features: u64,
    /// The pool's file, the pool's first address in the port's process, and its size in bytes.
    memory: Option<(File, u64, u64)>,
    rings: [Ring; 2],
    enabled: u32,
}

impl Back {
    /// Reads `count` bytes; `None` if the port has closed the socket.
    fn take(&self, count: usize, file: &mut Option<OwnedFd>) -> Option<Vec<u8>> {
        let (mut bytes, mut done) = (vec![0; count], 0);
        while done < count {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut part = [IoSliceMut::new(&mut bytes[done..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let read = recvmsg(&self.socket, &mut part, &mut ancillary, flags).ok()?;
            if read.bytes == 0 {
                return None;
            }
            done += read.bytes;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(mut files) = message {
                    *file = files.next().or(file.take());
                }
            }
        }
        Some(bytes)
    }

    fn answer(&mut self, request: u32, value: u64) {
        let header = [request, 5, 8].map(u32::to_ne_bytes).concat();
        let _ = self.socket.write_all(&[&header[..], &value.to_ne_bytes()].concat());
    }

    /// Reads a message and accepts it; `None` if the port has closed the socket.
    fn read_message(&mut self) -> Option<()> {
        let mut file = None;
        let header = self.take(12, &mut file)?;
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        let body = self.take(word(8) as usize, &mut file)?;
        let long = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().unwrap());
        let request = word(0);
        match request {
            1 => self.answer(request, self.features),
            15 => self.answer(request, REPLY_ACK),
            // SET_MEM_TABLE: bytes at 16, the address in the port's process at 24.
            5 => self.memory = file.map(|file| (file.into(), long(24), long(16))),
            // SET_VRING_ADDR: descriptors, used, available.
            9 => self.rings[body[0] as usize % 2].areas = [long(8), long(24), long(16)],
            18 => self.enabled += u32::from(body[4] == 1),
            _ => {}
        }
        if word(4) & 8 != 0 {
            self.answer(request, 0);
        }
        Some(())
    }

    /// Accepts the port that connects next, and serves it until its rings are enabled. Ports from
    /// earlier inputs may have connected once more before they ended.
    fn accept(listener: &UnixListener) -> Self {
        let features = ALWAYS | MERGEABLE | PACKED | IN_ORDER;
        loop {
            let (socket, _) = listener.accept().expect("a port");
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
            let rings = [Ring::default(); 2];
            let mut back = Self { socket, features, memory: None, rings, enabled: 0 };
            while back.enabled < 2 && back.read_message().is_some() {}
            if back.enabled == 2 {
                return back;
            }
        }
    }

    fn offset(&self, address: u64) -> Option<u64> {
        let (_, start, bytes) = self.memory.as_ref()?;
        Some(address.wrapping_sub(*start)).filter(|offset| offset < bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        if let (Some(at), Some((file, _, _))) = (self.offset(address), &self.memory) {
            // A write after the end fails, because the size is sealed.
            let _ = file.write_all_at(&bytes[..bytes.len().min(4096)], at);
        }
    }

    /// Writes entries to the used area of a split ring, and the index.
    fn use_split(&mut self, ring: usize, ids: &[u8], length: u16, jump: i8) {
        let used = self.rings[ring].areas[2];
        for id in ids.iter().take(80) {
            let next = self.rings[ring].next;
            let entry = [u32::from(*id), u32::from(length)].map(u32::to_le_bytes).concat();
            self.write(used + 4 + 8 * u64::from(next % SIZE), &entry);
            self.rings[ring].next = next.wrapping_add(1);
        }
        let index = self.rings[ring].next.wrapping_add_signed(jump.into());
        self.write(used + 2, &index.to_le_bytes());
    }

    /// Marks a descriptor of a packed ring as used.
    fn mark(&mut self, ring: usize, id: u8, length: u16, flags: u8, jump: i8) {
        let next = self.rings[ring].next.wrapping_add_signed((jump / 16).into());
        self.rings[ring].next = next.wrapping_add(1);
        let round = u16::from((next / SIZE).is_multiple_of(2));
        let state = if flags & 12 == 0 { u16::from(flags & 3) } else { round * 3 };
        let marks = (state & 1) << 7 | (state & 2) << 14 | u16::from(flags >> 4);
        let mut entry = u32::from(length).to_le_bytes().to_vec();
        entry.extend(u16::from(id).to_le_bytes());
        entry.extend(marks.to_le_bytes());
        self.write(self.rings[ring].areas[0] + 16 * u64::from(next % SIZE) + 8, &entry);
    }

    /// Writes the number of a packet's buffers into the buffer of a descriptor in the ring to the
    /// guest.
    fn write_header(&self, id: u8, buffers: u8) {
        let descriptor = self.rings[0].areas[0] + 16 * u64::from(u16::from(id) % SIZE);
        let mut address = [0; 8];
        if let (Some(at), Some((file, _, _))) = (self.offset(descriptor), &self.memory)
            && file.read_exact_at(&mut address, at).is_ok()
        {
            let header = u64::from_le_bytes(address);
            self.write(header.wrapping_add(10), &u16::from(buffers).to_le_bytes());
        }
    }

    fn act(&mut self, victim: &mut Victim<Virtio>, act: &Act) {
        match act {
            Act::Use { ring, ids, length, jump } => {
                self.use_split((*ring).into(), ids, *length, jump / 16);
            }
            Act::Mark { ring, id, length, flags, jump } => {
                self.mark((*ring).into(), *id, *length, *flags, *jump);
            }
            Act::Write { ring, at, bytes } => {
                let start = self.rings[usize::from(*ring)].areas[0];
                self.write(start + u64::from(*at % 4096), bytes);
            }
            Act::Header { id, buffers } => self.write_header(*id, *buffers),
            Act::Hole { at } => {
                if let Some((file, _, bytes)) = &self.memory {
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let at = u64::from(*at) * 4096 % bytes;
                    let _ = fallocate(file, hole, at, 4096);
                }
            }
            Act::Poll { packets, length } => victim.poll(*packets, *length),
        }
    }
}

fn assert_complete(mut victim: Victim<Virtio>) -> Pool {
    let (held, tx) = (victim.pool.size() - victim.pool.available(), &victim.port.counters().tx);
    assert!(victim.port.link() == Link::Up || held == 0, "{held} buffers are lost");
    // If the back end had packets when the session ended, these were sent to it before.
    let reset = tx.drops_for(DropReason::Reset);
    let gone = victim.sent - (tx.drops_sum() - reset);
    assert!((tx.packets..=tx.packets + reset).contains(&gone), "{gone}: {tx:?}");
    assert_eq!(victim.port.counters().rx.packets, victim.received);
    victim.port.stop(&mut victim.pool);
    assert_eq!(victim.pool.available(), victim.pool.size());
    victim.pool
}

fn path() -> PathBuf {
    std::env::temp_dir().join(format!("haul-fuzz-virtio-{}", std::process::id()))
}

thread_local! {
    /// The pool of the last input. All its packets have returned to it.
    static POOL: Cell<Option<Pool>> = const { Cell::new(None) };
}

/// One listener for all inputs, because creating a listener would take most of the time for an
/// input.
fn listener() -> &'static UnixListener {
    static LISTENER: OnceLock<UnixListener> = OnceLock::new();
    LISTENER.get_or_init(|| {
        let _ = std::fs::remove_file(path());
        UnixListener::bind(path()).expect("a socket")
    })
}

fuzz_target!(|life: Life| {
    let listener = listener();
    let settings = VirtioSettings {
        size: SIZE,
        is_mergeable: life.is_mergeable,
        is_packed: life.is_packed,
        is_in_order: life.is_in_order,
        ..VirtioSettings::new(path())
    };
    let port = Virtio::open("virtio0", &settings).unwrap().pop().unwrap();
    let pool = POOL.take().unwrap_or_else(|| Pool::new(192).unwrap());
    let mut victim = Victim::new(port, pool);
    victim.port.service(&mut victim.pool).unwrap();
    let mut back = Back::accept(listener);
    while victim.port.link() != Link::Up {
        victim.port.service(&mut victim.pool).unwrap();
        std::thread::yield_now();
    }
    for each in life.acts.iter().take(64) {
        back.act(&mut victim, each);
    }
    victim.poll(8, 100);
    // The back end does not answer any more. The port must stop anyway.
    let _ = back.socket.shutdown(std::net::Shutdown::Both);
    let mut rest = [0; 64];
    while matches!(back.socket.read(&mut rest), Ok(1..)) {}
    POOL.set(Some(assert_complete(victim)));
});
