//! The packets of a capture, in order.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use haul_model::capture::{Header, Headers, PacketHeader, link_name};
use rustix::fs::{Mode, OFlags};

use crate::error::Error;
use crate::pool::PACKET_BYTES_MAX;
use haul_peer::descriptor::kept;

/// The number of bytes that one system call reads from the file: smaller than the second-level
/// cache, and many times as long as the longest packet with its header.
const WINDOW_BYTES: usize = 256 << 10;

/// The next element of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// A packet, [`Input::packet`].
    Packet,
    /// The end of the file, which begins again if there is another pass.
    Over {
        /// Whether the file ended within a packet or a header.
        is_cut: bool,
    },
}

/// A capture that is read.
#[derive(Debug)]
pub(super) struct Input {
    file: File,
    path: PathBuf,
    window: Box<[u8]>,
    /// The part of the window that was not parsed yet.
    start: usize,
    end: usize,
    /// The offset of the window's end in the file.
    at: u64,
    headers: Headers,
    /// The number of bytes before the next header.
    skip: u64,
    /// The packet whose captured bytes begin at `start`.
    packet: Option<PacketHeader>,
    /// Whether this pass delivered a packet: a pass without one is the last.
    has_given: bool,
    passes: u64,
}

impl Input {
    /// Opens a file and parses it up to its first packet.
    ///
    /// # Errors
    /// [`Error::Path`].
    pub(super) fn open(path: &Path, passes: u64) -> Result<Self, Error> {
        // A FIFO may never get a writer: the open does not wait for one, and the FIFO is then
        // refused.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let remedy = "choose a readable pcap or pcapng file";
        let refused = |reason: io::Error| failure(path, reason, remedy);
        let file = kept(rustix::fs::open(path, flags, Mode::empty()));
        let file = File::from(file.map_err(|reason| refused(reason.into()))?);
        if !file.metadata().map_err(refused)?.is_file() {
            return Err(refused(io::Error::other("it is not a regular file")));
        }
        let mut input = Self {
            file,
            path: path.into(),
            window: vec![0; WINDOW_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            at: 0,
            headers: Headers::new(),
            skip: 0,
            packet: None,
            has_given: false,
            passes,
        };
        if !input.fill(input.headers.wanted())? {
            return Err(input.refused("the file ends within its header"));
        }
        // All packets of a pcap file have one link type; each packet of a pcapng file has its own.
        if input.find()?
            && let Some(packet) = input.packet.filter(|packet| !packet.is_ethernet())
            && !input.headers.is_in_block()
        {
            let PacketHeader { link, .. } = packet;
            let reason =
                format!("its packets are not Ethernet: {}, link type {link}", link_name(link));
            return Err(input.refused(&reason));
        }
        Ok(input)
    }

    /// The identity of the file: its device and inode number.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        self.file.metadata().ok().map(|it| (it.dev(), it.ino()))
    }

    /// The next element; the same element until [`Input::next`].
    ///
    /// # Errors
    /// [`Error::Path`] if the file cannot be read, or is invalid.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Element, Error> {
        if self.packet.is_some() {
            return Ok(Element::Packet);
        }
        if self.is_over() {
            return Ok(Element::Over { is_cut: false });
        }
        if self.find_plain() || self.find()? {
            return Ok(Element::Packet);
        }
        let is_cut = self.start < self.end || self.skip > 0 || self.headers.is_in_block();
        self.passes -= 1;
        if !std::mem::take(&mut self.has_given) {
            self.passes = 0;
        }
        self.rewind();
        Ok(Element::Over { is_cut })
    }

    /// The header of the packet that [`Input::peek`] found.
    #[inline]
    pub(super) fn packet(&self) -> Option<&PacketHeader> {
        self.packet.as_ref()
    }

    /// The captured bytes of this packet, if it is complete and not too long.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        let kept = self.packet.map_or(0, |packet| packet.kept as usize);
        &self.window[self.start..self.start + kept]
    }

    /// Moves to the next packet. `is_given` says whether the present packet was delivered.
    #[inline]
    pub(super) fn next(&mut self, is_given: bool) {
        self.has_given |= is_given;
        if let Some(packet) = self.packet.take() {
            self.skip = packet.skip;
        }
    }

    /// Whether no packet is left.
    pub(super) fn is_over(&self) -> bool {
        self.passes == 0
    }

    /// Ends the capture.
    pub(super) fn stop(&mut self) {
        self.passes = 0;
        self.packet = None;
    }

    /// Finds the next packet if the whole packet is in the window and its header is plain.
    /// Otherwise changes nothing and returns false; [`Input::find`] then finds the next element.
    #[inline]
    fn find_plain(&mut self) -> bool {
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX);
        let start = self.start.saturating_add(skip);
        let Some(here) = self.window.get(start..self.end) else { return false };
        let Some((head, rest)) = here.split_at_checked(self.headers.wanted()) else {
            return false;
        };
        let Some(packet) = self.headers.read_plain(head) else { return false };
        if rest.len() < packet.kept as usize {
            return false;
        }
        self.start = start + head.len();
        self.skip = 0;
        self.packet = Some(packet);
        true
    }

    /// Finds the next packet, and reads its bytes into the window; false at the end of the file.
    fn find(&mut self) -> Result<bool, Error> {
        loop {
            if !self.pass_over()? {
                return Ok(false);
            }
            let wanted = self.headers.wanted();
            if !self.fill(wanted)? {
                return Ok(false);
            }
            let head = &self.window[self.start..self.start + wanted];
            match self.headers.read(head).map_err(|reason| self.refused(reason))? {
                Header::Longer => {}
                Header::End => self.start += wanted,
                Header::Other { skip } => {
                    self.start += wanted;
                    self.skip = skip;
                }
                Header::Packet(packet) => {
                    self.start += wanted;
                    self.skip = packet.skip;
                    if !self.is_whole(&packet)? {
                        return Ok(false);
                    }
                    self.skip = 0;
                    self.packet = Some(packet);
                    return Ok(true);
                }
            }
        }
    }

    /// Whether the file holds a whole packet and the end of its block. If so, and if the packet is
    /// not too long, its bytes are then in the window.
    #[inline]
    fn is_whole(&mut self, packet: &PacketHeader) -> Result<bool, Error> {
        let kept = packet.kept as usize;
        if kept <= PACKET_BYTES_MAX && !self.fill(kept)? {
            return Ok(false);
        }
        let end = packet.skip + if self.headers.is_in_block() { 4 } else { 0 };
        Ok(end <= (self.end - self.start) as u64 || self.reaches(end)?)
    }

    /// Skips the bytes before the next header; false at the end of the file.
    #[inline]
    fn pass_over(&mut self) -> Result<bool, Error> {
        let here = (self.end - self.start) as u64;
        if self.skip <= here {
            self.start += self.skip as usize;
            self.skip = 0;
            return Ok(true);
        }
        if !self.reaches(self.skip)? {
            return Ok(false);
        }
        self.at += self.skip - here;
        (self.start, self.end, self.skip) = (0, 0, 0);
        Ok(true)
    }

    /// Whether the file has at least `bytes` more bytes.
    #[cold]
    fn reaches(&self, bytes: u64) -> Result<bool, Error> {
        let size = self.file.metadata().map_err(|reason| self.unread(reason))?.len();
        Ok(self.at - (self.end - self.start) as u64 + bytes <= size)
    }

    /// Reads until the window has `bytes` bytes; false if the file has too few.
    #[inline]
    fn fill(&mut self, bytes: usize) -> Result<bool, Error> {
        if self.end - self.start >= bytes {
            return Ok(true);
        }
        self.read_on(bytes)
    }

    #[cold]
    fn read_on(&mut self, bytes: usize) -> Result<bool, Error> {
        self.window.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < bytes {
            match self.file.read_at(&mut self.window[self.end..], self.at) {
                Ok(0) => return Ok(false),
                Ok(more) => {
                    self.end += more;
                    self.at += more as u64;
                }
                Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
                Err(reason) => return Err(self.unread(reason)),
            }
        }
        Ok(true)
    }

    fn rewind(&mut self) {
        (self.start, self.end, self.at, self.skip) = (0, 0, 0, 0);
        self.headers = Headers::new();
    }

    fn refused(&self, reason: &str) -> Error {
        let at = self.at - (self.end - self.start) as u64;
        let reason = io::Error::new(io::ErrorKind::InvalidData, format!("at byte {at}, {reason}"));
        failure(&self.path, reason, "choose a complete pcap or pcapng file")
    }

    fn unread(&self, reason: io::Error) -> Error {
        failure(&self.path, reason, "check the file and its file system")
    }
}

fn failure(path: &Path, reason: io::Error, remedy: &'static str) -> Error {
    Error::Path { attempt: "read the capture", path: path.into(), reason, remedy }
}
