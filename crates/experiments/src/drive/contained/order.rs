//! The messages between a run and its supervisor: a line of JSON each.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A program to start. Names and arguments need not be UTF-8, so they are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    words: Vec<Vec<u8>>,
    environment: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A message of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Starts the program.
    Start(Start),
    /// Ends it.
    Stop,
}

/// A message of a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The program runs.
    Started,
    /// The program cannot be started.
    NotStarted {
        /// The system's error.
        reason: String,
    },
    /// The program ended.
    Ended(End),
    /// No process is left. The supervisor ends.
    Over {
        /// The processes that were left when the program ended by itself, by name.
        left: Vec<String>,
        /// The processes that could not be ended.
        survived: Vec<String>,
    },
}

/// How a program ended, and the resources that it used with the processes that it waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    /// The time from before its start to its end.
    pub(crate) wall: Duration,
    /// Processor time, user and system.
    pub(crate) cpu: Duration,
    /// The largest resident memory of one of the processes.
    pub(crate) resident_bytes: u64,
    /// The exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
}

impl Start {
    /// A program with its arguments, and variables in addition to this process's environment.
    pub(crate) fn new(words: &[OsString], environment: &[(OsString, OsString)]) -> Self {
        let bytes = |text: &OsString| text.as_bytes().to_vec();
        Self {
            words: words.iter().map(bytes).collect(),
            environment: environment
                .iter()
                .map(|(name, value)| (bytes(name), bytes(value)))
                .collect(),
        }
    }

    /// The program and its arguments; `None` if there is no program.
    pub(super) fn words(&self) -> Option<(&OsStr, Vec<OsString>)> {
        let (program, arguments) = self.words.split_first()?;
        let arguments = arguments.iter().map(|it| OsString::from_vec(it.clone())).collect();
        Some((OsStr::from_bytes(program), arguments))
    }

    /// The variables.
    pub(super) fn environment(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let both = self.environment.iter();
        both.map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value)))
    }
}

impl End {
    /// Why the program did not succeed; `None` if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        match (self.code, self.signal) {
            (Some(0), _) => None,
            (Some(code), _) => Some(format!("it ended with exit code {code}")),
            (None, Some(signal)) => Some(format!("signal {signal} ended it")),
            (None, None) => Some("it ended".into()),
        }
    }
}
