//! Which links have Ethernet headers, and what a driver keeps for itself.

use std::io;

use rustix::fd::{AsRawFd, OwnedFd};

use super::Request;

/// Whether packets of this kind of link begin with an Ethernet header: ARPHRD_ETHER and
/// ARPHRD_LOOPBACK of linux/if_arp.h.
pub(super) fn has_ethernet(kind: u16) -> bool {
    matches!(kind, 1 | 772)
}

/// What a person hears of a link without Ethernet headers.
pub(super) fn foreign(kind: u16) -> String {
    let name = match kind {
        24 => "IEEE 1394",
        32 => "InfiniBand",
        280 => "CAN",
        512 => "PPP",
        519 => "raw IP",
        768 | 769 | 776 => "an IP tunnel",
        778 | 823 => "GRE",
        801..=803 => "IEEE 802.11 as it is in the air",
        804 | 805 => "IEEE 802.15.4",
        824 => "netlink",
        826 => "a monitor of sockets",
        0xfffe => "tun, WireGuard or another without a header of its own",
        _ => "a kind that haul does not know",
    };
    format!("its packets have no Ethernet header: it is {name} (type {kind})")
}

/// What helps then.
pub(super) const REMEDY: &str = "take a tap instead of a tun, gretap instead of gre, or the \
                                 interface that its packets travel over";

/// What a driver does with packets before anybody sees them, or leaves to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// The driver's name, empty where it does not say.
    pub(crate) driver: String,
    /// Whether VLAN tags are taken out of packets and kept beside them.
    pub(crate) takes_tags: bool,
    /// Whether the card merges packets that came, in a way that cannot be undone.
    pub(crate) merges: bool,
}

/// Of linux/sockios.h and linux/ethtool.h.
const ETHTOOL: libc::Ioctl = 0x8946;
const GET_DRIVER: u32 = 0x03;
const GET_FLAGS: u32 = 0x25;
const FLAG_RX_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;

/// The kernel's `struct ethtool_drvinfo`: the command, and the driver's name at its beginning.
#[repr(C)]
struct Driver {
    command: u32,
    name: [u8; 32],
    rest: [u8; 160],
}

/// The kernel's `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    value: u32,
}

const _: () = assert!(size_of::<Driver>() == 196 && size_of::<Value>() == 8);

/// What an ethtool command reads and writes: numbers alone.
///
/// # Safety
/// It is as long as the kernel's structure for its command, and may have any bits.
unsafe trait Asked {}

// SAFETY: `struct ethtool_drvinfo`, bytes and numbers.
unsafe impl Asked for Driver {}
// SAFETY: `struct ethtool_value`, numbers.
unsafe impl Asked for Value {}

impl Features {
    /// Those of the interface of this name; nothing where it does not say.
    pub(super) fn of(socket: &OwnedFd, name: &str) -> Self {
        let mut driver = Driver { command: GET_DRIVER, name: [0; 32], rest: [0; 160] };
        let text = match ask(socket, name, &mut driver) {
            Ok(()) => driver.name.split(|byte| *byte == 0).next().unwrap_or_default(),
            Err(_) => &[],
        };
        let mut flags = Value { command: GET_FLAGS, value: 0 };
        let flags = ask(socket, name, &mut flags).map_or(0, |()| flags.value);
        Self {
            driver: String::from_utf8_lossy(text).into_owned(),
            takes_tags: flags & FLAG_RX_VLAN != 0,
            merges: flags & FLAG_LRO != 0,
        }
    }
}

fn ask<T: Asked>(socket: &OwnedFd, name: &str, asked: &mut T) -> io::Result<()> {
    let mut request = Request::of(name)?;
    let place = std::ptr::from_mut(asked).expose_provenance();
    request.value[..size_of::<usize>()].copy_from_slice(&place.to_ne_bytes());
    // SAFETY: the request is as large as the kernel's `struct ifreq`, and points to what the
    // command in it reads and writes, which is there until the call has ended.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_ethernet_headers_is_named() {
        assert!(has_ethernet(1) && has_ethernet(772));
        for (kind, name) in [(0xfffe, "tun, WireGuard"), (512, "PPP"), (778, "GRE"), (9999, "9999")]
        {
            assert!(!has_ethernet(kind) && foreign(kind).contains(name), "{kind}");
        }
    }
}
