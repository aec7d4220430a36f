//! `haul forward --port A --port B`: counts the forwarded packets, and shows them live.
//!
//! From the bottom up:
//!
//! - `view`: the live view, and warnings;
//! - `done`: the counts at the end, as records and as text.

mod done;
mod view;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haul::forward::{Addresses, Host, Mode, Pace, Settings, Snapshot, Users};
use haul::telemetry::{self, PortAbout, Server};
use haul_machine::sys::Sys;
use haul_model::experiment::key;
use haul_model::{Bytes, Record};

use super::spec::Spec;
use super::workers::{self, Workers};
use super::{RECORDS, picture, ports};
use crate::arguments::forward::Between as Arguments;
use crate::arguments::users::Allowed;
use crate::command::{Command, record, refuse_replacing};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::{STOP, Stops};
use crate::terminal;
use done::Done;
use view::{View, Warned};

/// Interval between two polls for the end, and between two updates of the display.
const POLL: Duration = Duration::from_millis(50);
const SHOW: Duration = Duration::from_millis(500);

/// Longest time that packets in flight may need at the end.
const LINGER: Duration = Duration::from_secs(1);

/// Size of a page and its records together.
const ROOM: Bytes = Bytes(4 << 20);

pub(super) struct Between {
    arguments: Arguments,
    specs: [Spec; 2],
    workers: usize,
    done: Option<Done>,
}

impl Between {
    /// # Errors
    ///
    /// The number of ports is not two, or a port cannot exist.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let parse = |text: &String| {
            Spec::parse(text).map_err(|reason| Error::Port { port: text.clone(), reason })
        };
        let specs: Vec<Spec> = arguments.port.iter().map(parse).collect::<Result<_, _>>()?;
        let count = specs.len();
        let specs = <[Spec; 2]>::try_from(specs).map_err(|_| Error::Ports { count })?;
        if let Some(address) = arguments.address.filter(|_| arguments.action != "echo") {
            let limit = "only --action echo answers for one";
            let (what, value) = ("an address of", address.to_string());
            return Err(haul::forward::Error::Value { what, value, limit }.into());
        }
        let is_to_guest = |spec: &Spec| matches!(spec, Spec::Vhost { .. });
        if arguments.engine.is_some() && !specs.iter().any(is_to_guest) {
            let (option, belongs) = ("--engine", "ports of the kind vhost");
            return Err(Error::Unused { option, belongs, remedy: "add one" });
        }
        let [inputs, outputs]: [Vec<PathBuf>; 2] = [Spec::input, Spec::output]
            .map(|of| specs.iter().filter_map(|spec| of(spec).cloned()).collect());
        refuse_replacing(&inputs, &outputs)?;
        let workers = workers::count(&specs, &arguments.cpu)?;
        let allowed = Sys::new().topology().allowed;
        if let Some(other) = arguments.cpu.iter().find(|cpu| !allowed.contains(*cpu)) {
            let limit = "name one that this process may run on (taskset -pc $$ lists them)";
            let (what, value) = ("processor", other.to_string());
            return Err(haul::forward::Error::Value { what, value, limit }.into());
        }
        Ok(Self { arguments, specs, workers, done: None })
    }

    fn mode(&self) -> Mode {
        let Addresses { source, target } = Addresses::default();
        match (self.arguments.action.as_str(), self.arguments.address) {
            ("mac", _) => Mode::Mac { source: target, target: source },
            ("macswap", _) => Mode::MacSwap,
            ("echo", Some(ip)) => Mode::Echo(Host { ip, ethernet: target }),
            _ => Mode::Io,
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            mode: self.mode(),
            burst: usize::from(self.arguments.burst),
            linger: LINGER,
            ..Settings::default()
        }
    }

    /// Users whose processes may be at the other end of a socket.
    fn users(&self) -> Users {
        Allowed::users(&self.arguments.allow_user)
    }

    /// Serves the counters to other processes. If there is no folder for the socket, nothing is
    /// served, unless the user named a path.
    ///
    /// # Errors
    /// The named path cannot be used.
    fn serve(
        &self,
        running: &Workers,
        about: [PortAbout; 2],
    ) -> Result<Option<Server>, haul::telemetry::Error> {
        let place = self.arguments.telemetry.as_deref();
        if self.arguments.no_telemetry {
            return Ok(None);
        }
        match telemetry::serve_for(place, &self.users(), running.observer(), about.into()) {
            Ok(server) => Ok(Some(server)),
            Err(error) if place.is_some() => Err(error),
            Err(telemetry::Error::Serve { reason, .. })
                if reason.kind() == io::ErrorKind::Unsupported =>
            {
                Ok(None)
            }
            Err(error) => {
                terminal::say(&format!("haul: warning: {error}"));
                Ok(None)
            }
        }
    }

    /// Waits until the end, and shows the progress.
    fn watch(&self, running: &Workers, view: &View) {
        let started = Instant::now();
        let (mut shown, mut before) = (started, Snapshot::default());
        let mut warned = Warned::default();
        let is_time = || self.arguments.time.is_some_and(|time| started.elapsed() >= time);
        // Packets in flight arrive when the workers stop.
        let is_over = || running.are_over() || running.are_finished();
        while !STOP.load(Ordering::Relaxed) && !is_time() && !is_over() {
            let left = self
                .arguments
                .time
                .map_or(POLL, |time| time.saturating_sub(started.elapsed()).min(POLL));
            std::thread::sleep(left);
            if shown.elapsed() >= SHOW {
                let now = running.snapshot();
                let seconds = now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9;
                if before.time_ns > 0 {
                    view.show(&picture::lines(&before, &now, seconds), started.elapsed());
                }
                warned.update(&before, &now, view);
                (shown, before) = (Instant::now(), now);
            }
        }
    }
}

impl Command for Between {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let Arguments { json, out, .. } = &self.arguments;
        let folder = out.clone().map(|folder: PathBuf| (folder, RECORDS.to_owned()));
        Outputs { json: *json, folder, room: ROOM, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let names = names(&self.specs);
        let users = self.users();
        let engine = self.arguments.engine.as_ref();
        let open = |index: usize| {
            ports::open(&self.specs[index], &names[index], (&users, engine), self.workers)
        };
        let ports = [open(0)?, open(1)?];
        let paces: Vec<Pace> = ports.iter().flat_map(|it| it.paces.clone()).collect();
        let watches = ports.each_ref().map(|it| it.watches.clone());
        let started = Instant::now();
        let about = ports.each_ref().map(|it| it.about.clone());
        let running = Workers::start(ports, self.settings(), &self.arguments.cpu)?;
        let served = self.serve(&running, about)?;
        let view = View::new();
        self.watch(&running, &view);
        let seconds = started.elapsed().as_secs_f64();
        // Observers see the end before the ports are stopped.
        drop(served);
        let (snapshot, ended) = running.finish();
        view.end();
        // Counts from before a port failed are valid.
        if ended.is_ok() || !snapshot.ports.is_empty() {
            let done = Done::of(snapshot, seconds, &paces, &watches);
            let mut records = done.records();
            if let Some(queue) = engine {
                let name = &*queue.facts().name;
                let with = |record: Record| record.with(key::ENGINE, name);
                records = records.into_iter().map(with).collect();
            }
            record("forward", records, journal)?;
            self.done = Some(done);
        }
        ended
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        let Some(done) = &self.done else { return Ok(()) };
        let page = super::write_page(self.arguments.out.as_deref(), journal)?;
        let mut text = done.text();
        if let Some(page) = page {
            text.push_str(&format!("\n\npage: {} (records: {RECORDS})", page.display()));
        }
        if self.arguments.json {
            terminal::say(&text);
            return Ok(());
        }
        terminal::print(&text)
    }

    fn lasts_until_stopped(&self) -> bool {
        self.arguments.time.is_none()
    }
}

/// `gen0` and `sink0`; `gen0` and `gen1`.
fn names(specs: &[Spec; 2]) -> [String; 2] {
    let [first, second] = specs.each_ref().map(Spec::kind);
    [format!("{first}0"), format!("{second}{}", u8::from(first == second))]
}
