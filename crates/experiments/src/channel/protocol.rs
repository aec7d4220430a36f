//! The lines between a run and its drivers. A line consists of words, so that a driver in C needs
//! no parser. The run sends a request, and the driver replies. `peers/README.md` describes the
//! lines for authors of drivers.

use std::fmt::{self, Write as _};
use std::str::{FromStr, SplitWhitespace};

/// An end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    A,
    /// The receiver, which verifies every byte.
    B,
}

/// The exchange that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Messages one after the other from A to B.
    Transfer,
    /// Each message from A to B, and from B's target back to A.
    Echo,
}

/// The task that both ends prepare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The exchange that is timed.
    pub kind: Kind,
    /// The size of a message in bytes.
    pub size: usize,
    /// The number of messages.
    pub count: usize,
    /// Whether B's memory is newly mapped, so that its page faults are part of the transfer.
    pub is_cold: bool,
    /// The seed of the content.
    pub seed: u64,
    /// The transport, for drivers that have several transports.
    pub transport: String,
}

/// The cost of a task at one end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// CLOCK_MONOTONIC_RAW at the beginning and at the end, in ns.
    pub start_ns: u64,
    /// See `start_ns`.
    pub end_ns: u64,
    /// Processor time of the whole process, user and system.
    pub cpu_ns: u64,
    /// Page faults.
    pub faults: u64,
    /// The number of involuntary context switches.
    pub switches: u64,
    /// Memory in addition to source and target, in bytes.
    pub extra_bytes: u64,
    /// A remark, such as the mechanism that was used. A word, or `-`.
    pub remark: String,
}

/// A line to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks the driver to run on these processors from now on.
    Pin(Vec<usize>),
    /// Asks the driver to prepare its end.
    Prepare(Task),
    /// Asks the driver to perform the task from this moment of CLOCK_MONOTONIC_RAW on.
    Go(u64),
}

/// A line from a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The first line: the end, and the version of the library that the driver uses.
    Hello(Side, String),
    /// The reply to [`Request::Pin`] and [`Request::Prepare`].
    Ready,
    /// The reply to [`Request::Go`]: the task is done, and B has verified the received bytes.
    Done(Cost),
    /// The request failed, for this reason.
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
            Self::Done(cost) => {
                let Cost { start_ns, end_ns, cpu_ns, faults, switches, extra_bytes, remark } = cost;
                write!(f, "done {start_ns} {end_ns} {cpu_ns} {faults} {switches} {extra_bytes} ")?;
                f.write_str(if remark.is_empty() { "-" } else { remark })
            }
            Self::Failed(reason) => {
                f.write_str("failed ")?;
                // A message is one line, so line breaks in the reason become spaces.
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
        understood.ok_or_else(|| format!("a driver cannot parse {line:?}"))
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
            "done" => cost(&mut words).map(Self::Done),
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        };
        understood.ok_or_else(|| format!("its answer {line:?} is invalid"))
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
            _ => Err(format!("unknown end {text:?}; the ends are A and B")),
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

fn cost(words: &mut SplitWhitespace<'_>) -> Option<Cost> {
    Some(Cost {
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
    fn lines_parse_as_they_were_written() {
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
        let cost = Cost { end_ns: 9, extra_bytes: 5, remark: "ring".into(), ..Cost::default() };
        for reply in [
            Reply::Hello(Side::B, "1.13.1 (posix, cma)".into()),
            Reply::Ready,
            Reply::Done(Cost::default()),
            Reply::Done(cost),
            Reply::Failed("no such thing".into()),
        ] {
            assert_eq!(reply.to_string().parse(), Ok(reply));
        }
        assert_eq!(Reply::Failed("two\nlines".into()).to_string(), "failed two lines");
    }

    #[test]
    fn parse_rejects_invalid_lines() {
        for bad in ["", "pin", "pin 0,x", "prepare", "prepare echo 1 2 warm 3", "go soon", "stop"] {
            assert!(bad.parse::<Request>().is_err(), "{bad}");
        }
        for bad in ["", "hello", "hello C 1", "done 1 2 3", "done a b c d e f -", "yes"] {
            assert!(bad.parse::<Reply>().is_err(), "{bad}");
        }
    }
}
