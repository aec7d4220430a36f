//! The header of a heap's metadata, which describes the heap. The process that creates the heap
//! writes the header once. A process that attaches reads the header once and checks it before it
//! uses any field.

use crate::error::Error;
use crate::layout::{DATA_MAX, Geometry, Layout, NAMESPACES_AT, PAGE};
use crate::sync::{Acquire, AtomicU64, Relaxed, Release};
use crate::sys::huge::HugeSize;

/// The text "haulheap" as a little-endian word.
const MAGIC: u64 = u64::from_le_bytes(*b"haulheap");

/// The version of the layout, the words and the protocols that processes share. Any change of
/// these increases the version.
pub(crate) const VERSION: u32 = 12;

/// The header is complete.
const READY: u64 = 0x0079_6461_6572_u64;

/// The header is being written.
const WRITING: u64 = 1;

/// Words of the header.
const WORDS: usize = 16;

const _: () = assert!(WORDS * size_of::<u64>() <= NAMESPACES_AT);

/// The index of a word in the header. The state comes first and keeps its index in all versions.
#[derive(Clone, Copy)]
enum Field {
    State,
    Magic,
    Version,
    Kind,
    Nodes,
    NodePages,
    Caches,
    MetadataBytes,
    DataBytes,
    DataOffset,
    ExternalBase,
    ExternalBytes,
    PoolPages,
    PoolShift,
    PoolDevice,
    PoolFile,
}

/// The kind of heap to which the metadata belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum HeaderKind {
    /// A heap of one process.
    Private = 1,
    /// A heap with metadata and data in one file.
    Shared = 2,
    /// A heap with data in external memory.
    External = 3,
}

/// The checked content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: HeaderKind,
    pub(crate) geometry: Geometry,
    /// The offset of the data in the file, for [`HeaderKind::Shared`].
    pub(crate) data_offset: u64,
    /// The address of the data in every process, for [`HeaderKind::External`].
    pub(crate) external_base: u64,
    /// Bytes of the external range that the heap may use.
    pub(crate) external_bytes: u64,
    /// The second file of a shared heap with pages from a pool.
    pub(crate) pool: Option<PoolFile>,
}

/// The file that contains the first pages of each node in a shared heap. A page has the same
/// offset in this file and in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolFile {
    /// The page size of the pool.
    pub(crate) size: HugeSize,
    /// Pages of 2 MiB per node. They fill whole pages of the pool.
    pub(crate) pages: u32,
    /// The identity of the file: see [`crate::sys::file::Facts::identity`].
    pub(crate) identity: [u64; 2],
}

/// The bytes of a header in the file.
pub(crate) type Raw = [u8; WORDS * size_of::<u64>()];

/// The progress of writing a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No process has begun to write the header.
    Untouched,
    /// A process is writing the header.
    Writing,
    /// The header is complete.
    Ready,
}

impl Header {
    /// The header of a heap with metadata and data in one file.
    pub(crate) fn shared(geometry: Geometry) -> Self {
        let data_offset = Layout::of(&geometry).bytes.next_multiple_of(PAGE) as u64;
        Self { data_offset, ..Self::private(geometry, HeaderKind::Shared) }
    }

    /// The header of a heap whose data is in no file.
    pub(crate) fn private(geometry: Geometry, kind: HeaderKind) -> Self {
        let (data_offset, external_base, external_bytes, pool) = (0, 0, 0, None);
        Self { kind, geometry, data_offset, external_base, external_bytes, pool }
    }

    /// Bytes of a shared heap's file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.data_offset + self.geometry.data_bytes() as u64
    }

    /// Writes the header. For other processes the header is complete only at the end of this
    /// call.
    pub(crate) fn write(&self, words: &[AtomicU64]) {
        words[Field::State as usize].store(WRITING, Relaxed);
        let layout = Layout::of(&self.geometry);
        let pages = self.pool.map_or(0, |pool| pool.pages.into());
        let shift = self.pool.map_or(0, |pool| pool.size.log2().into());
        let [device, file] = self.pool.map_or([0; 2], |pool| pool.identity);
        for (field, value) in [
            (Field::Magic, MAGIC),
            (Field::Version, VERSION.into()),
            (Field::Kind, self.kind as u64),
            (Field::Nodes, self.geometry.nodes.into()),
            (Field::NodePages, self.geometry.node_pages.into()),
            (Field::Caches, self.geometry.caches.into()),
            (Field::MetadataBytes, layout.bytes as u64),
            (Field::DataBytes, self.geometry.data_bytes() as u64),
            (Field::DataOffset, self.data_offset),
            (Field::ExternalBase, self.external_base),
            (Field::ExternalBytes, self.external_bytes),
            (Field::PoolPages, pages),
            (Field::PoolShift, shift),
            (Field::PoolDevice, device),
            (Field::PoolFile, file),
        ] {
            words[field as usize].store(value, Relaxed);
        }
        // SYNC: header complete
        words[Field::State as usize].store(READY, Release);
    }

    /// Claims an untouched header for writing. Returns false if another process has claimed it.
    pub(crate) fn claim(words: &[AtomicU64]) -> bool {
        words[Field::State as usize].compare_exchange(0, WRITING, Acquire, Relaxed).is_ok()
    }

    /// Copies the header. Reads each word only once, because other processes may write to the
    /// memory.
    pub(crate) fn snapshot(words: &[AtomicU64]) -> Raw {
        let mut raw = [0; WORDS * size_of::<u64>()];
        // SYNC: header complete
        let state = words[Field::State as usize].load(Acquire);
        for (index, bytes) in raw.chunks_exact_mut(size_of::<u64>()).enumerate() {
            let word = if index == 0 { state } else { words[index].load(Relaxed) };
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        raw
    }

    /// The progress of the header.
    pub(crate) fn progress(raw: &Raw) -> Progress {
        match word(raw, Field::State) {
            0 => Progress::Untouched,
            WRITING => Progress::Writing,
            // `parse` checks any other value.
            _ => Progress::Ready,
        }
    }

    /// Checks the header's fields against each other. `bytes` is the size of the file or area
    /// that contains the metadata.
    pub(crate) fn parse(raw: &Raw, bytes: u64) -> Result<Self, Error> {
        let magic = word(raw, Field::Magic);
        if word(raw, Field::State) != READY || magic != MAGIC {
            return Err(Error::NotAHeap { magic });
        }
        let version = word(raw, Field::Version);
        if version != u64::from(VERSION) {
            let found = u32::try_from(version).unwrap_or(u32::MAX);
            return Err(Error::OtherVersion { found, ours: VERSION });
        }
        let kind = match word(raw, Field::Kind) {
            1 => HeaderKind::Private,
            2 => HeaderKind::Shared,
            3 => HeaderKind::External,
            value => return Err(bad_header("kind", value, HeaderKind::External as u64)),
        };
        let geometry = parse_geometry(raw)?;
        let header = Self {
            kind,
            geometry,
            pool: parse_pool(raw, &geometry)?,
            data_offset: word(raw, Field::DataOffset),
            external_base: word(raw, Field::ExternalBase),
            external_bytes: word(raw, Field::ExternalBytes),
        };
        header.check(raw, bytes)?;
        Ok(header)
    }

    fn check(&self, raw: &Raw, bytes: u64) -> Result<(), Error> {
        let layout = Layout::of(&self.geometry);
        let expected = match self.kind {
            HeaderKind::Shared => Self::shared(self.geometry),
            _ => Self { data_offset: 0, ..*self },
        };
        for (name, value, expected) in [
            ("the metadata's size", word(raw, Field::MetadataBytes), layout.bytes as u64),
            ("the data's size", word(raw, Field::DataBytes), self.geometry.data_bytes() as u64),
            ("the data's offset", self.data_offset, expected.data_offset),
        ] {
            if value != expected {
                return Err(bad_header(name, value, expected));
            }
        }
        let needed = match self.kind {
            HeaderKind::Shared => self.file_bytes(),
            _ => layout.bytes as u64,
        };
        if bytes < needed {
            return Err(Error::Truncated { bytes, needed });
        }
        Ok(())
    }
}

fn parse_geometry(raw: &Raw) -> Result<Geometry, Error> {
    // A value above 32 bits is above every limit.
    let field = |field| u32::try_from(word(raw, field)).unwrap_or(u32::MAX);
    let geometry = Geometry {
        nodes: field(Field::Nodes),
        node_pages: field(Field::NodePages),
        caches: field(Field::Caches),
    };
    if geometry.is_valid() {
        return Ok(geometry);
    }
    let most_pages = (DATA_MAX / PAGE) as u64;
    Err(bad_header(
        "the geometry (nodes, pages of each, caches)",
        geometry.node_pages.into(),
        most_pages,
    ))
}

fn parse_pool(raw: &Raw, geometry: &Geometry) -> Result<Option<PoolFile>, Error> {
    let (pages, shift) = (word(raw, Field::PoolPages), word(raw, Field::PoolShift));
    let size = match shift {
        0 if pages == 0 => return Ok(None),
        21 => HugeSize::Mib2,
        30 => HugeSize::Gib1,
        _ => {
            return Err(bad_header(
                "the size of its huge pages",
                shift,
                HugeSize::Mib2.log2().into(),
            ));
        }
    };
    let whole = (size.bytes() / PAGE) as u64;
    if pages == 0 || pages > geometry.node_pages.into() || !pages.is_multiple_of(whole) {
        return Err(bad_header("its number of huge pages", pages, geometry.node_pages.into()));
    }
    let identity = [word(raw, Field::PoolDevice), word(raw, Field::PoolFile)];
    Ok(Some(PoolFile { size, pages: pages as u32, identity }))
}

fn bad_header(field: &'static str, value: u64, expected: u64) -> Error {
    Error::BadHeader { field, value, expected }
}

fn word(raw: &Raw, field: Field) -> u64 {
    let start = field as usize * size_of::<u64>();
    let mut bytes = [0; size_of::<u64>()];
    bytes.copy_from_slice(&raw[start..start + size_of::<u64>()]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    const GEOMETRY: Geometry = Geometry { nodes: 2, node_pages: 512, caches: 64 };

    fn written() -> (Raw, u64) {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let header = Header::shared(GEOMETRY);
        assert!(Header::claim(&words));
        assert!(!Header::claim(&words));
        header.write(&words);
        (Header::snapshot(&words), header.file_bytes())
    }

    fn with(field: Field, value: u64) -> Raw {
        let (mut raw, _) = written();
        let start = field as usize * 8;
        raw[start..start + 8].copy_from_slice(&value.to_le_bytes());
        raw
    }

    #[test]
    fn parsed_header_equals_the_written_one() {
        let (raw, bytes) = written();
        assert_eq!(Header::progress(&raw), Progress::Ready);
        assert_eq!(Header::parse(&raw, bytes), Ok(Header::shared(GEOMETRY)));
        let cut = Header::parse(&raw, bytes - 1);
        assert_eq!(cut, Err(Error::Truncated { bytes: bytes - 1, needed: bytes }));
    }

    #[test]
    fn second_file_must_be_whole_pages_of_a_node() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let parsed = |size, pages| {
            let pool = Some(PoolFile { size, pages, identity: [7, 9] });
            let header = Header { pool, ..Header::shared(GEOMETRY) };
            header.write(&words);
            let parsed = Header::parse(&Header::snapshot(&words), header.file_bytes());
            parsed.map(|parsed| assert_eq!(parsed, header))
        };
        assert_eq!(parsed(HugeSize::Mib2, 3), Ok(()));
        assert_eq!(parsed(HugeSize::Gib1, 512), Ok(()));
        for (size, pages) in [(HugeSize::Mib2, 513), (HugeSize::Gib1, 256), (HugeSize::Mib2, 0)] {
            assert!(matches!(parsed(size, pages), Err(Error::BadHeader { .. })));
        }
    }

    #[test]
    fn invalid_header_is_refused() {
        let (_, bytes) = written();
        for (field, value) in [
            (Field::Kind, 0),
            (Field::Kind, 4),
            (Field::Nodes, 0),
            (Field::Nodes, 9),
            (Field::Nodes, 1),
            (Field::Nodes, 1 << 32 | 2),
            (Field::NodePages, u64::MAX),
            (Field::NodePages, 513),
            (Field::Caches, 0),
            (Field::Caches, 65),
            (Field::MetadataBytes, 0),
            (Field::DataBytes, u64::MAX),
            (Field::DataOffset, 4096),
            (Field::PoolPages, 1),
            (Field::PoolShift, 21),
            (Field::PoolShift, u64::MAX),
        ] {
            let error = Header::parse(&with(field, value), bytes).unwrap_err();
            assert!(matches!(error, Error::BadHeader { .. }), "{value:#x}: {error:?}");
        }
        let error = Header::parse(&with(Field::Version, 1), bytes).unwrap_err();
        assert_eq!(error, Error::OtherVersion { found: 1, ours: VERSION });
        let error = Header::parse(&with(Field::Magic, 2), bytes).unwrap_err();
        assert_eq!(error, Error::NotAHeap { magic: 2 });
    }
}
