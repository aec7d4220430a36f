//! Network interfaces of this machine, and the memory that the kernel shares with an interface's
//! port.
//!
//! From the bottom up:
//!
//! - `mapping`: memory that is shared with the kernel;
//! - `option`: socket options that rustix does not support;
//! - `offload`: work that a kernel leaves to a device, done here;
//! - `names`: names that are too long for the kernel's older calls;
//! - `link`: which links have Ethernet headers, and how a driver modifies packets.

mod link;
mod mapping;
mod names;
mod offload;
mod option;

use std::io;
use std::path::PathBuf;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::counters::DropReason;
use super::error::Error;
use super::pool::{Packet, Pool};
use haul_peer::descriptor::kept;
pub(crate) use link::Features;
pub(crate) use mapping::Mapping;
use names::Names;
pub(crate) use offload::{Cut, Offload};
pub(crate) use option::{get, set};

/// The time between two checks of an interface in nanoseconds.
pub(crate) const CHECK_NS: u64 = 50_000_000;

/// The size of an Ethernet header in bytes: shorter packets are not frames.
pub(crate) const FRAME_BYTES_MIN: usize = 14;
/// A VLAN tag, which an interface's MTU does not include.
const TAG_BYTES: usize = 4;

/// An interface, known by its name. It need not exist.
#[derive(Debug)]
pub(crate) struct Interface {
    /// The given name, and the name for the kernel's older calls.
    name: String,
    first_name: String,
    /// A socket of the network namespace that holds the interface.
    socket: OwnedFd,
    /// The lookup of names that are too long for the older calls.
    names: Option<Names>,
}

/// The state of an interface at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The interface's index: an interface that is created again has another index.
    pub(crate) index: u32,
    /// Longest packet, without the Ethernet header.
    pub(crate) mtu: usize,
    /// Whether packets pass: both the interface and its other side are up.
    pub(crate) is_up: bool,
    /// The type of the link: ARPHRD_* of linux/if_arp.h.
    pub(crate) kind: u16,
}

impl State {
    /// Whether the interface's packets begin with an Ethernet header.
    pub(crate) fn has_ethernet(&self) -> bool {
        link::has_ethernet(self.kind)
    }
}

impl Interface {
    /// # Errors
    /// [`Error::Path`] if no interface of this name exists now, or its packets have no Ethernet
    /// header.
    pub(crate) fn new(name: &str) -> Result<(Self, State), Error> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
        let socket = kept(socket).map_err(|reason| refused(name, reason.into()))?;
        let is_short = name.len() < libc::IFNAMSIZ;
        let names = (!is_short).then(Names::new).transpose();
        let names = names.map_err(|reason| refused(name, reason))?;
        let first_name = if is_short { name.to_owned() } else { String::new() };
        let mut interface = Self { name: name.to_owned(), first_name, socket, names };
        let state = interface.state().map_err(|reason| refused(name, reason))?;
        if !state.has_ethernet() {
            let (attempt, reason) = (ATTEMPT, io::Error::other(link::foreign(state.kind)));
            return Err(Error::Path { attempt, path: name.into(), reason, remedy: link::REMEDY });
        }
        Ok((interface, state))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How the interface's driver modifies packets at the moment. Makes two system calls, which
    /// may wait while another process changes interfaces.
    pub(crate) fn features(&self) -> Features {
        Features::of(&self.socket, &self.first_name)
    }

    /// The present state. Makes four system calls, and more if the interface is absent.
    ///
    /// # Errors
    /// The system's error if the interface is absent.
    pub(crate) fn state(&mut self) -> io::Result<State> {
        let state = self.read_state();
        match &self.names {
            // A renamed interface has kept its alternative names.
            Some(names) if state.is_err() => {
                self.first_name = names.first(&self.name)?;
                self.read_state()
            }
            _ => state,
        }
    }

    fn read_state(&self) -> io::Result<State> {
        let index = rustix::net::netdevice::name_to_index(&self.socket, &self.first_name)?;
        let flags = self.ask(libc::SIOCGIFFLAGS)?;
        let mtu = self.ask(libc::SIOCGIFMTU)?;
        // The first two bytes of an address are its type.
        let kind = self.ask(libc::SIOCGIFHWADDR)?;
        let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
        let is_up = mtu > 0 && flags & wanted == wanted;
        Ok(State { index, mtu: mtu as usize, is_up, kind: kind as u16 })
    }

    /// Why packets do not pass in this state; `None` if they do.
    pub(crate) fn obstacle(&self, state: Option<&State>) -> Option<String> {
        let name = &self.name;
        match state {
            None => Some(format!("the interface {name} has disappeared: the port waits for it")),
            Some(state) if !state.has_ethernet() => {
                Some(format!("{name}: {}; {}", link::foreign(state.kind), link::REMEDY))
            }
            Some(state) if !state.is_up => Some(format!(
                "{name} is down, or its other side is: ip link set dev {name} up; see ip link"
            )),
            Some(_) => None,
        }
    }

    /// Asks for one of the interface's numbers, see netdevice(7).
    fn ask(&self, what: libc::Ioctl) -> io::Result<u32> {
        let mut request = Request::of(&self.first_name)?;
        // SAFETY: the request is as large as the kernel's `struct ifreq`, which it reads and
        // writes; the requested values are numbers in it.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), what, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let [a, b, c, d, ..] = request.value;
        let number = u32::from_ne_bytes([a, b, c, d]);
        // Flags and address types use only the first two bytes of the number.
        let is_short = what == libc::SIOCGIFFLAGS || what == libc::SIOCGIFHWADDR;
        let short = u16::from_ne_bytes([a, b]).into();
        Ok(if is_short { short } else { number })
    }
}

/// The kernel's `struct ifreq`.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

impl Request {
    /// A request about the interface of this name.
    ///
    /// # Errors
    /// The name is too long.
    fn of(name: &str) -> io::Result<Self> {
        let mut request = Self { name: [0; libc::IFNAMSIZ], value: [0; 24] };
        let bytes = name.as_bytes();
        if bytes.len() >= libc::IFNAMSIZ {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        request.name[..bytes.len()].copy_from_slice(bytes);
        Ok(request)
    }
}

/// Makes an interface receive packets for other Ethernet addresses as well, as long as `socket`, an
/// AF_PACKET socket, exists.
///
/// # Errors
/// The system's error.
pub(crate) fn listen_to_all(socket: impl AsFd, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// The longest frame of an interface of this MTU, with a VLAN tag.
pub(crate) fn longest(mtu: usize) -> usize {
    mtu + FRAME_BYTES_MIN + TAG_BYTES
}

/// Why a packet can never be sent through an interface of this MTU.
#[inline]
pub(crate) fn unfit(pool: &Pool, packet: &Packet, mtu: usize) -> Option<DropReason> {
    let length = pool.length(packet);
    if length < FRAME_BYTES_MIN {
        return Some(DropReason::TooShort);
    }
    if length <= mtu + FRAME_BYTES_MIN {
        return None;
    }
    // A VLAN tag does not count.
    let mut kind = [0; 2];
    let is_tagged = pool.read(packet, 12, &mut kind) && matches!(kind, [0x81, 0x00] | [0x88, 0xa8]);
    let is_fit = is_tagged && length <= longest(mtu);
    (!is_fit).then_some(DropReason::TooLong)
}

/// The error of an interface that cannot be used, with the remedy.
pub(crate) fn refused(name: &str, reason: io::Error) -> Error {
    let remedy = match reason.raw_os_error() {
        Some(libc::ENODEV) => "choose an interface that ip link shows",
        Some(libc::EPERM | libc::EACCES) => {
            "run as root, or with the capabilities NET_RAW, NET_ADMIN and BPF"
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            "another program uses it: end that program, or ip link set dev NAME xdp off"
        }
        Some(libc::ENOMEM | libc::ENOBUFS) => "free memory, or raise ulimit -l",
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => {
            "use a kernel that supports such sockets"
        }
        None if reason.kind() == io::ErrorKind::InvalidInput => {
            "choose another interface, or ip link set dev NAME mtu 1500"
        }
        Some(libc::EINVAL) => "choose a queue that ethtool -l shows; see ip -d link show",
        _ => "see ip -d link show",
    };
    Error::Path { attempt: ATTEMPT, path: PathBuf::from(name), reason, remedy }
}

const ATTEMPT: &str = "use the interface";
