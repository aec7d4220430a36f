//! `haul channel drive`: the child process of `haul channel bench` at one end of a transfer.

use haul_experiments::channel::{driver, transport};

use crate::arguments::channel;
use crate::command::Command;
use crate::error::Error;
use crate::journal::{Journal, Outputs};

pub(super) struct Drive(channel::Drive);

impl Drive {
    pub(super) fn new(arguments: channel::Drive) -> Self {
        Self(arguments)
    }
}

impl Command for Drive {
    fn outputs(&self) -> Outputs {
        Outputs::default()
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        let channel::Drive { control, side } = &self.0;
        Ok(driver::serve(*side, control, env!("CARGO_PKG_VERSION"), &transport::open)?)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        Ok(())
    }
}
