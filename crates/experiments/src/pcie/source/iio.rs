//! Intel's uncore: the IIO units, one for each stack of root ports.
//!
//! Events and masks are from Intel's uncore reference manuals, as the kernel's `perf iostat` uses
//! them (tools/perf/arch/x86/util/iostat.c), by model. The unit is 4 B of data, without headers.
//! In a unit's `dieN` files, the kernel reports the stack that the unit counts.

use haul_model::pcie::Direction;

use super::contract::{About, Count, Quantity, Source, SourceError};
use super::perf::{Counter, Counters, Value};
use super::pmu::Pmu;
use super::tree::Tree;

/// Bytes of one count. Source: `UNC_IIO_DATA_REQ_OF_CPU`, "in units of 4 bytes".
const UNIT_BYTES: f64 = 4.0;
/// All kinds of completions and requests (`fc_mask`): posted, non-posted, completions.
const ALL_FLOWS: u64 = 0x7;

/// Event and umask of a direction.
type Code = (Direction, u64, u64);

/// Devices that write and read memory, and processors that write to a device: the same on all
/// models.
const COMMON: [Code; 3] = [
    (Direction::InboundWrite, 0x83, 0x01),
    (Direction::InboundRead, 0x83, 0x04),
    (Direction::OutboundWrite, 0xc0, 0x01),
];

/// Models of family 6, grouped by the event that counts a processor's reads from a device.
const OUTBOUND_READS: [(&[u64], (u64, u64)); 2] = [
    // Skylake to Cooper Lake; Granite Rapids, Sierra Forest, Clearwater Forest.
    (&[85, 173, 174, 175, 182], (0xc0, 0x04)),
    // Ice Lake, Snow Ridge, Sapphire and Emerald Rapids.
    (&[106, 108, 134, 143, 207], (0x83, 0x80)),
];

/// The counters of the stack above a device.
pub struct Iio {
    about: About,
    counters: Vec<(Direction, Box<dyn Counter>)>,
}

impl Iio {
    /// Opens the counters of the stack above the device at this address; `None` if the machine has
    /// no such units.
    ///
    /// # Errors
    /// The units exist, but the access is forbidden or refused, or haul does not know their form.
    pub fn open(
        tree: &Tree,
        counters: &dyn Counters,
        address: &str,
    ) -> Result<Option<Self>, SourceError> {
        let units = Pmu::all(tree, "uncore_iio");
        if units.is_empty() || tree.processor("vendor_id").as_deref() != Some("GenuineIntel") {
            return Ok(None);
        }
        let unknown = |missing| SourceError::Unknown { what: "Intel's IIO".to_owned(), missing };
        let model = tree.processor("model").and_then(|model| model.parse::<u64>().ok());
        let model = model.ok_or_else(|| unknown("model of the processor"))?;
        let reads = OUTBOUND_READS.iter().find(|(models, _)| models.contains(&model));
        let (_, reads) = reads.ok_or_else(|| unknown("events for this model of processor"))?;
        let bridges = tree.bridges(address).ok_or_else(|| unknown("place for this device"))?;
        let root = bridges[0].trim_start_matches("pci").to_owned();
        let found = units.iter().find_map(|unit| Some((unit, die_of(tree, unit, &root)?)));
        let (unit, die) = found.ok_or_else(|| unknown("unit that names the device's root bus"))?;
        let cpu = *unit.cpus.get(die).ok_or_else(|| unknown("processor of its socket"))?;
        // All ports of the stack: a mask with one bit for each part of the unit.
        let parts = unit.width("ch_mask").min(8);
        let codes = COMMON.into_iter().chain([(Direction::OutboundRead, reads.0, reads.1)]);
        let mut open = Vec::new();
        for (direction, event, umask) in codes {
            let fields = [
                ("event", event),
                ("umask", umask),
                ("ch_mask", (1 << parts) - 1),
                ("fc_mask", ALL_FLOWS),
            ];
            let event = unit.event(&fields, cpu).ok_or_else(|| unknown("ch_mask and fc_mask"))?;
            let counter = counters.open(&event);
            open.push((direction, counter.map_err(|e| SourceError::opening(&unit.name, e))?));
        }
        let about = About {
            unit: "4 B of data, no headers",
            granularity: format!("all devices below the root ports of bus {root}"),
            traps: vec![
                "other devices below the same root bus are counted with it",
                "transfers between two devices are counted as well",
            ],
            is_tested: false,
        };
        Ok(Some(Self { about, counters: open }))
    }
}

/// The die of the stack if the unit has this root bus: `die0` contains `0000:5d`.
fn die_of(tree: &Tree, unit: &Pmu, root: &str) -> Option<usize> {
    let folder = format!("sys/bus/event_source/devices/{}", unit.name);
    tree.names(&folder).into_iter().find_map(|name| {
        let die = name.strip_prefix("die")?.parse().ok()?;
        (tree.text(&format!("{folder}/{name}"))? == root).then_some(die)
    })
}

/// The count, scaled to the whole time if the counter ran for a part of it.
pub(super) fn scaled(value: Value) -> Option<f64> {
    match (value.running_ns, value.enabled_ns) {
        // The counter never ran, because other programs hold the unit's registers.
        (0, enabled) if enabled > 0 => None,
        (running, enabled) if running >= enabled => Some(value.count as f64),
        (running, enabled) => Some(value.count as f64 * (enabled as f64 / running as f64)),
    }
}

impl Source for Iio {
    fn name(&self) -> &'static str {
        "intel-iio"
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Vec<Count>, SourceError> {
        let mut counts = Vec::new();
        for (direction, counter) in &mut self.counters {
            let gone = |reason| SourceError::Gone { what: "a counter of IIO".into(), reason };
            let value = counter.read().map_err(gone)?;
            let Some(count) = scaled(value) else { continue };
            counts.push(Count {
                quantity: Quantity::of(*direction),
                value: count * UNIT_BYTES,
                unit: UNIT_BYTES,
            });
        }
        Ok(counts)
    }
}
