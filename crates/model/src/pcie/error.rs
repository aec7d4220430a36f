//! The errors of links, workloads and NICs.

/// An error with its value, its limit and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcieError {
    /// The text is not a link.
    #[error("{text:?} is not a link: write its generation and width, such as gen3x8")]
    NoLink {
        /// The given value.
        text: String,
    },
    /// haul has no numbers for the encoding of this generation.
    #[error(
        "{text:?} has a generation that is not modelled: generations 1 to 5 are (from 6 on, flits \
         replace the framing that is counted here); name the generation that the link runs at"
    )]
    Generation {
        /// The given value.
        text: String,
    },
    /// No link has this width.
    #[error("{text:?} has a width that no link has: write x1, x2, x4, x8, x16 or x32")]
    Width {
        /// The given value.
        text: String,
    },
    /// The specification does not have this setting of a link.
    #[error("{name} of {value} B is not a setting of a link: write one of {allowed}")]
    Setting {
        /// `MPS`, `MRRS` or `RCB`.
        name: &'static str,
        /// The given value.
        value: u32,
        /// The valid values.
        allowed: &'static str,
    },
    /// The text is not a rate, or the rate is 0 or above the rate of every link.
    #[error(
        "{text:?} is not a rate: write packets a second above 0 and at most 1T, such as 10M, \
         14.88Mpps or 250k, or bits of the line a second, such as 100Gbit/s"
    )]
    Rate {
        /// The given value.
        text: String,
    },
    /// The rate is in bits, but there are no packet sizes to convert it.
    #[error(
        "{text:?} is in bits, but no packet sizes are known here: write packets a second, such as 10M"
    )]
    RateOfBits {
        /// The given value.
        text: String,
    },
    /// No line carries this rate.
    #[error(
        "{packets_per_s} packets/s of these sizes need {gigabits_per_s} Gb/s of a line: the fastest \
         one has {most_gigabits_per_s} Gb/s, a line rate of {most_packets_per_s} packets/s of \
         them{}; write packets a second, such as 10M, or bits of the line, such as 100Gbit/s",
        own_line(nic)
    )]
    BeyondLines {
        /// The requested rate.
        packets_per_s: u64,
        /// The bits of a line that the rate needs.
        gigabits_per_s: u64,
        /// The speed of the fastest line.
        most_gigabits_per_s: u32,
        /// The number of these packets that the fastest line carries a second.
        most_packets_per_s: u64,
        /// The NIC, the speed of its fastest port, and the number of these packets that this port
        /// carries a second.
        nic: Option<(&'static str, u32, u64)>,
    },
    /// The text is not a histogram of batches.
    #[error(
        "{text:?} is not a histogram: {reason}; write BATCH:POLLS pairs such as 0:5,4:10, each \
         batch once and at most 65535"
    )]
    Histogram {
        /// The given value.
        text: String,
        /// The reason.
        reason: &'static str,
    },
    /// The text is not a list of packet sizes.
    #[error(
        "{text:?} is not a list of packet sizes: {reason}; write a size, SIZE:WEIGHT pairs such \
         as 64:7,594:4,1518:1, or imix"
    )]
    Sizes {
        /// The given value.
        text: String,
        /// The reason.
        reason: &'static str,
    },
    /// A required input of an estimate is missing.
    #[error("an estimate needs {option}: name it, or see an example with --help")]
    Missing {
        /// The missing option.
        option: &'static str,
    },
    /// The file is not a packet capture.
    #[error("cannot read the capture at byte {at}: {reason}; name a whole file of pcap or pcapng")]
    Capture {
        /// The offset at which reading stopped.
        at: u64,
        /// The reason.
        reason: &'static str,
    },
    /// A number is outside its range.
    #[error("{name} of {value} is out of range: it must be {first} to {last}")]
    Range {
        /// The name of the number.
        name: &'static str,
        /// The given value.
        value: u64,
        /// The smallest valid value.
        first: u64,
        /// The largest valid value.
        last: u64,
    },
    /// No NIC has this name.
    #[error("{name:?} is not a modelled NIC: name one of {known}")]
    Nic {
        /// The given value.
        name: String,
        /// The valid values.
        known: String,
    },
    /// haul has no rules for this driver.
    #[error(
        "{text:?} is not a modelled driver: name DPDK's version, such as dpdk-22.11, the \
         year first and then the month"
    )]
    Driver {
        /// The given value.
        text: String,
    },
    /// The driver does not have this burst mode.
    #[error("{nic} has no burst mode {mode:?}: it has {known}")]
    Mode {
        /// The NIC.
        nic: &'static str,
        /// The given value.
        mode: String,
        /// The valid values.
        known: String,
    },
    /// The driver does not have this build or start option.
    #[error("{nic} has no option {option:?}{}", known_or_none(known))]
    Choice {
        /// The NIC.
        nic: &'static str,
        /// The given value.
        option: String,
        /// The valid values; may be empty.
        known: String,
    },
    /// The driver rejects this threshold, or the model has no rule for it.
    #[error("{nic} in mode {mode} cannot have a {name} of {value}: {limit}")]
    Threshold {
        /// The NIC.
        nic: &'static str,
        /// The mode.
        mode: &'static str,
        /// The name of the threshold.
        name: &'static str,
        /// The given value.
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
