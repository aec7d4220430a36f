//! A process of haul's as a side: its start, and its conversation.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::drive::{Children, Conversation, Printed, Program};
use crate::forward::protocol::{Counted, Reply, Start, Task};

/// How long haul's own process takes to answer: it waits for a link, and stops with nothing lost.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often it is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The same of a trial, of which the longest is a minute.
const PATIENCE_FOR_TRIAL: Duration = Duration::from_secs(90);

/// A process of haul's.
pub(in crate::forward) struct Haul {
    children: Children,
    conversation: Conversation,
    printed: Printed,
    process: u32,
    before: Counted,
}

impl Haul {
    /// Starts one.
    ///
    /// # Errors
    /// What it said instead.
    pub(super) fn start(driver: &Program, start: &Start) -> Result<Self, String> {
        let said = |error: io::Error| error.to_string();
        let (mut printed, writer) = Printed::new().map_err(said)?;
        let (own, other) = UnixStream::pair().map_err(said)?;
        let mut command = driver.command(&writer).map_err(said)?;
        command.stdin(Stdio::from(OwnedFd::from(other)));
        command.stdout(writer);
        let child = command.spawn().map_err(said)?;
        drop(command);
        let process = child.id();
        let mut children = Children::new();
        children.push(child);
        let mut conversation = Conversation::with_driver(own).map_err(said)?;
        let text = serde_json::to_string(start).map_err(|error| error.to_string())?;
        let ready = conversation.say(&text).and_then(|()| conversation.hear_within(PATIENCE));
        let ready = ready.map_err(|silence| silence.to_string()).and_then(|line| parse(&line));
        match ready {
            Ok(Reply::Ready) => {}
            Ok(other) => return Err(format!("it says {other:?} at its start")),
            Err(reason) => {
                children.end();
                return Err(printed.told_with(reason));
            }
        }
        Ok(Self { children, conversation, printed, process, before: Counted::default() })
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// What it had counted when a time to measure began.
    pub(super) fn before(&self) -> &Counted {
        &self.before
    }

    /// Such a time begins.
    ///
    /// # Errors
    /// It ended, or gives no answer.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.before = self.counted(&Task::Count)?;
        Ok(())
    }

    /// Ends it.
    pub(super) fn end(mut self) {
        self.conversation.close();
        self.children.await_end();
    }

    fn ask(&mut self, task: &Task) -> Result<Reply, String> {
        let text = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let said = self.conversation.say(&text);
        let is_trial = matches!(task, Task::Trial { .. });
        let patience = if is_trial { PATIENCE_FOR_TRIAL } else { PATIENCE };
        let heard = said.and_then(|()| self.conversation.hear_within(patience));
        match heard {
            Ok(line) => parse(&line),
            Err(silence) => {
                self.children.end();
                Err(self.printed.told_with(silence.to_string()))
            }
        }
    }

    pub(super) fn done(&mut self, task: &Task) -> Result<(), String> {
        match self.ask(task)? {
            Reply::Done => Ok(()),
            other => Err(format!("it answers {other:?} to {task:?}")),
        }
    }

    /// What it has counted since [`Haul::before`]: it publishes its counts every 20 ms, or when its
    /// thread has a processor again.
    pub(super) fn counted_later(&mut self) -> Result<Counted, String> {
        let started = Instant::now();
        loop {
            let now = self.counted(&Task::Count)?;
            if now.time_ns > self.before.time_ns || started.elapsed() > PATIENCE {
                return Ok(now);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    pub(super) fn counted(&mut self, task: &Task) -> Result<Counted, String> {
        match self.ask(task)? {
            Reply::Counted(counted) => Ok(counted),
            other => Err(format!("it answers {other:?} to {task:?}")),
        }
    }
}

/// The reply, or why the process failed.
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
    use crate::forward::protocol::{Side, Source};

    #[test]
    fn a_process_that_is_no_driver_is_found_out() {
        let start = Start {
            side: Side::Switch,
            flow: "pvp".into(),
            layout: "split".into(),
            size_bytes: 64,
            copy: "haul".into(),
            source: Source::Generator,
            socket: "/nonexistent/socket".into(),
            queues: 1,
            cpus: vec![0],
            is_to_kernel: false,
        };
        for (script, expected) in [
            ("echo no such thing >&2", "its process ended (it printed: no such thing)"),
            ("read line; echo '{\"Failed\":\"no room\"}' >&0", "no room"),
            ("read line; echo 'hm' >&0; read line", "it answers \"hm\""),
        ] {
            let program = Program::new("/bin/sh").with(vec!["-c".into(), script.into()]);
            let reason = Haul::start(&program, &start).map(drop).unwrap_err();
            assert!(reason.starts_with(expected), "{script}: {reason}");
        }
    }
}
