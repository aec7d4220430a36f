//! Why a link, a workload or a NIC is refused.

/// What was tried, with which value, what the limit is, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcieError {
    /// A link that is not written as one.
    #[error("{text:?} is not a link: write its generation and width, such as gen3x8")]
    NoLink {
        /// What was given.
        text: String,
    },
    /// A generation whose encoding haul has no numbers for.
    #[error(
        "{text:?} is of no generation that is modelled: generations 1 to 5 are (from 6 on, flits \
         replace the framing that is counted here); name the one that the link runs at"
    )]
    Generation {
        /// What was given.
        text: String,
    },
    /// A width that no link has.
    #[error("{text:?} has a width that no link has: write x1, x2, x4, x8, x16 or x32")]
    Width {
        /// What was given.
        text: String,
    },
    /// A setting of a link that the specification does not have.
    #[error("{name} of {value} B is no setting of a link: it is one of {allowed}")]
    Setting {
        /// `MPS`, `MRRS` or `RCB`.
        name: &'static str,
        /// What was given.
        value: u32,
        /// What there is.
        allowed: &'static str,
    },
    /// A text that is no rate, or one of no packets or of more than any link carries.
    #[error(
        "{text:?} is not a rate: write packets a second above 0 and at most 1T, such as 10M, \
         14.88Mpps or 250k, or bits of the line a second, such as 100Gbit/s"
    )]
    Rate {
        /// What was given.
        text: String,
    },
    /// A rate in bits where there are no sizes of packets to count them by.
    #[error(
        "{text:?} is of bits, and here are no packet sizes: write packets a second, such as 10M"
    )]
    RateOfBits {
        /// What was given.
        text: String,
    },
    /// More packets a second than any line carries.
    #[error(
        "{packets_per_s} packets/s of these sizes take {gigabits_per_s} Gb/s of a line: the fastest \
         one has {most_gigabits_per_s} Gb/s, a line rate of {most_packets_per_s} packets/s of \
         them{}; write packets a second, such as 10M, or bits of the line, such as 100Gbit/s",
        own_line(nic)
    )]
    BeyondLines {
        /// What was asked for.
        packets_per_s: u64,
        /// What that takes of a line.
        gigabits_per_s: u64,
        /// The fastest line there is.
        most_gigabits_per_s: u32,
        /// How many of the packets it carries.
        most_packets_per_s: u64,
        /// The NIC, the speed of its fastest port, and how many of the packets that carries.
        nic: Option<(&'static str, u32, u64)>,
    },
    /// A text that is no histogram of batches.
    #[error(
        "{text:?} is not a histogram: {reason}; write BATCH:POLLS pairs such as 0:5,4:10, each \
         batch once and at most 65535"
    )]
    Histogram {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A text that is no list of packet sizes.
    #[error(
        "{text:?} is not a list of packet sizes: {reason}; write a size, SIZE:WEIGHT pairs such \
         as 64:7,594:4,1518:1, or imix"
    )]
    Sizes {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Something that an estimate needs and was not named.
    #[error("an estimate needs {option}: name it, or see an example with --help")]
    Missing {
        /// Which option.
        option: &'static str,
    },
    /// A file that is no capture of packets.
    #[error(
        "this is no capture that can be read, as seen at byte {at}: {reason}; name a whole file of \
         pcap or pcapng"
    )]
    Capture {
        /// How far it was read.
        at: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A number beyond what a workload can have.
    #[error("{name} of {value} is beyond what a workload has: it is {first} to {last}")]
    Range {
        /// Which number.
        name: &'static str,
        /// What was given.
        value: u64,
        /// The least.
        first: u64,
        /// The most.
        last: u64,
    },
    /// A name that no NIC has.
    #[error("{name:?} is no NIC that is modelled: name one of {known}")]
    Nic {
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// A driver that haul has no rules of.
    #[error(
        "{text:?} is no driver that is modelled: name DPDK's version, such as dpdk-22.11, the \
         year first and then the month"
    )]
    Driver {
        /// What was given.
        text: String,
    },
    /// A burst mode that the driver does not have.
    #[error("{nic} has no burst mode {mode:?}: it has {known}")]
    Mode {
        /// Of which NIC.
        nic: &'static str,
        /// What was given.
        mode: String,
        /// What there is.
        known: String,
    },
    /// A build or start option that the driver does not have.
    #[error("{nic} has no option {option:?}{}", known_or_none(known))]
    Choice {
        /// Of which NIC.
        nic: &'static str,
        /// What was given.
        option: String,
        /// What there is; may be nothing.
        known: String,
    },
    /// A threshold that the driver itself refuses, or the model has no rule for.
    #[error("{nic} in mode {mode} has no {name} of {value}: {limit}")]
    Threshold {
        /// Of which NIC.
        nic: &'static str,
        /// In which mode.
        mode: &'static str,
        /// Which threshold.
        name: &'static str,
        /// What was given.
        value: u32,
        /// The limit and the remedy.
        limit: &'static str,
    },
}

fn known_or_none(known: &str) -> String {
    match known {
        "" => ": it has none; leave the option out".to_owned(),
        known => format!(": it has {known}"),
    }
}

fn own_line(nic: &Option<(&'static str, u32, u64)>) -> String {
    nic.map_or(String::new(), |(nic, gigabits, packets)| {
        format!(", and that of {nic} at {gigabits} Gb/s is {packets} packets/s")
    })
}
