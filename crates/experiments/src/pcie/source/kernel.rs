//! The kernel's counters of an interface.

use super::contract::{About, Count, Quantity, Source, SourceError};
use super::tree::Tree;

/// An interface's statistics.
pub struct Kernel {
    tree: Tree,
    interface: String,
    about: About,
}

/// The statistics that are read, by the kernel's names.
const NAMES: [&str; 6] =
    ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_dropped", "rx_missed_errors"];

impl Kernel {
    /// The statistics of an interface; `None` if there is no interface of that name.
    #[must_use]
    pub fn open(tree: &Tree, interface: &str) -> Option<Self> {
        let is_name = !interface.is_empty() && !interface.contains('/') && interface != "..";
        let folder = format!("sys/class/net/{interface}/statistics");
        (is_name && tree.path(&folder).is_dir()).then(|| Self {
            tree: tree.clone(),
            interface: interface.to_owned(),
            about: About {
                unit: "packets, and their bytes without check sequence on most drivers",
                granularity: format!("the interface {interface}"),
                traps: vec![
                    "the kernel does not see packets that a DPDK program receives, except on mlx5",
                ],
                is_tested: true,
            },
        })
    }
}

impl Source for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Vec<Count>, SourceError> {
        let folder = format!("sys/class/net/{}/statistics", self.interface);
        let counts: Vec<Count> = NAMES
            .iter()
            .filter_map(|name| {
                let value = self.tree.number(&format!("{folder}/{name}"))? as f64;
                let quantity = match name.ends_with("bytes") {
                    true => Quantity::PacketBytes((*name).to_owned()),
                    false => Quantity::Packets((*name).to_owned()),
                };
                Some(Count { quantity, value, unit: 1.0 })
            })
            .collect();
        match counts.is_empty() {
            true => Err(SourceError::Gone {
                what: format!("the interface {}", self.interface),
                reason: std::io::ErrorKind::NotFound.into(),
            }),
            false => Ok(counts),
        }
    }
}
