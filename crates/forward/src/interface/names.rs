//! Names of interfaces that are too long for the kernel's older calls: alternative names of up to
//! 127 bytes (`ip link property add altname`).

use std::io;

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use haul_peer::descriptor::kept;

/// Numbers of linux/netlink.h, linux/rtnetlink.h and linux/if_link.h.
const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const IS_ERROR: u16 = 2;
const IS_REQUEST: u16 = 1;
const FIRST_NAME: u16 = 3;
const OTHER_NAME: u16 = 53;
const WHAT: u16 = 29;
/// A filter: no statistics.
const WITHOUT_COUNTS: u32 = 1 << 3;

/// The size of a message's header in bytes, and the size of the link's header that follows it.
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;

/// More than the kernel's answer about one link without statistics. Names come first in it.
const ANSWER_BYTES: usize = 32 << 10;

/// A socket of rtnetlink(7).
#[derive(Debug)]
pub(super) struct Names(OwnedFd);

impl Names {
    /// A socket in the network namespace of this thread.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn new() -> io::Result<Self> {
        let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::RAW);
        let family = AddressFamily::NETLINK;
        Ok(Self(kept(rustix::net::socket_with(family, kind, flags, None))?))
    }

    /// The primary name of the interface with this alternative name.
    ///
    /// # Errors
    /// The system's error; ENODEV if there is no such interface.
    pub(super) fn first(&self, other: &str) -> io::Result<String> {
        let absent = || io::Error::from_raw_os_error(libc::ENODEV);
        // Discards unread answers to earlier requests.
        let mut answer = vec![0; ANSWER_BYTES];
        while rustix::net::recv(&self.0, &mut answer, RecvFlags::DONTWAIT).is_ok() {}
        rustix::net::send(&self.0, &question(other), SendFlags::empty())?;
        let (_, length) = rustix::net::recv(&self.0, &mut answer, RecvFlags::empty())?;
        let answer = answer.get(..length).unwrap_or_default();
        match half(answer, 4) {
            Some(NEW_LINK) => attribute(answer, FIRST_NAME).ok_or_else(absent),
            // Older kernels, and names that are too long for any kernel, yield other errors.
            Some(IS_ERROR) | None | Some(_) => Err(absent()),
        }
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The request for the link of this name.
fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES + LINK_BYTES];
    let text = [name.as_bytes(), &[0]].concat();
    for (kind, value) in [(OTHER_NAME, &text[..]), (WHAT, &WITHOUT_COUNTS.to_ne_bytes())] {
        message.extend((4 + value.len() as u16).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&GET_LINK.to_ne_bytes());
    message[6..8].copy_from_slice(&IS_REQUEST.to_ne_bytes());
    message
}

/// The text of the attribute `wanted` in an answer.
fn attribute(answer: &[u8], wanted: u16) -> Option<String> {
    let mut rest = answer.get(HEADER_BYTES + LINK_BYTES..)?;
    loop {
        let (length, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
        let value = rest.get(4..length)?;
        if kind == wanted {
            let text = value.split(|byte| *byte == 0).next()?;
            return String::from_utf8(text.to_vec()).ok();
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_finds_loopback_and_rejects_unknown_names() {
        let names = Names::new().unwrap();
        for name in ["no such interface of any name", "", &"x".repeat(300), "a\0b"] {
            let error = names.first(name).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name}");
        }
        // Kernels from 5.5 on support alternative names, and accept primary ones as well.
        if let Ok(name) = names.first("lo") {
            assert_eq!(name, "lo");
        }
        let mut answer = question("eth0");
        assert_eq!(attribute(&answer, OTHER_NAME).as_deref(), Some("eth0"));
        assert_eq!(attribute(&answer, FIRST_NAME), None);
        answer.truncate(40);
        assert_eq!(attribute(&answer, WHAT), None);
    }
}
