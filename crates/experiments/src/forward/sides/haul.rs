//! A process of haul as a side: its start, and its conversation.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::rates::{cycles_between, rates_between};
use super::{Assignment, Cycles, Rates, Receipt, Side, is_library};
use crate::drive::{Children, Conversation, Printed, Program};
use crate::forward::flow::Flow;
use crate::forward::library::Served;
use crate::forward::protocol::{Counted, Reply, Role, Start, Task, copy_and_engine};
use crate::forward::waits;

/// The longest time until haul's own process answers. The process may first wait for a link, or
/// for packets in transit.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The time between two requests for the process's counters.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The longest time until the process answers after a trial. The longest trial takes a minute.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(90);

/// A process of haul.
pub(super) struct Haul {
    children: Children,
    conversation: Conversation,
    printed: Printed,
    process: u32,
    /// The process's counters when the measured window began.
    before: Counted,
}

impl Haul {
    /// Starts a process that takes this role.
    pub(super) fn start_in(assignment: &Assignment<'_>) -> Result<Box<dyn Side>, String> {
        let Assignment { role, common, socket, cpus, copy, .. } = *assignment;
        // A library's memcpy replaces the memcpy of the whole process.
        let (copy, preloaded) = if is_library(copy) { ("libc", Some(copy)) } else { (copy, None) };
        let (copy, engine) = copy_and_engine(copy);
        let start = Start {
            role,
            flow: common.flow.name().to_owned(),
            layout: common.layout.name().to_owned(),
            size_bytes: common.size_bytes,
            copy: copy.to_owned(),
            engine: engine.map(str::to_owned),
            source: common.source,
            socket: socket.to_owned(),
            queues: common.queues,
            cpus: cpus.to_vec(),
            is_to_kernel: common.is_to_kernel,
            guest_listens: common.guest_listens,
        };
        let mut driver = common.driver.clone();
        let preload = preloaded.map(|file| ("LD_PRELOAD".into(), file.into()));
        driver.environment.extend(preload);
        Ok(Box::new(Self::start(&driver, &start)?))
    }

    /// Starts a process.
    ///
    /// # Errors
    /// The process cannot be started, or fails; the text contains its output.
    fn start(driver: &Program, start: &Start) -> Result<Self, String> {
        let as_text = |error: io::Error| error.to_string();
        let (mut printed, writer) = Printed::new().map_err(as_text)?;
        let (own, other) = UnixStream::pair().map_err(as_text)?;
        let mut command = driver.command(&writer).map_err(as_text)?;
        command.stdin(Stdio::from(OwnedFd::from(other)));
        command.stdout(writer);
        let child = command.spawn().map_err(as_text)?;
        drop(command);
        let process = child.id();
        let mut children = Children::new();
        children.push(child);
        let mut conversation = Conversation::with_driver(own).map_err(as_text)?;
        let text = serde_json::to_string(start).map_err(|error| error.to_string())?;
        let ready = conversation.say(&text).and_then(|()| conversation.hear_within(TIMEOUT));
        let ready = ready.map_err(|silence| silence.to_string()).and_then(|line| parse(&line));
        match ready {
            Ok(Reply::Ready) => {}
            Ok(other) => return Err(format!("its first answer is {other:?}")),
            Err(reason) => {
                children.end();
                return Err(printed.with_output(reason));
            }
        }
        Ok(Self { children, conversation, printed, process, before: Counted::default() })
    }

    fn ask(&mut self, task: &Task) -> Result<Reply, String> {
        let text = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let sent = self.conversation.say(&text);
        let is_trial = matches!(task, Task::Trial { .. });
        let timeout = if is_trial { TRIAL_TIMEOUT } else { TIMEOUT };
        let heard = sent.and_then(|()| self.conversation.hear_within(timeout));
        match heard {
            Ok(line) => parse(&line),
            Err(silence) => {
                self.children.end();
                Err(self.printed.with_output(silence.to_string()))
            }
        }
    }

    fn done(&mut self, task: &Task) -> Result<(), String> {
        match self.ask(task)? {
            Reply::Done => Ok(()),
            other => Err(format!("it answers {other:?} to {task:?}")),
        }
    }

    /// The process's counters at a later time than `before`. The process publishes its counters
    /// every 20 ms, or later if its thread has to wait for a processor.
    fn counted_later(&mut self) -> Result<Counted, String> {
        let started = Instant::now();
        loop {
            let now = self.counted(&Task::Count)?;
            if now.time_ns > self.before.time_ns || started.elapsed() > TIMEOUT {
                return Ok(now);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn counted(&mut self, task: &Task) -> Result<Counted, String> {
        match self.ask(task)? {
            Reply::Counted(counted) => Ok(counted),
            other => Err(format!("it answers {other:?} to {task:?}")),
        }
    }
}

impl Side for Haul {
    fn await_link(&mut self) -> Result<(), String> {
        self.done(&Task::Await)
    }

    fn counts(&self) -> bool {
        true
    }

    fn go(&mut self, rate: Option<f64>) -> Result<(), String> {
        self.done(&Task::Go(rate))
    }

    fn trial(&mut self, rate: f64, time: Duration) -> Result<Counted, String> {
        self.counted(&Task::Trial { rate, seconds: time.as_secs_f64() })
    }

    fn resize(&mut self, size_bytes: usize) -> Result<(), String> {
        self.done(&Task::Resize(size_bytes))
    }

    fn meter(&mut self, role: Role) -> Result<(), String> {
        self.done(&Task::Meter(role == Role::Switch))?;
        self.begin()
    }

    fn metered(&mut self) -> Result<Cycles, String> {
        let now = self.counted_later()?;
        self.done(&Task::Meter(false))?;
        Ok(cycles_between(&self.before, &now))
    }

    fn begin(&mut self) -> Result<(), String> {
        self.before = self.counted(&Task::Count)?;
        Ok(())
    }

    fn rates(&mut self, _flow: Flow) -> Result<Rates, String> {
        let now = self.counted_later()?;
        Ok(rates_between(&self.before, &now))
    }

    fn pause(&mut self) -> Result<(), String> {
        self.done(&Task::Pause)
    }

    fn count(&mut self) -> Result<Counted, String> {
        self.counted(&Task::Count)
    }

    fn halt(&mut self) -> Result<Counted, String> {
        self.counted(&Task::Halt)
    }

    fn end(mut self: Box<Self>) -> Option<Served> {
        self.conversation.close();
        self.children.await_end();
        None
    }

    fn waits(&self) -> Option<(u64, u64)> {
        waits::of(self.process)
    }

    fn receipt(&self) -> Receipt {
        Receipt {
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            features: None,
            rx_path: Some("haul".to_owned()),
            tx_path: Some("haul".to_owned()),
            ..Receipt::default()
        }
    }
}

/// The reply, or the reason why the process failed.
fn parse(line: &str) -> Result<Reply, String> {
    match serde_json::from_str(line) {
        Ok(Reply::Failed(reason)) => Err(reason),
        Ok(reply) => Ok(reply),
        Err(_) => Err(format!("it answers {line:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::protocol::Source;

    #[test]
    fn start_rejects_process_that_is_not_a_driver() {
        let start = Start {
            role: Role::Switch,
            flow: "pvp".into(),
            layout: "split".into(),
            size_bytes: 64,
            copy: "haul".into(),
            engine: None,
            source: Source::Generator,
            socket: "/nonexistent/socket".into(),
            queues: 1,
            cpus: vec![0],
            is_to_kernel: false,
            guest_listens: false,
        };
        for (script, expected) in [
            ("echo no such thing >&2", "its process ended (it printed: no such thing)"),
            ("read line; echo '{\"Failed\":\"no room\"}' >&0", "no room"),
            ("read line; echo 'hm' >&0; read line", "it answers \"hm\""),
        ] {
            let program = Program::new("/bin/sh").with(vec!["-c".into(), script.into()]);
            // The thread that reads what the process printed may have no processor for seconds.
            let mut reasons = Vec::new();
            let is_expected = (0..5).any(|_| {
                reasons.push(Haul::start(&program, &start).map(drop).unwrap_err());
                reasons.last().is_some_and(|it| it.starts_with(expected))
            });
            assert!(is_expected, "{script}: {reasons:?}");
        }
    }
}
