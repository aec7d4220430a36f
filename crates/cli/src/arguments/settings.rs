//! Settings: options that few runs need, from a file in TOML or one by one.
//!
//! Each setting is an option of a command that no user types. So a setting has the limits, and
//! the message of a wrong value, that an option has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Command};
use haul_experiments::sim::Setting;

use crate::error::Error;

/// Longest file of settings that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Settings as the user gave them.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Settings {
    /// File of settings in TOML; a setting that it omits has its default
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Setting by its name; overrides the file; several may be given. The names are listed below
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
}

/// A value, and how messages name the place where it was set.
struct Given {
    value: String,
    attempt: String,
}

impl Settings {
    /// The settings of this type, with defaults for those that were not given.
    ///
    /// # Errors
    /// The file cannot be read or is not TOML, a name is unknown, or a value is beyond its limits.
    pub(crate) fn read<T: Args>(&self) -> Result<T, Error> {
        let command = T::augment_args(Command::new("settings").no_binary_name(true));
        let known = names(&command);
        let mut given = BTreeMap::new();
        if let Some(path) = &self.settings {
            for (name, value) in table(path)? {
                let attempt = format!("{name} = {value} in {}", path.display());
                given.insert(name, Given { value: text(&value, &attempt)?, attempt });
            }
        }
        for Setting { name, value } in &self.set {
            let attempt = format!("--set {name}={value}");
            given.insert(name.clone(), Given { value: value.clone(), attempt });
        }
        let mut words = Vec::new();
        for (name, Given { value, attempt }) in given {
            if !known.contains(&name) {
                let reason = format!("no such setting; the settings are {}", known.join(", "));
                return Err(Error::Setting { attempt, reason });
            }
            let word = format!("--{}={value}", name.replace('_', "-"));
            if let Err(error) = command.clone().try_get_matches_from([&word]) {
                return Err(Error::Setting { attempt, reason: reason(&error) });
            }
            words.push(word);
        }
        Ok(T::from_arg_matches(&command.try_get_matches_from(words)?)?)
    }
}

/// The names of a command's options as settings.
fn names(command: &Command) -> Vec<String> {
    let names = command.get_arguments().filter_map(clap::Arg::get_long);
    names.map(|name| name.replace('-', "_")).collect()
}

/// The settings in a file.
fn table(path: &Path) -> Result<toml::Table, Error> {
    let bytes = haul_machine::file::read_limited(path, FILE_BYTES_MAX)?;
    let failed = |reason: String| Error::Setting { attempt: path.display().to_string(), reason };
    let text = String::from_utf8(bytes).map_err(|_| failed("it is not text in UTF-8".into()))?;
    text.parse().map_err(|error: toml::de::Error| failed(error.to_string().trim_end().to_owned()))
}

/// A value as it is written on the command line.
fn text(value: &toml::Value, attempt: &str) -> Result<String, Error> {
    let refused = || Error::Setting {
        attempt: attempt.to_owned(),
        reason: "write a text, a whole number, true or false, or a list of texts".into(),
    };
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(is_set) => Ok(is_set.to_string()),
        toml::Value::Array(values) => {
            let texts = values.iter().map(|one| one.as_str().ok_or_else(refused));
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join(","))
        }
        _ => Err(refused()),
    }
}

/// What is wrong with a value.
fn reason(error: &clap::Error) -> String {
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue) {
        return format!("write one of {}", values.join(", "));
    }
    let source = std::error::Error::source(error).map(ToString::to_string);
    source.unwrap_or_else(|| error.kind().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Args)]
    struct Example {
        #[arg(long, value_parser = ["some", "other"])]
        one_of: Option<String>,
        #[arg(long, default_value_t = 1, value_parser = crate::arguments::number::number::<u16, 1, 8>)]
        count: u16,
        #[arg(long, value_delimiter = ',')]
        list: Vec<String>,
        #[arg(long, default_value_t = false, action = clap::ArgAction::Set)]
        flag: bool,
    }

    /// The settings of a file with this content, and of these words.
    fn read(content: &[u8], set: &[&str]) -> Result<Example, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.toml");
        std::fs::write(&path, content).unwrap();
        let set = set.iter().map(|text| text.parse().unwrap()).collect();
        Settings { settings: Some(path), set }.read().map_err(|error: Error| error.to_string())
    }

    #[test]
    fn set_overrides_file_and_file_overrides_default() {
        let file = b"one_of = \"some\"\ncount = 5\nlist = [\"a\", \"b\"]\n";
        let expected = Example {
            one_of: Some("some".into()),
            count: 7,
            list: vec!["a".into(), "b".into()],
            flag: true,
        };
        assert_eq!(read(file, &["count=6", "count=7", "flag=true"]), Ok(expected));
        let defaults = Example { one_of: None, count: 1, list: Vec::new(), flag: false };
        assert_eq!(read(b"", &[]), Ok(defaults));
    }

    #[test]
    fn hostile_file_is_refused_with_key_value_and_limit() {
        let long = vec![b'#'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
        for (content, parts) in [
            (&b"count = 9"[..], &["count = 9", "settings.toml", "from 1 to 8"][..]),
            (b"count = -1", &["count = -1", "from 1 to 8"]),
            (b"count = 99999999999999999999", &["settings.toml", "line 1"]),
            (b"count = 1.5", &["count = 1.5", "a whole number"]),
            (b"count = \"\"", &["count = \"\"", "from 1 to 8"]),
            (b"one_of = \"third\"", &["one_of = \"third\"", "some, other"]),
            (b"flag = 3", &["flag = 3", "true, false"]),
            (b"other = 3", &["other = 3", "one_of, count, list, flag"]),
            (b"[count]\nvalue = 3", &["count = ", "a whole number"]),
            (b"list = [3]", &["list = [3]", "a list of texts"]),
            (b"list = [[\"a\"]]", &["list = ", "a list of texts"]),
            (b"count = 2\ncount = 3", &["settings.toml", "duplicate key"]),
            (b"\"one-of\" = \"some\"", &["one-of = ", "no such setting"]),
            (b"help = true", &["help = true", "no such setting"]),
            (b"\"count=3 --flag\" = true", &["no such setting"]),
            (b"count", &["settings.toml", "line 1"]),
            (b"\xff\xfe", &["settings.toml", "UTF-8"]),
            (&long, &["settings.toml", "1048576 B"]),
        ] {
            let error = read(content, &[]).unwrap_err();
            for part in parts {
                let content = String::from_utf8_lossy(&content[..content.len().min(40)]);
                assert!(error.contains(part), "{content}: {error:?} lacks {part:?}");
            }
        }
        let error = read(b"", &["count=9"]).unwrap_err();
        assert!(error.contains("--set count=9") && error.contains("from 1 to 8"), "{error}");
    }
}
