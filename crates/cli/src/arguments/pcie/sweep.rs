//! The command line of `haul pcie sweep`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use haul_model::pcie::Offered;

use super::NicArguments;
use crate::arguments::number::number;
use crate::arguments::time::time;

/// Forwards from a modelled NIC at rising rates, and compares counts with estimates.
///
/// Forwards packets on one core from a modelled NIC, at one rate after the other, and counts every
/// transaction that would cross PCIe. Shows each count with the estimate for the batches that
/// occurred, how batches grow with the rate, and where and why the curve of outbound writes
/// breaks. haul report FILE makes a page of the records.
///
/// The modelled device runs on the same core and needs about 20 ns per packet. With --core the
/// core's time is modelled too, so the figures are the same on every machine.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul pcie sweep --nic ice --mode vector --rates 1M..16M:1M --json > sweep.jsonl\n  \
    haul pcie sweep --nic ice --core 120:55 --rates 2M..16M:2M"
)]
pub(crate) struct Sweep {
    #[command(flatten)]
    pub(crate) nic: NicArguments,
    /// Rates in packets per second, or in bits per second of the line such as
    /// 1Gbit/s..10Gbit/s:1Gbit/s
    #[arg(long, value_name = "FIRST..LAST:STEP", default_value = "1M..16M:1M")]
    pub(crate) rates: Rates,
    /// Size of each packet in memory
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = super::whole)]
    pub(crate) packet_size: u32,
    /// Packets that arrive back to back, as when write-backs fill a cache line
    #[arg(long, value_name = "PACKETS", default_value_t = 4, value_parser = super::whole)]
    pub(crate) group: u32,
    /// Most packets that one call moves
    #[arg(long, value_name = "PACKETS", default_value_t = 32, value_parser = number::<u16, 1, 256>)]
    pub(crate) burst: u16,
    /// Nanoseconds of the program's own work on each burst, in addition to forwarding
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = number::<u64, 0, 1_000_000>)]
    pub(crate) work: u64,
    /// Model the core: nanoseconds per poll and per packet
    #[arg(long, value_name = "POLL:PACKET", conflicts_with = "work")]
    pub(crate) core: Option<CoreTime>,
    /// Running time of each rate
    #[arg(long = "for", value_name = "TIME", default_value = "200ms", value_parser = time::<1, 60>)]
    pub(crate) each: Duration,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Rates from the first to the last, in steps; all in one unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) first: Offered,
    pub(crate) last: Offered,
    pub(crate) step: Offered,
}

impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "{text:?} is not a range of rates; write FIRST..LAST:STEP in packets per second, such as \
                 1M..16M:1M, or all three in bits of the line, such as 1Gbit/s..10Gbit/s:1Gbit/s"
            )
        };
        let (first, rest) = text.split_once("..").ok_or_else(refused)?;
        let (last, step) = rest.split_once(':').ok_or_else(refused)?;
        let rate = |part: &str| part.parse::<Offered>().map_err(|_| refused());
        let rates = Self { first: rate(first)?, last: rate(last)?, step: rate(step)? };
        let rises = match (rates.first, rates.last, rates.step) {
            (Offered::Packets(first), Offered::Packets(last), Offered::Packets(_)) => first <= last,
            (Offered::BitsPerS(first), Offered::BitsPerS(last), Offered::BitsPerS(_)) => {
                first <= last
            }
            _ => false,
        };
        if rises { Ok(rates) } else { Err(refused()) }
    }
}

/// Nanoseconds of a modelled core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreTime {
    pub(crate) poll_ns: f64,
    pub(crate) packet_ns: f64,
}

impl FromStr for CoreTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "{text:?} is not a core's time; write nanoseconds of a poll, 1 to 1000000, and of a packet, 0 \
                 to 1000000, such as 120:55"
            )
        };
        let (poll, packet) = text.split_once(':').ok_or_else(refused)?;
        let number = |part: &str| part.trim().parse::<f64>().map_err(|_| refused());
        let (poll_ns, packet_ns) = (number(poll)?, number(packet)?);
        match (1.0..=1e6).contains(&poll_ns) && (0.0..=1e6).contains(&packet_ns) {
            true => Ok(Self { poll_ns, packet_ns }),
            false => Err(refused()),
        }
    }
}
