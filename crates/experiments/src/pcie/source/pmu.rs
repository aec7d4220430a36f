//! A unit with counters, as `/sys/bus/event_source/devices` describes it.

use super::perf::Event;
use super::tree::Tree;

/// The kernel's folder of units.
const UNITS: &str = "sys/bus/event_source/devices";

/// A unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pmu {
    pub(super) name: String,
    kind: u32,
    /// The processors on which the unit is read: one per socket.
    pub(super) cpus: Vec<u32>,
    /// Fields of an event: name, and the bits of `config` from low to high.
    formats: Vec<(String, Vec<(u32, u32)>)>,
}

impl Pmu {
    /// All units with this name, or with this name and a number after it. Units that `/sys`
    /// describes wrongly are left out.
    pub(super) fn all(tree: &Tree, prefix: &str) -> Vec<Self> {
        let is_it = |name: &String| {
            name.strip_prefix(prefix).is_some_and(|rest| {
                rest.strip_prefix('_').unwrap_or(rest).chars().all(|c| c.is_ascii_hexdigit())
            })
        };
        let names = tree.names(UNITS).into_iter().filter(is_it);
        names.filter_map(|name| Self::read(tree, &name)).collect()
    }

    fn read(tree: &Tree, name: &str) -> Option<Self> {
        let folder = format!("{UNITS}/{name}");
        let format = |field: String| {
            let bits = bits(&tree.text(&format!("{folder}/format/{field}"))?)?;
            Some((field, bits))
        };
        Some(Self {
            name: name.to_owned(),
            kind: tree.number(&format!("{folder}/type"))?.try_into().ok()?,
            cpus: list(&tree.text(&format!("{folder}/cpumask"))?)?,
            formats: tree
                .names(&format!("{folder}/format"))
                .into_iter()
                .filter_map(format)
                .collect(),
        })
    }

    /// The number of bits of a field; 0 if the unit has no field of that name.
    pub(super) fn width(&self, field: &str) -> u32 {
        let bits = self.formats.iter().find(|(name, _)| name == field);
        bits.map_or(0, |(_, bits)| bits.iter().map(|(low, high)| high - low + 1).sum())
    }

    /// An event with these fields, read on that processor; `None` if the unit does not have a
    /// field, or if a field is too narrow.
    pub(super) fn event(&self, fields: &[(&str, u64)], cpu: u32) -> Option<Event> {
        let mut config = 0;
        for (field, value) in fields {
            let (_, bits) = self.formats.iter().find(|(name, _)| name == field)?;
            let mut rest = *value;
            for (low, high) in bits {
                let width = high - low + 1;
                let mask = u64::MAX >> (64 - width);
                config |= (rest & mask) << low;
                rest = if width == 64 { 0 } else { rest >> width };
            }
            if rest != 0 {
                return None;
            }
        }
        Some(Event { unit: self.kind, config, cpu })
    }
}

/// The bits in `config:0-7,32-35`.
fn bits(text: &str) -> Option<Vec<(u32, u32)>> {
    let ranges = text.strip_prefix("config:")?.split(',').map(|range| {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
        (low <= high && high < 64).then_some((low, high))
    });
    ranges.collect()
}

/// The numbers in `0,24` or `0-1`.
fn list(text: &str) -> Option<Vec<u32>> {
    /// A larger number of processors than any machine has.
    const CPU_MAX: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pmu(formats: &[(&str, &str)]) -> Pmu {
        let read = |(name, text): &(&str, &str)| ((*name).to_owned(), bits(text).unwrap());
        Pmu {
            name: "uncore_iio_0".into(),
            kind: 41,
            cpus: vec![0],
            formats: formats.iter().map(read).collect(),
        }
    }

    #[test]
    fn event_places_fields_by_kernel_formats() {
        let pmu =
            pmu(&[("event", "config:0-7"), ("umask", "config:8-15"), ("ch_mask", "config:36-47")]);
        let event = pmu.event(&[("event", 0x83), ("umask", 4), ("ch_mask", 0xff)], 0).unwrap();
        assert_eq!(event.config, 0xff0_0000_0483);
        assert_eq!(pmu.width("ch_mask"), 12);
        assert_eq!(pmu.event(&[("event", 0x183)], 0), None, "too wide");
        assert_eq!(pmu.event(&[("fc_mask", 7)], 0), None, "no such field");
    }

    #[test]
    fn event_splits_field_with_two_ranges() {
        let pmu = pmu(&[("event", "config:0-7,32-37"), ("umask", "config:8-15,24-27")]);
        let event = pmu.event(&[("event", 0x81f), ("umask", 0x7fe)], 3).unwrap();
        assert_eq!((event.config, event.cpu), (0x8_0700_fe1f, 3));
    }

    #[test]
    fn invalid_lists_and_formats_are_rejected() {
        for bad in ["", "a", "3-1", "0-99999999", "-1"] {
            assert_eq!(list(bad), None, "{bad}");
        }
        assert_eq!(list("0-1,24"), Some(vec![0, 1, 24]));
        for bad in ["config1:0-7", "config:8-0", "config:0-64", "config:", "0-7"] {
            assert_eq!(bits(bad), None, "{bad}");
        }
    }
}
