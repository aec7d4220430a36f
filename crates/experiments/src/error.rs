//! The error of this crate. Each message names the attempt, the value, the limit and the remedy.

use haul_model::{Bytes, SizeClass};

/// The reason why an experiment has no records.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The measurement failed: see [`haul_measure::Error`].
    #[error(transparent)]
    Measure(#[from] haul_measure::Error),
    /// A DPDK program did not answer.
    #[error(transparent)]
    Telemetry(#[from] haul::telemetry::Error),
    /// A requested NIC, link or workload cannot exist.
    #[error(transparent)]
    Pcie(#[from] haul_model::pcie::PcieError),
    /// The DPDK program was started without the burst probe.
    #[error(
        "the program has no burst probe: start it with -d libhaul_dpdk_burst.so, from a folder that \
         only its user may write to, as those above it (scripts/install puts it under lib)"
    )]
    NoProbe,
    /// The burst probe answered with an error.
    #[error("the burst probe answered: {answer}")]
    Probe {
        /// The probe's message, with the remedy.
        answer: String,
    },
    /// An engine could not be opened.
    #[error(transparent)]
    Engine(#[from] haul_engine::Error),
    /// A port could not be opened.
    #[error(transparent)]
    Forward(#[from] haul::forward::Error),
    /// No subject has this name, or the subject does not run on this processor.
    #[error("cannot measure {name:?} for {function}; this machine has {known}; name some of these")]
    UnknownSubject {
        /// The requested name.
        name: String,
        /// The function.
        function: &'static str,
        /// The subjects that exist on this processor.
        known: String,
    },
    /// No function has this name.
    #[error("cannot measure function {name:?}; the functions are memcpy, memmove and memset")]
    UnknownFunction {
        /// The requested name.
        name: String,
    },
    /// No reader has this name.
    #[error("cannot read {name:?} of a target; a reader takes nothing, first, last or all")]
    UnknownReader {
        /// The requested name.
        name: String,
    },
    /// A requested size class ends above the largest size.
    #[error("cannot draw sizes from {class}; end the class at {limit} or below")]
    SizeClass {
        /// The requested class.
        class: SizeClass,
        /// The largest size.
        limit: Bytes,
    },
    /// A sweep has no valid sizes.
    #[error("cannot sweep from {first} to {last}; the first must be above 0 and at most the last")]
    Sizes {
        /// The first size.
        first: Bytes,
        /// The last size.
        last: Bytes,
    },
    /// A subject copied or filled wrongly, so that its time has no meaning.
    #[error(
        "{subject:?} wrote a wrong byte at {index} of a {function} of {size_bytes} B: {found:#04x} \
         instead of {expected:#04x}; its figures are withheld; please report it with the machine's \
         description"
    )]
    WrongBytes {
        /// The subject.
        subject: String,
        /// The function.
        function: &'static str,
        /// The operation's size.
        size_bytes: usize,
        /// The byte's index from the target's start; negative before it.
        index: isize,
        /// The byte that was found.
        found: u8,
        /// The expected byte.
        expected: u8,
    },
    /// A stream cannot be replayed.
    #[error("cannot replay {name:?}: {reason}")]
    Stream {
        /// The file, the folder, or the name.
        name: String,
        /// The fault, with the remedy.
        reason: String,
    },
    /// A subject did not leave the bytes that the calls of a stream ask for.
    #[error(
        "{subject:?} left a wrong byte at {offset} of the arena of the stream {stream:?}; its figures \
         are withheld; please report it with the machine's description"
    )]
    WrongStream {
        /// The subject.
        subject: String,
        /// The recorded program.
        stream: String,
        /// The byte's offset in the arena.
        offset: usize,
    },
    /// A program for the simulated server cannot be read.
    #[error("cannot run {}: {reason}", path.display())]
    Program {
        /// The file.
        path: std::path::PathBuf,
        /// The fault.
        reason: String,
    },
    /// A setting of the simulated machine, or a file of settings, is wrong.
    #[error("cannot use the setting {setting}: {reason}")]
    SimSetting {
        /// The name of the setting or of the file.
        setting: String,
        /// The fault.
        reason: String,
    },
    /// A simulated run ended in an error.
    #[error("the simulated run ({what}) failed: {reason}")]
    Simulation {
        /// The run.
        what: String,
        /// The simulator's message.
        reason: String,
    },
    /// A plan of simulated runs is damaged, or one of its tasks cannot run.
    #[error("cannot use the plan {}: {reason}", path.display())]
    Plan {
        /// The plan.
        path: std::path::PathBuf,
        /// The fault.
        reason: String,
    },
    /// No heap of this name is known.
    #[error("cannot compare with {name:?}; the heaps are {known}; name some of these")]
    UnknownPeer {
        /// The requested name.
        name: String,
        /// The heaps that haul knows.
        known: String,
    },
    /// A heap's library is not installed.
    #[error(
        "cannot compare with {peer}: no {library}.* in the folders for libraries; apt-get install \
         {package}, or leave it out of --against"
    )]
    PeerMissing {
        /// The heap.
        peer: &'static str,
        /// The file name of the heap's library, without the version.
        library: &'static str,
        /// The library's Debian package.
        package: &'static str,
    },
    /// No heap test has this name.
    #[error("cannot run heap test {name:?}; the tests are {known}; name some of these")]
    UnknownTest {
        /// The requested name.
        name: String,
        /// The tests that exist.
        known: String,
    },
    /// No heap supports the requested block size.
    #[error(
        "cannot measure blocks of {asked}; a size is from 1 B to {limit}; name another --sizes"
    )]
    BlockSize {
        /// The requested size.
        asked: Bytes,
        /// The largest size.
        limit: Bytes,
    },
    /// No heap supports the requested alignment.
    #[error(
        "cannot align blocks to {asked}; an alignment is a power of two from 1 B to {limit}; name \
         another --align"
    )]
    BlockAlign {
        /// The requested alignment.
        asked: Bytes,
        /// The largest alignment.
        limit: Bytes,
    },
    /// A test with a producer and a consumer was requested for an odd number of threads.
    #[error(
        "cannot pair {threads} threads that free each other's blocks; name an even number of \
         --threads"
    )]
    OddThreads {
        /// The requested number.
        threads: usize,
    },
    /// A driver failed.
    #[error("cannot make {peer} {attempt}: {reason}; {}", remedy_of_driver(peer, reason))]
    Driver {
        /// The peer.
        peer: String,
        /// The attempt.
        attempt: String,
        /// The reason.
        reason: String,
    },
    /// The folder for the sockets of the two ends of a transfer cannot be made.
    #[error(
        "cannot make a folder for the sockets of {peer} in {}: {reason}; {}",
        folder.display(), remedy_of_folder(reason)
    )]
    Folder {
        /// The peer.
        peer: String,
        /// The folder of temporary files.
        folder: std::path::PathBuf,
        /// The system's error.
        reason: std::io::Error,
    },
    /// A test would keep more memory ready than the machine has.
    #[error(
        "cannot keep {asked} ready ahead of need: {} are available in addition to the test's \
         memory; lower --grow-ahead or --ready",
        available.approximate()
    )]
    GrowAhead {
        /// The requested bytes.
        asked: Bytes,
        /// The available bytes.
        available: Bytes,
    },
    /// A driver was started without a run.
    #[error(
        "cannot drive a heap: {reason}; `haul heap bench` starts its drivers itself, with a socket \
         for standard input"
    )]
    Conversation {
        /// The system's error.
        reason: std::io::Error,
    },
    /// One end of a transfer was started without a run.
    #[error(
        "cannot talk to the run at {}: {reason}; `haul channel bench` starts its drivers itself",
        socket.display()
    )]
    ChannelConversation {
        /// The socket of the run.
        socket: std::path::PathBuf,
        /// The system's error.
        reason: std::io::Error,
    },
    /// No transport between processes has this name.
    #[error("cannot compare channels with {name:?}; the others are {known}; name some of these")]
    UnknownChannelPeer {
        /// The requested name.
        name: String,
        /// The peers that haul knows.
        known: String,
    },
    /// A program that a peer needs is not installed.
    #[error("cannot compare with {peer}: {reason}; {remedy}, or leave it out of --against")]
    ProgramMissing {
        /// The peer.
        peer: &'static str,
        /// The missing program.
        reason: String,
        /// The way to install the program.
        remedy: &'static str,
    },
    /// Only one processor is allowed for the two ends of a transfer.
    #[error(
        "cannot measure transfers between two processes: this one may run on {allowed} processor, \
         and each end needs its own; allow it two (taskset, or the container's cpuset)"
    )]
    OneProcessor {
        /// The number of allowed processors.
        allowed: usize,
    },
    /// Only one processor is allowed for a switch and a guest.
    #[error(
        "cannot measure a flow through a guest: this process may run on {allowed} processor, and \
         switch and guest both poll, each on its own; allow it two (taskset, or the container's cpuset)"
    )]
    OneProcessorForwarding {
        /// The number of allowed processors.
        allowed: usize,
    },
    /// A trace's file cannot be read, or a file for its replay cannot be written.
    #[error("cannot {attempt} {}: {reason}; {remedy}", path.display())]
    TraceFile {
        /// The attempt.
        attempt: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        reason: std::io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// The file is not a trace, or is too large.
    #[error("cannot read {}: {reason}", path.display())]
    Trace {
        /// The file.
        path: std::path::PathBuf,
        /// The fault.
        reason: haul_model::trace::TraceError,
    },
    /// The trace has no operations to replay.
    #[error(
        "cannot use {}: it has no operation{}; record a program that allocates, with \
         LD_PRELOAD=libhaul_record.so",
        path.display(),
        if *.filtered { " on this heap" } else { "" }
    )]
    EmptyTrace {
        /// The file.
        path: std::path::PathBuf,
        /// Whether the trace has operations that were not selected.
        filtered: bool,
    },
    /// A change of a field test changes nothing.
    #[error("cannot test the change: {reason}; name a text that the command has")]
    Change {
        /// The fault.
        reason: String,
    },
    /// A run of a field test failed.
    #[error("cannot go on with the field test: {what}: {reason}")]
    Trial {
        /// The round and the side.
        what: String,
        /// The reason, with the remedy.
        reason: String,
    },
    /// haul's own heap could not be built or found.
    #[error(transparent)]
    Heap(#[from] haul_heap::Error),
    /// haul's own heap had no block for a replay.
    #[error(
        "cannot replay the trace up to this point: no block of {size} aligned to {align} after \
         {operations} operations ({reason}); name an earlier --at"
    )]
    NoBlock {
        /// The block's size.
        size: Bytes,
        /// The block's alignment.
        align: Bytes,
        /// The number of operations before the failed one.
        operations: usize,
        /// The heap's error.
        reason: haul_heap::AllocError,
    },
}

/// The text of the system error that the process (EMFILE) or the system (ENFILE) has no
/// descriptor left. Drivers report their reasons as text.
const NO_DESCRIPTOR: [&str; 2] = ["(os error 24)", "(os error 23)"];
const RAISE_DESCRIPTORS: &str = "raise the limit of open files (ulimit -n)";

/// The remedy for a driver that failed. haul cannot be left out of `--against`.
fn remedy_of_driver(peer: &str, reason: &str) -> &'static str {
    if NO_DESCRIPTOR.iter().any(|code| reason.contains(code)) {
        RAISE_DESCRIPTORS
    } else if peer == "haul" {
        "request less, or another --mechanism of transfers"
    } else {
        "leave it out of --against, or request less"
    }
}

fn remedy_of_folder(reason: &std::io::Error) -> &'static str {
    if NO_DESCRIPTOR.iter().any(|code| reason.to_string().contains(code)) {
        return RAISE_DESCRIPTORS;
    }
    "name an existing folder that you may write to with TMPDIR"
}
