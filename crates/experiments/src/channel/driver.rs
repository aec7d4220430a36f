//! The child process at one end: it prepares its end, performs a task that begins at the given
//! moment, and verifies every byte.
//!
//! Both ends read the same clock, and begin at a moment that the run has named before. The ends
//! do not communicate with the run during the timed part, and neither end waits for the other
//! before it.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use haul_machine::sys::Sys;
use haul_measure::memory::{Pages, Region};
use haul_measure::sys::{self, Usage};

use super::content;
use super::protocol::{Cost, Kind, Reply, Request, Side, Task};
use super::transport::Transport;
use crate::error::Error;

/// Connects to the other end through the transport with this name. Both ends use the same folder.
pub type Open<'a> = &'a dyn Fn(&str, Side, &Path) -> Result<Box<dyn Transport>, String>;

/// Serves the run that listens at `control`, until the run closes the conversation.
///
/// # Errors
/// No run listens at `control`, or the conversation ends in the middle of a line.
pub fn serve(side: Side, control: &Path, version: &str, open: Open<'_>) -> Result<(), Error> {
    let talk = || {
        let stream = UnixStream::connect(control)?;
        let folder = control.parent().unwrap_or(Path::new("/"));
        let mut end = End::new(side, folder, open);
        converse(stream, &mut end, version)
    };
    talk().map_err(|reason: io::Error| Error::ChannelConversation {
        socket: control.to_owned(),
        reason,
    })
}

fn converse(stream: UnixStream, end: &mut End<'_>, version: &str) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut say = |reply: Reply| writer.write_all(format!("{reply}\n").as_bytes());
    say(Reply::Hello(end.side, version.to_owned()))?;
    for line in BufReader::new(stream).lines() {
        let answer = match line?.parse() {
            Ok(Request::Pin(cpus)) => match sys::set_affinity(&cpus) {
                true => Ok(Reply::Ready),
                false => Err(format!("it may not run on the processors {cpus:?}")),
            },
            Ok(Request::Prepare(task)) => end.prepare(task).map(|()| Reply::Ready),
            Ok(Request::Go(at_ns)) => end.go(at_ns).map(Reply::Done),
            Err(reason) => Err(reason),
        };
        say(answer.unwrap_or_else(Reply::Failed))?;
    }
    Ok(())
}

/// One end: its memory, and its connected transports.
struct End<'a> {
    side: Side,
    folder: &'a Path,
    open: Open<'a>,
    transports: HashMap<String, Box<dyn Transport>>,
    task: Option<Task>,
    /// The memory from which this end sends.
    source: Option<Region>,
    /// The memory into which this end receives. At A, it holds the echoes.
    target: Option<Region>,
    /// The memory of this process at its start, in bytes.
    started_with: u64,
}

impl<'a> End<'a> {
    fn new(side: Side, folder: &'a Path, open: Open<'a>) -> Self {
        let started_with = Sys::new().own_and_shared_bytes().unwrap_or(0);
        let transports = HashMap::new();
        Self {
            side,
            folder,
            open,
            transports,
            task: None,
            source: None,
            target: None,
            started_with,
        }
    }

    fn prepare(&mut self, task: Task) -> Result<(), String> {
        let bytes = task
            .size
            .checked_mul(task.count)
            .ok_or("the messages together exceed the address space")?;
        let sends = self.side == Side::A;
        let receives = !sends || task.kind == Kind::Echo;
        if sends {
            let source = warm(&mut self.source, bytes)?;
            content::fill(source, task.seed);
        }
        if receives && task.is_cold {
            // The old target is unmapped before new memory is mapped, so that the old and the new
            // memory do not exist at the same time.
            self.target = None;
            let region = Region::unasked(bytes, Pages::Unsaid);
            self.target = Some(region.map_err(|error| error.to_string())?);
        } else if receives {
            warm(&mut self.target, bytes)?;
        }
        if !self.transports.contains_key(&task.transport) {
            let transport = (self.open)(&task.transport, self.side, self.folder)?;
            self.transports.insert(task.transport.clone(), transport);
        }
        let source: &[u8] = match &mut self.source {
            Some(source) if sends => &source.as_mut_slice()[..bytes],
            _ => &[],
        };
        let transport = self.transports.get_mut(&task.transport).ok_or("the transport is gone")?;
        transport.before(&task, source)?;
        self.task = Some(task);
        Ok(())
    }

    fn go(&mut self, at_ns: u64) -> Result<Cost, String> {
        let task = self.task.take().ok_or("no task was prepared")?;
        let transport = self.transports.get_mut(&task.transport).ok_or("the transport is gone")?;
        let bytes = task.size * task.count;
        let empty = &mut [][..];
        let source = self.source.as_mut().map_or(&[][..], |region| &*region.as_mut_slice());
        let target = self.target.as_mut().map_or(empty, Region::as_mut_slice);
        wait_until(at_ns);
        let (before, start_ns) = (sys::usage_process(), sys::monotonic_ns());
        // SAFETY: if it fails, the target is never unmapped: see the lines below.
        let done = unsafe { perform(transport.as_mut(), self.side, &task, source, target) };
        let (end_ns, after) = (sys::monotonic_ns(), sys::usage_process());
        if let Err(reason) = done {
            std::mem::forget(self.target.take());
            return Err(reason);
        }
        if self.side == Side::B || task.kind == Kind::Echo {
            let target = &mut target[..bytes];
            if self.side == Side::B {
                transport.after(target)?;
            }
            content::verify(target, task.seed).map_err(|index| {
                format!(
                    "byte {index} of {bytes} that it received differs from the one that was sent"
                )
            })?;
        }
        let own = transport.extra_bytes();
        let remark = transport.remark();
        let extra_bytes = own.unwrap_or_else(|| self.grown_bytes());
        Ok(cost(start_ns, end_ns, before, after, extra_bytes, remark))
    }

    /// The memory of this process in addition to its buffers and to its memory at the start.
    fn grown_bytes(&self) -> u64 {
        let now = Sys::new().own_and_shared_bytes().unwrap_or(0);
        let regions = [&self.source, &self.target].into_iter().flatten();
        let buffers: u64 = regions.map(|region| region.bytes() as u64).sum();
        now.saturating_sub(self.started_with).saturating_sub(buffers)
    }
}

/// Sleeps, then spins. If both ends spun from the start, a small machine would have more runnable
/// processes than processors: the two ends, and the run, which is about to sleep. haul would
/// count the third process as other work on the machine, but an ordinary program causes no such
/// work during a transfer.
fn wait_until(at_ns: u64) {
    /// The time for which an end spins: more than twice the usual delay of a timer (50 us).
    const SPUN_NS: u64 = 120_000;
    let rest_ns = at_ns.saturating_sub(sys::monotonic_ns()).saturating_sub(SPUN_NS);
    if rest_ns > 0 {
        std::thread::sleep(Duration::from_nanos(rest_ns));
    }
    while sys::monotonic_ns() < at_ns {
        std::hint::spin_loop();
    }
}

/// Memory of at least this length, with its pages allocated. Existing memory that is long enough
/// is used again without a change.
fn warm(region: &mut Option<Region>, bytes: usize) -> Result<&mut [u8], String> {
    let fits = |region: &Region| region.bytes() >= bytes;
    if !region.as_ref().is_some_and(fits) {
        *region = None;
        let new = Region::touched(bytes, Pages::Unsaid).map_err(|error| error.to_string())?;
        *region = Some(new);
    }
    let region = region.as_mut().ok_or("no memory")?;
    Ok(&mut region.as_mut_slice()[..bytes])
}

/// Performs the timed part of a task.
///
/// # Safety
/// If this fails, the target must stay mapped, and must not be used until the other end has ended.
unsafe fn perform(
    transport: &mut dyn Transport,
    side: Side,
    task: &Task,
    source: &[u8],
    target: &mut [u8],
) -> Result<(), String> {
    for index in 0..task.count {
        let message = index * task.size..(index + 1) * task.size;
        match (side, task.kind) {
            (Side::A, Kind::Transfer) => transport.send(&source[message])?,
            (Side::B, Kind::Transfer) => {
                // SAFETY: the caller keeps the target mapped and unused if it fails, as `perform`
                // requires.
                unsafe { transport.receive_exposed(&mut target[message]) }?;
            }
            (Side::A, Kind::Echo) => {
                transport.send(&source[message.clone()])?;
                // SAFETY: as above.
                unsafe { transport.receive_exposed(&mut target[message]) }?;
            }
            (Side::B, Kind::Echo) => {
                // SAFETY: as above.
                unsafe { transport.receive_exposed(&mut target[message.clone()]) }?;
                transport.send(&target[message])?;
            }
        }
    }
    Ok(())
}

fn cost(
    start_ns: u64,
    end_ns: u64,
    before: Usage,
    after: Usage,
    extra_bytes: u64,
    remark: String,
) -> Cost {
    let faults = |usage: &Usage| usage.faults_minor + usage.faults_major;
    Cost {
        start_ns,
        end_ns,
        cpu_ns: u64::try_from(after.cpu.saturating_sub(before.cpu).as_nanos()).unwrap_or(u64::MAX),
        faults: faults(&after).saturating_sub(faults(&before)),
        switches: after.switches_involuntary.saturating_sub(before.switches_involuntary),
        extra_bytes,
        remark,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives the message, but with one wrong byte in the whole task.
    struct Careless {
        seed: u64,
        received: usize,
        wrong: Option<usize>,
    }

    impl Transport for Careless {
        fn send(&mut self, _message: &[u8]) -> Result<(), String> {
            Ok(())
        }

        fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
            for byte in target {
                *byte = content::byte(self.seed, self.received);
                if self.wrong == Some(self.received) {
                    *byte ^= 1;
                }
                self.received += 1;
            }
            Ok(())
        }

        fn before(&mut self, task: &Task, _source: &[u8]) -> Result<(), String> {
            (self.seed, self.received) = (task.seed, 0);
            Ok(())
        }

        fn extra_bytes(&self) -> Option<u64> {
            Some(7)
        }
    }

    fn receive(wrong: Option<usize>, is_cold: bool) -> Result<Cost, String> {
        let open = |_: &str, _: Side, _: &Path| -> Result<Box<dyn Transport>, String> {
            Ok(Box::new(Careless { seed: 0, received: 0, wrong }))
        };
        let mut end = End::new(Side::B, Path::new("/"), &open);
        let transport = "careless".to_owned();
        let task = Task { kind: Kind::Transfer, size: 5000, count: 3, is_cold, seed: 4, transport };
        end.prepare(task)?;
        end.go(0)
    }

    #[test]
    fn go_fails_for_single_wrong_byte_in_last_message() {
        let cost = receive(None, false).unwrap();
        assert!(cost.end_ns > cost.start_ns && cost.cpu_ns > 0);
        assert_eq!(cost.extra_bytes, 7);
        for wrong in [0, 14_999] {
            let reason = receive(Some(wrong), false).unwrap_err();
            assert!(reason.contains(&format!("byte {wrong} of 15000")), "{reason}");
        }
    }

    #[test]
    fn cold_target_causes_page_faults() {
        // 15,000 B take four pages.
        assert!(receive(None, true).unwrap().faults >= 4);
    }

    #[test]
    fn go_fails_without_task() {
        let open = |_: &str, _: Side, _: &Path| Err("no way".to_owned());
        let mut end = End::new(Side::A, Path::new("/"), &open);
        assert!(end.go(0).unwrap_err().contains("no task was prepared"));
        let task = "prepare transfer 64 1 warm 1 x".parse();
        let Ok(Request::Prepare(task)) = task else { panic!("{task:?}") };
        assert_eq!(end.prepare(task), Err("no way".to_owned()));
    }
}
