//! `haul forward --port A --port B`: counts the forwarded packets, and shows them live.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haul::forward::{
    Addresses, DropReason, Findings, Host, Link, Mode, Order, Pace, Settings, Snapshot, Users,
    Watch,
};
use haul::telemetry::{self, PortAbout, Server};
use haul_machine::sys::Sys;
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Record};
use indicatif::{ProgressBar, ProgressStyle};

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

/// Interval between two polls for the end, and between two updates of the display.
const POLL: Duration = Duration::from_millis(50);
const SHOW: Duration = Duration::from_millis(500);

/// Longest time that packets in flight may need at the end.
const LINGER: Duration = Duration::from_secs(1);

/// Size of a page and its records together.
const ROOM: Bytes = Bytes(4 << 20);

const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

pub(super) struct Between {
    arguments: Arguments,
    specs: [Spec; 2],
    workers: usize,
    done: Option<Done>,
}

/// The counts at the end.
struct Done {
    snapshot: Snapshot,
    seconds: f64,
    made: Option<u64>,
    late_ns: Option<(f64, u64)>,
    /// The findings from the packets' numbers, and quantiles of latency in nanoseconds.
    order: Option<(Order, Vec<(f64, f64)>)>,
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

/// Warnings that were printed, each once.
#[derive(Default)]
struct Warned {
    obstacles: Vec<(String, String)>,
    notes: Vec<(String, String)>,
}

impl Warned {
    /// Prints new warnings.
    fn update(&mut self, before: &Snapshot, now: &Snapshot, view: &View) {
        for obstacle in &now.obstacles {
            // An obstacle in two consecutive polls is not only a peer that is still connecting.
            if before.obstacles.contains(obstacle) && !self.obstacles.contains(obstacle) {
                let (port, reason) = obstacle;
                view.warn(&format!("haul: warning: {port} has no link: {reason}"));
                self.obstacles.push(obstacle.clone());
            }
        }
        for (port, note) in &now.notes {
            // The numbers in a note grow: it is printed once, and the last numbers are in the
            // summary.
            let about = (port.clone(), note.replace(|it: char| it.is_ascii_digit(), ""));
            if !self.notes.contains(&about) {
                view.warn(&format!("haul: warning: {port}: {note}"));
                self.notes.push(about);
            }
        }
    }
}

/// The live view for a person: in place on a terminal, otherwise hidden.
struct View(ProgressBar);

impl View {
    fn new() -> Self {
        let bar = if io::stderr().is_terminal() {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is fixed"));
        Self(bar)
    }

    fn show(&self, lines: &[String], elapsed: Duration) {
        let clock = format!("{:.0} s, Ctrl-C stops", elapsed.as_secs_f64());
        self.0.set_message(format!("{}\n{clock}", lines.join("\n")));
        self.0.tick();
    }

    fn warn(&self, text: &str) {
        self.0.suspend(|| terminal::say(text));
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Done {
    fn of(snapshot: Snapshot, seconds: f64, paces: &[Pace], watches: &[Vec<Watch>; 2]) -> Self {
        let made = (!paces.is_empty()).then(|| paces.iter().map(Pace::made).sum());
        let late_ns = paces.first().map(|first| {
            let mean = paces.iter().map(Pace::late_ns_mean).sum::<f64>() / paces.len() as f64;
            (mean, paces.iter().map(Pace::late_ns_max).max().unwrap_or(first.late_ns_max()))
        });
        // With two generators, each sees the other's packets; with one generator and a sink, only
        // one sees packets.
        let found = watches.iter().filter_map(|watches| {
            let each = watches.iter().map(Watch::findings);
            each.reduce(|mut sum: Findings, other| {
                sum.add(&other);
                sum
            })
        });
        let found = found.max_by_key(|it| it.sum().unique);
        let order = found.map(|findings| {
            let value = |quantile| findings.latency.value_at_quantile(quantile) as f64;
            (findings.sum(), QUANTILES.map(|quantile| (quantile, value(quantile))).into())
        });
        Self { snapshot, seconds, made, late_ns, order }
    }

    /// Packets that were made but did not arrive. Without a generator here, the packets' numbers
    /// show how many were sent.
    fn lost(&self) -> Option<u64> {
        let (order, _) = self.order.as_ref().filter(|(order, _)| order.expected > 0)?;
        Some(self.made.unwrap_or(order.expected).saturating_sub(order.unique))
    }

    fn records(&self) -> Vec<Record> {
        let one = |metric: &str, unit: &str, value: f64| {
            let mut record = Record::new("", name::FORWARD_BURST, "haul", metric, unit)
                .with(key::VERSION, env!("CARGO_PKG_VERSION"));
            record.samples = vec![value];
            record
        };
        let mut records = Vec::new();
        for (port, queue, counters) in &self.snapshot.ports {
            for (way, direction) in [("rx", &counters.rx), ("tx", &counters.tx)] {
                let of = |record: Record| {
                    record
                        .with(key::PORT, port.as_str())
                        .with(key::QUEUE, *queue)
                        .with(key::DIRECTION, way)
                };
                for (size, count) in direction.batches.iter().enumerate() {
                    if *count > 0 {
                        let record = one("batches", "count", *count as f64);
                        records.push(of(record).with(key::SIZE, size));
                    }
                }
                records.push(of(one("packets", "packets", direction.packets as f64)));
                records.push(of(one("bytes", "B", direction.bytes as f64)));
                let rate = direction.packets as f64 / self.seconds;
                records.push(of(one("rate", "packets/s", rate)));
                for reason in DropReason::ALL {
                    let count = direction.drops_for(reason);
                    if count > 0 {
                        let record = one("drops", "packets", count as f64);
                        records.push(of(record).with(key::REASON, reason.name()));
                    }
                }
            }
        }
        let Snapshot { busy_cycles, idle_cycles, wasted_polls, polls, .. } = self.snapshot;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        if self.packets() > 0 {
            records.push(one("cycles", "cycles/packet", share(busy_cycles, self.packets())));
        }
        records.push(one("poll", "cycles/poll", share(busy_cycles + idle_cycles, polls)));
        records.push(one("wasted_polls", "share", share(wasted_polls, polls)));
        self.of_numbers(&one, &mut records);
        records
    }

    /// The records that follow from the packets' numbers.
    fn of_numbers(&self, one: &dyn Fn(&str, &str, f64) -> Record, records: &mut Vec<Record>) {
        if let Some(made) = self.made {
            records.push(one("made", "packets", made as f64));
        }
        if let Some((mean, most)) = self.late_ns {
            records.push(one("late_mean", "ns", mean));
            records.push(one("late_max", "ns", most as f64));
        }
        let Some(lost) = self.lost() else { return };
        records.push(one("lost", "packets", lost as f64));
        let Some((order, latency)) = &self.order else { return };
        records.push(one("reordered", "packets", order.reordered as f64));
        records.push(one("duplicates", "packets", order.duplicates as f64));
        for (quantile, ns) in latency {
            records.push(one("latency", "ns", *ns).with(key::QUANTILE, *quantile));
        }
    }

    /// Packets received from both ports.
    fn packets(&self) -> u64 {
        self.snapshot.ports.iter().map(|(.., counters)| counters.rx.packets).sum()
    }

    fn text(&self) -> String {
        let Snapshot { busy_cycles, idle_cycles, wasted_polls, polls, .. } = self.snapshot;
        let mut text = picture::whole(&self.snapshot, self.seconds);
        let mut line = format!(
            "\n\n{:.2} s; {} polls, {:.1}% wasted, {:.0} cycles each",
            self.seconds,
            polls,
            100.0 * wasted_polls as f64 / polls.max(1) as f64,
            (busy_cycles + idle_cycles) as f64 / polls.max(1) as f64,
        );
        if self.packets() > 0 {
            line.push_str(&format!(
                "; {:.0} cycles per packet",
                busy_cycles as f64 / self.packets() as f64
            ));
        }
        text.push_str(&line);
        if let (Some(lost), Some((order, latency))) = (self.lost(), &self.order) {
            let quantile = |wanted: f64| {
                latency.iter().find(|(quantile, _)| *quantile == wanted).map_or(0.0, |it| it.1)
            };
            text.push_str(&format!(
                "\nby the packets’ numbers: {} arrived, {lost} lost, {} out of order, {} twice; latency \
                 {:.1} us at the median, {:.1} us at 99%",
                order.unique,
                order.reordered,
                order.duplicates,
                quantile(0.5) / 1e3,
                quantile(0.99) / 1e3,
            ));
        }
        if self.has_port_without_peer() {
            text.push_str("\na port had no peer at the end");
        }
        for (port, reason) in self.snapshot.obstacles.iter().chain(&self.snapshot.notes) {
            text.push_str(&format!("\n{port}: {reason}"));
        }
        text
    }

    /// Whether a port has no queue pair with a link.
    fn has_port_without_peer(&self) -> bool {
        let Snapshot { ports, links, .. } = &self.snapshot;
        let is_down = |port: &str| {
            let mut own = ports.iter().zip(links).filter(|((name, ..), _)| name == port);
            own.all(|(_, link)| *link == Link::Down)
        };
        links.contains(&Link::Down) && ports.iter().any(|(name, ..)| is_down(name))
    }
}
