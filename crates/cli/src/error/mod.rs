//! The errors, and the exit code of each: 1 if haul failed, 2 for wrong usage, 128 plus the
//! signal's number if a signal interrupted it.
//!
//! From the bottom up:
//!
//! - `input`: errors of records that are read;
//! - `transfer`: errors of transfers to another process;
//! - `program`: errors of a program that haul runs and records;
//! - `exit`: how a command ends, and the exit codes.

mod exit;
mod input;
mod program;
mod transfer;

use std::io;
use std::path::PathBuf;

use haul_model::Bytes;

pub(crate) use exit::{Ending, code_of_signal};
pub(crate) use input::InputError;
pub(crate) use program::ProgramError;
pub(crate) use transfer::TransferError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line is wrong, or asks for help.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    Haul(#[from] haul_machine::Error),
    /// A socket for telemetry clients could not be made.
    #[error(transparent)]
    Telemetry(#[from] haul::telemetry::Error),
    /// A channel could not be made, or a transfer failed.
    #[error(transparent)]
    Channel(#[from] haul::channel::Error),
    /// A transfer that did not complete.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// A program that could not be run with a library, or be recorded.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A link, a workload or a NIC that cannot exist.
    #[error(transparent)]
    Pcie(#[from] haul_model::pcie::PcieError),
    /// Records that cannot be read, or that lack the expected content.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A capture that cannot be read.
    #[error("cannot read the capture {}: {reason}; name a file of pcap or pcapng", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// A file that is not a capture, or has no packet that counts.
    #[error("{}: {reason}", path.display())]
    NoCapture {
        /// The file.
        path: PathBuf,
        /// The position and the fault there.
        reason: haul_model::pcie::PcieError,
    },
    /// Measuring could not begin.
    #[error(transparent)]
    Measure(#[from] haul_measure::Error),
    /// An experiment failed.
    #[error(transparent)]
    Experiment(#[from] haul_experiments::Error),
    /// The verdict of a field test is one that `--fail-on` names.
    #[error("{sentence} --fail-on makes this verdict an error; leave it out to accept it")]
    FieldVerdict {
        /// The verdict.
        sentence: String,
    },
    /// A file that is not a profile.
    #[error(transparent)]
    Profile(#[from] haul_model::profile::ProfileError),
    /// A recording that is not a stream, or cannot be written as one.
    #[error(transparent)]
    Stream(#[from] haul_model::stream::StreamError),
    /// Settings of the fake DSA that are wrong.
    #[error(transparent)]
    FakeSettings(#[from] haul_engine::dsa::fake::SettingsError),
    /// An output with the name of one of its inputs.
    #[error(
        "cannot write results into {}: it is also an input, and its content would be lost; name another file",
        path.display()
    )]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}; make room, or redirect it to another file")]
    Output(io::Error),
    /// The reader of standard output has closed it, so no message can reach it.
    #[error("the reader of standard output has closed it")]
    ReaderGone,
    /// The folder for outputs cannot be used.
    #[error("cannot write results into {}: {reason}; {remedy}", path.display())]
    Folder {
        /// The folder, or the file in it.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// Another run writes the same records.
    #[error(
        "cannot write results into {}: {holder} has locked them, as a haul that is writing there does; \
         wait until it has ended, or name another folder by --out or --out-file",
        path.display()
    )]
    Busy {
        /// The records.
        path: PathBuf,
        /// The process that holds the lock: `process 71 of user 12`.
        holder: String,
    },
    /// The results of a command do not fit into their folder.
    #[error(
        "cannot write results into {}: {reason}; make room ({room}), or name a folder \
         with room by --out or --out-file",
        path.display()
    )]
    Room {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
        /// The size that is needed.
        room: Bytes,
    },
    /// The file for a tuning is not a regular file, so the records cannot be written next to it.
    #[error(
        "cannot tune into {}: it is not a regular file, and the records behind a haul.toml are written \
         next to it; name a regular file by --out-file",
        path.display()
    )]
    TuneInto {
        /// The path that was named.
        path: PathBuf,
    },
    /// A record could not be written.
    #[error(
        "cannot write a record to {}: {reason}; the {kept} lines before it are kept; make room and \
         run again, or name another folder by --out or --out-file",
        path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
        /// Number of lines that were written.
        kept: usize,
    },
    /// Tasks of a plan without a record file.
    #[error(
        "{missing} of {tasks} tasks of {plan} are missing: {named}; run them with `haul sim task {plan} \
         INDEX` and collect again"
    )]
    MissingTasks {
        /// The plan.
        plan: String,
        /// Number of missing tasks.
        missing: usize,
        /// Number of tasks in the plan.
        tasks: usize,
        /// The first missing tasks, each with its reason.
        named: String,
    },
    /// More threads than processors.
    #[error(
        "cannot pin {asked} threads: this process may run on {allowed} processor{}; ask for \
         --threads {allowed} at most, or allow it more (taskset, or the container's cpuset)",
        if *allowed == 1 { "" } else { "s" }
    )]
    Threads {
        /// The number of requested threads.
        asked: usize,
        /// The number of processors that this process may run on.
        allowed: usize,
    },
    /// A size that does not fit into an address space.
    #[error(
        "cannot measure {asked} at once: this machine addresses at most {limit}; name smaller {option}"
    )]
    Size {
        /// The size asked for.
        asked: Bytes,
        /// The largest possible size.
        limit: Bytes,
        /// The option that named the size.
        option: &'static str,
    },
    /// A size of 0.
    #[error("cannot measure 0 B: the smallest size is 1 B; name another {option}")]
    NoSize {
        /// The option that named the size.
        option: &'static str,
    },
    /// An option that would not change the measurement.
    #[error("cannot use {option} here: it is for {belongs}; {remedy}, or leave it out")]
    Unused {
        /// The option.
        option: &'static str,
        /// The measurement that the option belongs to.
        belongs: &'static str,
        /// The option to add.
        remedy: &'static str,
    },
    /// A setting that does not exist, or whose value is not possible.
    #[error("cannot use {attempt}: {reason}")]
    Setting {
        /// The setting, its value and its file; or the file.
        attempt: String,
        /// The fault, with the limits.
        reason: String,
    },
    /// A mechanism that does not work on this machine, or not for this size.
    #[error("cannot measure mechanism {name}: {reason}; {remedy}")]
    Mechanism {
        /// The mechanism.
        name: &'static str,
        /// The reason.
        reason: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// testpmd was asked for and is missing.
    #[error("cannot measure testpmd: {reason}; {}", haul_experiments::forward::Testpmd::REMEDY)]
    Testpmd {
        /// The reason.
        reason: String,
    },
    /// Open vSwitch was asked for and is missing.
    #[error(
        "cannot measure Open vSwitch: {reason}; {}",
        haul_experiments::forward::OpenVswitch::REMEDY
    )]
    OpenVswitch {
        /// The reason.
        reason: String,
    },
    /// A library that a switch was to load cannot be loaded.
    #[error("cannot measure {option}: {reason}")]
    SwitchLibrary {
        /// The option, such as `ovs:preload`.
        option: String,
        /// The reason, with the path and the remedy.
        reason: String,
    },
    /// Two switches would have the same name in the records.
    #[error(
        "cannot measure two switches named {name}; give one of the libraries another name by a link"
    )]
    SameName {
        /// The name of both.
        name: String,
    },
    /// A guest under QEMU was asked for and cannot start.
    #[error(
        "cannot start a guest under QEMU: {reason}; {}",
        haul_experiments::forward::Qemu::REMEDY
    )]
    Qemu {
        /// The reason.
        reason: String,
    },
    /// No copy has this name, or this processor cannot run it.
    #[error(
        "cannot copy with {name:?}; name one of {known}, or a library with a memcpy by its path \
         (./libmine.so)"
    )]
    Copy {
        /// The name asked for.
        name: String,
        /// The known copies.
        known: String,
    },
    /// A packet size that does not exist, or that not all sides accept.
    #[error(
        "cannot measure packets of {asked}: here packets have {least} to {most}, without the frame check \
         sequence; name other --sizes"
    )]
    PacketSize {
        /// The size asked for.
        asked: Bytes,
        /// The smallest size.
        least: Bytes,
        /// The largest size.
        most: Bytes,
    },
    /// A port that cannot be opened.
    #[error("cannot open port {port:?}: {reason}")]
    Port {
        /// The port as it was named.
        port: String,
        /// The reason.
        reason: String,
    },
    /// A number of ports other than two.
    #[error("cannot forward between {count} ports: name --port twice, once for each side")]
    Ports {
        /// Number of ports that were named.
        count: usize,
    },
    /// A port could not be opened, or failed.
    #[error(transparent)]
    Forward(#[from] haul::forward::Error),
    /// haul cannot watch for signals.
    #[error(
        "cannot watch for Ctrl-C: {0}; run haul from a shell that allows one more thread (ulimit -u, ulimit -v)"
    )]
    Signals(io::Error),
}
