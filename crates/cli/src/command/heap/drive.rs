//! `haul heap drive`: the child process of `haul heap bench` that drives one heap.

use haul_experiments::heap::driver;

use crate::arguments::heap;
use crate::command::Command;
use crate::error::Error;
use crate::journal::{Journal, Outputs};

pub(super) struct Drive;

impl Drive {
    /// The name is only for the list of processes; the bench sends it again.
    pub(super) fn new(_arguments: heap::Drive) -> Self {
        Self
    }
}

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
