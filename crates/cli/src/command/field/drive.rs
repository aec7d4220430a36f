//! `haul field drive`: the process that supervises one run of `haul field`.

use haul_experiments::drive::contained;

use crate::command::Command;
use crate::error::Error;
use crate::journal::{Journal, Outputs};

pub(super) struct Drive;

impl Command for Drive {
    fn outputs(&self) -> Outputs {
        Outputs::default()
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        Ok(contained::serve()?)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        Ok(())
    }
}
