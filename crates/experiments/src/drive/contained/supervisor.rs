//! The supervising process: it starts one program, measures it, and leaves no process behind.

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use haul_measure::sys;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open, set_child_subreaper,
    set_parent_process_death_signal, setsid,
};

use super::order::{End, Reply, Request, Start};
use super::tree;
use crate::drive::{self, Conversation};
use crate::error::Error;

/// The time that a program has to end after SIGTERM, and the processes that it leaves.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_OF_REST: Duration = Duration::from_secs(1);

/// The time between two checks whether processes have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Serves one program on the conversation of standard input, a Unix socket. Returns when no
/// process of the program is left.
///
/// # Errors
/// Standard input is not a socket.
pub fn serve() -> Result<(), Error> {
    drive::serve(converse)
}

/// A program that runs.
struct Running {
    program: Child,
    started: Instant,
    end: Option<End>,
}

fn converse(mut run: Conversation) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    let Some(Request::Start(start)) = run.hear_message()? else { return Ok(()) };
    let started = Instant::now();
    let program = match spawn(&start) {
        Ok(program) => program,
        Err(reason) => return run.say_message(&Reply::NotStarted { reason: reason.to_string() }),
    };
    let mut running = Running { program, started, end: None };
    let supervised = running.supervise(&mut run);
    // However the conversation ended, no process may be left.
    let survived = running.end_all();
    let left = supervised?;
    run.say_message(&Reply::Over { left, survived })
}

fn spawn(start: &Start) -> io::Result<Child> {
    let (program, arguments) = start.words().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(start.environment()).stdin(Stdio::null());
    let own = getpid();
    let alone = move || {
        // A session of its own has no terminal, so neither Ctrl-C nor a question reaches it.
        setsid()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The supervisor may have been killed before the signal was set.
        if getppid() != Some(own) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec, the function makes three system calls and neither allocates
    // nor takes a lock: an error of this kind has no message.
    unsafe { command.pre_exec(alone) };
    command.spawn()
}

impl Running {
    /// Waits until the program ends, the run asks for its end, or the run ends. Returns the names
    /// of the processes that the program left.
    fn supervise(&mut self, run: &mut Conversation) -> io::Result<Vec<String>> {
        let descriptor = pidfd_open(Pid::from_child(&self.program), PidfdFlags::empty())?;
        run.say_message(&Reply::Started)?;
        if run.is_silent_until(&descriptor)? {
            let status = self.program.wait()?;
            let end = self.ended(status);
            run.say_message(&Reply::Ended(end))?;
            return Ok(tree::names(&tree::below(getpid())));
        }
        // A run that has ended says nothing, so its processes end at once.
        if let Some(Request::Stop) = run.hear_message()? {
            self.terminate();
            if let Some(end) = self.end.clone() {
                run.say_message(&Reply::Ended(end))?;
            }
        }
        Ok(Vec::new())
    }

    /// The program's end; `status` was just reported.
    fn ended(&mut self, status: ExitStatus) -> End {
        let wall = self.started.elapsed();
        let (cpu, resident_bytes) = sys::usage_children();
        let (code, signal) = (status.code(), status.signal());
        let end = End { wall, cpu, resident_bytes, code, signal };
        self.end = Some(end.clone());
        end
    }

    /// Asks the program to end, and then the processes that it leaves. A server ends its own
    /// processes in order, so it is asked first.
    fn terminate(&mut self) {
        let _ = kill_process(Pid::from_child(&self.program), Signal::TERM);
        let asked = Instant::now();
        while self.end.is_none() && asked.elapsed() < PATIENCE {
            self.poll();
            std::thread::sleep(POLL_INTERVAL);
        }
        let asked = Instant::now();
        for process in tree::below(getpid()) {
            let _ = kill_process(process.pid, Signal::TERM);
        }
        while !tree::below(getpid()).is_empty() && asked.elapsed() < PATIENCE_OF_REST {
            self.poll();
            std::thread::sleep(10 * POLL_INTERVAL);
        }
        // The resources of a program that ignores SIGTERM count as well.
        let _ = self.program.kill();
        if self.end.is_none()
            && let Ok(status) = self.program.wait()
        {
            self.ended(status);
        }
    }

    fn poll(&mut self) {
        if self.end.is_none()
            && let Ok(Some(status)) = self.program.try_wait()
        {
            self.ended(status);
        }
    }

    /// Kills all processes that are left.
    fn end_all(&mut self) -> Vec<String> {
        if self.end.is_none() {
            // Also after an error, or if the run has ended: the program may still run.
            let _ = self.program.kill();
            let _ = self.program.wait();
        }
        tree::end_below(None)
    }
}
