//! A modelled NIC, named by the options of `haul pcie estimate`.

use haul_model::pcie::{Nic, PcieError, Settings, Setup, Thresholds, Version};
use serde_json::{Value, json};

/// The values that the user named; the other values are the NIC's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Modelled {
    pub(super) model: Option<String>,
    pub(super) driver: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) link: Option<String>,
    pub(super) mps: Option<String>,
    pub(super) mrrs: Option<String>,
    pub(super) rx_free: Option<String>,
    pub(super) tx_rs: Option<String>,
    pub(super) options: Vec<String>,
}

/// The default NIC.
const NIC: &str = "ice";
/// The default NIC's link, as in `haul pcie estimate`.
const LINK: &str = "gen3x8";

impl Modelled {
    /// The options with one value, each with its field.
    pub(super) fn words(&mut self) -> [(&'static str, &mut Option<String>); 8] {
        [
            ("model", &mut self.model),
            ("driver", &mut self.driver),
            ("mode", &mut self.mode),
            ("link", &mut self.link),
            ("mps", &mut self.mps),
            ("mrrs", &mut self.mrrs),
            ("rx-free", &mut self.rx_free),
            ("tx-rs", &mut self.tx_rs),
        ]
    }

    /// The NIC with its driver and link.
    ///
    /// # Errors
    /// The reason why the NIC cannot exist.
    pub(super) fn setup(&self) -> Result<Setup, String> {
        let text = |error: PcieError| error.to_string();
        let base: &Nic = self.model.as_deref().unwrap_or(NIC).parse().map_err(text)?;
        let mut nic = *base;
        for option in &self.options {
            nic = nic.with(option).map_err(text)?;
        }
        let default = Settings::default();
        let settings = Settings {
            mps: number("mps", self.mps.as_ref(), default.mps)?,
            mrrs: number("mrrs", self.mrrs.as_ref(), default.mrrs)?,
            ..default
        };
        let link = self.link.as_deref().unwrap_or(LINK);
        let link = haul_model::pcie::Link::new(link, settings).map_err(text)?;
        let version = self.driver.as_ref().map_or(Ok(Version::LAST), |text| text.parse());
        let thresholds = Thresholds {
            rx_free: number("rx-free", self.rx_free.as_ref(), nic.thresholds.rx_free)?,
            tx_rs: number("tx-rs", self.tx_rs.as_ref(), nic.thresholds.tx_rs)?,
        };
        let mode = self.mode.as_ref().map_or(Ok(nic.usual_mode()), |mode| nic.mode(mode));
        Ok(Setup {
            version: version.map_err(text)?,
            mode: mode.map_err(text)?,
            thresholds,
            ..Setup::of(nic, link)
        })
    }

    /// The setup in JSON for `haul pcie watch`, by the names of its options.
    pub(super) fn json(&self, setup: &Setup) -> Value {
        let settings = setup.link.settings();
        json!({
            "nic": setup.nic.name,
            "driver": setup.version.to_string(),
            "mode": setup.mode.name(),
            "options": self.options.join(","),
            "link": setup.link.to_string(),
            "mps": settings.mps,
            "mrrs": settings.mrrs,
            "rx_free": setup.thresholds.rx_free,
            "tx_rs": setup.thresholds.tx_rs,
        })
    }
}

fn number(name: &str, text: Option<&String>, default: u32) -> Result<u32, String> {
    let Some(text) = text else { return Ok(default) };
    text.parse().map_err(|_| format!("{name}={text} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[(&str, &str)]) -> Modelled {
        let mut modelled = Modelled::default();
        for (name, value) in words {
            let place = modelled.words().into_iter().find(|(known, _)| known == name);
            *place.unwrap().1 = Some((*value).to_owned());
        }
        modelled
    }

    #[test]
    fn missing_options_are_the_nics_own() {
        let setup = of(&[]).setup().unwrap();
        assert_eq!((setup.nic.name, setup.link.to_string().as_str()), ("ice", "gen3x8"));
        let modelled =
            of(&[("model", "i40e"), ("mode", "bulk"), ("mps", "128"), ("rx-free", "48")]);
        let setup = modelled.setup().unwrap();
        assert_eq!((setup.nic.name, setup.mode.name()), ("i40e", "bulk"));
        let json = modelled.json(&setup);
        assert_eq!((&json["mps"], &json["rx_free"]), (&json!(128), &json!(48)));
    }

    #[test]
    fn setup_refuses_impossible_values() {
        for (name, value, part) in [
            ("model", "quick", "not a modelled NIC"),
            ("mode", "quick", "quick"),
            ("driver", "22.11", "22.11"),
            ("link", "gen9x8", "generation"),
            ("mps", "100", "MPS"),
            ("mrrs", "x", "not a number"),
        ] {
            let error = of(&[(name, value)]).setup().unwrap_err();
            assert!(error.contains(part), "{name}: {error}");
        }
        let modelled = Modelled { options: vec!["quick".into()], ..of(&[]) };
        assert!(modelled.setup().unwrap_err().contains("quick"));
    }
}
