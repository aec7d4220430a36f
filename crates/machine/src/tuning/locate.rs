//! Locates the `haul.toml` to read.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The source of the file's location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `HAUL_TUNING` in the environment.
    Environment,
    /// The user's configuration folder.
    User,
    /// `/etc/haul`.
    System,
}

/// The result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// `HAUL_TUNING` is empty or `off`.
    Off,
    /// This file. The file exists, or `HAUL_TUNING` names it.
    File(PathBuf, Origin),
    /// There is no file at any of the locations.
    Nothing,
}

/// Searches for the file: the path in `HAUL_TUNING`, or else `$XDG_CONFIG_HOME/haul/haul.toml` or
/// `$HOME/.config/haul/haul.toml`, or else `/etc/haul/haul.toml`. Returns the first path that
/// exists, even if it is not a regular file. Returns a path in `HAUL_TUNING` even if it does not
/// exist, so that a typo is reported. `environment` returns a variable's value, like
/// [`std::env::var_os`].
#[must_use]
pub fn locate(environment: impl Fn(&str) -> Option<OsString>) -> Found {
    match environment("HAUL_TUNING") {
        Some(value) if value.is_empty() || value == OsStr::new("off") => return Found::Off,
        Some(value) => return Found::File(value.into(), Origin::Environment),
        None => {}
    }
    // By the XDG base directory specification, an empty path counts as unset, and a relative path
    // is ignored.
    let folder = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    let places = [(user, Origin::User), (Some(PathBuf::from("/etc")), Origin::System)];
    for (folder, origin) in places {
        let Some(path) = folder.map(|folder| folder.join("haul/haul.toml")) else {
            continue;
        };
        if is_there(&path) {
            return Found::File(path, origin);
        }
    }
    Found::Nothing
}

/// Whether the path exists. A dangling link and an unreadable file also count, because they
/// deserve a warning.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn with<'a>(pairs: &'a [(&str, &Path)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into())
    }

    /// The machine on which the test runs may have a file in /etc.
    fn nothing() -> Found {
        let path = PathBuf::from("/etc/haul/haul.toml");
        if is_there(&path) { Found::File(path, Origin::System) } else { Found::Nothing }
    }

    #[test]
    fn off_and_empty_disable_tuning() {
        for value in ["", "off"] {
            assert_eq!(locate(with(&[("HAUL_TUNING", Path::new(value))])), Found::Off);
        }
    }

    #[test]
    fn environment_takes_precedence_even_with_a_missing_file() {
        let path = Path::new("/no/such/file");
        let found = locate(with(&[("HAUL_TUNING", path), ("HOME", Path::new("/"))]));
        assert_eq!(found, Found::File(path.into(), Origin::Environment));
    }

    #[test]
    fn user_precedes_system_and_xdg_precedes_home() {
        let folder = tempfile::tempdir().unwrap();
        let (xdg, home) = (folder.path().join("xdg"), folder.path().join("home"));
        assert_eq!(locate(with(&[("XDG_CONFIG_HOME", &xdg), ("HOME", &home)])), nothing());
        for parent in [home.join(".config/haul"), xdg.join("haul")] {
            fs::create_dir_all(&parent).unwrap();
            fs::write(parent.join("haul.toml"), "").unwrap();
        }
        let found = |pairs: &[(&str, &Path)]| match locate(with(pairs)) {
            Found::File(path, Origin::User) => path,
            other => panic!("{other:?}"),
        };
        assert_eq!(found(&[("HOME", &home)]), home.join(".config/haul/haul.toml"));
        let both = [("XDG_CONFIG_HOME", xdg.as_path()), ("HOME", &home)];
        assert_eq!(found(&both), xdg.join("haul/haul.toml"));
        let relative = [("XDG_CONFIG_HOME", Path::new("xdg")), ("HOME", &home)];
        assert_eq!(found(&relative), home.join(".config/haul/haul.toml"));
    }

    #[test]
    fn empty_environment_finds_no_user_file() {
        assert_eq!(locate(|_| None), nothing());
        assert_eq!(locate(with(&[("HOME", Path::new("relative"))])), nothing());
    }
}
