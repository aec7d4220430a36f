//! `haul completions` and `haul man`: completion scripts and manual pages, made from the same text
//! as `--help`.

use std::fs;
use std::path::PathBuf;

use clap::{Command as Parser, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Command;
use crate::arguments::{self, Arguments};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

pub(super) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(super) fn new(arguments: arguments::Completions) -> Self {
        Self { shell: arguments.shell }
    }
}

impl Command for Completions {
    fn outputs(&self) -> Outputs {
        Outputs::default()
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut visible(Arguments::command()),
            "haul",
            &mut script,
        );
        terminal::print(String::from_utf8_lossy(&script).trim_end())
    }
}

/// The command without the subcommands that only haul itself starts.
fn visible(command: Parser) -> Parser {
    if !command.has_subcommands() {
        return command;
    }
    let kept: Vec<Parser> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .cloned()
        .map(visible)
        .collect();
    // The library needs a name that lives as long as the process, unless it is compiled with
    // another feature. One script is made per process.
    let name: &'static str = command.get_name().to_owned().leak();
    let mut own = Parser::new(name).subcommands(kept).args(command.get_arguments().cloned());
    if let Some(about) = command.get_about() {
        own = own.about(about.clone());
    }
    if command.get_version().is_some() {
        own = own.version(env!("CARGO_PKG_VERSION"));
    }
    own
}

pub(super) struct Manual {
    out: Option<PathBuf>,
}

impl Manual {
    pub(super) fn new(arguments: arguments::Manual) -> Self {
        Self { out: arguments.out }
    }
}

impl Command for Manual {
    fn outputs(&self) -> Outputs {
        Outputs::default()
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        let mut command = Arguments::command().disable_help_subcommand(true);
        command.build();
        let Some(folder) = &self.out else {
            return terminal::print(page(command)?.1.trim_end());
        };
        fs::create_dir_all(folder).map_err(|reason| {
            Error::Haul(haul_machine::Error::Write { path: folder.clone(), reason })
        })?;
        for command in all(command) {
            let (name, text) = page(command)?;
            haul_machine::file::write_atomically(&folder.join(name), text.as_bytes())?;
        }
        Ok(())
    }
}

/// A command and its subcommands, without the subcommands that only haul itself starts.
fn all(command: Parser) -> Vec<Parser> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut commands: Vec<Parser> = below.flat_map(all).collect();
    commands.push(command);
    commands
}

/// The file name of a command's page, and the page.
fn page(command: Parser) -> Result<(String, String), Error> {
    let man = Man::new(command);
    let mut text = Vec::new();
    man.render(&mut text).map_err(Error::Output)?;
    Ok((man.get_filename(), String::from_utf8_lossy(&text).into_owned()))
}
