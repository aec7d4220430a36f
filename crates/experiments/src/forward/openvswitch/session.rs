//! A running Open vSwitch.

use std::ffi::OsString;
use std::fs;
use std::io::PipeWriter;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use super::files::{Files, GUEST, PHYSICAL, Setting, TIMEOUT_S, configuration, guest_port};
use super::statistics::Statistics;
use super::vhost_port::VhostPort;
use super::{OpenVswitch, SCHEMA};
use crate::drive::{Children, Printed, Program};
use crate::forward::flow::Flow;
use crate::forward::library::{Library, MARK, Served, parse_served};

/// The longest time until the switch has started: DPDK touches its memory.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The time between two checks for a file.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Runs a program until it ends, or until the shell's own input ends, so that it does not outlive
/// the run. `$1` asks the program, at the control socket `$2`, to end and to remove its bridge,
/// because the bridge's tap outlives a switch that is killed. Until then, the shell holds a lock
/// of `$3`, the folder around the run's folder, so that no other run removes it.
const UNTIL_INPUT_ENDS: &str = "exec 3<&0 4<\"$3\"; flock -s 4; ask=$1; control=$2; shift 3; \
    \"$@\" </dev/null 3<&- & child=$!; \
    leave() { \"$ask\" --timeout=5 --target=\"$control\" exit --cleanup || kill $child; }; \
    { read -r _ <&3; leave; } & reader=$!; trap leave TERM; \
    wait $child; wait $child; kill $reader 2>/dev/null";
/// A running Open vSwitch.
pub(in crate::forward) struct Session {
    /// Each process ends when its input is closed.
    inputs: Vec<ChildStdin>,
    children: Children,
    process: u32,
    found: OpenVswitch,
    files: Files,
    flow: Flow,
    /// The name of the port to the guest, and how often its statistics were asked for.
    port: String,
    asked: u32,
    /// The output of a switch whose library prints what it served.
    printed: Option<Printed>,
}
impl Session {
    /// Starts Open vSwitch with the flow of the guest's packets, and waits until the socket to the
    /// guest exists.
    ///
    /// # Errors
    /// The error of one of Open vSwitch's programs.
    pub(in crate::forward) fn start(
        found: &OpenVswitch,
        setting: &Setting<'_>,
    ) -> Result<Self, String> {
        let folder = setting.socket.parent().unwrap_or(Path::new("/"));
        let mut session = Self {
            inputs: Vec::new(),
            children: Children::new(),
            process: 0,
            found: found.clone(),
            files: Files::of(folder),
            flow: setting.flow,
            port: guest_port(setting.socket),
            asked: 0,
            printed: None,
        };
        let printed = Printed::with_mark(MARK);
        let (mut printed, writer) = printed.map_err(|error| error.to_string())?;
        let started = session.start_all(setting, &writer);
        drop(writer);
        if let Err(reason) = started {
            session.quit();
            return Err(printed.with_output(reason));
        }
        let is_telling = found.library.as_ref().is_some_and(Library::has_ring);
        session.printed = Some(printed).filter(|_| is_telling);
        Ok(session)
    }

    fn start_all(&mut self, setting: &Setting<'_>, writer: &PipeWriter) -> Result<(), String> {
        let (found, files) = (self.found.clone(), self.files.clone());
        let create = ["create".as_ref(), files.records.as_os_str(), SCHEMA.as_ref()];
        files.run(&found.database_tool, &create)?;
        let remote = format!("--remote=p{}", files.database());
        let database = [found.database.clone().into()];
        self.serve(&database, &[remote], "database", writer)?;
        self.await_file(&files.folder.join("database.sock"))?;
        let words = configuration(found.port, setting, &files);
        files.run(&found.configure, &words)?;
        let arguments = [files.database(), "--no-chdir".into(), "-vconsole:err".into()];
        self.serve(&found.switch_words(), &arguments, "switch", writer)?;
        if found.port == VhostPort::Server {
            self.await_file(setting.socket)?;
        }
        let manager = files.folder.join(format!("{}.mgmt", files.bridge));
        self.await_file(&manager)?;
        let pid = fs::read_to_string(files.folder.join("switch.pid"));
        let pid = pid.ok().and_then(|text| text.trim().parse().ok());
        self.process = pid.ok_or("ovs-vswitchd has no process")?;
        if let Some(library) = &found.library {
            library.check_loaded(self.process)?;
        }
        let action = match setting.flow {
            Flow::Return => "in_port".to_owned(),
            _ => format!("output:{PHYSICAL}"),
        };
        self.change_flows("add-flow", &format!("in_port={GUEST},actions={action}"))
    }

    /// Forwards the packets of the physical port from now on. Before, they would fill a ring that
    /// the guest sets up again when it starts, and would be counted although no guest saw them.
    ///
    /// # Errors
    /// The flow cannot be added.
    pub(in crate::forward) fn go(&mut self) -> Result<(), String> {
        if self.flow == Flow::Return {
            return Ok(());
        }
        self.change_flows("add-flow", &format!("in_port={PHYSICAL},actions=output:{GUEST}"))
    }

    /// Changes the bridge's flows by a command of `ovs-ofctl`.
    fn change_flows(&self, command: &str, flow: &str) -> Result<(), String> {
        let Self { found, files, .. } = self;
        let manager = files.folder.join(format!("{}.mgmt", files.bridge));
        let bridge = format!("unix:{}", manager.display());
        let timeout = format!("--timeout={TIMEOUT_S}");
        files.run(&found.flows, &[&timeout, command, &bridge, flow]).map(drop)
    }

    /// Forwards no more packets of the physical port; the guest's packets are still forwarded.
    ///
    /// # Errors
    /// The flow cannot be deleted.
    pub(in crate::forward) fn pause(&mut self) -> Result<(), String> {
        if self.flow == Flow::Return {
            return Ok(());
        }
        self.change_flows("del-flows", &format!("in_port={PHYSICAL}"))
    }

    /// The counters of the port to the guest; `None` if the port's kind has no counters of its
    /// packets in both directions.
    ///
    /// # Errors
    /// Open vSwitch does not answer, or has no such counters.
    pub(in crate::forward) fn statistics(&mut self) -> Result<Option<Statistics>, String> {
        if self.found.port == VhostPort::Server {
            return Ok(None);
        }
        let configure = &self.found.configure;
        Statistics::ask(configure, &self.files, &self.port, &mut self.asked).map(Some)
    }

    /// Starts one of Open vSwitch's long-running programs.
    fn serve(
        &mut self,
        program: &[OsString],
        arguments: &[String],
        name: &str,
        writer: &PipeWriter,
    ) -> Result<(), String> {
        let Self { found, files, .. } = &*self;
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
    pub(in crate::forward) fn process(&self) -> u32 {
        self.process
    }

    /// The versions of Open vSwitch and of DPDK.
    pub(in crate::forward) fn version(&self) -> &str {
        &self.found.version
    }

    /// Ends all processes of Open vSwitch. Returns the packets that its library served, by the
    /// library's own account.
    pub(in crate::forward) fn quit(mut self) -> Option<Served> {
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

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
            port: VhostPort::default(),
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
