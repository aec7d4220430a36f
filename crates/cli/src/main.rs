//! The program `haul`: parse, run, record, render.
//!
//! From the bottom up:
//!
//! - `error`: the errors, and the exit code of each;
//! - `terminal`: tables, marks and warnings for a person;
//! - `summary`: shows a comparison;
//! - `stop`: handles Ctrl-C and other signals;
//! - `progress`: shows how much is done, and the time left;
//! - `flow`: shows how much of a stream was transferred;
//! - `journal`: writes records as they are measured;
//! - `arguments`: the command line;
//! - `command`: one module per command.
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
            terminal::report(&error);
            error.exit_code()
        }
    }
}

/// Runs a command from the command line to the exit code. Every command has the same four steps.
fn run(arguments: Arguments) -> Result<Ending, Error> {
    haul::init();
    haul_machine::file::fail_beyond_size_limit();
    if !arguments.command.is_driver() {
        stop::begin();
    }
    // Parse: names become values and inputs are read; wrong names and inputs are refused here.
    let mut command: Box<dyn Command> = command::of(arguments)?;
    // Signals are handed over before an earlier run's records are renamed, so that the command
    // can rename them back when it ends.
    stop::hand_over(command.stops())?;
    // Outputs are opened before anything is measured, so that a wrong output costs no measurement.
    let mut journal = Journal::open(&command.outputs())?;
    // Run and record: each record reaches the journal's outputs as soon as it is complete.
    let ran = command.run(&mut journal);
    // A signal from here on interrupts nothing.
    let signal = stop::signal();
    // Render from the records alone, also after an interrupted run: nothing is lost.
    let rendered = command.render(&journal);
    let put_back = journal.put_back();
    let done = ran.and(rendered).and(put_back);
    match signal.filter(|_| !command.lasts_until_stopped()) {
        Some(signal) => {
            if let Err(error) = done {
                terminal::report(&error);
            }
            terminal::say(&format!("haul: {}", command.kept(&journal)));
            Ok(Ending::Interrupted { signal })
        }
        None => done.map(|()| Ending::Done),
    }
}
