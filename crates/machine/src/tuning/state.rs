//! The tuning in force in this process, and its initialization.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Found, Origin, Tuning, locate};
use crate::error::Error;
use crate::sys::{Sys, cpu};

/// The policy of copies in force, and the reason.
#[derive(Debug)]
pub enum Force {
    /// The defaults: there is no file.
    NoFile,
    /// The defaults: `HAUL_TUNING` is empty or `off`.
    Off,
    /// The defaults: the program runs with more rights than its caller has, so it must not trust
    /// the caller's environment and files.
    Privileged,
    /// The defaults: there is a file, but it is invalid or for another machine.
    Ignored {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        error: Error,
    },
    /// The file's policy.
    File {
        /// The file.
        path: PathBuf,
        /// The source of the file's location.
        origin: Origin,
        /// The content of the file.
        tuning: Tuning,
    },
}

impl Force {
    /// A warning of one line for the user; `None` if nothing is wrong.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let (path, error) = match self {
            Self::Ignored { path, error } => (path, error),
            Self::File { path, tuning, .. } => return passed_over(path, tuning),
            _ => return None,
        };
        // Read errors already name the file.
        let message = match error {
            Error::Read { .. } | Error::NotAFile { .. } | Error::TooLarge { .. } => {
                error.to_string()
            }
            _ => format!("{}: {error}", path.display()),
        };
        let message = message.replace(|c: char| c.is_control(), " ");
        Some(format!(
            "haul: warning: tuning file ignored: {message}; HAUL_TUNING=off silences this"
        ))
    }
}

/// The warning about the choices in a file that cannot be used.
fn passed_over(path: &Path, tuning: &Tuning) -> Option<String> {
    let unused = tuning.passed_over();
    let unused =
        (!unused.is_empty()).then(|| format!("{}: {}", path.display(), unused.join("; ")))?;
    let unused = unused.replace(|c: char| c.is_control(), " ");
    Some(format!(
        "haul: warning: {unused}; `haul copy tune` measures anew, HAUL_TUNING=off silences this"
    ))
}

static FORCE: OnceLock<Force> = OnceLock::new();

/// Puts the policy of copies from this machine's `haul.toml` into force, if there is one.
///
/// Only the first call in a process has an effect, even with several threads. Later calls return
/// its result. If the file is invalid or for another machine, the defaults stay in force, and the
/// call writes exactly one line to standard error. If a choice in the file is unknown to this
/// version, or this processor cannot run it, the other values of the file are in force, and the
/// call also writes one line. The call never fails and never blocks on the file, and copies that
/// other threads make meanwhile are correct.
///
/// Costs a few system calls without a file, and some 60 more with one (to identify the machine).
pub fn init() -> &'static Force {
    FORCE.get_or_init(|| {
        let force = load(&Sys::new(), cpu::is_privileged_by_file(), |name| std::env::var_os(name));
        if let Force::File { tuning, .. } = &force {
            tuning.policy().install();
            haul_channel::install(tuning.channel.clone());
            tuning.engine.into_iter().for_each(haul_engine::set_break_even);
        } else {
            // Small copies use the policy that is set and choose none themselves, so this call
            // chooses it.
            let _ = haul_copy::Policy::current();
        }
        if let Some(warning) = force.warning() {
            // If standard error is closed or full, the program must continue.
            let _ = writeln!(io::stderr(), "{warning}");
        }
        force
    })
}

/// The result of [`init`]; `None` before the first call.
#[must_use]
pub fn in_force() -> Option<&'static Force> {
    FORCE.get()
}

/// The result that [`init`] would have, without putting anything into force or printing.
#[must_use]
pub fn load(
    sys: &Sys,
    is_privileged: bool,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Force {
    if is_privileged {
        return Force::Privileged;
    }
    let (path, origin) = match locate(environment) {
        Found::Off => return Force::Off,
        Found::Nothing => return Force::NoFile,
        Found::File(path, origin) => (path, origin),
    };
    let checked = Tuning::read(&path).and_then(|tuning| {
        tuning.check_machine(&sys.machine_id())?;
        Ok(tuning)
    });
    match checked {
        Ok(tuning) => Force::File { path, origin, tuning },
        Err(error) => Force::Ignored { path, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_copy::Policy;

    fn load_file(path: &Path) -> Force {
        load(&Sys::new(), false, |name| (name == "HAUL_TUNING").then(|| path.into()))
    }

    #[test]
    fn file_of_this_machine_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haul.toml");
        let mut policy = Policy::for_this_processor();
        assert!(policy.thresholds.set("stream_copy_min", 48 << 20));
        let tuning = Tuning::new(&Sys::new().machine_id(), "w", policy);
        tuning.write(&path).unwrap();
        let Force::File { tuning: read, origin, .. } = load_file(&path) else {
            panic!("{:?}", load_file(&path))
        };
        assert_eq!((&read, origin), (&tuning, Origin::Environment));
        assert_eq!(read.policy(), policy.clamped());
        assert_eq!(load_file(&path).warning(), None);
    }

    #[test]
    fn foreign_file_is_ignored_with_one_line_that_names_both_machines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haul.toml");
        Tuning::new("intel-6-143-8-avx512-l3-60MiB-64cpu", "w", Policy::for_this_processor())
            .write(&path)
            .unwrap();
        let warning = load_file(&path).warning().unwrap();
        for part in ["haul.toml", "intel-6-143-8", &Sys::new().machine_id(), "haul copy tune"] {
            assert!(warning.contains(part), "{warning}");
        }
        assert!(!warning.contains('\n'), "{warning}");
    }

    /// The other values of the file are in force, and one line names the unused choices.
    #[test]
    fn unused_choice_is_reported_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haul.toml");
        let mut tuning = Tuning::new(&Sys::new().machine_id(), "w", Policy::for_this_processor());
        tuning.choices.insert("small".into(), "mosaic\n".into());
        tuning.choices.insert("isa".into(), "avx1024".into());
        tuning.write(&path).unwrap();
        let force = load_file(&path);
        assert!(matches!(force, Force::File { .. }), "{force:?}");
        let warning = force.warning().unwrap();
        for part in ["haul.toml", "mosaic", "masks-in-calls, pieces", "avx1024", "haul copy tune"] {
            assert!(warning.contains(part), "{warning}");
        }
        assert!(!warning.contains('\n'), "{warning}");
    }

    #[test]
    fn privileged_program_reads_no_file() {
        let force = load(&Sys::new(), true, |name| panic!("read {name}"));
        assert!(matches!(force, Force::Privileged));
    }

    #[test]
    fn warning_for_a_path_with_a_line_break_is_one_line() {
        let warning = load_file(Path::new("/no/such\nhaul: all is well")).warning().unwrap();
        assert!(!warning.contains('\n'), "{warning}");
    }

    #[test]
    fn init_is_the_same_for_every_thread() {
        let first: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| std::ptr::from_ref(init()) as usize)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(first.iter().all(|&address| address == first[0]));
        assert!(in_force().is_some());
    }
}
