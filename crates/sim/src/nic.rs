//! The network device and its peer, which sends one TCP stream as fast as the program accepts it.
//!
//! The device has a ring of [`RING`] descriptors in the program's memory and a page of registers at
//! [`REGISTERS_ADDRESS`]. It writes frames into the buffers of the descriptors and marks them
//! full. The program takes the buffers in order and reports how many of them it has returned. The
//! device keeps half the ring filled, so that a buffer is rewritten long after its return and no
//! payload is in a cache when the program first reads it. The wire has no speed limit: the
//! processor is the bottleneck, as in the paper.
//!
//! The peer opens the connection, learns the program's sequence number from the program's answer,
//! then sends segments of one payload size. The peer counts the frames that the program sends
//! afterwards, and reads only their acknowledgements.

use crate::error::Error;
use crate::image::Memory;

/// The number of descriptors in the ring. Chosen: the usual default of a server's device.
pub const RING: u64 = 256;
/// The address of the device's registers. There is no memory at this address, and only stores of
/// 8 bytes are defined.
pub const REGISTERS_ADDRESS: u64 = 0x1000_0000;
/// The size in bytes of the page of registers.
pub const REGISTERS_BYTES: u64 = 4096;
/// The size of a descriptor in bytes: address (8), length (4), 1 if full (4), and padding up to a
/// line, so that the device never writes into a line that the program reads from. Chosen: 64,
/// like the completions of ConnectX devices.
pub const DESCRIPTOR_BYTES: u64 = 64;
/// Ethernet, IPv4 and TCP headers without options.
pub const HEADER_BYTES: u64 = ETHERNET_BYTES + 20 + 20;
/// The Ethernet header alone, and the longest frame: that header and 1500 bytes.
const ETHERNET_BYTES: u64 = 14;
const FRAME_BYTES_MAX: u64 = ETHERNET_BYTES + 1500;
/// The largest payload in bytes that an Ethernet frame of 1500 bytes carries after those headers.
pub const PAYLOAD_BYTES_MAX: u64 = 1500 - 40;
/// The peer's first sequence number. It is chosen so that sequence numbers wrap within the first
/// packets.
const PEER_SEQUENCE: u32 = 0xffff_f000;
/// The program's and the peer's addresses and ports.
const PROGRAM: ([u8; 4], u16) = ([10, 0, 0, 2], 5001);
const PEER: ([u8; 4], u16) = ([10, 0, 0, 1], 40_000);

const FIN: u8 = 1;
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACKNOWLEDGE: u8 = 16;

/// The peer's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of segments with a payload.
    pub packets: u64,
    /// The size of each payload in bytes.
    pub payload_bytes: u64,
}

/// A range of memory that the device wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dma {
    /// The first byte.
    pub address: u64,
    /// The length.
    pub bytes: u32,
}

/// The device with its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    traffic: Traffic,
    ring: Option<u64>,
    /// The number of frames written so far, and the number of buffers returned so far. Both
    /// numbers only grow.
    filled: u64,
    returned: u64,
    transmit_address: u64,
    /// The program's initial sequence number plus one, once the program has answered.
    program_sequence: Option<u32>,
    sent_packets: u64,
    /// The number of frames that the program sent.
    pub transmitted: u64,
    /// The stream's bytes that the program has acknowledged.
    pub acknowledged_bytes: u64,
    /// The address that the program reports as the target of its payload copies.
    pub user_buffer: u64,
    /// Writes to memory that the memory system has not received yet. The owner drains them.
    pub writes: Vec<Dma>,
    frame: Vec<u8>,
}

impl Nic {
    /// A device whose peer sends `traffic`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a payload that does not fit a frame.
    pub fn new(traffic: Traffic) -> Result<Self, Error> {
        if traffic.packets > 0 && !(1..=PAYLOAD_BYTES_MAX).contains(&traffic.payload_bytes) {
            return Err(Error::setting(
                "payload_bytes",
                traffic.payload_bytes,
                format!("it must be from 1 to {PAYLOAD_BYTES_MAX}, which fits a frame"),
            ));
        }
        Ok(Self {
            traffic,
            ring: None,
            filled: 0,
            returned: 0,
            transmit_address: 0,
            program_sequence: None,
            sent_packets: 0,
            transmitted: 0,
            acknowledged_bytes: 0,
            user_buffer: 0,
            writes: Vec::new(),
            frame: Vec::new(),
        })
    }

    /// Packets whose buffers the program has returned, without the frame that opens the connection.
    pub fn taken_packets(&self) -> u64 {
        self.returned.saturating_sub(1)
    }

    /// Whether `address` is one of the device's registers.
    pub fn is_register(address: u64) -> bool {
        address.wrapping_sub(REGISTERS_ADDRESS) < REGISTERS_BYTES
    }

    /// Handles a store of `value` to the register at `address`.
    ///
    /// # Errors
    /// [`Error::Device`] for a register that does not exist, and for memory that the program does
    /// not own.
    pub fn store(&mut self, memory: &mut Memory, address: u64, value: u64) -> Result<(), Error> {
        match address.wrapping_sub(REGISTERS_ADDRESS) {
            0x00 => {
                self.ring = Some(value);
                self.fill(memory)
            }
            0x08 => {
                let is_possible = (self.returned..=self.filled).contains(&value);
                if !is_possible {
                    return Err(refusal("returned", value, "the device has not filled that many"));
                }
                self.returned = value;
                self.fill(memory)
            }
            0x10 => {
                self.transmit_address = value;
                Ok(())
            }
            0x18 => self.transmit(memory, value),
            0x20 => {
                self.user_buffer = value;
                Ok(())
            }
            _ => Err(refusal("address", address, "the device has no such register")),
        }
    }

    /// Byte `position` of the stream that the peer sends.
    pub fn stream_byte(position: u64) -> u8 {
        // Eight bytes from one multiplication by an odd constant (2^64 divided by the golden
        // ratio). Neighbouring words always differ, so that a copy to a wrong address is visible.
        let word = (position / 8).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.to_le_bytes()[(position % 8) as usize]
    }

    /// Fills buffers until half the ring is ahead of the program.
    fn fill(&mut self, memory: &mut Memory) -> Result<(), Error> {
        let Some(ring) = self.ring else { return Ok(()) };
        while self.filled < self.returned + RING / 2 && self.next_frame() {
            let descriptor = ring.wrapping_add(self.filled % RING * DESCRIPTOR_BYTES);
            let no_ring =
                || refusal("ring", ring, "a descriptor is outside of the program's memory");
            let buffer = u64::from_le_bytes(memory.load::<8>(descriptor).ok_or_else(no_ring)?);
            let length = self.frame.len() as u32;
            memory.write(buffer, &self.frame).ok_or(refusal(
                "ring",
                buffer,
                "this buffer is outside of the program's memory",
            ))?;
            let state = u64::from(length) | 1 << 32;
            memory.store::<8>(descriptor + 8, state.to_le_bytes()).ok_or_else(no_ring)?;
            self.writes.push(Dma { address: buffer, bytes: length });
            self.writes.push(Dma { address: descriptor, bytes: DESCRIPTOR_BYTES as u32 });
            self.filled += 1;
        }
        Ok(())
    }

    /// Builds the next frame. Returns whether there was a frame to send.
    fn next_frame(&mut self) -> bool {
        let Some(acknowledged) = self.program_sequence else {
            let is_first = self.filled == 0 && self.traffic.packets > 0;
            if is_first {
                self.build(SYN, PEER_SEQUENCE, 0, 0);
            }
            return is_first;
        };
        if self.sent_packets == self.traffic.packets {
            return false;
        }
        let position = self.sent_packets * self.traffic.payload_bytes;
        let sequence = PEER_SEQUENCE.wrapping_add(1).wrapping_add(position as u32);
        self.build(ACKNOWLEDGE | PUSH, sequence, acknowledged, self.traffic.payload_bytes);
        self.frame.extend((position..position + self.traffic.payload_bytes).map(Self::stream_byte));
        self.sent_packets += 1;
        true
    }

    /// Builds the headers of a frame. Checksums are zero, because devices of the paper's time check
    /// them in hardware.
    fn build(&mut self, flags: u8, sequence: u32, acknowledge: u32, payload_bytes: u64) {
        let frame = &mut self.frame;
        frame.clear();
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
        frame.extend([0x45, 0]);
        frame.extend((40 + payload_bytes as u16).to_be_bytes());
        // Identification 0, "do not fragment", 64 hops, TCP, no checksum.
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(PEER.0);
        frame.extend(PROGRAM.0);
        frame.extend(PEER.1.to_be_bytes());
        frame.extend(PROGRAM.1.to_be_bytes());
        frame.extend(sequence.to_be_bytes());
        frame.extend(acknowledge.to_be_bytes());
        // Five words of header, a full window, no checksum, no urgent data.
        frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    }

    /// Sends the program's frame. The program has set the frame's address before.
    fn transmit(&mut self, memory: &mut Memory, length: u64) -> Result<(), Error> {
        let no_frame =
            || refusal("transmit", length, "the frame is too short, too long or outside of memory");
        let is_possible = (ETHERNET_BYTES..=FRAME_BYTES_MAX).contains(&length);
        let frame = memory.read(self.transmit_address, length).filter(|_| is_possible);
        let frame = frame.ok_or_else(no_frame)?;
        self.transmitted += 1;
        if length < HEADER_BYTES {
            // For example an ARP announcement.
            return Ok(());
        }
        let word = |at: usize| {
            u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
        };
        let is_tcp = frame[12..14] == [8, 0] && frame[23] == 6;
        let flags = frame[47];
        let (sequence, acknowledge) = (word(38), word(42));
        if !is_tcp || flags & ACKNOWLEDGE == 0 || flags & FIN != 0 {
            return Ok(());
        }
        if flags & SYN != 0 {
            self.program_sequence = Some(sequence.wrapping_add(1));
        } else {
            let stream = self.acknowledged_bytes as u32;
            let step = acknowledge.wrapping_sub(PEER_SEQUENCE.wrapping_add(1)).wrapping_sub(stream);
            if step < 1 << 31 {
                self.acknowledged_bytes += u64::from(step);
            }
        }
        self.fill(memory)
    }
}

fn refusal(register: &'static str, value: u64, problem: &'static str) -> Error {
    Error::Device { register, value, problem }
}
