//! Devices and libraries of the machine: copy engines, counters, DPDK. The code only reads files
//! to find them. It opens, starts and changes no device.

use super::Sys;

/// The engines, counters and libraries that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// Intel Data Streaming Accelerators by name: `dsa0`.
    pub dsa: Vec<String>,
    /// The enabled work queues of these accelerators: `wq0.0`.
    pub dsa_queues: Vec<String>,
    /// Counter units of the cores: `cpu`, `cpu_core`, `armv8_pmuv3_0`.
    pub pmu_core: Vec<String>,
    /// Counter units outside the cores: `uncore_imc_0`, `amd_df`.
    pub pmu_uncore: Vec<String>,
    /// DPDK's libraries, if installed.
    pub dpdk: Option<Dpdk>,
}

/// An installed DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dpdk {
    /// The version in pkg-config's file, such as `22.11.11`; `None` without that file.
    pub version: Option<String>,
    /// The folder that contains the libraries.
    pub folder: String,
    /// Whether programs can be built with this DPDK.
    pub has_development_files: bool,
}

impl Sys {
    /// Finds the devices. Costs a few dozen system calls.
    #[must_use]
    pub fn devices(&self) -> Devices {
        let units = self.names("sys/bus/event_source/devices");
        let (dsa, queues): (Vec<String>, Vec<String>) =
            self.names("sys/bus/dsa/devices").into_iter().partition(|name| is_dsa(name));
        let is_enabled = |queue: &String| {
            queue.starts_with("wq")
                && self.text(&format!("sys/bus/dsa/devices/{queue}/state")).as_deref()
                    == Some("enabled")
        };
        Devices {
            dsa,
            dsa_queues: queues.into_iter().filter(is_enabled).collect(),
            pmu_core: units.iter().filter(|name| is_core_unit(name)).cloned().collect(),
            pmu_uncore: units.into_iter().filter(|name| is_uncore_unit(name)).collect(),
            dpdk: self.dpdk(),
        }
    }

    /// Searches the folders into which distributions and DPDK's own build install it.
    fn dpdk(&self) -> Option<Dpdk> {
        let mut folders: Vec<String> =
            ["usr/local/lib64", "usr/local/lib", "usr/lib64", "usr/lib"].map(String::from).into();
        for parent in ["usr/local/lib", "usr/lib"] {
            let triplets = self.names(parent).into_iter().filter(|n| n.contains("-linux-"));
            folders.extend(triplets.map(|triplet| format!("{parent}/{triplet}")));
        }
        folders.iter().find_map(|folder| self.dpdk_in(folder))
    }

    fn dpdk_in(&self, folder: &str) -> Option<Dpdk> {
        let package = self.text(&format!("{folder}/pkgconfig/libdpdk.pc"));
        let has_library = self.names(folder).iter().any(|name| name.starts_with("librte_eal."));
        (package.is_some() || has_library).then(|| Dpdk {
            version: package.as_deref().and_then(|text| {
                let version = text.lines().find_map(|line| line.strip_prefix("Version:"))?;
                Some(version.trim().to_owned())
            }),
            folder: format!("/{folder}"),
            has_development_files: package.is_some(),
        })
    }
}

fn is_dsa(name: &str) -> bool {
    name.strip_prefix("dsa").is_some_and(|rest| rest.parse::<u32>().is_ok())
}

fn is_core_unit(name: &str) -> bool {
    name == "cpu"
        || name.starts_with("cpu_core")
        || name.starts_with("cpu_atom")
        || (name.starts_with("arm") && name.contains("pmuv"))
}

fn is_uncore_unit(name: &str) -> bool {
    ["uncore_", "amd_df", "amd_umc", "arm_cmn", "nvidia_"].iter().any(|p| name.starts_with(p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tests::root_with;

    #[test]
    fn empty_root_has_no_devices() {
        assert_eq!(Sys::at("/nonexistent").devices(), Devices::default());
    }

    #[test]
    fn devices_are_classified_by_name() {
        let (_folder, sys) = root_with(&[
            ("sys/bus/dsa/devices/dsa0/x", ""),
            ("sys/bus/dsa/devices/wq0.0/state", "enabled\n"),
            ("sys/bus/dsa/devices/wq0.1/state", "disabled\n"),
            ("sys/bus/dsa/devices/engine0.0/x", ""),
            ("sys/bus/event_source/devices/cpu/type", "4"),
            ("sys/bus/event_source/devices/software/type", "1"),
            ("sys/bus/event_source/devices/uncore_imc_0/type", "20"),
        ]);
        let devices = sys.devices();
        assert_eq!(devices.dsa, ["dsa0"]);
        assert_eq!(devices.dsa_queues, ["wq0.0"]);
        assert_eq!(devices.pmu_core, ["cpu"]);
        assert_eq!(devices.pmu_uncore, ["uncore_imc_0"]);
    }

    #[test]
    fn dpdk_is_found_with_and_without_its_development_files() {
        let (_folder, sys) = root_with(&[(
            "usr/lib/x86_64-linux-gnu/pkgconfig/libdpdk.pc",
            "prefix=/usr\nName: DPDK\nVersion: 22.11.11\n",
        )]);
        let found = sys.devices().dpdk.unwrap();
        assert_eq!(found.version.as_deref(), Some("22.11.11"));
        assert_eq!(found.folder, "/usr/lib/x86_64-linux-gnu");

        let (_folder, sys) = root_with(&[("usr/lib64/librte_eal.so.23", "")]);
        let found = sys.devices().dpdk.unwrap();
        assert_eq!((found.version, found.has_development_files), (None, false));
    }
}
