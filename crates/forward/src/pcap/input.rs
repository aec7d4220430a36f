//! The packets of a capture, one after the other.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use haul_model::capture::{Header, Headers, PacketHeader, link_name};
use rustix::fs::{Mode, OFlags};

use super::super::error::Error;
use super::super::pool::PACKET_BYTES_MAX;
use haul_peer::descriptor::kept;

/// Bytes of the file that are had by one system call: a part of the second cache, and many times
/// the longest packet with its header.
const WINDOW_BYTES: usize = 256 << 10;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A packet, [`Input::packet`].
    Packet,
    /// The file is over, and begins again if there is another pass.
    Over {
        /// Whether it ended within a packet or a header.
        is_cut: bool,
    },
}

/// A file that is read.
#[derive(Debug)]
pub(super) struct Input {
    file: File,
    path: PathBuf,
    window: Box<[u8]>,
    /// The part of it that was not looked at yet.
    start: usize,
    end: usize,
    /// Where in the file the window's end is.
    at: u64,
    headers: Headers,
    /// Bytes before the next header.
    skip: u64,
    /// The packet whose kept bytes begin at `start`.
    packet: Option<PacketHeader>,
    /// Whether this pass gave a packet: one that gives none is the last.
    has_given: bool,
    passes: u64,
}

impl Input {
    /// Opens a file and looks at it up to its first packet.
    ///
    /// # Errors
    /// [`Error::Path`].
    pub(super) fn open(path: &Path, passes: u64) -> Result<Self, Error> {
        // A pipe's writer may never come: it is not waited for, and then refused.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let remedy = "name a file of pcap or pcapng that you may read";
        let refused = |reason: io::Error| failure(path, reason, remedy);
        let file = kept(rustix::fs::open(path, flags, Mode::empty()));
        let file = File::from(file.map_err(|reason| refused(reason.into()))?);
        if !file.metadata().map_err(refused)?.is_file() {
            return Err(refused(io::Error::other("it is no regular file")));
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
            return Err(input.refused("it ends before its header does"));
        }
        // All packets of a pcap file are of one link; each of a pcapng file is of its own.
        if input.find()?
            && let Some(packet) = input.packet.filter(|packet| !packet.is_ethernet())
            && !input.headers.is_in_block()
        {
            let PacketHeader { link, .. } = packet;
            let reason = format!(
                "its packets are of another link than Ethernet: {}, link type {link}",
                link_name(link)
            );
            return Err(input.refused(&reason));
        }
        Ok(input)
    }

    /// What tells the file from others: its device and number.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        self.file.metadata().ok().map(|it| (it.dev(), it.ino()))
    }

    /// What comes next; the same again until [`Input::next`].
    ///
    /// # Errors
    /// [`Error::Path`] where the file cannot be read, or says of itself what cannot be.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Found, Error> {
        if self.packet.is_some() {
            return Ok(Found::Packet);
        }
        if self.is_over() {
            return Ok(Found::Over { is_cut: false });
        }
        if self.find_plain() || self.find()? {
            return Ok(Found::Packet);
        }
        let is_cut = self.start < self.end || self.skip > 0 || self.headers.is_in_block();
        self.passes -= 1;
        if !std::mem::take(&mut self.has_given) {
            self.passes = 0;
        }
        self.rewind();
        Ok(Found::Over { is_cut })
    }

    /// The header of the packet that [`Input::peek`] found.
    #[inline]
    pub(super) fn packet(&self) -> Option<&PacketHeader> {
        self.packet.as_ref()
    }

    /// The bytes that were kept of it, if it is whole and not too long.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        let kept = self.packet.map_or(0, |packet| packet.kept as usize);
        &self.window[self.start..self.start + kept]
    }

    /// On to the packet after it, which was given, or could not be.
    #[inline]
    pub(super) fn next(&mut self, is_given: bool) {
        self.has_given |= is_given;
        if let Some(packet) = self.packet.take() {
            self.skip = packet.skip;
        }
    }

    /// Whether nothing comes any more.
    pub(super) fn is_over(&self) -> bool {
        self.passes == 0
    }

    /// No packet comes any more.
    pub(super) fn stop(&mut self) {
        self.passes = 0;
        self.packet = None;
    }

    /// The next packet where it is all in the window, and its header plain; else nothing is done,
    /// and [`Input::find`] says what comes.
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

    /// Finds the next packet, and has its bytes in the window; false at the file's end.
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

    /// Whether the file has all of a packet and its block's end. Its bytes are in the window then,
    /// if it is not too long.
    #[inline]
    fn is_whole(&mut self, packet: &PacketHeader) -> Result<bool, Error> {
        let kept = packet.kept as usize;
        if kept <= PACKET_BYTES_MAX && !self.fill(kept)? {
            return Ok(false);
        }
        let end = packet.skip + if self.headers.is_in_block() { 4 } else { 0 };
        Ok(end <= (self.end - self.start) as u64 || self.reaches(end)?)
    }

    /// Passes over what lies before the next header; false at the file's end.
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

    /// Whether the file has so many bytes more.
    #[cold]
    fn reaches(&self, bytes: u64) -> Result<bool, Error> {
        let size = self.file.metadata().map_err(|reason| self.unread(reason))?.len();
        Ok(self.at - (self.end - self.start) as u64 + bytes <= size)
    }

    /// Has so many bytes in the window, or says that the file has them not.
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
        failure(&self.path, reason, "name a whole file of pcap or pcapng")
    }

    fn unread(&self, reason: io::Error) -> Error {
        failure(&self.path, reason, "look at the file and what it lies on")
    }
}

fn failure(path: &Path, reason: io::Error, remedy: &'static str) -> Error {
    Error::Path { attempt: "read the capture", path: path.into(), reason, remedy }
}
