//! The environment variables, which are read once.

use std::sync::OnceLock;

use haul_forward::CopyMethod;

use crate::notice::print;

/// The settings of this process.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `HAUL_RTE_VHOST=off`: DPDK serves everything.
    pub(crate) is_off: bool,
    /// `HAUL_RTE_VHOST=turns`: DPDK serves in every second turn.
    pub(crate) takes_turns: bool,
    /// `HAUL_RTE_VHOST=tell` or `turns`: lines on standard error about each device.
    pub(crate) is_verbose: bool,
    /// `HAUL_COPY`: the function that copies packets.
    pub(crate) copy: CopyMethod,
}

impl Settings {
    fn of(mode: Option<&str>, copy: Option<&str>) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        if let Some(other) = mode.filter(|mode| !["", "tell", "turns", "off"].contains(mode)) {
            problems.push(format!("HAUL_RTE_VHOST={other}: choose tell, turns or off; ignored"));
        }
        let method = copy.filter(|copy| !copy.is_empty()).and_then(|name| {
            let method = CopyMethod::named(name);
            if method.is_none() {
                let names = CopyMethod::names().collect::<Vec<_>>().join(", ");
                problems.push(format!("HAUL_COPY={name}: choose one of {names}; ignored"));
            }
            method
        });
        let [is_off, reports, takes_turns] =
            ["off", "tell", "turns"].map(|name| mode == Some(name));
        let is_verbose = reports || takes_turns;
        (Self { is_off, takes_turns, is_verbose, copy: method.unwrap_or_default() }, problems)
    }
}

/// The settings. The first call reads the environment.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let [mode, copy] = ["HAUL_RTE_VHOST", "HAUL_COPY"].map(|name| std::env::var(name).ok());
        let (settings, problems) = Settings::of(mode.as_deref(), copy.as_deref());
        problems.iter().for_each(|problem| print(format_args!("{problem}")));
        settings
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_are_reported_and_ignored() {
        let (settings, problems) = Settings::of(None, None);
        assert!(!settings.is_off && !settings.is_verbose && problems.is_empty());
        let (settings, problems) = Settings::of(Some("tell"), Some("libc"));
        assert!(settings.is_verbose && settings.copy.name() == "libc" && problems.is_empty());
        let settings = Settings::of(Some("turns"), None).0;
        assert!(settings.takes_turns && settings.is_verbose && !settings.is_off);
        assert!(Settings::of(Some("off"), Some("")).0.is_off);
        let (settings, problems) = Settings::of(Some("on"), Some("no such"));
        assert!(!settings.is_off && settings.copy.name() == "haul");
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
