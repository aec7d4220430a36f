//! Streams from files, and those that haul contains.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_machine::file::read_limited;
use haul_model::Bytes;
use haul_model::stream::Stream;

use crate::error::Error;

/// The end of a stream's file name.
const EXTENSION: &str = "stream";

/// The largest file. The largest number of calls needs less, even if nothing can be compressed.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// The most bytes that the calls of a stream may copy: a replay of all of them takes seconds, and
/// cannot be interrupted.
const CALLED_BYTES_MAX: u64 = 16 << 30;

// The table BUILT_IN: the name and the bytes of each file in bench/streams/.
include!(concat!(env!("OUT_DIR"), "/streams.rs"));

/// A stream, and its origin.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The file's path, or the name by which haul contains it.
    pub name: String,
    /// The calls.
    pub stream: Arc<Stream>,
    /// The file; `None` if haul contains the stream.
    pub file: Option<PathBuf>,
}

impl Recorded {
    /// A stream that can be replayed.
    ///
    /// # Errors
    /// It has no calls, or they copy more than 16 GiB.
    pub fn new(name: &str, stream: Stream, file: Option<PathBuf>) -> Result<Self, Error> {
        let reason = match (stream.calls.len(), stream.bytes()) {
            (0, _) => "it has no calls; record a program that copies".to_owned(),
            (_, bytes) if bytes > CALLED_BYTES_MAX => format!(
                "its calls copy {}, and at most {} can be replayed; record fewer calls",
                Bytes(bytes),
                Bytes(CALLED_BYTES_MAX)
            ),
            _ => return Ok(Self { name: name.to_owned(), stream: Arc::new(stream), file }),
        };
        Err(Error::Stream { name: name.to_owned(), reason })
    }

    /// The name of the recorded program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.stream.header.program
    }
}

/// The names of the streams that haul contains.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// All streams that haul contains, in the order of their names.
///
/// # Panics
/// Never: a test reads all of them.
#[must_use]
pub fn built_in() -> Vec<Recorded> {
    let read = |(name, bytes): &(&str, &[u8])| parse(name, bytes, None);
    BUILT_IN.iter().map(read).collect::<Result<_, _>>().expect("a test reads all of them")
}

/// The stream in this file, all streams of this folder in the order of their names, or the stream
/// with this name that haul contains.
///
/// # Errors
/// There is neither, a file cannot be read or is not a stream, or a folder has no streams.
pub fn find(name: &OsStr) -> Result<Vec<Recorded>, Error> {
    let path = Path::new(name);
    if path.is_dir() {
        return in_folder(path);
    }
    let contained = BUILT_IN.iter().find(|(own, _)| name == *own);
    match contained.filter(|_| !path.exists()) {
        Some((own, bytes)) => Ok(vec![parse(own, bytes, None)?]),
        None => Ok(vec![read(path)?]),
    }
}

/// The stream in this file.
///
/// # Errors
/// The file cannot be read, or is not a stream that can be replayed.
pub fn read(path: &Path) -> Result<Recorded, Error> {
    let name = path.display().to_string();
    let fail = |reason: String| Error::Stream { name: name.clone(), reason };
    let bytes = read_limited(path, FILE_BYTES_MAX).map_err(|error| {
        let known: Vec<&str> = names().collect();
        let known = match known.is_empty() {
            true => String::new(),
            false => format!("; haul contains {}", known.join(", ")),
        };
        fail(format!("{error}{known}"))
    })?;
    parse(&name, &bytes, Some(path.to_owned()))
}

fn in_folder(path: &Path) -> Result<Vec<Recorded>, Error> {
    let fail = |reason: String| Error::Stream { name: path.display().to_string(), reason };
    let entries = std::fs::read_dir(path).map_err(|error| fail(error.to_string()))?;
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|it| is_stream(it)).collect();
    files.sort();
    if files.is_empty() {
        return Err(fail(format!("the folder has no file that ends in .{EXTENSION}")));
    }
    files.iter().map(|file| read(file)).collect()
}

fn is_stream(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

fn parse(name: &str, bytes: &[u8], file: Option<PathBuf>) -> Result<Recorded, Error> {
    let stream = Stream::read(bytes)
        .map_err(|error| Error::Stream { name: name.to_owned(), reason: error.to_string() })?;
    Recorded::new(name, stream, file)
}
