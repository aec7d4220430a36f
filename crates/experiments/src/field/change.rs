//! The change that is tested: what distinguishes the changed program from its baseline.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::str::FromStr;

use super::words::words;

/// The variable that names the libraries that the dynamic linker loads first.
const PRELOAD: &str = "LD_PRELOAD";

/// A change of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// haul's copies, preloaded from this library.
    Copy(PathBuf),
    /// Another library, preloaded.
    Preload(PathBuf),
    /// A variable of the environment.
    Environment {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Another argument.
    Argument {
        /// The argument, or a part of arguments.
        old: String,
        /// The text in its place. If it is empty, an argument that equals `old` is removed.
        new: String,
    },
    /// Another command.
    Command {
        /// The command as it was written.
        text: String,
        /// Its words.
        words: Vec<OsString>,
    },
}

/// A program with its arguments, and variables in addition to haul's own environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The variables.
    pub environment: Vec<(OsString, OsString)>,
}

impl FromStr for Change {
    type Err = String;

    /// Reads `copy`, `preload:PATH`, `env:NAME=VALUE`, `arg:OLD=>NEW` or `cmd:COMMAND`. The library
    /// of `copy` has no path yet: see [`Change::with_library`].
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "copy" {
            return Ok(Self::Copy(PathBuf::new()));
        }
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "preload" if !rest.is_empty() => Ok(Self::Preload(rest.into())),
            "env" => match rest.split_once('=') {
                Some((name, value)) if !name.is_empty() && !text.contains('\0') => {
                    Ok(Self::Environment { name: name.into(), value: value.into() })
                }
                _ => Err("write env:NAME=VALUE, such as env:MALLOC_ARENA_MAX=1".into()),
            },
            "arg" => match rest.split_once("=>") {
                Some((old, new)) if !old.is_empty() => {
                    Ok(Self::Argument { old: old.into(), new: new.into() })
                }
                _ => Err("write 'arg:OLD=>NEW', such as 'arg:--threads=1=>--threads=2'".into()),
            },
            "cmd" => words(rest).map(|words| Self::Command { text: rest.into(), words }),
            _ => {
                Err("write copy, preload:PATH, env:NAME=VALUE, 'arg:OLD=>NEW' or cmd:'COMMAND'"
                    .into())
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy(_) => f.write_str("copy"),
            Self::Preload(path) => write!(f, "preload:{}", path.display()),
            Self::Environment { name, value } => write!(f, "env:{name}={value}"),
            Self::Argument { old, new } => write!(f, "arg:{old}=>{new}"),
            Self::Command { text, .. } => write!(f, "cmd:{text}"),
        }
    }
}

impl Change {
    /// The library that is preloaded.
    #[must_use]
    pub fn library(&self) -> Option<&PathBuf> {
        match self {
            Self::Copy(path) | Self::Preload(path) => Some(path),
            _ => None,
        }
    }

    /// The same change with this library.
    #[must_use]
    pub fn with_library(self, path: PathBuf) -> Self {
        match self {
            Self::Copy(_) => Self::Copy(path),
            Self::Preload(_) => Self::Preload(path),
            other => other,
        }
    }
}

impl Command {
    /// A command in this process's environment. A driver starts without preloaded libraries, so
    /// those of this process are named.
    #[must_use]
    pub fn new(words: Vec<OsString>) -> Self {
        let preload = std::env::var_os(PRELOAD).filter(|preload| !preload.is_empty());
        let environment = preload.map(|preload| (PRELOAD.into(), preload));
        Self { words, environment: environment.into_iter().collect() }
    }

    /// The command with these changes, in this order. Another command (`cmd:`) comes before
    /// changes of its arguments.
    ///
    /// # Errors
    /// No argument contains the text that a change replaces.
    pub fn changed(&self, changes: &[Change]) -> Result<Self, String> {
        let mut command = self.clone();
        for change in changes {
            match change {
                Change::Copy(path) | Change::Preload(path) => command.preload(path.as_os_str()),
                Change::Environment { name, value } => command.set(name.into(), value.into()),
                Change::Argument { old, new } => command.replace(old, new)?,
                Change::Command { words, .. } => command.words.clone_from(words),
            }
        }
        Ok(command)
    }

    /// The command line, quoted for a shell.
    #[must_use]
    pub fn shown(&self) -> String {
        let quoted = |word: &OsString| haul_model::shell::quoted(&word.to_string_lossy());
        self.words.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }

    /// Sets a variable of the environment.
    pub(super) fn set(&mut self, name: OsString, value: OsString) {
        self.environment.retain(|(other, _)| *other != name);
        self.environment.push((name, value));
    }

    /// Puts a library before the others.
    fn preload(&mut self, path: &OsStr) {
        let mut all = path.to_owned();
        if let Some((_, others)) = self.environment.iter().find(|(name, _)| name == PRELOAD) {
            all.push(":");
            all.push(others);
        }
        self.set(PRELOAD.into(), all);
    }

    /// Replaces the arguments that equal `old`, or else `old` in all arguments that contain it.
    fn replace(&mut self, old: &str, new: &str) -> Result<(), String> {
        if self.words.iter().skip(1).any(|word| word == old) {
            let replace = |(at, word): (usize, OsString)| match at > 0 && word == *old {
                true => Some(OsString::from(new)).filter(|new| !new.is_empty()),
                false => Some(word),
            };
            self.words = std::mem::take(&mut self.words)
                .into_iter()
                .enumerate()
                .filter_map(replace)
                .collect();
            return Ok(());
        }
        let arguments = self.words.get_mut(1..).unwrap_or_default();
        let mut is_found = false;
        for argument in arguments {
            if let Some(replaced) = replaced(argument.as_bytes(), old.as_bytes(), new.as_bytes()) {
                (*argument, is_found) = (OsString::from_vec(replaced), true);
            }
        }
        match is_found {
            true => Ok(()),
            false => Err(format!("no argument of {} contains {old:?}", self.shown())),
        }
    }
}

/// The text with `new` in place of each `old`; `None` if there is none.
fn replaced(text: &[u8], old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    let (mut at, mut is_found) = (0, false);
    while at < text.len() {
        if text[at..].starts_with(old) {
            whole.extend_from_slice(new);
            (at, is_found) = (at + old.len(), true);
        } else {
            whole.push(text[at]);
            at += 1;
        }
    }
    is_found.then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str) -> Result<Command, String> {
        let words = ["sort", "-n", "--buffer-size=1M", "-n", "file"].map(OsString::from).into();
        let command = Command { words, environment: vec![(PRELOAD.into(), "other.so".into())] };
        command.changed(&[text.parse::<Change>()?])
    }

    #[test]
    fn each_change_changes_its_part() {
        let argument = changed("arg:-n=>-r").unwrap();
        assert_eq!(argument.shown(), "sort -r --buffer-size=1M -r file");
        assert_eq!(changed("arg:-n=>").unwrap().shown(), "sort --buffer-size=1M file");
        assert_eq!(changed("arg:1M=>1=>2").unwrap().words[2], "--buffer-size=1=>2");
        assert_eq!(changed("cmd:cat 'a b'").unwrap().shown(), "cat 'a b'");
        let set = changed("env:LC_ALL=a=b").unwrap();
        assert_eq!(set.environment[1], ("LC_ALL".into(), "a=b".into()));
        let preloaded = changed("preload:./own.so").unwrap();
        assert_eq!(preloaded.environment, [(PRELOAD.into(), "./own.so:other.so".into())]);
        assert_eq!(changed("env:LD_PRELOAD=").unwrap().environment.len(), 1);
    }

    #[test]
    fn changes_are_shown_as_written_and_refused_with_remedy() {
        for text in ["copy", "preload:a.so", "env:A=b", "arg:a=>b", "cmd:a 'b c'", "env:A="] {
            assert_eq!(text.parse::<Change>().unwrap().to_string(), text);
        }
        for bad in ["", "copyx", "preload:", "env:", "env:A", "env:=b", "arg:a", "arg:=>b", "cmd:"]
        {
            assert!(bad.parse::<Change>().is_err(), "{bad}");
        }
        assert!(changed("arg:absent=>x").unwrap_err().contains("\"absent\""));
        // The program's name is not an argument.
        assert!(changed("arg:sort=>cat").is_err());
    }
}
