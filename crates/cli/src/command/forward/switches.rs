//! The switches that `haul forward pvp` compares: haul with each copy, and the other programs, each
//! with each library that it is to load.

use std::path::Path;

use haul_experiments::forward::{
    Forwarder, Library, OpenVswitch, Subject, Testpmd, is_library, method_named, method_names,
};

use super::fits::is_asked;
use crate::arguments::forward::{Pvp as Arguments, PvpSettings};
use crate::arguments::switch::{Library as Named, Switch};
use crate::error::Error;
use crate::terminal;

/// The largest library that is searched for a memcpy, in bytes: some hundred times the size of
/// glibc's.
const LIBRARY_BYTES_MAX: u64 = 256 << 20;

/// The programs besides haul that take part and are installed.
pub(super) struct Peers {
    pub(super) testpmd: Option<Testpmd>,
    pub(super) ovs: Option<OpenVswitch>,
}

impl Peers {
    /// testpmd and Open vSwitch, if they take part and are installed.
    ///
    /// # Errors
    /// A needed peer is missing.
    pub(super) fn find(
        arguments: &Arguments,
        settings: &PvpSettings,
        left_out: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let has_haul = is_asked(arguments, "haul");
        let (mut testpmd, mut ovs) = (None, None);
        if is_asked(arguments, "testpmd") || arguments.guest == "testpmd" {
            let found = Testpmd::find(settings.testpmd.as_deref());
            // Without testpmd, the other switches can still be measured, unless testpmd is the
            // guest.
            let is_needed = arguments.guest == "testpmd" || !has_haul;
            testpmd = or_left_out("testpmd", found, Testpmd::REMEDY, is_needed, left_out)
                .map_err(|reason| Error::Testpmd { reason })?
                .map(|found| found.with_simd_bits(settings.simd));
        }
        if is_asked(arguments, "ovs") {
            let found = OpenVswitch::find();
            ovs = or_left_out("ovs", found, OpenVswitch::REMEDY, !has_haul, left_out)
                .map_err(|reason| Error::OpenVswitch { reason })?
                .map(|found| found.with_port(settings.ovs_port));
        }
        Ok(Self { testpmd, ovs })
    }
}

/// A peer, or `None` with a warning if it is missing and the other subjects can be measured
/// without it.
///
/// # Errors
/// The reason why a needed peer is missing.
fn or_left_out<T>(
    name: &str,
    found: Result<T, String>,
    remedy: &str,
    is_needed: bool,
    left_out: &mut Vec<String>,
) -> Result<Option<T>, String> {
    match found {
        Err(reason) if !is_needed => {
            terminal::say(&format!("haul: warning: {name} is left out: {reason}; {remedy}"));
            left_out.push(name.to_owned());
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// The subjects of a run: haul with each copy, then testpmd, then Open vSwitch, each without a
/// library and with each named one.
///
/// # Errors
/// A copy does not exist, a library cannot be loaded, or two subjects would have one name.
pub(super) fn subjects(arguments: &Arguments, peers: &Peers) -> Result<Vec<Subject>, Error> {
    // Checked even if its program is left out.
    let mut others = Vec::new();
    for switch in &arguments.switch {
        others.push((switch.program, library(switch)?));
    }
    let mut subjects = Vec::new();
    if is_asked(arguments, "haul") {
        subjects = copies(&arguments.copies())?;
    }
    add_engines(&mut subjects, &arguments.engine)?;
    for program in ["testpmd", "ovs"] {
        for (_, library) in others.iter().filter(|(own, _)| *own == program) {
            let testpmd = peers.testpmd.clone().filter(|_| program == "testpmd");
            let ovs = peers.ovs.clone().filter(|_| program == "ovs");
            let testpmd = testpmd.map(|it| Forwarder::Testpmd(it.with_library(library.clone())));
            let ovs = ovs.map(|it| Forwarder::OpenVswitch(it.with_library(library.clone())));
            let Some(switch) = testpmd.or(ovs) else { continue };
            let subject = Subject { switch, copy: String::new() };
            if subjects.contains(&subject) {
                continue;
            }
            if subjects.iter().any(|other| other.name() == subject.name()) {
                return Err(Error::SameName { name: subject.name() });
            }
            subjects.push(subject);
        }
    }
    Ok(subjects)
}

/// Adds haul as switch, with its own copy and each of these engines.
///
/// # Errors
/// Engines are named, but not haul's copy in haul's switch.
fn add_engines(subjects: &mut Vec<Subject>, engines: &[String]) -> Result<(), Error> {
    let has_copy = subjects.iter().any(|subject| subject.name() == "haul");
    if !engines.is_empty() && !has_copy {
        let belongs = "--switch haul with --copy haul";
        return Err(Error::Unused { option: "--engine", belongs, remedy: "name both" });
    }
    for engine in engines {
        let subject = Subject::beside(engine);
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    Ok(())
}

/// The library that a switch is to load.
///
/// # Errors
/// It cannot be loaded.
fn library(switch: &Switch) -> Result<Option<Library>, Error> {
    let Some(named) = &switch.library else { return Ok(None) };
    let (found, option) = match named {
        Named::Preload(file) => (Library::preloaded(file), "preload"),
        Named::Turns(file) => (Library::in_turns(file), "turns"),
        Named::Folder(folder) => (Library::in_folder(folder), "lib"),
    };
    let option = format!("{}:{option}", switch.program);
    found.map(Some).map_err(|reason| Error::SwitchLibrary { option, reason })
}

/// haul as switch, with each of these copies.
///
/// # Errors
/// A copy does not exist.
fn copies(names: &[String]) -> Result<Vec<Subject>, Error> {
    let mut subjects: Vec<Subject> = Vec::new();
    for name in names {
        let is_there = if is_library(name) {
            has_memcpy(Path::new(name))
        } else {
            method_named(name).is_some()
        };
        if !is_there {
            let known: Vec<&str> = method_names().collect();
            return Err(Error::Copy { name: name.clone(), known: known.join(", ") });
        }
        let subject = Subject { switch: Forwarder::Haul, copy: name.clone() };
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    Ok(subjects)
}

/// Whether a file is a library that names a memcpy. The loader would ignore any other file, and
/// libc's copy would be measured under its name.
fn has_memcpy(path: &Path) -> bool {
    const NAME: &[u8] = b"memcpy\0";
    let bytes = haul_machine::file::read_limited(path, LIBRARY_BYTES_MAX).unwrap_or_default();
    bytes.starts_with(b"\x7fELF") && bytes.windows(NAME.len()).any(|window| window == NAME)
}
