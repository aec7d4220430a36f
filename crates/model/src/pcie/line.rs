//! The line of a port: the bits that packets need, and rates in bits.

use std::str::FromStr;

use super::error::PcieError;
use super::nic::Nic;
use super::number::{Rate, Unit, scaled};
use super::workload::{FCS_BYTES, Packets};

/// The shortest frame in bytes. Shorter frames are padded to it. Source: IEEE 802.3.
const FRAME_BYTES_MIN: u32 = 64;
/// The number of bytes on the line per frame, in addition to the frame itself: preamble, start
/// and gap. Source: IEEE 802.3.
const BESIDE_BYTES: u32 = 20;
/// The fastest line, in Gb/s. Source: IEEE 802.3df.
const GIGABITS_MAX: u32 = 800;

/// The load that is offered to a port, in the text form of the command line.
///
/// ```
/// use haul_model::pcie::{Offered, Packets};
/// let packets = Packets::of_frames(64).unwrap();
/// let rate = |text: &str| text.parse::<Offered>().unwrap().rate(&packets).unwrap();
/// assert_eq!(rate("10M").packets_per_s(), 1e7);
/// // 64 B and 20 B beside them, as every tester's table has it.
/// assert_eq!(rate("10Gbit/s").packets_per_s().round(), 14_880_952.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offered {
    /// Packets a second: `10M`, `14.88Mpps`.
    Packets(Rate),
    /// Bits of the line a second, including check sequence, preamble and gap: `100Gbit/s`.
    BitsPerS(f64),
}

impl Offered {
    /// The rate in packets a second, for packets of these sizes.
    ///
    /// # Errors
    /// [`PcieError::Rate`] if the rate is too large for a [`Rate`].
    pub fn rate(self, packets: &Packets) -> Result<Rate, PcieError> {
        match self {
            Self::Packets(rate) => Ok(rate),
            Self::BitsPerS(bits) => Rate::new(packets_per_s(bits, packets)),
        }
    }
}

impl FromStr for Offered {
    type Err = PcieError;

    fn from_str(text: &str) -> Result<Self, PcieError> {
        match scaled(text) {
            Some((bits, Unit::Bits)) if bits > 0.0 && bits.is_finite() => Ok(Self::BitsPerS(bits)),
            Some((_, Unit::Bits)) => Err(PcieError::Rate { text: text.to_owned() }),
            _ => text.parse().map(Self::Packets),
        }
    }
}

/// The number of packets of these sizes that a line of `bits_per_s` carries each second.
#[must_use]
pub fn packets_per_s(bits_per_s: f64, packets: &Packets) -> f64 {
    bits_per_s / bits(packets)
}

/// The mean number of bits of the line for each packet.
fn bits(packets: &Packets) -> f64 {
    packets.mean(|size| {
        let frame = size.saturating_add(FCS_BYTES).max(FRAME_BYTES_MIN);
        f64::from(frame + BESIDE_BYTES) * 8.0
    })
}

/// The largest rate of given packets on a port's line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineRate {
    /// The speed of the line.
    pub gigabits_per_s: u32,
    /// The number of these packets that the line carries a second.
    pub packets_per_s: f64,
}

/// The line rate of this NIC's fastest port for these packets; `None` if its speed is unknown.
#[must_use]
pub fn line_rate(nic: &Nic, packets: &Packets) -> Option<LineRate> {
    nic.line_gigabits.map(|gigabits| LineRate::of(gigabits, packets))
}

impl LineRate {
    fn of(gigabits_per_s: u32, packets: &Packets) -> Self {
        let bits_per_s = f64::from(gigabits_per_s) * 1e9;
        Self { gigabits_per_s, packets_per_s: packets_per_s(bits_per_s, packets) }
    }

    /// Whether the line carries this rate. It carries a rate equal to its own figure.
    #[must_use]
    pub fn carries(&self, rate: Rate) -> bool {
        rate.packets_per_s() <= self.packets_per_s * (1.0 + 1e-9)
    }
}

/// Rejects a rate that no line carries.
///
/// # Errors
/// [`PcieError::BeyondLines`] contains the bits of a line that the rate needs, and the speed of
/// the NIC's line.
pub fn check_rate(rate: Rate, packets: &Packets, nic: &Nic) -> Result<(), PcieError> {
    let fastest = LineRate::of(GIGABITS_MAX, packets);
    if fastest.carries(rate) {
        return Ok(());
    }
    let own = line_rate(nic, packets).map(|own| (nic.name, own));
    Err(PcieError::BeyondLines {
        packets_per_s: rate.packets_per_s() as u64,
        gigabits_per_s: (rate.packets_per_s() * bits(packets) / 1e9) as u64,
        most_gigabits_per_s: GIGABITS_MAX,
        most_packets_per_s: fastest.packets_per_s as u64,
        nic: own.map(|(name, own)| (name, own.gigabits_per_s, own.packets_per_s as u64)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(text: &str) -> Packets {
        text.parse().unwrap()
    }

    #[test]
    fn line_rates_match_testers_tables() {
        for (gigabits, frame, expected) in [
            (10.0, 64, 14_880_952.0),
            (10.0, 1518, 812_743.0),
            (100.0, 64, 148_809_523.0),
            (100.0, 512, 23_496_240.0),
        ] {
            let packets = Packets::of_frames(frame).unwrap();
            assert_eq!(packets_per_s(gigabits * 1e9, &packets).floor(), expected, "{frame}");
        }
        // Packets that are shorter than a frame are padded.
        assert_eq!(bits(&packets("1")), bits(&packets("60")));
        assert!(bits(&packets("61")) > bits(&packets("60")));
        assert_eq!(bits(&packets("60:1,160:1")), f64::from(84 + 184) * 4.0);
    }

    #[test]
    fn offered_parses_packets_or_bits() {
        let of = |text: &str| text.parse::<Offered>().unwrap();
        assert_eq!(of("100Gbit/s"), Offered::BitsPerS(1e11));
        for same in ["100Gbps", "100 Gbps", "100000Mb/s", "0.1Tbit/s"] {
            assert_eq!(of(same), of("100Gbit/s"), "{same}");
        }
        assert_eq!(of("100G"), Offered::Packets(Rate::new(1e11).unwrap()));
        for text in ["0bit/s", "Gbps", "1GB/s", "100Gbit", "-1Gbps"] {
            let message = text.parse::<Offered>().unwrap_err().to_string();
            assert!(message.contains(text) && message.contains("100Gbit/s"), "{message}");
        }
        assert!(of("999999Tbit/s").rate(&packets("64")).is_err());
    }

    #[test]
    fn check_rate_rejects_rates_above_every_line() {
        let (ice, ena): (&Nic, &Nic) = ("ice".parse().unwrap(), "ena".parse().unwrap());
        let of = |text: &str, nic| {
            let rate = text.parse::<Offered>().unwrap().rate(&packets("60")).unwrap();
            check_rate(rate, &packets("60"), nic)
        };
        assert!(of("800Gbit/s", ice).is_ok() && of("1190M", ice).is_ok());
        let message = of("100G", ice).unwrap_err().to_string();
        for part in ["67200 Gb/s", "800 Gb/s", "ice", "200 Gb/s", "297619047", "100Gbit/s"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(of("801Gbit/s", ena).is_err());
        assert!(line_rate(ena, &packets("60")).is_none());
        assert!(line_rate(ice, &packets("60")).unwrap().carries(Rate::new(2.9e8).unwrap()));
    }
}
