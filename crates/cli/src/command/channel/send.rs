//! `haul channel send`.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use haul::channel::{Channel, Settings};

use super::MESSAGE_BYTES;
use super::took::Took;
use crate::arguments::channel;
use crate::command::Command;
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

pub(super) struct Send {
    arguments: channel::Send,
    took: Took,
}

impl Send {
    pub(super) fn new(arguments: channel::Send) -> Self {
        Self { arguments, took: Took::start() }
    }

    fn source(&self) -> Result<Box<dyn Read>, Error> {
        if self.arguments.file == Path::new("-") {
            return Ok(Box::new(io::stdin()));
        }
        let file = File::open(&self.arguments.file).map_err(|reason| self.unreadable(reason))?;
        Ok(Box::new(file))
    }

    fn unreadable(&self, reason: io::Error) -> Error {
        Error::Haul(haul::Error::Read { path: self.arguments.file.clone(), reason })
    }

    /// The next bytes of the source, as many as a message holds unless it ends.
    fn read(&self, source: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut length = 0;
        while length < buffer.len() {
            match source.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
                Err(reason) => return Err(self.unreadable(reason)),
            }
            // What a slow producer has given so far should not wait for the rest.
            if self.arguments.file == Path::new("-") {
                break;
            }
        }
        Ok(length)
    }
}

impl Command for Send {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.arguments.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let mut source = self.source()?;
        let settings = Settings {
            deadline: self.arguments.deadline,
            // A consumer may be slow for as long as it lives, as at a pipe.
            wait: None,
            trusts_peer: self.arguments.trust,
            mechanism: self.arguments.mechanism,
            ..Settings::default()
        };
        let mut channel = Channel::connect(&self.arguments.to, &settings)?;
        self.took = Took::start();
        let mut buffer = vec![0; MESSAGE_BYTES];
        loop {
            let length = self.read(source.as_mut(), &mut buffer)?;
            let account = channel.send(&buffer[..length])?;
            if length == 0 {
                break;
            }
            self.took.add(&account);
        }
        // Sent is not received: the other end may have no room, or nobody to give it to.
        channel.recv()?;
        self.took.stop();
        if self.arguments.json {
            self.took.record("channel.send", journal)?;
        }
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if !self.arguments.json && io::stderr().is_terminal() && self.took.is_complete() {
            terminal::say(&self.took.line("sent"));
        }
        Ok(())
    }
}
