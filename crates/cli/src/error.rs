//! What can go wrong, and the exit code of each: 1 where haul failed, 2 where it was used wrongly,
//! 128 and the signal where one cut it short.
//!
//! From the bottom up:
//!
//! - `input`: records that are read;
//! - `transfer`: transfers to another process.

mod input;
mod transfer;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use haul_model::Bytes;

pub(crate) use input::InputError;
pub(crate) use transfer::TransferError;

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It did what was asked.
    Done,
    /// A signal of this number cut it short, and it kept what it had: the exit code is what a shell
    /// says of a program that the signal ended, as not everything asked for is there.
    Interrupted {
        /// Its number.
        signal: i32,
    },
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line is wrong, or asks for help.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    Haul(#[from] haul_machine::Error),
    /// A socket for others to ask at could not be made.
    #[error(transparent)]
    Telemetry(#[from] haul::telemetry::Error),
    /// A channel could not be made, or a transfer failed.
    #[error(transparent)]
    Channel(#[from] haul::channel::Error),
    /// A transfer that did not come to its end.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// A link, a workload or a NIC that cannot be.
    #[error(transparent)]
    Pcie(#[from] haul_model::pcie::PcieError),
    /// Records that cannot be read, or do not hold what they are read for.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A capture that cannot be read.
    #[error("cannot read the capture {}: {reason}; name a file of pcap or pcapng", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// A file that is no capture, or has no packet that counts.
    #[error("{}: {reason}", path.display())]
    NoCapture {
        /// The file.
        path: PathBuf,
        /// Where, and what is wrong there.
        reason: haul_model::pcie::PcieError,
    },
    /// Measuring could not begin.
    #[error(transparent)]
    Measure(#[from] haul_measure::Error),
    /// An experiment failed.
    #[error(transparent)]
    Experiment(#[from] haul_experiments::Error),
    /// The library that records is not there.
    #[error(
        "cannot record: libhaul_record.so is neither in {} nor in the lib beside it; build it with `cargo build \
         --release -p haul-record`, or install haul with scripts/install",
        folder.display()
    )]
    NoRecorder {
        /// Where this program lies.
        folder: PathBuf,
    },
    /// Something has the name of the trace already.
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
        /// What the system said.
        reason: io::Error,
    },
    /// A program that recorded nothing.
    #[error("nothing of {} was recorded: {why}; see docs/heap-trace.md", program.display())]
    NoTrace {
        /// The program.
        program: OsString,
        /// Why, as far as that can be seen.
        why: &'static str,
    },
    /// A program that was recorded, and failed.
    #[error(
        "{} ended with exit code {code}; its trace {}",
        program.display(),
        if *is_whole { "is whole" } else { "ends before it did" }
    )]
    ProgramFailed {
        /// The program.
        program: OsString,
        /// Whether the recorder had no reason to end before it.
        is_whole: bool,
        /// What a shell says of it.
        code: u8,
    },
    /// An output in the place of what it is made of.
    #[error(
        "cannot write results into {}: it is read as well, and what it holds would be lost; name another file",
        path.display()
    )]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}; make room, or send it elsewhere")]
    Output(io::Error),
    /// Whoever read standard output has gone; there is nobody to tell.
    #[error("nobody reads standard output any more")]
    ReaderGone,
    /// The folder for outputs cannot be used.
    #[error("cannot write results into {}: {reason}; {remedy}", path.display())]
    Folder {
        /// The folder, or the file in it.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// Another run writes the same records.
    #[error(
        "cannot write results into {}: {holder} has them locked, as a haul does that is writing them \
         there; wait until it has ended, or name another folder with --out",
        path.display()
    )]
    Busy {
        /// The records.
        path: PathBuf,
        /// The process that has them: `process 71 of user 12`.
        holder: String,
    },
    /// What a command will write does not fit into its folder.
    #[error(
        "cannot write results into {}: {reason}; make room ({room}), or name a folder with room with --out",
        path.display()
    )]
    Room {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
        /// How much is needed.
        room: Bytes,
    },
    /// A tuning that would be no file beside its records.
    #[error(
        "cannot tune into {}: it is no regular file, and the records that a haul.toml stands on go \
         beside it; name a regular file with --out",
        path.display()
    )]
    TuneInto {
        /// What was named.
        path: PathBuf,
    },
    /// A record could not be written any more.
    #[error(
        "cannot write a record to {}: {reason}; the {kept} lines before it are kept; make room and \
         run again, or name another folder with --out",
        path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
        /// How many lines are safe.
        kept: usize,
    },
    /// Tasks of a plan that are not done.
    #[error(
        "{missing} of {tasks} tasks of {plan} are missing: {named}; do them with `haul sim task {plan} \
         INDEX` and collect again"
    )]
    MissingTasks {
        /// The plan.
        plan: String,
        /// How many.
        missing: usize,
        /// Of how many.
        tasks: usize,
        /// The first of them, each with its reason.
        named: String,
    },
    /// More threads than processors.
    #[error(
        "cannot pin {asked} threads: this process may run on {allowed} processor{}; ask for \
         --threads {allowed} at most, or allow it more (taskset, or the container's cpuset)",
        if *allowed == 1 { "" } else { "s" }
    )]
    Threads {
        /// What was asked for.
        asked: usize,
        /// How many there are.
        allowed: usize,
    },
    /// A size that no address space holds.
    #[error(
        "cannot measure {asked} at once: this machine addresses at most {limit}; name smaller {option}"
    )]
    Size {
        /// What was asked for.
        asked: Bytes,
        /// The most there can be.
        limit: Bytes,
        /// By which option.
        option: &'static str,
    },
    /// A size of nothing.
    #[error("cannot measure 0 B: a size is 1 B at least; name another {option}")]
    NoSize {
        /// By which option.
        option: &'static str,
    },
    /// An option that would change nothing of what is measured.
    #[error("cannot use {option} here: it is for {belongs}; {remedy}, or leave it out")]
    Unused {
        /// Which one.
        option: &'static str,
        /// What it belongs to.
        belongs: &'static str,
        /// What to add.
        remedy: &'static str,
    },
    /// A mechanism that does not work on this machine, or not for this size.
    #[error("cannot measure mechanism {name}: {reason}; {remedy}")]
    Mechanism {
        /// Which one.
        name: &'static str,
        /// Why.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// testpmd is asked for and not there.
    #[error("cannot measure testpmd: {reason}; {}", haul_experiments::forward::Testpmd::REMEDY)]
    Testpmd {
        /// Why.
        reason: String,
    },
    /// Open vSwitch is asked for and not there.
    #[error(
        "cannot measure Open vSwitch: {reason}; {}",
        haul_experiments::forward::OpenVswitch::REMEDY
    )]
    OpenVswitch {
        /// Why.
        reason: String,
    },
    /// A guest under QEMU is asked for and not there.
    #[error(
        "cannot have a guest under QEMU: {reason}; {}",
        haul_experiments::forward::Qemu::REMEDY
    )]
    Qemu {
        /// Why.
        reason: String,
    },
    /// No copy has this name, or this processor cannot run it.
    #[error(
        "cannot copy by {name:?}; the copies are {known}, and libraries with a memcpy by their path \
         (./libmine.so); name some of these"
    )]
    Copy {
        /// What was asked for.
        name: String,
        /// The copies that there are.
        known: String,
    },
    /// A size that no packet has, or none that all sides take.
    #[error(
        "cannot measure packets of {asked}: here they have {least} to {most}, the frame check sequence \
         not counted; name other --sizes"
    )]
    PacketSize {
        /// What was asked for.
        asked: Bytes,
        /// The least.
        least: Bytes,
        /// The most.
        most: Bytes,
    },
    /// A port that cannot be.
    #[error("cannot open port {port:?}: {reason}")]
    Port {
        /// As it was asked for.
        port: String,
        /// Why.
        reason: String,
    },
    /// One port, or three.
    #[error("cannot forward between {count} ports: name --port twice, once for each side")]
    Ports {
        /// How many were named.
        count: usize,
    },
    /// A port could not be opened, or failed.
    #[error(transparent)]
    Forward(#[from] haul::forward::Error),
    /// Signals cannot be watched for.
    #[error(
        "cannot watch for Ctrl-C: {0}; run haul from a shell, with room for one more thread (ulimit -u, ulimit -v)"
    )]
    Signals(io::Error),
}

/// What shells say of a program that a signal of this number ended.
pub(crate) fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(1)
}

impl Ending {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::Interrupted { signal } => ExitCode::from(code_of_signal(signal)),
        }
    }
}

impl Error {
    pub(crate) fn exit_code(&self) -> ExitCode {
        use haul_experiments::Error as Experiment;
        use haul_measure::Error as Measure;
        match self {
            Self::ReaderGone => ExitCode::SUCCESS,
            Self::ProgramFailed { code, .. } => ExitCode::from(*code),
            Self::Usage(_)
            | Self::Pcie(_)
            | Self::NoCapture { .. }
            | Self::Threads { .. }
            | Self::Size { .. }
            | Self::NoSize { .. }
            | Self::Unused { .. }
            | Self::Mechanism { .. }
            | Self::Copy { .. }
            | Self::PacketSize { .. }
            | Self::Port { .. }
            | Self::Ports { .. }
            | Self::Forward(haul::forward::Error::Value { .. })
            | Self::TraceExists { .. }
            | Self::Replaced { .. }
            | Self::TuneInto { .. } => ExitCode::from(2),
            Self::Measure(error) | Self::Experiment(Experiment::Measure(error)) => match error {
                Measure::UnknownDistribution { .. } | Measure::UnknownLevel { .. } => {
                    ExitCode::from(2)
                }
                _ => ExitCode::from(1),
            },
            Self::Experiment(
                Experiment::UnknownSubject { .. }
                | Experiment::UnknownFunction { .. }
                | Experiment::UnknownReader { .. }
                | Experiment::SizeClass { .. }
                | Experiment::UnknownPeer { .. }
                | Experiment::UnknownChannelPeer { .. }
                | Experiment::UnknownTest { .. }
                | Experiment::BlockSize { .. }
                | Experiment::BlockAlign { .. }
                | Experiment::OddThreads { .. }
                | Experiment::SimSetting { .. }
                | Experiment::Sizes { .. }
                | Experiment::Pcie(_)
                | Experiment::Forward(haul::forward::Error::Value { .. }),
            ) => ExitCode::from(2),
            _ => ExitCode::from(1),
        }
    }
}
