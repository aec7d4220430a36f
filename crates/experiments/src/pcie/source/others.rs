//! AMD's and Arm's counters, as data. These counters have not been compared with a known
//! transfer, and every page that shows them says so.

use haul_model::pcie::{Direction, Way};

use super::contract::{About, Count, Quantity, Source, SourceError};
use super::iio::scaled;
use super::perf::{Counter, Counters};
use super::pmu::Pmu;
use super::tree::Tree;

/// The counters of one unit.
struct Row {
    name: &'static str,
    /// The unit's name in `/sys`, before a number.
    unit: &'static str,
    /// `vendor_id` and `cpu family` of the processors that have the unit; empty: all.
    processors: &'static [(&'static str, u64)],
    /// Quantity and fields of an event. The counts of several events of one quantity are added.
    events: &'static [(Kind, &'static [(&'static str, u64)])],
    unit_bytes: f64,
    unit_text: &'static str,
    granularity: &'static str,
    traps: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Traffic(Direction),
    Payload(Way),
}

const READ: Kind = Kind::Traffic(Direction::InboundRead);
const WRITE: Kind = Kind::Traffic(Direction::InboundWrite);

const ROWS: [Row; 2] = [
    // Zen 4 and 5: tools/perf/pmu-events/arch/x86/amdzen5/data-fabric.json,
    // local_socket_upstream_{read,write}_beats_iom0 to iom3, which amdzen4 shares.
    Row {
        name: "amd-df",
        unit: "amd_df",
        processors: &[("AuthenticAMD", 0x19), ("AuthenticAMD", 0x1a)],
        events: &[
            (READ, &[("event", 0x81f), ("umask", 0x7fe)]),
            (READ, &[("event", 0x85f), ("umask", 0x7fe)]),
            (READ, &[("event", 0x89f), ("umask", 0x7fe)]),
            (READ, &[("event", 0x8df), ("umask", 0x7fe)]),
            (WRITE, &[("event", 0x81f), ("umask", 0x7ff)]),
            (WRITE, &[("event", 0x85f), ("umask", 0x7ff)]),
            (WRITE, &[("event", 0x89f), ("umask", 0x7ff)]),
            (WRITE, &[("event", 0x8df), ("umask", 0x7ff)]),
        ],
        unit_bytes: 64.0,
        unit_text: "64 B of data, no headers",
        granularity: "all devices of a socket, to memory of the same socket",
        traps: &[
            "a transfer of less than 64 B counts as one of 64 B",
            "nothing is counted of what a processor writes to or reads from a device",
        ],
    },
    // drivers/perf/dwc_pcie_pmu.c: group 1, whose counts the driver converts to bytes.
    Row {
        name: "arm-dwc",
        unit: "dwc_rootport",
        processors: &[],
        events: &[
            (Kind::Payload(Way::ToDevice), &[("eventid", 0x20), ("type", 1)]),
            (Kind::Payload(Way::ToHost), &[("eventid", 0x21), ("type", 1)]),
        ],
        unit_bytes: 1.0,
        unit_text: "bytes of data, no headers",
        granularity: "a root port",
        traps: &["one event at a time is counted, so that these two take turns"],
    },
];

/// An opened unit of `ROWS`.
pub struct Other {
    row: &'static Row,
    about: About,
    counters: Vec<(Kind, Box<dyn Counter>)>,
}

impl Other {
    /// Opens the counters of this machine; `None` if the machine has no such unit.
    ///
    /// # Errors
    /// The unit exists, but the access is forbidden or refused, or haul does not know its form.
    pub fn open(
        tree: &Tree,
        counters: &dyn Counters,
        address: Option<&str>,
    ) -> Result<Option<Self>, SourceError> {
        for row in &ROWS {
            let units = Pmu::all(tree, row.unit);
            let Some(unit) = unit_of(row, &units, tree, address) else { continue };
            let mut open = Vec::new();
            for (kind, fields) in row.events {
                for cpu in &unit.cpus {
                    let unknown = || SourceError::Unknown {
                        what: unit.name.clone(),
                        missing: "fields that haul knows",
                    };
                    let event = unit.event(fields, *cpu).ok_or_else(unknown)?;
                    let counter = counters.open(&event);
                    open.push((*kind, counter.map_err(|e| SourceError::opening(&unit.name, e))?));
                }
            }
            let about = About {
                unit: row.unit_text,
                granularity: row.granularity.to_owned(),
                traps: row.traps.to_vec(),
                is_tested: false,
            };
            return Ok(Some(Self { row, about, counters: open }));
        }
        Ok(None)
    }
}

/// The machine's only unit of that kind, or the unit of the root port above the device.
fn unit_of<'a>(row: &Row, units: &'a [Pmu], tree: &Tree, address: Option<&str>) -> Option<&'a Pmu> {
    if !row.processors.is_empty() {
        let family = tree.processor("cpu family")?.parse::<u64>().ok()?;
        let vendor = tree.processor("vendor_id")?;
        let is_it = |processor: &&(&str, u64)| **processor == (vendor.as_str(), family);
        row.processors.iter().find(is_it)?;
        return units.first();
    }
    // dwc_rootport_20018: bus 1, device 3, function 0 of domain 2, by its driver's numbers.
    let bridges = tree.bridges(address?)?;
    let port = bridges.get(1).filter(|_| bridges.len() > 2)?;
    let number = number_of(port)?;
    units.iter().find(|unit| {
        let rest = unit.name.rsplit('_').next().unwrap_or_default();
        u64::from_str_radix(rest, 16) == Ok(number)
    })
}

/// A port's address as one number: domain, bus, device and function. Source: dwc_pcie_pmu.c,
/// `(pci_domain_nr(bus) << 16) | PCI_DEVID(bus, devfn)`.
fn number_of(address: &str) -> Option<u64> {
    let mut parts = address.split([':', '.']).map(|part| u64::from_str_radix(part, 16).ok());
    let mut next = || parts.next().flatten();
    let (domain, bus, device, function) = (next()?, next()?, next()?, next()?);
    Some((domain << 16) | (bus << 8) | (device << 3) | function)
}

impl Source for Other {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Vec<Count>, SourceError> {
        let mut counts: Vec<Count> = Vec::new();
        for (kind, counter) in &mut self.counters {
            let gone = |reason| SourceError::Gone { what: self.row.name.into(), reason };
            let Some(count) = scaled(counter.read().map_err(gone)?) else { continue };
            let value = count * self.row.unit_bytes;
            let quantity = match kind {
                Kind::Traffic(direction) => Quantity::of(*direction),
                Kind::Payload(way) => Quantity::one_way(*way),
            };
            match counts.iter_mut().find(|count| count.quantity == quantity) {
                Some(count) => count.value += value,
                None => counts.push(Count { quantity, value, unit: self.row.unit_bytes }),
            }
        }
        Ok(counts)
    }
}
