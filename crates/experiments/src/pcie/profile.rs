//! The NIC, driver, mode and link of a port, as the program and `/sys` report them, unless the
//! user names other values. If a value is unknown, the estimate uses the most similar rule, and a
//! note says so.

use haul_machine::sys::PcieDevice;
use haul_model::pcie::{Link, Mode, NICS, Nic, PcieError, Settings, Thresholds, Version};

use super::probe::Port;

/// The values that the user names.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The NIC.
    pub nic: Option<&'static Nic>,
    /// The driver's release.
    pub driver: Option<Version>,
    /// The burst mode, by name.
    pub mode: Option<String>,
    /// Build and start options.
    pub options: Vec<String>,
    /// The link.
    pub link: Option<String>,
    /// The device's maximum payload size.
    pub mps: Option<u32>,
    /// The device's maximum read request size.
    pub mrrs: Option<u32>,
    /// The receive free threshold.
    pub rx_free: Option<u32>,
    /// The report-status threshold.
    pub tx_rs: Option<u32>,
}

/// The properties of a port that an estimate uses.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The NIC, with its options applied.
    pub nic: Nic,
    /// The driver's release.
    pub version: Version,
    /// The burst mode of the NIC.
    pub mode: Mode,
    /// The thresholds of the NIC.
    pub thresholds: Thresholds,
    /// The link.
    pub link: Link,
}

/// The assumed link if the real one is not known: the link of most cards of 25 and 40 Gb/s.
const LINK: &str = "gen3x8";

/// DPDK's names of the drivers for which haul has rules, with the name of the NIC.
const DRIVERS: [(&str, &str); 15] = [
    ("net_ixgbe", "ixgbe"),
    ("net_ixgbe_vf", "ixgbe"),
    ("net_i40e", "i40e"),
    ("net_i40e_vf", "iavf"),
    ("net_ice", "ice"),
    ("net_ice_dcf", "ice"),
    ("net_iavf", "iavf"),
    ("net_idpf", "idpf"),
    ("net_e1000_igb", "igb"),
    ("net_e1000_igb_vf", "igb"),
    ("net_e1000_em", "e1000e"),
    ("mlx5_pci", "mlx5"),
    ("mlx5_auxiliary", "mlx5"),
    ("net_ena", "ena"),
    ("net_bnxt", "bnxt"),
];

/// Beginnings of the names of drivers whose ports have no PCIe link to a NIC.
const SOFTWARE: [&str; 16] = [
    "net_null",
    "net_ring",
    "net_tap",
    "net_tun",
    "net_pcap",
    "net_virtio",
    "net_vhost",
    "net_memif",
    "net_af_packet",
    "net_af_xdp",
    "net_kni",
    "net_bonding",
    "net_failsafe",
    "net_softnic",
    "net_vmxnet3",
    // The forwarder's own ports.
    "haul_",
];

/// The profile of a port, with notes for the reader; no profile if its packets do not cross a link.
///
/// # Errors
/// A named value cannot exist: a mode or an option that the NIC does not have, or an invalid link.
pub fn of_port(
    port: &Port,
    version: &str,
    devices: &[PcieDevice],
    overrides: &Overrides,
) -> Result<(Option<Profile>, Vec<String>), PcieError> {
    let mut notes = Vec::new();
    let device = device_of(port, devices);
    let overrides = &with_modelled(overrides, port, &mut notes);
    let Some(base) = nic_of(port, overrides, &mut notes) else { return Ok((None, notes)) };
    let mut nic = *base;
    for option in &overrides.options {
        nic = nic.with(option)?;
    }
    let version = version_of(version, overrides, &mut notes);
    let mode = match &overrides.mode {
        Some(mode) => nic.mode(mode)?,
        None => mode_of(&nic, &port.rx_mode, &mut notes),
    };
    let thresholds = Thresholds {
        rx_free: overrides.rx_free.unwrap_or(nic.thresholds.rx_free),
        tx_rs: overrides.tx_rs.unwrap_or(nic.thresholds.tx_rs),
    };
    let link = link_of(device, overrides, &mut notes)?;
    Ok((Some(Profile { nic, version, mode, thresholds, link }), notes))
}

/// The device of a port. DPDK names a port of a PCI device by its address, and names ports that
/// share a device by the address with a suffix.
#[must_use]
pub fn device_of<'a>(port: &Port, devices: &'a [PcieDevice]) -> Option<&'a PcieDevice> {
    devices.iter().find(|device| {
        port.name.strip_prefix(device.address.as_str()).is_some_and(|rest| {
            rest.chars().next().is_none_or(|next| !next.is_ascii_alphanumeric())
        })
    })
}

/// The values that the user names, completed by the values of the NIC that the port models. If
/// the user names another NIC, the values of the modelled NIC do not apply.
fn with_modelled(overrides: &Overrides, port: &Port, notes: &mut Vec<String>) -> Overrides {
    let said = |name: &str| port.modelled.get(name).map(String::as_str);
    let Some(nic) = said("nic") else { return overrides.clone() };
    let Some(nic) = NICS.iter().find(|known| known.name == nic) else {
        notes.push(format!("the port is a model of {nic:?}, which haul does not know"));
        return overrides.clone();
    };
    if overrides.nic.is_some_and(|chosen| chosen.name != nic.name) {
        return overrides.clone();
    }
    let number = |name: &str| said(name).and_then(|text| text.parse().ok());
    let text = |name: &str| said(name).map(str::to_owned);
    let options = said("options").unwrap_or_default().split(',').filter(|name| !name.is_empty());
    Overrides {
        nic: Some(nic),
        driver: overrides.driver.or(said("driver").and_then(|text| text.parse().ok())),
        mode: overrides.mode.clone().or(text("mode")),
        options: match overrides.options.is_empty() {
            true => options.map(str::to_owned).collect(),
            false => overrides.options.clone(),
        },
        link: overrides.link.clone().or(text("link")),
        mps: overrides.mps.or(number("mps")),
        mrrs: overrides.mrrs.or(number("mrrs")),
        rx_free: overrides.rx_free.or(number("rx_free")),
        tx_rs: overrides.tx_rs.or(number("tx_rs")),
    }
}

fn nic_of(port: &Port, overrides: &Overrides, notes: &mut Vec<String>) -> Option<&'static Nic> {
    if let Some(nic) = overrides.nic {
        return Some(nic);
    }
    let named = |name: &str| NICS.iter().find(|nic| nic.name == name);
    let driver = port.driver.as_str();
    let known = DRIVERS.iter().find(|(name, _)| *name == driver);
    if let Some(nic) = known.and_then(|(_, nic)| named(nic)) {
        return Some(nic);
    }
    if SOFTWARE.iter().any(|name| driver.starts_with(name)) {
        notes.push(format!(
            "port {} is driven by {driver}: its packets do not cross a link of their own, so that \
             there is nothing to estimate; name a NIC with --nic to see what they would cost on \
             one",
            port.name
        ));
        return None;
    }
    let nearest = if driver.starts_with("mlx") { "mlx5" } else { "ice" };
    notes.push(format!(
        "haul has no rules for the driver {driver:?}: it uses those of {nearest}, which may be far \
         from it; name another NIC with --nic"
    ));
    named(nearest)
}

/// The version from `DPDK 22.11.11`, which may be followed by other words.
fn version_of(text: &str, overrides: &Overrides, notes: &mut Vec<String>) -> Version {
    if let Some(version) = overrides.driver {
        return version;
    }
    let number = text.trim_start_matches("DPDK ").split(['-', ' ']).next().unwrap_or_default();
    match format!("dpdk-{number}").parse::<Version>() {
        Ok(version) => {
            let rules = version.nearest();
            if rules != version {
                notes.push(format!(
                    "the sources of {version} were not read: haul uses the rules of the nearest \
                     release, {rules}"
                ));
            }
            version
        }
        Err(_) => {
            notes.push(format!(
                "the program reports version {text:?}: haul uses the rules of {}; name another \
                 release with --driver",
                Version::LAST
            ));
            Version::LAST
        }
    }
}

/// The mode that follows from the driver's name for its receive function.
fn mode_of(nic: &Nic, said: &str, notes: &mut Vec<String>) -> Mode {
    let words = [("Vector", Mode::Vector), ("Bulk", Mode::Bulk), ("Scalar", Mode::Scalar)];
    let is_in = |word: &str| said.to_ascii_lowercase().contains(&word.to_ascii_lowercase());
    let found = words.iter().find(|(word, _)| is_in(word)).map(|(_, mode)| *mode);
    let has = |mode: &Mode| nic.modes.iter().any(|(known, _, _)| known == mode);
    match found.filter(has) {
        Some(mode) => mode,
        None => {
            let usual = nic.usual_mode();
            notes.push(format!(
                "the driver does not report its burst mode: haul assumes {}, its usual one; name \
                 another with --mode",
                usual.name()
            ));
            usual
        }
    }
}

fn link_of(
    device: Option<&PcieDevice>,
    overrides: &Overrides,
    notes: &mut Vec<String>,
) -> Result<Link, PcieError> {
    let now = device.map(|device| device.now).unwrap_or_default();
    let seen =
        now.generation.zip(now.lanes).map(|(generation, lanes)| format!("gen{generation}x{lanes}"));
    let usual = Settings::default();
    let text = match overrides.link.clone().or(seen) {
        Some(text) => text,
        None => {
            notes.push(format!(
                "the link of the device is not known here: haul assumes {LINK}; name it with --link"
            ));
            LINK.to_owned()
        }
    };
    let mps = overrides.mps.or(device.and_then(|device| device.mps_bytes));
    let mrrs = overrides.mrrs.or(device.and_then(|device| device.mrrs_bytes));
    if mps.is_none() || mrrs.is_none() {
        let unread = device.and_then(|device| device.unread);
        let why = unread.map_or(String::new(), |unread| format!(" ({})", unread.text()));
        notes.push(format!(
            "MPS and MRRS are not known here{why}: haul assumes {} B and {} B; name them \
             with --mps and --mrrs",
            usual.mps, usual.mrrs
        ));
    }
    let settings =
        Settings { mps: mps.unwrap_or(usual.mps), mrrs: mrrs.unwrap_or(usual.mrrs), ..usual };
    match Link::new(&text, settings) {
        // The device reports a generation that haul does not model, and the user did not name a
        // link.
        Err(error) if overrides.link.is_none() => {
            notes.push(format!("{error}: haul assumes {LINK}; name another with --link"));
            Link::new(LINK, settings)
        }
        link => link,
    }
}

#[cfg(test)]
mod tests {
    use haul_machine::sys::PcieLink;

    use super::*;

    fn port(name: &str, driver: &str, mode: &str) -> Port {
        let modelled = std::collections::BTreeMap::new();
        Port { name: name.into(), driver: driver.into(), rx_mode: mode.into(), modelled }
    }

    fn card() -> PcieDevice {
        PcieDevice {
            address: "0000:5e:00.0".into(),
            now: PcieLink { generation: Some(4), lanes: Some(16) },
            mps_bytes: Some(512),
            mrrs_bytes: Some(1024),
            ..PcieDevice::default()
        }
    }

    #[test]
    fn profile_follows_program_and_sys() {
        let port = port("0000:5e:00.0", "net_ice", "Vector AVX512");
        let (profile, notes) =
            of_port(&port, "DPDK 22.11.11", &[card()], &Overrides::default()).unwrap();
        let profile = profile.unwrap();
        assert_eq!((profile.nic.name, profile.mode), ("ice", Mode::Vector));
        assert_eq!(profile.version.to_string(), "dpdk-22.11");
        assert_eq!((profile.link.lanes(), profile.link.settings().mps), (16, 512));
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn overrides_override_reported_values() {
        let overrides = Overrides {
            nic: NICS.iter().find(|nic| nic.name == "ixgbe"),
            mode: Some("bulk".into()),
            link: Some("gen3x4".into()),
            rx_free: Some(64),
            ..Overrides::default()
        };
        let port = port("0000:5e:00.0", "net_ice", "Vector");
        let (profile, _) = of_port(&port, "DPDK 22.11.11", &[card()], &overrides).unwrap();
        let profile = profile.unwrap();
        assert_eq!(
            (profile.nic.name, profile.mode, profile.link.lanes()),
            ("ixgbe", Mode::Bulk, 4)
        );
        assert_eq!(profile.thresholds.rx_free, 64);
        let overrides = Overrides { mode: Some("quick".into()), ..Overrides::default() };
        assert!(of_port(&port, "DPDK 22.11.11", &[card()], &overrides).is_err());
    }

    #[test]
    fn unknown_values_take_nearest_rule_with_a_note() {
        let (profile, notes) = of_port(
            &port("0000:99:00.0", "net_future", ""),
            "DPDK 30.03.0-rc1",
            &[card()],
            &Overrides::default(),
        )
        .unwrap();
        let profile = profile.unwrap();
        assert_eq!((profile.nic.name, profile.link.to_string().as_str()), ("ice", "gen3x8"));
        let all = notes.join("\n");
        for part in ["net_future", "dpdk-30.03", "--mode", "--link", "--mps"] {
            assert!(all.contains(part), "{part}: {all}");
        }
        let (_, notes) =
            of_port(&port("x", "net_ice", "Bulk Alloc"), "unknown", &[], &Overrides::default())
                .unwrap();
        assert!(notes.iter().any(|note| note.contains("--driver")), "{notes:?}");
    }

    #[test]
    fn software_port_has_no_profile_unless_nic_is_named() {
        let null = port("net_null0", "net_null", "");
        let (profile, notes) = of_port(&null, "DPDK 22.11.11", &[], &Overrides::default()).unwrap();
        assert!(profile.is_none() && notes[0].contains("do not cross a link"), "{notes:?}");
        let overrides = Overrides { nic: NICS.first(), ..Overrides::default() };
        assert!(of_port(&null, "DPDK 22.11.11", &[], &overrides).unwrap().0.is_some());
    }

    #[test]
    fn modelled_port_reports_its_profile_unless_overrides_differ() {
        let said = [("nic", "igb"), ("link", "gen2x4"), ("mps", "128"), ("tx_rs", "8")]
            .into_iter()
            .chain([("driver", "dpdk-22.11"), ("options", "82576")]);
        let mut nic = port("nic0", "haul_nic", "");
        nic.modelled = said.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (profile, _) = of_port(&nic, "haul 0.1.0", &[], &Overrides::default()).unwrap();
        let profile = profile.unwrap();
        assert_eq!((profile.nic.name, profile.nic.tx_completion.together), ("igb", 1));
        assert_eq!((profile.link.to_string().as_str(), profile.thresholds.tx_rs), ("gen2x4", 8));
        assert_eq!(
            (profile.version.to_string().as_str(), profile.link.settings().mps),
            ("dpdk-22.11", 128)
        );
        let overrides =
            Overrides { nic: NICS.iter().find(|nic| nic.name == "ena"), ..Overrides::default() };
        let profile = of_port(&nic, "haul 0.1.0", &[], &overrides).unwrap().0.unwrap();
        assert_eq!((profile.nic.name, profile.link.to_string().as_str()), ("ena", "gen3x8"));
        for (name, value) in [("options", "quick"), ("mode", "x"), ("link", "gen9x8")] {
            let mut nic = nic.clone();
            nic.modelled.insert(name.into(), value.into());
            assert!(of_port(&nic, "haul 0.1.0", &[], &Overrides::default()).is_err(), "{name}");
        }
        nic.modelled.insert("nic".into(), "none".into());
        let (profile, notes) = of_port(&nic, "haul 0.1.0", &[], &Overrides::default()).unwrap();
        assert!(profile.is_none() && notes[0].contains("does not know"), "{notes:?}");
    }

    #[test]
    fn port_that_shares_a_device_belongs_to_it() {
        let devices = [card()];
        for (name, is_its) in [
            ("0000:5e:00.0", true),
            ("0000:5e:00.0_representor_vf0", true),
            ("0000:5e:00.01", false),
            ("net_null0", false),
        ] {
            assert_eq!(device_of(&port(name, "", ""), &devices).is_some(), is_its, "{name}");
        }
    }
}
