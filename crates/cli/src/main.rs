//! The program `haul`: parse, run, record, render.
//!
//! From the bottom up:
//!
//! - `error`: what can go wrong, and the exit code of each;
//! - `terminal`: tables, marks and warnings for a person;
//! - `summary`: how a comparison is shown;
//! - `stop`: what Ctrl-C and other signals do;
//! - `progress`: how far, and how long still;
//! - `flow`: how much of a stream has gone through;
//! - `journal`: where records go as they are measured;
//! - `arguments`: the command line;
//! - `command`: one module a command.
#![forbid(unsafe_code)]

mod arguments;
mod command;
mod error;
mod flow;
mod journal;
mod progress;
mod stop;
mod summary;
mod terminal;

use std::process::ExitCode;

use arguments::Arguments;
use command::Command;
use error::{Ending, Error};
use journal::Journal;

fn main() -> ExitCode {
    match arguments::parse().and_then(run) {
        Ok(ending) => ending.exit_code(),
        Err(error) => {
            terminal::tell(&error);
            error.exit_code()
        }
    }
}

/// From the command line to the exit code: every command is the same four steps.
fn run(arguments: Arguments) -> Result<Ending, Error> {
    haul::init();
    haul_machine::file::fail_beyond_size_limit();
    if !arguments.command.is_driver() {
        stop::begin();
    }
    // Parse: names become values and inputs are read; what is wrong with them is said here.
    let mut command: Box<dyn Command> = command::of(arguments)?;
    // Before any record is moved aside, which a command that ends by itself puts back.
    stop::hand_over(command.stops())?;
    // Outputs are opened before anything is measured, so that no measurement is lost to them.
    let mut journal = Journal::open(&command.outputs())?;
    // Run and record: each record reaches the journal's outputs as soon as it is complete.
    let ran = command.run(&mut journal);
    // What comes from here on cuts nothing short.
    let signal = stop::signal();
    // Render from the records alone, also when the run was cut short: nothing is lost.
    let rendered = command.render(&journal);
    let put_back = journal.put_back();
    let done = ran.and(rendered).and(put_back);
    match signal.filter(|_| !command.lasts_until_stopped()) {
        Some(signal) => {
            if let Err(error) = done {
                terminal::tell(&error);
            }
            terminal::say(&format!("haul: {}", command.kept(&journal)));
            Ok(Ending::Interrupted { signal })
        }
        None => done.map(|()| Ending::Done),
    }
}
