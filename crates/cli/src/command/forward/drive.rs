//! `haul forward drive`: a process of `haul forward pvp` that is one side of the flow.

use haul_experiments::forward::driver;

use crate::command::Command;
use crate::error::Error;
use crate::journal::{Journal, Outputs};

pub(super) struct Drive;

impl Command for Drive {
    fn outputs(&self) -> Outputs {
        Outputs::default()
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        Ok(driver::serve()?)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        Ok(())
    }
}
