//! A machine by names and values: `core.issue=in-order`, `memory.latency_ns=95`, or a TOML file.

use std::str::FromStr;

use haul_sim::{Configuration, MemorySystem};

use crate::error::Error;

/// One setting in the user's notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The path of the setting: `memory.dram.channels`.
    pub name: String,
    /// The value of the setting as text.
    pub value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("{text:?} is not NAME=VALUE"));
        };
        if name.is_empty() || value.is_empty() {
            return Err(format!("{text:?} lacks a name or a value"));
        }
        Ok(Self { name: name.trim().into(), value: value.trim().into() })
    }
}

/// Reads a configuration from a TOML text. Omitted settings have the values of the paper's
/// machine.
///
/// # Errors
/// The text is not TOML, names a setting or a policy that does not exist, or describes an
/// impossible machine.
pub fn parse(name: &str, text: &str) -> Result<Configuration, Error> {
    let failed = |reason: String| Error::SimSetting { setting: name.into(), reason };
    let configuration: Configuration =
        toml::from_str(text).map_err(|error| failed(error.to_string()))?;
    // Building the machine checks more than `validate`, which does not know the policies.
    MemorySystem::new(&configuration).map_err(|error| failed(error.to_string()))?;
    Ok(configuration)
}

/// Changes one setting. The machine is not validated yet, because a setting may be possible only
/// together with another one that is set later. `beside` contains further names, which the error
/// lists after the names of the machine's settings.
///
/// # Errors
/// The setting does not exist, or the value does not have its type.
pub fn apply(
    configuration: &mut Configuration,
    setting: &Setting,
    beside: &[&str],
) -> Result<(), Error> {
    let failed = |reason: String| Error::SimSetting {
        setting: format!("{}={}", setting.name, setting.value),
        reason,
    };
    let mut table = toml::Table::try_from(&*configuration).map_err(|e| failed(e.to_string()))?;
    let parts: Vec<&str> = setting.name.split('.').collect();
    let mut at = &mut table;
    for (depth, part) in parts.iter().enumerate() {
        let beside = beside.iter().filter(|_| depth == 0).map(|name| (*name).to_owned());
        let names: Vec<String> = beside.chain(at.keys().cloned()).collect();
        let unknown = || failed(format!("no such setting; the settings are {}", names.join(", ")));
        let entry = at.get_mut(*part).ok_or_else(unknown)?;
        if depth + 1 == parts.len() {
            *entry = value(entry, &setting.value)
                .ok_or_else(|| failed(format!("{:?} is not {}", setting.value, kind(entry))))?;
            break;
        }
        at = entry.as_table_mut().ok_or_else(|| failed("it has no settings below it".into()))?;
    }
    *configuration = table.try_into().map_err(|error: toml::de::Error| {
        failed(error.message().lines().next().unwrap_or_default().to_owned())
    })?;
    Ok(())
}

/// Reads the text as a value of the same type as the old value.
fn value(old: &toml::Value, text: &str) -> Option<toml::Value> {
    Some(match old {
        toml::Value::Integer(_) => toml::Value::Integer(text.replace('_', "").parse().ok()?),
        toml::Value::Boolean(_) => toml::Value::Boolean(text.parse().ok()?),
        toml::Value::Float(_) => toml::Value::Float(text.parse().ok()?),
        toml::Value::String(_) => toml::Value::String(text.trim_matches('"').into()),
        _ => return None,
    })
}

fn kind(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::Integer(_) => "a whole number",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Float(_) => "a number",
        toml::Value::String(_) => "a name",
        _ => "a setting but a group of them: name one inside it",
    }
}

/// Every setting's name and value in the form of `--set`.
///
/// # Errors
/// Never for a configuration of this version of haul, which is plain data.
pub fn listed(configuration: &Configuration) -> Result<Vec<Setting>, Error> {
    let table = toml::Table::try_from(configuration).map_err(|error| Error::SimSetting {
        setting: "configuration".into(),
        reason: error.to_string(),
    })?;
    let mut found = Vec::new();
    list("", &table, &mut found);
    Ok(found)
}

fn list(prefix: &str, table: &toml::Table, found: &mut Vec<Setting>) {
    for (name, value) in table {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(inner) => list(&name, inner, found),
            other => {
                let value = other.as_str().map_or_else(|| other.to_string(), Into::into);
                found.push(Setting { name, value });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str) -> Result<Configuration, Error> {
        let mut configuration = Configuration::default();
        let setting: Setting = text.parse().expect("a setting");
        apply(&mut configuration, &setting, &[]).map(|()| configuration)
    }

    #[test]
    fn parse_rejects_unknown_policy() {
        let parsed =
            |policy: &str| parse("machine.toml", &format!("[engine]\npolicy = \"{policy}\"\n"));
        assert_eq!(parsed("async").expect("a policy").engine.policy, "async");
        let message = parsed("asyunc").expect_err("no policy").to_string();
        assert!(
            message.contains("machine.toml") && message.contains("async-pipelined"),
            "{message}"
        );
    }

    #[test]
    fn apply_finds_setting_by_path() {
        assert_eq!(applied("memory.latency_ns=95").expect("known").memory.latency_ns, 95);
        assert_eq!(applied("engine.policy=sync-nlb").expect("known").engine.policy, "sync-nlb");
        assert!(!applied("engine.overlap=false").expect("known").engine.overlap);
        let in_order = applied("core.issue=in-order").expect("known").core.issue;
        assert_eq!(in_order, haul_sim::configuration::Issue::InOrder);
    }

    #[test]
    fn apply_names_wrong_setting() {
        let refusal = |text| applied(text).expect_err("wrong").to_string();
        assert!(refusal("memory.latency=95").contains("latency_ns"));
        assert!(refusal("memory.latency_ns=fast").contains("a whole number"));
        assert!(refusal("memory.latency_ns=-5").contains("memory.latency_ns=-5"));
        assert!(refusal("memory=5").contains("name one inside it"));
        assert!(refusal("memory.latency_ns.x=5").contains("no settings below it"));
        assert!(refusal("core.issue=sideways").contains("sideways"));
        assert!("memory.latency_ns".parse::<Setting>().is_err());
    }

    #[test]
    fn listed_settings_apply_to_same_configuration() {
        let mut configuration = Configuration::default();
        let listed = listed(&configuration).expect("plain data");
        assert!(listed.len() > 40, "{}", listed.len());
        for setting in &listed {
            apply(&mut configuration, setting, &[]).expect("it has this setting");
        }
        assert_eq!(configuration, Configuration::default());
    }

    #[test]
    fn parse_keeps_omitted_settings_and_names_unknown_ones() {
        let configuration = parse("a.toml", "[memory]\nmshrs = 16\n").expect("a machine");
        assert_eq!(configuration.memory.mshrs, 16);
        assert_eq!(configuration.memory.latency_ns, 80);
        for (text, part) in [
            ("[memory]\nmshr = 16", "mshr"),
            ("[memory]\nmshrs = 0", "memory.mshrs = 0"),
            ("[memory]\nlatency_ns = -1", "a.toml"),
            ("memory = [", "a.toml"),
        ] {
            let message = parse("a.toml", text).expect_err("impossible").to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
