//! How a switch of a flow is written: a program, and a library that it loads.

use std::path::PathBuf;

/// A switch of `haul forward pvp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    /// `haul`, `testpmd` or `ovs`.
    pub(crate) program: &'static str,
    pub(crate) library: Option<Library>,
}

/// A library that the switch loads in addition to its own, or in place of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// A file that the loader loads first.
    Preload(PathBuf),
    /// The library of haul's rings, loaded first, which serves in turns with DPDK.
    Turns(PathBuf),
    /// A folder that the loader searches first.
    Folder(PathBuf),
}

const PROGRAMS: [&str; 3] = ["haul", "testpmd", "ovs"];

impl Switch {
    /// `haul`, `testpmd`, `ovs`, or the last two with `:lib=DIR`, `:preload=FILE` or
    /// `:turns=FILE`.
    ///
    /// # Errors
    /// What can be written.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, library) = match text.split_once(':') {
            Some((name, library)) => (name, Some(library)),
            None => (text, None),
        };
        let Some(program) = PROGRAMS.into_iter().find(|program| *program == name) else {
            return Err(
                "write haul, testpmd, ovs, or the last two with :lib=DIR, :preload=FILE or \
                 :turns=FILE; a path with a comma needs a link without one"
                    .into(),
            );
        };
        let Some(library) = library else { return Ok(Self { program, library: None }) };
        if program == "haul" {
            return Err("haul loads no library; --copy names a library with a memcpy".into());
        }
        let library = match library.split_once('=') {
            Some((_, "")) => return Err("the path of the library is empty".into()),
            Some(("lib", folder)) => Library::Folder(folder.into()),
            Some(("preload", file)) => Library::Preload(file.into()),
            Some(("turns", file)) => Library::Turns(file.into()),
            _ => {
                return Err(format!(
                    "write {program}:lib=DIR, {program}:preload=FILE or {program}:turns=FILE"
                ));
            }
        };
        Ok(Self { program, library: Some(library) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_has_at_most_one_library() {
        let plain = |program| Switch { program, library: None };
        for program in PROGRAMS {
            assert_eq!(Switch::parse(program), Ok(plain(program)));
        }
        let found = Switch::parse("ovs:lib=target/a=b").unwrap();
        assert_eq!(
            found,
            Switch { library: Some(Library::Folder("target/a=b".into())), ..plain("ovs") }
        );
        let found = Switch::parse("testpmd:preload=./a.so").unwrap();
        assert_eq!(found.library, Some(Library::Preload("./a.so".into())));
        let found = Switch::parse("ovs:turns=a.so").unwrap();
        assert_eq!(found.library, Some(Library::Turns("a.so".into())));
        for (text, part) in [
            ("xen", "haul, testpmd, ovs"),
            ("", "haul, testpmd, ovs"),
            ("b.so", "a path with a comma"),
            ("haul:lib=a", "--copy"),
            ("ovs:", "ovs:lib=DIR"),
            ("ovs:lib", "ovs:preload=FILE"),
            ("ovs:lib=", "is empty"),
            ("testpmd:load=a", "testpmd:lib=DIR"),
        ] {
            let reason = Switch::parse(text).unwrap_err();
            assert!(reason.contains(part), "{text}: {reason}");
        }
    }
}
