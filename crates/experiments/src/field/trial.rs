//! One run of the program: its start, its load, its figure, and its end.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use haul_machine::file::read_limited;

use super::metric::{Expression, Figure, Metric, number};
use super::{Command, Field, Load};
use crate::drive::contained::{Contained, End, Fault, Output, Start, Waited};

/// The longest time until a server is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// The largest file in which a figure is searched, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The number of printed bytes that a message quotes.
const QUOTED_BYTES: usize = 300;

/// The result of a run.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The metric.
    pub(super) figure: Figure,
    pub(super) wall_s: f64,
    pub(super) cpu_s: f64,
    pub(super) resident_bytes: f64,
    /// The processes that the program left behind.
    pub(super) left: Vec<String>,
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The test was stopped.
    Stopped,
    /// The reason, which may name a program.
    Reason(String),
}

/// A file as it was before a run.
type Before = Option<(SystemTime, u64)>;

impl Field {
    /// Runs the command once. `is_stopped` ends the run.
    pub(super) fn trial(
        &self,
        command: &Command,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Sample, Failure> {
        let before = match &self.metric {
            Metric::File { path, .. } => written(path),
            _ => None,
        };
        match &self.load {
            None => self.command_trial(command, before, is_stopped),
            Some(load) => self.server_trial(command, load, before, is_stopped),
        }
    }

    fn command_trial(
        &self,
        command: &Command,
        before: Before,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Sample, Failure> {
        const NAME: &str = "the command";
        let mut running = self.start(command, NAME)?;
        let end = self.wait(&mut running, NAME, is_stopped)?;
        let (_, left) = running.over().map_err(|fault| of_fault(fault, NAME))?;
        self.check(&end, NAME, &running)?;
        self.check_library(&running)?;
        let counted = match &self.metric {
            Metric::Command { words, .. } => Some(self.counted(words, is_stopped)?),
            _ => None,
        };
        let figure = self.figure(&end, &end, &running, before, counted);
        let figure = figure.map_err(|reason| with_output(reason, &running))?;
        Ok(sample(figure, &end, &end, left))
    }

    fn server_trial(
        &self,
        command: &Command,
        load: &Load,
        before: Before,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Sample, Failure> {
        const SERVER: &str = "the server";
        const LOAD: &str = "the load";
        let mut server = self.start(command, SERVER)?;
        await_ready(&mut server, &load.ready, is_stopped)?;
        let mut running = self.start(&load.command, LOAD)?;
        let end = self.wait(&mut running, LOAD, is_stopped)?;
        let (_, left) = running.over().map_err(|fault| of_fault(fault, LOAD))?;
        self.check(&end, LOAD, &running)?;
        if let Waited::Ended(end) = wait_briefly(&mut server)? {
            let how = end.failure().unwrap_or_else(|| "it ended".into());
            let reason = format!("the server did not outlive its load: {how}");
            return Err(with_whole_output(reason, &mut server));
        }
        let counted = match &self.metric {
            Metric::Command { words, .. } => Some(self.counted(words, is_stopped)?),
            _ => None,
        };
        self.check_library(&server)?;
        let (end_of_server, _) = server.over().map_err(|fault| of_fault(fault, SERVER))?;
        let end_of_server = end_of_server
            .ok_or_else(|| Failure::Reason("the server's resources are not known".into()))?;
        let figure = self.figure(&end, &end_of_server, &running, before, counted);
        let figure = figure.map_err(|reason| with_output(reason, &running))?;
        Ok(sample(figure, &end, &end_of_server, left))
    }

    fn start(&self, command: &Command, name: &str) -> Result<Contained, Failure> {
        let start = Start::new(&command.words, &command.environment);
        Contained::start(&self.driver, start).map_err(|fault| match fault {
            Fault::NotStarted(reason) => Failure::Reason(format!(
                "{name} {} cannot be started: {reason}; name a program that is on PATH, or its path",
                command.words.first().map(|it| it.to_string_lossy()).unwrap_or_default()
            )),
            fault => of_fault(fault, name),
        })
    }

    /// Waits until a program ends.
    fn wait(
        &self,
        running: &mut Contained,
        name: &str,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<End, Failure> {
        match running.wait(self.timeout, |_| is_stopped()).map_err(|it| of_fault(it, name))? {
            Waited::Ended(end) => Ok(end),
            Waited::Met => Err(Failure::Stopped),
            Waited::TooLong => {
                let seconds = self.timeout.as_secs_f64();
                let reason =
                    format!("{name} did not end within {seconds} s; allow it more (--timeout)");
                Err(with_output(reason, running))
            }
        }
    }

    fn check(&self, end: &End, name: &str, running: &Contained) -> Result<(), Failure> {
        match end.failure() {
            Some(how) if !self.is_failure_allowed => Err(with_output(
                format!("{name} failed: {how}; correct it, or add --allow-failure"),
                running,
            )),
            _ => Ok(()),
        }
    }

    /// Refuses a run whose dynamic linker went on without the library of the change. Children of
    /// another ELF class print that they cannot load it, and the program itself may have.
    fn check_library(&self, running: &Contained) -> Result<(), Failure> {
        let has_library = self.changes.iter().any(|change| change.library().is_some());
        let stderr = if has_library { running.stderr().text() } else { String::new() };
        let is_refused = |line: &str| {
            line.contains("from LD_PRELOAD cannot be preloaded") && !line.contains("ELF class")
        };
        match stderr.lines().find(|line| is_refused(line)) {
            Some(line) => {
                Err(Failure::Reason(format!("the library is not loaded: {line} Name another")))
            }
            None => Ok(()),
        }
    }

    /// The figure that another command prints.
    fn counted(
        &self,
        words: &[OsString],
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Figure, Failure> {
        const NAME: &str = "the metric's command";
        let mut running = self.start(&Command::new(words.to_vec()), NAME)?;
        let end = self.wait(&mut running, NAME, is_stopped)?;
        running.over().map_err(|fault| of_fault(fault, NAME))?;
        if let Some(how) = end.failure() {
            return Err(with_output(format!("{NAME} failed: {how}"), &running));
        }
        let text = running.stdout().text();
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_alphabetic() || "%/ ".contains(c));
        let figure = number(digits, &text[digits.len()..]);
        figure
            .map_err(|reason| with_output(format!("{NAME} printed no figure: {reason}"), &running))
    }

    fn figure(
        &self,
        end: &End,
        end_of_server: &End,
        running: &Contained,
        before: Before,
        counted: Option<Figure>,
    ) -> Result<Figure, String> {
        let of = |value: f64, unit: &str| match value > 0.0 {
            true => Ok(Figure { value, unit: Some(unit.into()) }),
            false => Err("it is 0, so it has no ratio".to_owned()),
        };
        let figure = match &self.metric {
            Metric::Wall => of(end.wall.as_secs_f64(), "s"),
            Metric::Cpu => of(end_of_server.cpu.as_secs_f64(), "s"),
            Metric::MaxRss => of(end_of_server.resident_bytes as f64, "B"),
            Metric::Stdout(expression) => expression.figure(&running.stdout().text()),
            Metric::File { path, expression } => in_file(path, expression, before),
            Metric::Command { .. } => counted.ok_or_else(|| "it was not counted".to_owned()),
        };
        figure.map_err(|reason| format!("the metric {} has no figure: {reason}", self.metric))
    }
}

/// Waits until the server prints that it is ready.
fn await_ready(
    server: &mut Contained,
    ready: &Expression,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let mut searched = usize::MAX;
    let is_ready = |server: &Contained| {
        let length = server.stdout().length() + server.stderr().length();
        if length == std::mem::replace(&mut searched, length) {
            return false;
        }
        ready.is_in(&server.stdout().text()) || ready.is_in(&server.stderr().text())
    };
    let mut is_ready = is_ready;
    let waited = server.wait(READY_TIMEOUT, |server| is_stopped() || is_ready(server));
    match waited.map_err(|fault| of_fault(fault, "the server"))? {
        Waited::Met if is_stopped() => Err(Failure::Stopped),
        Waited::Met => Ok(()),
        Waited::Ended(end) => {
            let how = end.failure().unwrap_or_else(|| "it ended".into());
            let reason = format!("the server was not ready before its end: {how}");
            Err(with_whole_output(reason, server))
        }
        Waited::TooLong => {
            let seconds = READY_TIMEOUT.as_secs();
            let reason = format!(
                "the server did not print {ready} within {seconds} s; name another text of its output \
                 (--ready)"
            );
            Err(with_output(reason, server))
        }
    }
}

/// Whether the program has ended.
fn wait_briefly(server: &mut Contained) -> Result<Waited, Failure> {
    const BRIEFLY: Duration = Duration::from_millis(1);
    server.wait(BRIEFLY, |_| false).map_err(|fault| of_fault(fault, "the server"))
}

fn sample(figure: Figure, end: &End, end_of_server: &End, left: Vec<String>) -> Sample {
    Sample {
        figure,
        wall_s: end.wall.as_secs_f64(),
        cpu_s: end_of_server.cpu.as_secs_f64(),
        resident_bytes: end_of_server.resident_bytes as f64,
        left,
    }
}

/// The figure of a file that the run has written.
fn in_file(path: &Path, expression: &Expression, before: Before) -> Result<Figure, String> {
    let bytes = read_limited(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    if written(path) == before {
        return Err("the run did not write the file, whose figure is older".to_owned());
    }
    expression.figure(&String::from_utf8_lossy(&bytes))
}

/// When a file was written, and its size; `None` if it does not exist.
fn written(path: &Path) -> Before {
    let status = fs::metadata(path).ok()?;
    Some((status.modified().ok()?, status.len()))
}

fn of_fault(fault: Fault, name: &str) -> Failure {
    Failure::Reason(match fault {
        Fault::NotStarted(reason) => format!("{name} cannot be started: {reason}"),
        Fault::Supervisor(reason) => format!("the process that supervises {name} failed: {reason}"),
        Fault::Survived(names) => {
            let names = names.join(", ");
            format!("{name} left processes that cannot be ended: {names}; end them as their user")
        }
    })
}

/// The reason with the end of the output, in which programs explain a failure.
fn with_output(reason: String, running: &Contained) -> Failure {
    let said = [running.stderr(), running.stdout()].map(quoted);
    let said = said.into_iter().find(|text| !text.is_empty());
    Failure::Reason(match said {
        Some(said) => format!("{reason} (it printed: {said})"),
        None => reason,
    })
}

/// Like [`with_output`], for a program that has ended: waits for the rest of its output, which may
/// arrive after the news of its end.
fn with_whole_output(reason: String, ended: &mut Contained) -> Failure {
    // The reason is the program's end, whatever else the supervisor reports.
    let _ = ended.over();
    with_output(reason, ended)
}

/// The end of an output in one line.
fn quoted(output: &Output) -> String {
    let text = output.text();
    let text = text.trim();
    let mut start = text.len().saturating_sub(QUOTED_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].lines().map(str::trim).collect::<Vec<_>>().join(" / ")
}
