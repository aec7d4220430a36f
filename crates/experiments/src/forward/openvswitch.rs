//! Open vSwitch with DPDK as switch: its processes, in a separate folder, and its flows.
//!
//! One bridge has two ports, DPDK's `net_null` and a vhost port, and two constant flows from each
//! port to the other. If the guest makes the packets, there is only the vhost port, with a flow
//! back to it. One thread polls all ports. An Open vSwitch that already runs on the machine is
//! not changed. The guest counts the packets, because Open vSwitch updates its own counters only
//! every five seconds.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use super::flow::Flow;
use super::library::{Library, MARK, Served, parse_served};
use crate::drive::{Children, Printed, Program};

/// The longest time until the switch has started: DPDK touches its memory.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time of one of Open vSwitch's tools, in seconds.
const TIMEOUT_S: u32 = 20;

/// The time between two checks for a file.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The memory of the switch: a pool of packets for each frame size, and the memory that DPDK
/// itself needs.
const MEMORY_MIB: u32 = 512;

/// The files that Debian does not install on `PATH`.
const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Runs a program until it ends, or until the shell's own input ends, so that it does not outlive
/// the run. `$1` asks the program, at the control socket `$2`, to end and to remove its bridge,
/// because the bridge's tap outlives a switch that is killed. Until then, the shell holds a lock
/// of `$3`, the folder around the run's folder, so that no other run removes it.
const UNTIL_INPUT_ENDS: &str = "exec 3<&0 4<\"$3\"; flock -s 4; ask=$1; control=$2; shift 3; \
    \"$@\" </dev/null 3<&- & child=$!; \
    leave() { \"$ask\" --timeout=5 --target=\"$control\" exit --cleanup || kill $child; }; \
    { read -r _ <&3; leave; } & reader=$!; trap leave TERM; \
    wait $child; wait $child; kill $reader 2>/dev/null";

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
}

/// The settings of a session.
#[derive(Clone, Debug)]
pub(super) struct Setting<'a> {
    /// The socket to the guest, in a folder of this run.
    pub(super) socket: &'a Path,
    pub(super) flow: Flow,
    pub(super) size_bytes: usize,
    /// The processor that polls.
    pub(super) cpu: usize,
    /// Whether the switch's memory comes from the kernel's pool of huge pages.
    pub(super) is_huge: bool,
}

/// A running Open vSwitch.
pub(super) struct Session {
    /// Each process ends when its input is closed.
    inputs: Vec<ChildStdin>,
    children: Children,
    process: u32,
    version: String,
    /// The output of a switch whose library prints what it served.
    printed: Option<Printed>,
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
        })
    }

    /// This Open vSwitch with a library that its switch loads.
    #[must_use]
    pub fn with_library(self, library: Option<Library>) -> Self {
        Self { library, ..self }
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

impl Session {
    /// Starts Open vSwitch with its flows, and waits until the socket to the guest exists.
    ///
    /// # Errors
    /// The error of one of Open vSwitch's programs.
    pub(super) fn start(found: &OpenVswitch, setting: &Setting<'_>) -> Result<Self, String> {
        let folder = setting.socket.parent().unwrap_or(Path::new("/"));
        let files = Files::of(folder);
        let mut session = Self {
            inputs: Vec::new(),
            children: Children::new(),
            process: 0,
            version: found.version.clone(),
            printed: None,
        };
        let printed = Printed::with_mark(MARK);
        let (mut printed, writer) = printed.map_err(|error| error.to_string())?;
        let started = session.start_all(found, setting, &files, &writer);
        drop(writer);
        if let Err(reason) = started {
            session.quit();
            return Err(printed.with_output(reason));
        }
        let is_telling = found.library.as_ref().is_some_and(Library::has_ring);
        session.printed = Some(printed).filter(|_| is_telling);
        Ok(session)
    }

    fn start_all(
        &mut self,
        found: &OpenVswitch,
        setting: &Setting<'_>,
        files: &Files,
        writer: &PipeWriter,
    ) -> Result<(), String> {
        let create = ["create".as_ref(), files.records.as_os_str(), SCHEMA.as_ref()];
        files.run(&found.database_tool, &create)?;
        let remote = format!("--remote=p{}", files.database());
        let database = [found.database.clone().into()];
        self.serve(found, &database, files, &[remote], "database", writer)?;
        self.await_file(&files.folder.join("database.sock"))?;
        let words = configuration(setting, files);
        let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
        files.run(&found.configure, &words)?;
        let arguments = [files.database(), "--no-chdir".into(), "-vconsole:err".into()];
        self.serve(found, &found.switch_words(), files, &arguments, "switch", writer)?;
        self.await_file(setting.socket)?;
        let pid = fs::read_to_string(files.folder.join("switch.pid"));
        let pid = pid.ok().and_then(|text| text.trim().parse().ok());
        self.process = pid.ok_or("ovs-vswitchd has no process")?;
        if let Some(library) = &found.library {
            library.check_loaded(self.process)?;
        }
        let manager = files.folder.join(format!("{}.mgmt", files.bridge));
        self.await_file(&manager)?;
        let flows: &[_] = match setting.flow {
            Flow::Return => &[(GUEST, "in_port")],
            _ => &[(PHYSICAL, "output:2"), (GUEST, "output:1")],
        };
        for (from, action) in flows {
            let bridge = format!("unix:{}", manager.display());
            let flow = format!("in_port={from},actions={action}");
            let timeout = format!("--timeout={TIMEOUT_S}");
            let words = [timeout.as_str(), "add-flow", bridge.as_str(), flow.as_str()];
            files.run(&found.flows, &words.map(OsStr::new))?;
        }
        Ok(())
    }

    /// Starts one of Open vSwitch's long-running programs.
    fn serve(
        &mut self,
        found: &OpenVswitch,
        program: &[OsString],
        files: &Files,
        arguments: &[String],
        name: &str,
        writer: &PipeWriter,
    ) -> Result<(), String> {
        let socket = files.folder.join(format!("{name}.ctl"));
        let control = format!("--unixctl={}", socket.display());
        let pid = format!("--pidfile={}", files.folder.join(format!("{name}.pid")).display());
        let mut words: Vec<OsString> = ["-c".into(), UNTIL_INPUT_ENDS.into(), "sh".into()].into();
        let held = files.folder.parent().unwrap_or(&files.folder);
        words.extend([found.ask.as_path(), &socket, held].map(OsString::from));
        words.extend(program.iter().cloned());
        words.extend(arguments.iter().chain([&control, &pid]).map(OsString::from));
        let mut shell = Program::new("/bin/sh").with(words);
        shell.environment = files.environment();
        let mut command = shell.command(writer).map_err(|error| error.to_string())?;
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        self.inputs.extend(child.stdin.take());
        self.children.push(child);
        Ok(())
    }

    fn await_file(&mut self, file: &Path) -> Result<(), String> {
        let started = Instant::now();
        while !file.exists() {
            if !self.children.are_running() {
                return Err("its process ended".to_owned());
            }
            if started.elapsed() > START_TIMEOUT {
                let seconds = START_TIMEOUT.as_secs();
                return Err(format!("no {} after {seconds} s", file.display()));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The process ID of the switch.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// The versions of Open vSwitch and of DPDK.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Ends all processes of Open vSwitch. Returns the packets that its library served, by the
    /// library's own account.
    pub(super) fn quit(mut self) -> Option<Served> {
        self.end();
        parse_served(self.printed.take()?.marked().lines())
    }

    fn end(&mut self) {
        // The switch ends before its database.
        while let Some(input) = self.inputs.pop() {
            drop(input);
        }
        self.children.await_end();
        self.children.end();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Numbers of the bridge's ports.
const PHYSICAL: u32 = 1;
const GUEST: u32 = 2;

/// Open vSwitch's files, and the name of its bridge. While Open vSwitch runs, a tap of that name
/// exists in the network namespace.
struct Files {
    folder: PathBuf,
    records: PathBuf,
    bridge: String,
}

impl Files {
    fn of(folder: &Path) -> Self {
        let records = folder.join("conf.db");
        Self { folder: folder.into(), records, bridge: format!("haul{}", std::process::id()) }
    }

    fn database(&self) -> String {
        format!("unix:{}", self.folder.join("database.sock").display())
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        // The last variable names the folder that DPDK makes.
        let names =
            ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"];
        names.map(|name| (name.into(), self.folder.clone().into())).into()
    }

    /// Runs one of Open vSwitch's tools.
    fn run(&self, program: &Path, arguments: &[&OsStr]) -> Result<(), String> {
        let mut command = Command::new(program);
        command.args(arguments).envs(self.environment()).stdin(Stdio::null());
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let ran = command.output().map_err(|error| format!("{name}: {error}"))?;
        if ran.status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&ran.stderr);
        Err(format!("{name} failed: {}", errors.trim().replace('\n', " / ")))
    }
}

/// The arguments with which `ovs-vsctl` makes one transaction before the switch starts.
fn configuration(setting: &Setting<'_>, files: &Files) -> Vec<String> {
    let Setting { socket, flow, size_bytes, cpu, is_huge } = setting;
    let guest = socket.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Without --legacy-mem, Open vSwitch itself adds --in-memory, which needs huge pages. Without
    // a limit, a pool of packets allocates all free pages, and none are left for the guest.
    let memory = match is_huge {
        true => format!("--in-memory --socket-limit={MEMORY_MIB}"),
        false => "--no-huge --legacy-mem".to_owned(),
    };
    let extra = format!("--no-pci --no-telemetry --iova-mode=va -m {MEMORY_MIB} {memory}");
    let bridge = &files.bridge;
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
    }
    let mut add = |text: &str| words.extend(text.split(' ').map(str::to_owned));
    add(&format!("-- add-port {bridge} {guest} -- set Interface {guest} type=dpdkvhostuser"));
    words.push(format!("ofport_request={GUEST}"));
    words
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

    #[test]
    fn start_fails_and_leaves_nothing_if_program_ends() {
        let folder = tempfile::tempdir().unwrap();
        let programs = ["/bin/true"; 6].map(PathBuf::from);
        let [switch, database, database_tool, configure, flows, ask] = programs;
        let version = "3.1.0 with DPDK 22.11.11".to_owned();
        let library = None;
        let found = OpenVswitch {
            switch,
            version,
            database,
            database_tool,
            configure,
            flows,
            ask,
            library,
        };
        let socket = folder.path().join("socket");
        let (flow, size_bytes, cpu, is_huge) = (Flow::Pvp, 64, 0, false);
        let setting = Setting { socket: &socket, flow, size_bytes, cpu, is_huge };
        let timeout = Instant::now();
        let reason = Session::start(&found, &setting).map(drop).unwrap_err();
        assert!(timeout.elapsed() < START_TIMEOUT + Duration::from_secs(5));
        assert!(reason.contains("ended") || reason.contains("database.sock"), "{reason}");
    }
}
