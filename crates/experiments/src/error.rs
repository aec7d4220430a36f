//! The one error of this crate. Each message names the attempt, the value, the limit and the
//! remedy.

use haul_model::{Bytes, SizeClass};

/// Why an experiment did not come to its records.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Measuring failed: see there.
    #[error(transparent)]
    Measure(#[from] haul_measure::Error),
    /// A DPDK program could not be asked.
    #[error(transparent)]
    Telemetry(#[from] haul::telemetry::Error),
    /// A NIC, a link or a workload that cannot be.
    #[error(transparent)]
    Pcie(#[from] haul_model::pcie::PcieError),
    /// A DPDK program without the burst probe.
    #[error(
        "the program has no burst probe: start it with -d libhaul_dpdk_burst.so, from a folder that \
         only its user may write to, as those above it (scripts/install puts it under lib)"
    )]
    NoProbe,
    /// What the burst probe said.
    #[error("the burst probe says: {said}")]
    Probe {
        /// Its own words, with the remedy.
        said: String,
    },
    /// A port could not be opened.
    #[error(transparent)]
    Forward(#[from] haul::forward::Error),
    /// No subject has this name, or it does not run on this processor.
    #[error("cannot measure {name:?} for {function}; this machine has {known}; name some of these")]
    UnknownSubject {
        /// What was asked for.
        name: String,
        /// For which function.
        function: &'static str,
        /// The subjects that exist here.
        known: String,
    },
    /// No function has this name.
    #[error("cannot measure function {name:?}; the functions are memcpy, memmove and memset")]
    UnknownFunction {
        /// What was asked for.
        name: String,
    },
    /// No reader has this name.
    #[error("cannot read {name:?} of a target; a reader takes nothing, first, last or all")]
    UnknownReader {
        /// What was asked for.
        name: String,
    },
    /// A size class that reaches too far.
    #[error("cannot draw sizes from {class}; end the class at {limit} or below")]
    SizeClass {
        /// What was asked for.
        class: SizeClass,
        /// The largest size.
        limit: Bytes,
    },
    /// Sizes that make no sweep.
    #[error(
        "cannot sweep from {first} to {last}; the first has to be above 0 and not beyond the last"
    )]
    Sizes {
        /// The first size.
        first: Bytes,
        /// The last size.
        last: Bytes,
    },
    /// A subject copied or filled wrongly: its time means nothing.
    #[error(
        "{subject:?} gave a wrong byte at {index} of a {function} of {size_bytes} B: {found:#04x} instead of \
         {expected:#04x}; its figures are withheld; please report it with the machine's description"
    )]
    WrongBytes {
        /// Which subject.
        subject: String,
        /// Of which function.
        function: &'static str,
        /// The operation's size.
        size_bytes: usize,
        /// The byte's index from the target's start; negative before it.
        index: isize,
        /// What it is.
        found: u8,
        /// What it ought to be.
        expected: u8,
    },
    /// A program for the simulated server cannot be read.
    #[error("cannot run {}: {reason}", path.display())]
    Program {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting of the simulated machine, or a file of them, is wrong.
    #[error("cannot use the setting {setting}: {reason}")]
    SimSetting {
        /// The setting, or the file.
        setting: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A simulated run ended in an error.
    #[error("the simulated run ({what}) failed: {reason}")]
    Simulation {
        /// Which run.
        what: String,
        /// What the simulator says.
        reason: String,
    },
    /// A plan of simulated runs is damaged, or a task of it cannot be done.
    #[error("cannot use the plan {}: {reason}", path.display())]
    Plan {
        /// The plan.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No heap of this name can be compared with.
    #[error("cannot compare with {name:?}; the heaps are {known}; name some of these")]
    UnknownPeer {
        /// What was asked for.
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
        /// Which heap.
        peer: &'static str,
        /// Its library's file name, without the version.
        library: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// No heap test has this name.
    #[error("cannot do heap test {name:?}; the tests are {known}; name some of these")]
    UnknownTest {
        /// What was asked for.
        name: String,
        /// The tests that exist.
        known: String,
    },
    /// A block that no heap can give.
    #[error(
        "cannot measure blocks of {asked}; a size is from 1 B to {limit}; name another --sizes"
    )]
    BlockSize {
        /// What was asked for.
        asked: Bytes,
        /// The largest.
        limit: Bytes,
    },
    /// An alignment that is none.
    #[error(
        "cannot align blocks to {asked}; an alignment is a power of two from 1 B to {limit}; name \
         another --align"
    )]
    BlockAlign {
        /// What was asked for.
        asked: Bytes,
        /// The largest.
        limit: Bytes,
    },
    /// A producer without a consumer.
    #[error(
        "cannot have {threads} threads free each other's blocks in twos; name an even number of --threads"
    )]
    OddThreads {
        /// What was asked for.
        threads: usize,
    },
    /// A driver failed.
    #[error("cannot have {peer} {attempt}: {reason}; {}", remedy_of_driver(peer, reason))]
    Driver {
        /// Whose driver.
        peer: String,
        /// What it was asked to do.
        attempt: String,
        /// What came of it.
        reason: String,
    },
    /// The two ends of a transfer have nowhere to meet.
    #[error(
        "cannot make a folder for the sockets of {peer} in {}: {reason}; {}",
        folder.display(), remedy_of_folder(reason)
    )]
    Folder {
        /// Whose ends.
        peer: String,
        /// Where temporary files go.
        folder: std::path::PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// More memory ready, from the start or ahead of need, than there is.
    #[error(
        "cannot have {asked} ready ahead of need: {} are available beside what the test takes; ask for \
         less --grow-ahead or --ready",
        available.approximate()
    )]
    GrowAhead {
        /// What was asked for.
        asked: Bytes,
        /// How much there is.
        available: Bytes,
    },
    /// A driver without a run.
    #[error(
        "cannot drive a heap: {reason}; `haul heap bench` starts its drivers itself, with a socket \
         for standard input"
    )]
    Conversation {
        /// What the system said.
        reason: std::io::Error,
    },
    /// One end of a transfer without a run.
    #[error(
        "cannot talk to the run at {}: {reason}; `haul channel bench` starts its drivers itself",
        socket.display()
    )]
    ChannelConversation {
        /// Where the run should listen.
        socket: std::path::PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// Nothing of this name moves bytes between processes.
    #[error("cannot compare channels with {name:?}; the others are {known}; name some of these")]
    UnknownChannelPeer {
        /// What was asked for.
        name: String,
        /// What haul can be compared with.
        known: String,
    },
    /// What a peer needs is not installed.
    #[error("cannot compare with {peer}: {reason}; {remedy}, or leave it out of --against")]
    ChannelPeerMissing {
        /// Which one.
        peer: &'static str,
        /// What is not there.
        reason: String,
        /// How it is had.
        remedy: &'static str,
    },
    /// Two ends on one processor.
    #[error(
        "cannot measure transfers between two processes: this one may run on {allowed} processor, \
         and each end wants its own; allow it two (taskset, or the container's cpuset)"
    )]
    OneProcessor {
        /// How many there are.
        allowed: usize,
    },
    /// A switch and a guest on one processor.
    #[error(
        "cannot measure a flow through a guest: this process may run on {allowed} processor, and \
         switch and guest both poll, each on its own; allow it two (taskset, or the container's cpuset)"
    )]
    OneProcessorForwarding {
        /// How many there are.
        allowed: usize,
    },
    /// A trace's file cannot be read, or a file for its replay cannot be written.
    #[error("cannot {attempt} {}: {reason}; {remedy}", path.display())]
    TraceFile {
        /// What was attempted.
        attempt: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        reason: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A file that is no trace, or holds too much.
    #[error("cannot read {}: {reason}", path.display())]
    Trace {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: haul_model::trace::TraceError,
    },
    /// A trace without anything to replay.
    #[error(
        "cannot use {}: it has no operation{}; record a program that allocates, with \
         LD_PRELOAD=libhaul_record.so",
        path.display(),
        if *.filtered { " on this heap" } else { "" }
    )]
    EmptyTrace {
        /// The file.
        path: std::path::PathBuf,
        /// Whether it has others, that were not asked for.
        filtered: bool,
    },
    /// haul's own heap could not be built or found.
    #[error(transparent)]
    Heap(#[from] haul_heap::Error),
    /// haul's own heap had no block for a replay.
    #[error(
        "cannot replay the trace up to there: no block of {size} aligned to {align} after \
         {operations} operations ({reason}); ask for an earlier --at"
    )]
    NoBlock {
        /// The block's size.
        size: Bytes,
        /// Its alignment.
        align: Bytes,
        /// How many operations were done.
        operations: usize,
        /// What the heap said.
        reason: haul_heap::AllocError,
    },
}

/// What a system says of a process (EMFILE) or of itself (ENFILE) that has no descriptor left.
/// Drivers tell their reasons as text.
const NO_DESCRIPTOR: [&str; 2] = ["(os error 24)", "(os error 23)"];
const RAISE_DESCRIPTORS: &str = "raise the limit of open files (ulimit -n)";

/// What helps who cannot be driven: nobody leaves haul out of `--against`.
fn remedy_of_driver(peer: &str, reason: &str) -> &'static str {
    if NO_DESCRIPTOR.iter().any(|code| reason.contains(code)) {
        RAISE_DESCRIPTORS
    } else if peer == "haul" {
        "ask for less, or for another --mechanism of transfers"
    } else {
        "leave it out of --against, or ask for less"
    }
}

fn remedy_of_folder(reason: &std::io::Error) -> &'static str {
    if NO_DESCRIPTOR.iter().any(|code| reason.to_string().contains(code)) {
        return RAISE_DESCRIPTORS;
    }
    "name a folder that is there and that you may write to with TMPDIR"
}
