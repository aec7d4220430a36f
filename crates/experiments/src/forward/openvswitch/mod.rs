//! Open vSwitch with DPDK as switch: its processes, in a separate folder, and its flows.
//!
//! One bridge has two ports, DPDK's `net_null` and a vhost port, and two constant flows from each
//! port to the other. If the guest makes the packets, there is only the vhost port, with a flow
//! back to it. One thread polls all ports. An Open vSwitch that already runs on the machine is
//! not changed. The guest counts the packets of a rate, because Open vSwitch updates its own
//! counters only every five seconds.
//!
//! From the bottom up:
//!
//! - `vhost_port`: the kinds of its port to the guest;
//! - `files`: Open vSwitch's files, its tools, and its configuration;
//! - `statistics`: the counters of its vhost port;
//! - `session`: a running Open vSwitch.

mod files;
mod session;
mod statistics;
mod vhost_port;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::library::Library;
pub(super) use files::Setting;
pub(super) use session::Session;
pub(super) use statistics::Statistics;
pub use vhost_port::VhostPort;

/// The files that Debian does not install on `PATH`.
const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// The programs of an installed Open vSwitch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenVswitch {
    switch: PathBuf,
    version: String,
    database: PathBuf,
    database_tool: PathBuf,
    configure: PathBuf,
    flows: PathBuf,
    ask: PathBuf,
    library: Option<Library>,
    port: VhostPort,
}
impl OpenVswitch {
    /// The remedy if Open vSwitch is not installed.
    pub const REMEDY: &'static str = "apt-get install openvswitch-switch-dpdk";

    /// The Open vSwitch of this machine.
    ///
    /// # Errors
    /// The reason why Open vSwitch cannot be used.
    pub fn find() -> Result<Self, String> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let on_path = |name: &str| {
            let own = std::env::split_paths(&folders).chain(FOLDERS.map(PathBuf::from));
            let mut files = own.map(|folder| folder.join(name));
            files.find(|file| file.is_file()).ok_or_else(|| format!("no {name} on PATH"))
        };
        let debian = Some(PathBuf::from(SWITCH)).filter(|file| file.is_file());
        let switch = debian.map_or_else(|| on_path("ovs-vswitchd"), Ok)?;
        let output = Command::new(&switch).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot run {}: {error}", switch.display()))?;
        let version = parse_version(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| format!("{} has no DPDK", switch.display()))?;
        if !Path::new(SCHEMA).is_file() {
            return Err(format!("no {SCHEMA}"));
        }
        Ok(Self {
            switch,
            version,
            database: on_path("ovsdb-server")?,
            database_tool: on_path("ovsdb-tool")?,
            configure: on_path("ovs-vsctl")?,
            flows: on_path("ovs-ofctl")?,
            ask: on_path("ovs-appctl")?,
            library: None,
            port: VhostPort::default(),
        })
    }

    /// This Open vSwitch with a library that its switch loads.
    #[must_use]
    pub fn with_library(self, library: Option<Library>) -> Self {
        Self { library, ..self }
    }

    /// This Open vSwitch with another kind of port to the guest.
    #[must_use]
    pub fn with_port(self, port: VhostPort) -> Self {
        Self { port, ..self }
    }

    /// The kind of its port to the guest.
    pub(super) fn port(&self) -> VhostPort {
        self.port
    }

    /// The library that its switch loads.
    pub(super) fn library(&self) -> Option<&Library> {
        self.library.as_ref()
    }

    /// The command that starts the switch, and only the switch, with the library's variables.
    fn switch_words(&self) -> Vec<OsString> {
        let variables = self.library.iter().flat_map(Library::environment);
        let variables = variables.map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        });
        let mut words: Vec<OsString> = variables.collect();
        if !words.is_empty() {
            words.insert(0, "env".into());
        }
        words.push(self.switch.clone().into());
        words
    }
}
/// `3.1.0 with DPDK 22.11.5` from the output of `ovs-vswitchd --version`; `None` without DPDK.
fn parse_version(text: &str) -> Option<String> {
    let own = text.split("(Open vSwitch) ").nth(1)?.split_whitespace().next()?;
    let dpdk = text.lines().find_map(|line| line.strip_prefix("DPDK "))?.trim();
    let dpdk = dpdk.trim_start_matches("DPDK ");
    Some(format!("{own} with DPDK {dpdk}"))
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed_only_with_dpdk() {
        let text = "ovs-vswitchd (Open vSwitch) 3.1.0\nDPDK 22.11.11\n";
        assert_eq!(parse_version(text).as_deref(), Some("3.1.0 with DPDK 22.11.11"));
        assert_eq!(parse_version("ovs-vswitchd (Open vSwitch) 3.1.0\n"), None);
        assert_eq!(parse_version(""), None);
    }
}
