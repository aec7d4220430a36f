//! A front end that sends and writes anything that a test requests. It writes its memory through
//! the memory's file.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Requests of the vhost-user protocol.
pub(crate) const GET_FEATURES: u32 = 1;
pub(crate) const SET_FEATURES: u32 = 2;
pub(crate) const SET_OWNER: u32 = 3;
pub(crate) const SET_MEM_TABLE: u32 = 5;
pub(crate) const SET_VRING_NUM: u32 = 8;
pub(crate) const SET_VRING_ADDR: u32 = 9;
pub(crate) const SET_VRING_BASE: u32 = 10;
pub(crate) const GET_VRING_BASE: u32 = 11;
pub(crate) const SET_VRING_KICK: u32 = 12;
pub(crate) const SET_VRING_CALL: u32 = 13;
pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
pub(crate) const SET_VRING_ENABLE: u32 = 18;
pub(crate) const GET_INFLIGHT_FD: u32 = 31;
pub(crate) const SET_INFLIGHT_FD: u32 = 32;

/// Flags of a message that requests an answer.
pub(crate) const WANTS_ANSWER: u32 = 1 | 1 << 3;

/// The beginning of the memory in the guest, and in the front end's process.
pub(crate) const GUEST: u64 = 0x10_0000;
pub(crate) const PROCESS: u64 = 0x7F00_0000_0000;
pub(crate) const MEMORY_BYTES: u64 = 1 << 20;

/// The number of descriptors per ring.
pub(crate) const SIZE: u16 = 64;

/// Offsets of a ring's areas, and the distance between two rings.
pub(crate) const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x2000;
pub(crate) const USED: u64 = 0x3000;
pub(crate) const RING: u64 = 0x8000;

/// Offset of the buffers: one for each descriptor of each ring.
const BUFFERS: u64 = 0x2_0000;
pub(crate) const BUFFER_BYTES: u64 = 2048;

/// VIRTIO_NET_F_MRG_RXBUF, VIRTIO_F_INDIRECT_DESC, VIRTIO_F_VERSION_1, VIRTIO_F_RING_PACKED,
/// VIRTIO_F_IN_ORDER.
pub(crate) const MERGEABLE: u64 = 1 << 15;
pub(crate) const INDIRECT: u64 = 1 << 28;
pub(crate) const VERSION_1: u64 = 1 << 32;
/// VHOST_USER_F_PROTOCOL_FEATURES: rings are then enabled by separate messages.
pub(crate) const PROTOCOL: u64 = 1 << 30;
pub(crate) const PACKED: u64 = 1 << 34;
pub(crate) const IN_ORDER: u64 = 1 << 35;

/// VIRTIO_F_EVENT_IDX.
pub(crate) const EVENT_INDEX: u64 = 1 << 29;

/// Time limit for an answer: longer than any time limit of a test for the calls of a port.
const ANSWER_MAX: Duration = Duration::from_secs(20);

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const IS_INDIRECT: u16 = 4;

/// Ring 0 carries packets to the guest, ring 1 from it.
pub(crate) const TO_GUEST: u64 = 0;
pub(crate) const FROM_GUEST: u64 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

pub(crate) struct Front {
    pub(crate) socket: UnixStream,
    pub(crate) memory: OwnedFd,
    /// Available index of each ring.
    next: [u16; 4],
}

pub(crate) fn memory_file(bytes: u64) -> OwnedFd {
    let file = memfd_create(c"guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    file
}

fn event() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

impl Front {
    pub(crate) fn connect(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).unwrap())
    }

    /// A front end over a connected socket.
    pub(crate) fn over(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(ANSWER_MAX)).unwrap();
        Self { socket, memory: memory_file(MEMORY_BYTES), next: [0; 4] }
    }

    /// Connects to another back end, with the same memory.
    pub(crate) fn reconnect(&mut self, socket: UnixStream) {
        socket.set_read_timeout(Some(ANSWER_MAX)).unwrap();
        self.socket = socket;
    }

    /// Sends a message. The port may have disconnected, which is not an error here.
    pub(crate) fn send(&self, code: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        self.send_raw(code, 1, body.len() as u32, body, files)
    }

    /// Like [`Front::send`], but with any header.
    pub(crate) fn send_raw(
        &self,
        code: u32,
        flags: u32,
        length: u32,
        body: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> bool {
        let mut bytes = Vec::new();
        [code, flags, length].iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(body);
        self.send_bytes_with(&bytes, files)
    }

    /// Sends bytes, with descriptors.
    pub(crate) fn send_bytes_with(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        let parts = [IoSlice::new(bytes)];
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.socket, &parts, &mut ancillary, flags).is_ok()
    }

    pub(crate) fn answer(&mut self) -> Option<u64> {
        let mut reply = [0; 20];
        self.socket.read_exact(&mut reply).ok()?;
        Some(u64::from_ne_bytes(reply[12..].try_into().unwrap()))
    }

    /// Receives an answer that is a header alone.
    pub(crate) fn answer_without_body(&mut self) -> bool {
        self.socket.read_exact(&mut [0; 12]).is_ok()
    }

    /// The available index of a ring.
    pub(crate) fn available(&self, ring: u64) -> u16 {
        self.next[ring as usize]
    }

    /// Receives an answer of this length with a file.
    pub(crate) fn answer_with_file(&mut self, bytes: &mut [u8]) -> Option<OwnedFd> {
        let mut header = [0; 12];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(bytes)];
        let flags = RecvFlags::WAITALL | RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(&self.socket, parts, &mut ancillary, flags).ok()?;
        ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        })
    }

    pub(crate) fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// A state of a ring: its number, and a value.
    pub(crate) fn state(ring: u32, value: u32) -> Vec<u8> {
        [ring, value].iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// The body of SET_MEM_TABLE: regions as guest, bytes, process, offset.
    pub(crate) fn table(regions: &[[u64; 4]]) -> Vec<u8> {
        let mut body = Self::state(regions.len() as u32, 0);
        regions.iter().for_each(|region| body.extend(Self::words(region)));
        body
    }

    pub(crate) fn share(&self) -> bool {
        let table = Self::table(&[[GUEST, MEMORY_BYTES, PROCESS, 0]]);
        self.send(SET_MEM_TABLE, &table, &[self.memory.as_fd()])
    }

    /// The body of SET_VRING_ADDR.
    pub(crate) fn addresses(ring: u64) -> Vec<u8> {
        let start = PROCESS + ring * RING;
        let mut body = Self::state(ring as u32, 0);
        body.extend(Self::words(&[start + DESCRIPTORS, start + USED, start + AVAILABLE, 0]));
        body
    }

    /// The number of messages that an honest front end sends.
    pub(crate) fn steps() -> usize {
        Self::steps_of(2)
    }

    /// The number of messages that an honest front end sends for `rings` rings.
    pub(crate) fn steps_of(rings: usize) -> usize {
        2 + 1 + 1 + rings * 5
    }

    /// Sends one of the messages of an honest front end.
    pub(crate) fn step(&mut self, step: usize, features: u64) {
        match step {
            0 => self.send(SET_OWNER, &[], &[]),
            1 => self.send(GET_FEATURES, &[], &[]) && self.answer().is_some(),
            2 => self.send(SET_FEATURES, &Self::words(&[features]), &[]),
            3 => self.share(),
            _ => {
                let ring = (step as u64 - 4) / 5;
                let index = ring as u32;
                match (step - 4) % 5 {
                    0 => self.send(SET_VRING_NUM, &Self::state(index, SIZE.into()), &[]),
                    // The highest bit of a packed ring's base means that its first round is odd.
                    1 => {
                        let base = if features & PACKED != 0 { 0x8000_8000 } else { 0 };
                        self.send(SET_VRING_BASE, &Self::state(index, base), &[])
                    }
                    2 => self.send(SET_VRING_ADDR, &Self::addresses(ring), &[]),
                    3 => self.send(SET_VRING_CALL, &Self::words(&[ring]), &[event().as_fd()]),
                    _ => self.send(SET_VRING_KICK, &Self::words(&[ring]), &[event().as_fd()]),
                }
            }
        };
    }

    pub(crate) fn start(&mut self, features: u64) {
        (0..Self::steps()).for_each(|step| self.step(step, features));
    }

    /// Stops a ring, and starts it again with this size and base.
    pub(crate) fn restart(&mut self, ring: u64, size: u16, base: u32) {
        let index = ring as u32;
        assert!(self.send(GET_VRING_BASE, &Self::state(index, 0), &[]) && self.answer().is_some());
        assert!(self.send(SET_VRING_NUM, &Self::state(index, size.into()), &[]));
        assert!(self.send(SET_VRING_BASE, &Self::state(index, base), &[]));
        assert!(self.send(SET_VRING_KICK, &Self::words(&[ring]), &[event().as_fd()]));
    }

    /// Makes a split ring begin at this index of available and used chains.
    pub(crate) fn begin_at(&mut self, ring: u64, index: u16) {
        self.set_available(ring, index);
        self.put(ring * RING + USED + 2, &index.to_le_bytes());
    }

    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) {
        assert_eq!(rustix::io::pwrite(&self.memory, bytes, offset).unwrap(), bytes.len());
    }

    pub(crate) fn get(&self, offset: u64, bytes: &mut [u8]) {
        assert_eq!(rustix::io::pread(&self.memory, &mut *bytes, offset).unwrap(), bytes.len());
    }

    /// Offset of a descriptor's own buffer in the memory.
    pub(crate) fn buffer(ring: u64, index: u16) -> u64 {
        BUFFERS + (ring * u64::from(SIZE) + u64::from(index)) * BUFFER_BYTES
    }

    pub(crate) fn set(&self, ring: u64, index: u16, descriptor: Descriptor) {
        self.put(ring * RING + DESCRIPTORS + 16 * u64::from(index), &bytes_of(descriptor));
    }

    /// Makes a chain available.
    pub(crate) fn make_available(&mut self, ring: u64, head: u16) {
        let next = self.next[ring as usize];
        let at = ring * RING + AVAILABLE;
        self.put(at + 4 + 2 * u64::from(next % SIZE), &head.to_le_bytes());
        self.set_available(ring, next.wrapping_add(1));
    }

    pub(crate) fn set_available(&mut self, ring: u64, index: u16) {
        self.next[ring as usize] = index;
        self.put(ring * RING + AVAILABLE + 2, &index.to_le_bytes());
    }

    pub(crate) fn used(&self, ring: u64) -> u16 {
        let mut index = [0; 2];
        self.get(ring * RING + USED + 2, &mut index);
        u16::from_le_bytes(index)
    }

    /// An entry of a ring's used chains: the chain's first descriptor, and the bytes written to it.
    pub(crate) fn used_entry(&self, ring: u64, index: u16) -> (u16, u32) {
        let mut entry = [0; 8];
        self.get(ring * RING + USED + 4 + 8 * u64::from(index % SIZE), &mut entry);
        let [a, b, _, _, written @ ..] = entry;
        (u16::from_le_bytes([a, b]), u32::from_le_bytes(written))
    }

    /// Makes a buffer of one descriptor available.
    pub(crate) fn add_buffer(&mut self, index: u16) {
        self.add_buffer_of(TO_GUEST, index);
    }

    /// Makes a buffer of another ring to the guest available.
    pub(crate) fn add_buffer_of(&mut self, ring: u64, index: u16) {
        let address = GUEST + Self::buffer(ring, index);
        let length = BUFFER_BYTES as u32;
        self.set(ring, index, Descriptor { address, length, flags: WRITE, next: 0 });
        self.make_available(ring, index);
    }

    /// Makes a packet of 60 B from the guest available, in one descriptor.
    pub(crate) fn send_packet(&mut self, index: u16, mark: u8) {
        let at = Self::buffer(FROM_GUEST, index);
        let mut bytes = [mark; 72];
        bytes[..12].fill(0);
        self.put(at, &bytes);
        let descriptor = Descriptor { address: GUEST + at, length: 72, flags: 0, next: 0 };
        self.set(FROM_GUEST, index, descriptor);
        self.make_available(FROM_GUEST, index);
    }

    /// Whether the port disconnects, before it answers and in the time that an answer may need.
    pub(crate) fn is_disconnected(&mut self) -> bool {
        let mut byte = [0];
        match self.socket.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        // The port may have disconnected.
        let _ = self.socket.write_all(bytes);
    }
}

pub(crate) fn bytes_of(descriptor: Descriptor) -> [u8; 16] {
    let Descriptor { address, length, flags, next } = descriptor;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}
