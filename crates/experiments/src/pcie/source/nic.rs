//! A modelled NIC's counters of its own link (`/haul/nic/counts` of `haul forward`). They are not
//! measured. The NIC counts each transaction, while the estimate uses means.

use haul_model::pcie::Direction;

use super::contract::{About, Count, Quantity, Source, SourceError};
use super::ethdev::{Program, ask};

/// The name of this source.
pub const NAME: &str = "modelled-nic";

/// The link of a port.
pub struct Nic {
    program: Program,
    port: u16,
    about: About,
}

impl Nic {
    /// The counters of a port of that program.
    #[must_use]
    pub fn new(program: Program, port: u16) -> Self {
        let about = About {
            unit: "bytes of data, no headers",
            granularity: format!("port {port}"),
            traps: vec!["it is a model: nothing crosses a link"],
            is_tested: true,
        };
        Self { program, port, about }
    }
}

impl Source for Nic {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Vec<Count>, SourceError> {
        let command = format!("/haul/nic/counts,{}", self.port);
        let answer = ask(&self.program, &command).map_err(|error| SourceError::Gone {
            what: format!("the modelled NIC of port {}", self.port),
            reason: std::io::Error::other(error.to_string()),
        })?;
        let counts = Direction::ALL.into_iter().filter_map(|direction| {
            let value = answer.get(direction.name())?.as_u64()? as f64;
            Some(Count { quantity: Quantity::of(direction), value, unit: 1.0 })
        });
        Ok(counts.collect())
    }
}
