//! The kinds of Open vSwitch's port to a guest.

use std::fmt;
use std::str::FromStr;

/// The kind of Open vSwitch's port to the guest, by its type in Open vSwitch's database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VhostPort {
    /// The switch listens on the socket.
    #[default]
    Server,
    /// The guest listens on the socket, and the switch counts the port's packets.
    Client,
}

impl VhostPort {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Server, Self::Client];

    /// The type in Open vSwitch's database, and the name in commands and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "dpdkvhostuser",
            Self::Client => "dpdkvhostuserclient",
        }
    }
}

impl fmt::Display for VhostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for VhostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|port| port.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(" or ");
            format!("unknown port {text:?}; write {names}")
        })
    }
}
