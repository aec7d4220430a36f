//! DPDK's counters of a port (`/ethdev/stats`).

use std::sync::{Arc, Mutex, PoisonError};

use haul::telemetry::{Error, Telemetry};
use serde_json::Value;

use super::contract::{About, Count, Quantity, Source, SourceError};

/// A running program that answers telemetry commands, or a recorded program.
pub trait Ask: Send {
    /// # Errors
    /// Those of [`Telemetry::ask`].
    fn ask(&mut self, command: &str) -> Result<Value, Error>;
}

impl Ask for Telemetry {
    fn ask(&mut self, command: &str) -> Result<Value, Error> {
        Self::ask(self, command)
    }
}

/// A program to which several sources send commands, one at a time.
pub type Program = Arc<Mutex<Box<dyn Ask>>>;

/// Sends a command to a program that several sources share.
///
/// # Errors
/// Those of [`Telemetry::ask`].
pub fn ask(program: &Program, command: &str) -> Result<Value, Error> {
    program.lock().unwrap_or_else(PoisonError::into_inner).ask(command)
}

/// The statistics of a port.
pub struct Ethdev {
    program: Program,
    port: u16,
    about: About,
}

/// The statistics that are read, by DPDK's names, and whether each is in bytes.
const NAMES: [(&str, bool); 8] = [
    ("ipackets", false),
    ("opackets", false),
    ("ibytes", true),
    ("obytes", true),
    ("imissed", false),
    ("ierrors", false),
    ("oerrors", false),
    ("rx_nombuf", false),
];

impl Ethdev {
    /// The statistics of a port of that program.
    #[must_use]
    pub fn new(program: Program, port: u16) -> Self {
        let about = About {
            unit: "packets, and their bytes as the driver counts them",
            granularity: format!("port {port}"),
            traps: vec![
                "bytes include the frame's check sequence on some drivers",
                "net_null counts no bytes before DPDK 23.03",
            ],
            is_tested: true,
        };
        Self { program, port, about }
    }
}

impl Source for Ethdev {
    fn name(&self) -> &'static str {
        "ethdev"
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Vec<Count>, SourceError> {
        let command = format!("/ethdev/stats,{}", self.port);
        let answer = ask(&self.program, &command).map_err(|error| SourceError::Gone {
            what: format!("port {}", self.port),
            reason: std::io::Error::other(error.to_string()),
        })?;
        let counts = NAMES.iter().filter_map(|(name, is_bytes)| {
            let value = answer.get(*name)?.as_u64()? as f64;
            let quantity = match is_bytes {
                true => Quantity::PacketBytes((*name).to_owned()),
                false => Quantity::Packets((*name).to_owned()),
            };
            Some(Count { quantity, value, unit: 1.0 })
        });
        Ok(counts.collect())
    }
}
