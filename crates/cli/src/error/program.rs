//! The errors of a program that haul runs with a library, and records.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use haul_model::Bytes;

/// Why a program was not run with a library, or was not recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// A library that is preloaded is missing.
    #[error(
        "cannot preload {name}: it is neither in {} nor in the lib beside it; build it with `cargo build \
         --release -p {package}`, or install haul with scripts/install",
        folder.display()
    )]
    NoRecorder {
        /// The folder of this program.
        folder: PathBuf,
        /// The file name of the library.
        name: &'static str,
        /// The package that builds it.
        package: &'static str,
    },
    /// A library whose path `LD_PRELOAD` cannot hold.
    #[error("cannot preload {}: LD_PRELOAD ends a path at a space and at a colon; move haul's files to a folder \
        without them", path.display())]
    PreloadPath {
        /// The library.
        path: PathBuf,
    },
    /// A program of which there is no profile.
    #[error("profiled nothing of {}: {why}; see docs/copy-preload.md", program.display())]
    NoProfile {
        /// The program.
        program: OsString,
        /// The reason, as far as haul can see it.
        why: &'static str,
    },
    /// No file for the recording of copies.
    #[error(
        "cannot make {room} of room for the recording in {}: {reason}; name another folder in \
         TMPDIR, or ask for less with --room",
        folder.display()
    )]
    RecordingRoom {
        /// The room.
        room: Bytes,
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// A program that called no copy function, or could not be recorded.
    #[error("recorded nothing of {}: {why}; see docs/stream.md", program.display())]
    NoStream {
        /// The program.
        program: OsString,
        /// The reason, as far as haul can see it.
        why: &'static str,
    },
    /// A program whose copies were recorded and that failed.
    #[error("{} ended with exit code {code}; its calls up to then were recorded", program.display())]
    RecordedFailed {
        /// The program.
        program: OsString,
        /// The program's exit code, as a shell reports it.
        code: u8,
    },
    /// A file with the trace's name exists already.
    #[error("cannot record into {}: it exists; name another file with -o, or remove it", path.display())]
    TraceExists {
        /// The file.
        path: PathBuf,
    },
    /// A program that cannot be started.
    #[error("cannot start {}: {reason}; name a program that is on PATH, or its path", program.display())]
    Start {
        /// The program.
        program: OsString,
        /// The system's error.
        reason: io::Error,
    },
    /// A program that recorded nothing.
    #[error("recorded nothing of {}: {why}; see docs/heap-trace.md", program.display())]
    NoTrace {
        /// The program.
        program: OsString,
        /// The reason, as far as haul can see it.
        why: &'static str,
    },
    /// A program that ran with a fake DSA and failed.
    #[error("{} ended with exit code {code}, with the fake DSA", program.display())]
    FakedFailed {
        /// The program.
        program: OsString,
        /// The program's exit code, as a shell reports it.
        code: u8,
    },
    /// A program that was recorded and failed.
    #[error(
        "{} ended with exit code {code}; its trace {}",
        program.display(),
        if *is_whole { "is complete" } else { "ends before it did" }
    )]
    TracedFailed {
        /// The program.
        program: OsString,
        /// Whether the recorder recorded until the program's end.
        is_whole: bool,
        /// The program's exit code, as a shell reports it.
        code: u8,
    },
}

impl ProgramError {
    /// The exit code: that of the program, if it ran.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::TracedFailed { code, .. }
            | Self::RecordedFailed { code, .. }
            | Self::FakedFailed { code, .. } => *code,
            Self::TraceExists { .. } => 2,
            _ => 1,
        }
    }
}
