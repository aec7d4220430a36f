//! `haul pcie list --nics`: the known NICs, their options and sources.

use haul_model::pcie::NICS;

use crate::command::Command;
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

pub(super) struct Nics;

impl Command for Nics {
    fn outputs(&self) -> Outputs {
        Outputs::default()
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        let width = terminal::width();
        for nic in &NICS {
            let modes: Vec<&str> = nic.modes.iter().map(|(mode, _, _)| mode.name()).collect();
            let mut lines = vec![
                format!("{}: {}", nic.name, nic.devices),
                format!("  modes: {} (the last is the default)", modes.join(", ")),
                format!(
                    "  descriptors: {} B received, {} B sent; thresholds: rx free {}, report status {}",
                    nic.rx_descriptor_bytes,
                    nic.tx_descriptor_bytes(),
                    nic.thresholds.rx_free,
                    nic.thresholds.tx_rs
                ),
                format!(
                    "  receive descriptors per read: {} ({})",
                    nic.rx_fetch.descriptors, nic.rx_fetch.source
                ),
            ];
            for choice in nic.choices {
                lines.push(format!("  --set option={}: {}", choice.name, choice.about));
            }
            if !nic.remarks.is_empty() {
                lines.push(format!("  remark: {}", nic.remarks));
            }
            lines.push(format!("  source: {}", nic.source));
            for line in lines {
                let indent = line.len() - line.trim_start().len();
                let wrapped = terminal::wrap(line.trim_start(), width - indent, 2);
                let margin = " ".repeat(indent);
                terminal::print(&format!(
                    "{margin}{}",
                    wrapped.replace('\n', &format!("\n{margin}"))
                ))?;
            }
        }
        Ok(())
    }
}
