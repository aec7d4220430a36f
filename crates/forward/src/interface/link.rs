//! Which links have Ethernet headers, and how a driver modifies packets.

use std::io;

use rustix::fd::{AsRawFd, OwnedFd};

use super::Request;

/// Whether packets of this type of link begin with an Ethernet header: ARPHRD_ETHER and
/// ARPHRD_LOOPBACK of linux/if_arp.h.
pub(super) fn has_ethernet(kind: u16) -> bool {
    matches!(kind, 1 | 772)
}

/// The message about a link without Ethernet headers.
pub(super) fn foreign(kind: u16) -> String {
    let name = match kind {
        24 => "IEEE 1394",
        32 => "InfiniBand",
        280 => "CAN",
        512 => "PPP",
        519 => "raw IP",
        768 | 769 | 776 => "an IP tunnel",
        778 | 823 => "GRE",
        801..=803 => "IEEE 802.11 in monitor mode",
        804 | 805 => "IEEE 802.15.4",
        824 => "netlink",
        826 => "a socket monitor",
        0xfffe => "tun, WireGuard or another link without a header",
        _ => "an unknown link type",
    };
    format!("its packets have no Ethernet header: it is {name} (type {kind})")
}

/// The remedy for such a link.
pub(super) const REMEDY: &str = "use a tap instead of a tun, gretap instead of gre, or the \
                                 interface that its packets travel over";

/// How a driver modifies packets before any program sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// The driver's name, empty if unknown.
    pub(crate) driver: String,
    /// Whether the driver removes VLAN tags from packets and keeps them separately.
    pub(crate) takes_tags: bool,
    /// Whether the NIC merges received packets irreversibly.
    pub(crate) merges: bool,
}

/// Constants of linux/sockios.h and linux/ethtool.h.
const ETHTOOL: libc::Ioctl = 0x8946;
const GET_DRIVER: u32 = 0x03;
const GET_FLAGS: u32 = 0x25;
const FLAG_RX_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;

/// The kernel's `struct ethtool_drvinfo`: the command, then the driver's name.
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

/// The argument of an ethtool command, which holds only numbers.
///
/// # Safety
/// The type has the length of the kernel's structure for its command, and any bits are valid.
unsafe trait Asked {}

// SAFETY: `struct ethtool_drvinfo`, bytes and numbers.
unsafe impl Asked for Driver {}
// SAFETY: `struct ethtool_value`, numbers.
unsafe impl Asked for Value {}

impl Features {
    /// The features of the interface of this name; empty if the driver does not report them.
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
    let pointer = std::ptr::from_mut(asked).expose_provenance();
    request.value[..size_of::<usize>()].copy_from_slice(&pointer.to_ne_bytes());
    // SAFETY: the request is as large as the kernel's `struct ifreq`, and points to the argument of
    // its command, which is valid until the call has ended.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_link_is_named() {
        assert!(has_ethernet(1) && has_ethernet(772));
        for (kind, name) in [(0xfffe, "tun, WireGuard"), (512, "PPP"), (778, "GRE"), (9999, "9999")]
        {
            assert!(!has_ethernet(kind) && foreign(kind).contains(name), "{kind}");
        }
    }
}
