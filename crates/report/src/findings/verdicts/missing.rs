//! The comparisons and measurements that are missing, and the commands that make them.

use haul_model::experiment::{key, name};
use haul_model::{Kind, Line, Record};

use crate::select::{self, Section};

/// A comparison or measurement that the records lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The machine whose records lack the comparison or measurement.
    pub machine: String,
    /// The name of the missing peer or part: `mimalloc`, `a program's own allocations`.
    pub what: &'static str,
    /// The command that adds the comparison or measurement.
    pub command: &'static str,
}

macro_rules! pvp_beside_testpmd {
    () => {
        "haul forward pvp --switch haul,testpmd --guest testpmd"
    };
}

/// The peers of an experiment by subject, each with the command that installs it on Debian.
const PEERS: [(&str, &str, &str); 7] = [
    (name::HEAP, "dpdk", "apt-get install dpdk"),
    (name::HEAP, "mimalloc", "apt-get install libmimalloc2.0"),
    (name::HEAP, "jemalloc", "apt-get install libjemalloc2"),
    (name::HEAP, "tcmalloc", "apt-get install libtcmalloc-minimal4"),
    (name::CHANNEL_TRANSFER, "ucx", "apt-get install gcc libucx-dev"),
    (name::CHANNEL_TRANSFER, "mpi", "apt-get install openmpi-bin libopenmpi-dev"),
    (name::FORWARD_PVP, "testpmd", concat!("apt-get install dpdk-dev; ", pvp_beside_testpmd!())),
];

/// The commands that compare with peers that are installed.
const INSTALLED: [(&str, &str); 1] = [("testpmd", pvp_beside_testpmd!())];

/// Measurements that a survey does not include, by experiment.
const PARTS: [(&str, &str, &str); 5] = [
    (
        name::FIELD_VERDICT,
        "whether haul’s copies make a program of yours faster",
        "haul field --change copy -- CMD",
    ),
    (name::HEAP_REPLAY, "what a program of yours allocates", "haul heap record -- CMD"),
    (name::COPY_DISTRIBUTION, "copies", "haul survey"),
    (name::CHANNEL_TRANSFER, "transfers to another process", "haul channel bench"),
    (name::FORWARD_PVP, "a VM’s packets", "haul forward pvp"),
];

/// What the records of all machines lack: peers that are not installed, and parts that were not
/// measured.
#[must_use]
pub fn missing(lines: &[Line]) -> Vec<Missing> {
    select::sections(lines).iter().flat_map(of_section).collect()
}

/// What the records of one machine lack. A page of one experiment lacks only its peers.
pub(crate) fn of_section(section: &Section<'_>) -> Vec<Missing> {
    let measured = || section.records.iter().filter(|record| record.kind == Kind::Measured);
    let has = |experiment: &str| measured().any(|record| record.experiment == experiment);
    let mut missing = Vec::new();
    let mut add = |what, command| {
        missing.push(Missing { machine: section.id.into(), what, command });
    };
    for (experiment, peer, command) in PEERS {
        let records: Vec<&Record> = measured()
            .filter(|record| record.experiment.starts_with(experiment))
            .filter(|record| !NO_COMPARISON.contains(&record.experiment.as_str()))
            .copied()
            .collect();
        if !records.is_empty() && records.iter().all(|record| record.subject != peer) {
            let of_installed = INSTALLED.into_iter().find(|(name, _)| *name == peer);
            let of_installed =
                of_installed.filter(|_| records.iter().any(|record| is_installed(record, peer)));
            add(peer, of_installed.map_or(command, |(_, command)| command));
        }
    }
    let is_survey = is_survey(section);
    for (experiment, what, command) in PARTS {
        if is_survey && !has(experiment) {
            add(what, command);
        }
    }
    missing
}

/// Whether a peer is on the machine, as the record says.
fn is_installed(record: &Record, peer: &str) -> bool {
    record.text(key::INSTALLED) == Some(peer)
}

/// Whether a survey measured these records.
pub(crate) fn is_survey(section: &Section<'_>) -> bool {
    let is_measured = |experiment: &str| {
        let all = section.records.iter();
        all.filter(|record| record.kind == Kind::Measured).any(|r| r.experiment == experiment)
    };
    is_measured(name::COPY_DISTRIBUTION) && is_measured(name::MEMORY_BANDWIDTH)
}

/// Heap experiments that compare haul with no other heap, or only with DPDK within its program.
const NO_COMPARISON: [&str; 6] = [
    name::HEAP_MAP,
    name::HEAP_LIST,
    name::HEAP_TRACE,
    name::HEAP_REPLAY,
    "heap.rte_malloc",
    "heap.rte_malloc_growth",
];
