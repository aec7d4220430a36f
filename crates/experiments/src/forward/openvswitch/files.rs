//! Open vSwitch's files, its tools, and its configuration.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::vhost_port::VhostPort;
use crate::forward::flow::Flow;

/// The longest time of one of Open vSwitch's tools, in seconds.
pub(super) const TIMEOUT_S: u32 = 20;
/// The memory of the switch: a pool of packets for each frame size, and the memory that DPDK
/// itself needs.
const MEMORY_MIB: u32 = 512;
/// The settings of a session.
#[derive(Clone, Debug)]
pub(in crate::forward) struct Setting<'a> {
    /// The socket to the guest, in a folder of this run.
    pub(in crate::forward) socket: &'a Path,
    pub(in crate::forward) flow: Flow,
    pub(in crate::forward) size_bytes: usize,
    /// The processor that polls.
    pub(in crate::forward) cpu: usize,
    /// Whether the switch's memory comes from the kernel's pool of huge pages.
    pub(in crate::forward) is_huge: bool,
}
/// The MTU of a port by default, and the bytes of a packet in front of what counts for the MTU: the
/// header of Ethernet.
const MTU: usize = 1500;
const ETHERNET_BYTES: usize = 14;
/// Numbers of the bridge's ports.
pub(super) const PHYSICAL: u32 = 1;
pub(super) const GUEST: u32 = 2;
/// Open vSwitch's files, and the name of its bridge. While Open vSwitch runs, a tap of that name
/// exists in the network namespace.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) folder: PathBuf,
    pub(super) records: PathBuf,
    pub(super) bridge: String,
}

impl Files {
    pub(super) fn of(folder: &Path) -> Self {
        let records = folder.join("conf.db");
        Self { folder: folder.into(), records, bridge: format!("haul{}", std::process::id()) }
    }

    pub(super) fn database(&self) -> String {
        format!("unix:{}", self.folder.join("database.sock").display())
    }

    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        // The last variable names the folder that DPDK makes.
        let names =
            ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"];
        names.map(|name| (name.into(), self.folder.clone().into())).into()
    }

    /// Runs one of Open vSwitch's tools, and returns its output.
    ///
    /// # Errors
    /// The tool cannot be started, or fails; the text contains its output.
    pub(super) fn run<A: AsRef<OsStr>>(
        &self,
        program: &Path,
        arguments: &[A],
    ) -> Result<String, String> {
        let mut command = Command::new(program);
        command.args(arguments).envs(self.environment()).stdin(Stdio::null());
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let ran = command.output().map_err(|error| format!("{name}: {error}"))?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&ran.stderr);
        Err(format!("{name} failed: {}", errors.trim().replace('\n', " / ")))
    }
}

/// The arguments with which `ovs-vsctl` makes one transaction before the switch starts.
pub(super) fn configuration(port: VhostPort, setting: &Setting<'_>, files: &Files) -> Vec<String> {
    let Setting { socket, flow, size_bytes, cpu, is_huge } = setting;
    let guest = guest_port(socket);
    // Without --legacy-mem, Open vSwitch itself adds --in-memory, which needs huge pages. Without
    // a limit, a pool of packets allocates all free pages, and none are left for the guest.
    let memory = match is_huge {
        true => format!("--in-memory --socket-limit={MEMORY_MIB}"),
        false => "--no-huge --legacy-mem".to_owned(),
    };
    let extra = format!("--no-pci --no-telemetry --iova-mode=va -m {MEMORY_MIB} {memory}");
    let bridge = &files.bridge;
    // Both ports take their packets from one pool, whose buffers hold a packet of this MTU.
    let mtu = Some(size_bytes.saturating_sub(ETHERNET_BYTES)).filter(|mtu| *mtu > MTU);
    let mtu = mtu.map(|mtu| format!("mtu_request={mtu}"));
    let mut words: Vec<String> =
        vec![format!("--timeout={TIMEOUT_S}"), format!("--db={}", files.database())];
    let mut add = |text: &str| words.extend(text.split(' ').map(str::to_owned));
    add("--no-wait init -- set Open_vSwitch . other_config:dpdk-init=true");
    add(&format!("other_config:pmd-cpu-mask={:#x}", 1_u128 << (cpu % 128)));
    words.push(format!("other_config:dpdk-extra={extra}"));
    let mut add = |text: &str| words.extend(text.split(' ').map(str::to_owned));
    add(&format!("-- add-br {bridge}"));
    // The bridge forwards nothing but the flows below.
    add(&format!("-- set bridge {bridge} datapath_type=netdev fail_mode=secure"));
    if *flow != Flow::Return {
        add(&format!("-- add-port {bridge} physical -- set Interface physical type=dpdk"));
        words.push(format!("options:dpdk-devargs=net_null0,size={size_bytes},copy=0"));
        words.push(format!("ofport_request={PHYSICAL}"));
        words.extend(mtu.clone());
    }
    let mut add = |text: &str| words.extend(text.split(' ').map(str::to_owned));
    add(&format!("-- add-port {bridge} {guest} -- set Interface {guest} type={port}"));
    if port == VhostPort::Client {
        words.push(format!("options:vhost-server-path={}", socket.display()));
    }
    words.push(format!("ofport_request={GUEST}"));
    words.extend(mtu);
    words
}

/// The name of the port to the guest, after which Open vSwitch names the socket on which it
/// listens.
pub(super) fn guest_port(socket: &Path) -> String {
    socket.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_packets_raise_mtu_of_each_port() {
        let socket = Path::new("/run/vm/socket");
        for (flow, size_bytes, expected) in
            [(Flow::Pvp, 1514, 0), (Flow::Pvp, 1515, 2), (Flow::Return, 9000, 1)]
        {
            let setting = Setting { socket, flow, size_bytes, cpu: 0, is_huge: false };
            let words =
                configuration(VhostPort::Client, &setting, &Files::of(Path::new("/run/vm")));
            let mtu = format!("mtu_request={}", size_bytes - 14);
            let found = words.iter().filter(|word| word.starts_with("mtu_request")).count();
            assert_eq!(found, expected, "{words:?}");
            assert!(expected == 0 || words.contains(&mtu), "{words:?}");
        }
    }
}
