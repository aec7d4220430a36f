//! A driver's counters of its device (`ethtool -S`): mlx5 reports how long the link stalls it.
//!
//! Names and meanings are from
//! Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst.
//! `outbound_pci_stalled_rd` and `_wr` are the percentages of the last second in which the device
//! had data to read or write but no credits for it. `_rd_events` and `_wr_events` count the
//! seconds in which these percentages were above 30%. `outbound_pci_buffer_overflow` counts
//! packets that were dropped because the link was not ready for them.

use std::io;
use std::os::fd::AsRawFd;

use super::contract::{About, Count, Quantity, Source, SourceError};

/// The names that are read.
const NAMES: [&str; 9] = [
    "outbound_pci_stalled_rd",
    "outbound_pci_stalled_wr",
    "outbound_pci_stalled_rd_events",
    "outbound_pci_stalled_wr_events",
    "outbound_pci_buffer_overflow",
    "pci_bw_inbound_high",
    "pci_bw_inbound_low",
    "pci_bw_outbound_high",
    "pci_bw_outbound_low",
];
/// More statistics than any driver has.
const STATISTICS_MAX: usize = 1 << 16;
/// Bytes of a statistic's name (ETH_GSTRING_LEN).
const NAME_BYTES: usize = 32;
/// `SIOCETHTOOL`, and its commands. Source: include/uapi/linux/{sockios,ethtool}.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
/// The set of strings that names statistics (ETH_SS_STATS).
const STATISTICS: u32 = 1;

/// A reader of statistics: the name and the value of each statistic, in the driver's order.
type Read = Box<dyn FnMut() -> io::Result<Vec<(String, u64)>> + Send>;

/// A device's statistics.
pub struct Ethtool {
    read: Read,
    interface: String,
    about: About,
}

impl Ethtool {
    /// The statistics of an interface; `None` if the interface's driver has no counters of the
    /// link.
    ///
    /// # Errors
    /// None at present: an interface that does not answer counts as one without counters.
    pub fn open(interface: &str) -> Result<Option<Self>, SourceError> {
        let name = interface.to_owned();
        let read = Box::new(move || ask(&name));
        Ok(Self::of(interface, read))
    }

    /// Reads recorded statistics, or the kernel's statistics.
    pub(super) fn of(interface: &str, mut read: Read) -> Option<Self> {
        let is_there =
            read().is_ok_and(|all| all.iter().any(|(name, _)| NAMES.contains(&name.as_str())));
        is_there.then(|| Self {
            read,
            interface: interface.to_owned(),
            about: About {
                unit: "percent of the last second, and events",
                granularity: format!("the device of {interface}"),
                traps: vec![
                    "a share is the device's own, refreshed once a second",
                    "the outbound side is the device's: it reads and writes memory by it",
                ],
                is_tested: false,
            },
        })
    }
}

impl Source for Ethtool {
    fn name(&self) -> &'static str {
        "mlx5"
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Vec<Count>, SourceError> {
        let what = format!("the interface {}", self.interface);
        let all = (self.read)().map_err(|reason| SourceError::Gone { what, reason })?;
        let mut counts = Vec::new();
        for (name, value) in all {
            if !NAMES.contains(&name.as_str()) {
                continue;
            }
            let is_share = name.ends_with("stalled_rd") || name.ends_with("stalled_wr");
            if is_share && value > 100 {
                continue; // no share of a second
            }
            let value = value as f64;
            let quantity = if is_share { Quantity::Percent(name) } else { Quantity::Events(name) };
            counts.push(Count { quantity, value, unit: 1.0 });
        }
        Ok(counts)
    }
}

/// `struct ifreq` with a pointer.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut libc::c_void,
    rest: [u8; 16],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

/// All statistics of an interface, from the kernel.
fn ask(interface: &str) -> io::Result<Vec<(String, u64)>> {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0))?;
    // struct ethtool_sset_info: command, reserved, mask, and one number.
    let mut info = [0_u32; 5];
    info[0] = GET_SET_INFO;
    info[2] = 1 << STATISTICS;
    call(&socket, interface, &mut info)?;
    let count = info[4] as usize;
    if count == 0 || count > STATISTICS_MAX {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // struct ethtool_gstrings: command, set, length, and the names.
    let mut names = vec![0_u32; 3 + STATISTICS_MAX * NAME_BYTES / 4];
    (names[0], names[1], names[2]) = (GET_STRINGS, STATISTICS, count as u32);
    call(&socket, interface, &mut names)?;
    // struct ethtool_stats: command, length, and the values.
    let mut values = vec![0_u32; 2 + STATISTICS_MAX * 2];
    (values[0], values[1]) = (GET_STATISTICS, count as u32);
    call(&socket, interface, &mut values)?;
    let name = |place: usize| {
        let words = &names[3 + place * NAME_BYTES / 4..][..NAME_BYTES / 4];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let value = |place: usize| {
        let words = &values[2 + place * 2..][..2];
        let [a, b, c, d] = words[0].to_ne_bytes();
        let [e, f, g, h] = words[1].to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    };
    Ok((0..count).map(|place| (name(place), value(place))).collect())
}

/// A driver may have more counters than it reported before, so that the kernel writes more
/// values. The buffers have room for [`STATISTICS_MAX`].
fn call(socket: &std::net::UdpSocket, interface: &str, data: &mut [u32]) -> io::Result<()> {
    let mut request =
        Request { name: [0; libc::IFNAMSIZ], data: data.as_mut_ptr().cast(), rest: [0; 16] };
    let name = interface.as_bytes();
    if name.len() >= libc::IFNAMSIZ || name.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.name[..name.len()].copy_from_slice(name);
    // SAFETY: the request has the kernel's layout. The request's pointer refers to a live,
    // writable buffer that has room for more than any driver's answer to the requested command.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of the output of `ethtool -S` for a ConnectX-6 Dx, with the names in the kernel's
    /// counters.rst. The text is written by hand from that page, because no card was available.
    const RECORDED: &str = include_str!("recorded/ethtool-mlx5.txt");

    fn statistics(text: &str) -> Vec<(String, u64)> {
        let lines = text.lines().filter_map(|line| line.trim().rsplit_once(": "));
        lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
    }

    fn source(text: &'static str) -> Option<Ethtool> {
        Ethtool::of("eth0", Box::new(move || Ok(statistics(text))))
    }

    #[test]
    fn stalls_are_shares_and_overflows_are_events() {
        let mut mlx5 = source(RECORDED).expect("it counts its link");
        let counts = mlx5.read().unwrap();
        let of = |name: &str| {
            let found = counts.iter().find(|count| count.quantity.name() == name);
            found.map(|count| (count.quantity.rate_unit(), count.value))
        };
        assert_eq!(of("outbound_pci_stalled_rd"), Some(("%", 3.0)));
        assert_eq!(of("outbound_pci_stalled_wr"), Some(("%", 41.0)));
        assert_eq!(of("outbound_pci_buffer_overflow"), Some(("events/s", 1200.0)));
        assert_eq!(of("rx_packets"), None);
    }

    #[test]
    fn share_above_a_whole_second_is_rejected() {
        let mut mlx5 = source("outbound_pci_stalled_rd: 4000000000").unwrap();
        assert_eq!(mlx5.read().unwrap(), []);
        assert!(source("rx_packets: 5").is_none(), "a driver that counts nothing of its link");
    }

    #[test]
    fn read_fails_if_device_vanishes() {
        let mut answers = vec![Err(io::ErrorKind::NotFound.into()), Ok(statistics(RECORDED))];
        let mut mlx5 = Ethtool::of("eth0", Box::new(move || answers.pop().unwrap())).unwrap();
        assert!(mlx5.read().unwrap_err().to_string().contains("eth0 has vanished"));
    }

    #[test]
    fn ask_succeeds_or_fails_cleanly_for_every_interface() {
        let names = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
            assert!(Ethtool::open(&name).is_ok(), "{name}");
        }
        for bad in ["", "no-such-interface-at-all", "a\0b"] {
            assert!(Ethtool::open(bad).unwrap().is_none(), "{bad:?}");
        }
    }
}
