//! What a run and its drivers say to each other: lines of words, so that a driver in C needs no
//! parser. The run speaks, the driver answers; `peers/README.md` has the words for whoever writes a
//! driver.

use std::fmt::{self, Write as _};
use std::str::{FromStr, SplitWhitespace};

/// An end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    A,
    /// The receiver, that verifies.
    B,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Messages one after the other from A to B.
    Transfer,
    /// Each message to B, and back from where B has it.
    Echo,
}

/// What both ends get ready for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What is timed.
    pub kind: Kind,
    /// The size of a message in bytes.
    pub size: usize,
    /// How many messages.
    pub count: usize,
    /// Whether B's memory is new to it, so that its page faults are part of the transfer.
    pub is_cold: bool,
    /// What the content follows from.
    pub seed: u64,
    /// By which transport, for drivers that have several.
    pub transport: String,
}

/// What one end took for a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// CLOCK_MONOTONIC_RAW as it began and as it ended, in ns.
    pub start_ns: u64,
    /// See `start_ns`.
    pub end_ns: u64,
    /// Processor time of the whole process, user and system.
    pub cpu_ns: u64,
    /// Page faults.
    pub faults: u64,
    /// How often the kernel took the processor away.
    pub switches: u64,
    /// Memory beside source and target, in bytes.
    pub extra_bytes: u64,
    /// What there is to tell: which mechanism it took, say. A word, or `-`.
    pub remark: String,
}

/// A line to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Runs on these processors from now on.
    Pin(Vec<usize>),
    /// Gets its end ready.
    Prepare(Task),
    /// Does it, beginning at this moment of CLOCK_MONOTONIC_RAW.
    Go(u64),
}

/// A line from a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The first line: which end it is, and what it drives in which version.
    Hello(Side, String),
    /// To [`Request::Pin`] and [`Request::Prepare`].
    Ready,
    /// To [`Request::Go`]: it is done, and what B has was verified.
    Done(Took),
    /// It cannot be done, and why.
    Failed(String),
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin(cpus) => {
                let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
                write!(f, "pin {}", cpus.join(","))
            }
            Self::Prepare(task) => {
                let kind = if task.kind == Kind::Echo { "echo" } else { "transfer" };
                let target = if task.is_cold { "cold" } else { "warm" };
                let Task { size, count, seed, transport, .. } = task;
                write!(f, "prepare {kind} {size} {count} {target} {seed} {transport}")
            }
            Self::Go(at_ns) => write!(f, "go {at_ns}"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(side, version) => write!(f, "hello {side} {version}"),
            Self::Ready => f.write_str("ready"),
            Self::Done(took) => {
                let Took { start_ns, end_ns, cpu_ns, faults, switches, extra_bytes, remark } = took;
                write!(f, "done {start_ns} {end_ns} {cpu_ns} {faults} {switches} {extra_bytes} ")?;
                f.write_str(if remark.is_empty() { "-" } else { remark })
            }
            Self::Failed(reason) => {
                f.write_str("failed ")?;
                // A line is a message: what is told keeps to one.
                reason.chars().try_for_each(|c| f.write_char(if c == '\n' { ' ' } else { c }))
            }
        }
    }
}

impl FromStr for Request {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let understood = match words.next() {
            Some("pin") => words.next().and_then(|list| {
                list.split(',').map(|cpu| cpu.parse().ok()).collect::<Option<_>>().map(Self::Pin)
            }),
            Some("prepare") => task(&mut words).map(Self::Prepare),
            Some("go") => number(&mut words).map(Self::Go),
            _ => None,
        };
        understood.ok_or_else(|| format!("no driver understands {line:?}"))
    }
}

impl FromStr for Reply {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (first, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let mut words = rest.split_whitespace();
        let understood = match first {
            "hello" => match rest.split_once(' ').unwrap_or((rest, "")) {
                ("A", version) => Some(Self::Hello(Side::A, version.to_owned())),
                ("B", version) => Some(Self::Hello(Side::B, version.to_owned())),
                _ => None,
            },
            "ready" => Some(Self::Ready),
            "done" => took(&mut words).map(Self::Done),
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        };
        understood.ok_or_else(|| format!("it says {line:?}, which is no answer"))
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::A { "A" } else { "B" })
    }
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "A" => Ok(Self::A),
            "B" => Ok(Self::B),
            _ => Err(format!("{text:?} is no end of a transfer; the ends are A and B")),
        }
    }
}

fn task(words: &mut SplitWhitespace<'_>) -> Option<Task> {
    let kind = match words.next()? {
        "transfer" => Kind::Transfer,
        "echo" => Kind::Echo,
        _ => return None,
    };
    let (size, count) = (number(words)?, number(words)?);
    let is_cold = words.next()? == "cold";
    Some(Task {
        kind,
        size,
        count,
        is_cold,
        seed: number(words)?,
        transport: words.next()?.to_owned(),
    })
}

fn took(words: &mut SplitWhitespace<'_>) -> Option<Took> {
    Some(Took {
        start_ns: number(words)?,
        end_ns: number(words)?,
        cpu_ns: number(words)?,
        faults: number(words)?,
        switches: number(words)?,
        extra_bytes: number(words)?,
        remark: words.next().filter(|word| *word != "-").unwrap_or_default().to_owned(),
    })
}

fn number<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_comes_back() {
        let task = Task {
            kind: Kind::Echo,
            size: 64,
            count: 3,
            is_cold: true,
            seed: u64::MAX,
            transport: "haul:ring".into(),
        };
        for request in [Request::Pin(vec![0, 7]), Request::Prepare(task), Request::Go(12)] {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        let took = Took { end_ns: 9, extra_bytes: 5, remark: "ring".into(), ..Took::default() };
        for reply in [
            Reply::Hello(Side::B, "1.13.1 (posix, cma)".into()),
            Reply::Ready,
            Reply::Done(Took::default()),
            Reply::Done(took),
            Reply::Failed("no such thing".into()),
        ] {
            assert_eq!(reply.to_string().parse(), Ok(reply));
        }
        assert_eq!(Reply::Failed("two\nlines".into()).to_string(), "failed two lines");
    }

    #[test]
    fn other_lines_are_refused() {
        for bad in ["", "pin", "pin 0,x", "prepare", "prepare echo 1 2 warm 3", "go soon", "stop"] {
            assert!(bad.parse::<Request>().is_err(), "{bad}");
        }
        for bad in ["", "hello", "hello C 1", "done 1 2 3", "done a b c d e f -", "yes"] {
            assert!(bad.parse::<Reply>().is_err(), "{bad}");
        }
    }
}
