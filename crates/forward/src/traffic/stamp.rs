//! The payload of a generated packet: 18 bytes, so that it fits the shortest frame.

/// The number of bytes in front of the payload: Ethernet 14, IPv4 20, UDP 8.
pub(crate) const HEADERS_BYTES: usize = 42;

/// The size of a stamp in bytes.
pub(crate) const STAMP_BYTES: usize = 18;

/// Shortest frame without its check sequence, IEEE 802.3: 64 B less 4.
pub(crate) const FRAME_BYTES_MIN: usize = 60;

const _: () = assert!(HEADERS_BYTES + STAMP_BYTES == FRAME_BYTES_MIN);

/// The first byte of a stamp; the second byte is the stream.
const MARK: u8 = 0xA7;

/// A packet's number in its stream, and its scheduled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The queue of the generator that made the packet.
    pub(crate) stream: u8,
    pub(crate) sequence: u64,
    /// The time of the monotonic clock in nanoseconds.
    pub(crate) time_ns: u64,
}

impl Stamp {
    pub(crate) fn bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[0] = MARK;
        bytes[1] = self.stream;
        bytes[2..10].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[10..].copy_from_slice(&self.time_ns.to_be_bytes());
        bytes
    }

    /// Parses a stamp; `None` if the bytes are not one.
    pub(crate) fn of(bytes: &[u8; STAMP_BYTES]) -> Option<Self> {
        let [mark, stream, rest @ ..] = bytes;
        let (sequence, time) = rest.split_first_chunk::<8>()?;
        let time: &[u8; 8] = time.try_into().ok()?;
        (*mark == MARK).then(|| Self {
            stream: *stream,
            sequence: u64::from_be_bytes(*sequence),
            time_ns: u64::from_be_bytes(*time),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_is_read_back() {
        let stamp = Stamp { stream: 3, sequence: 0x0123_4567_89AB_CDEF, time_ns: u64::MAX - 1 };
        assert_eq!(Stamp::of(&stamp.bytes()), Some(stamp));
        assert_eq!(Stamp::of(&[0; STAMP_BYTES]), None);
    }
}
