//! `haul.toml`, good and bad. The profile says which policy was in force.

use std::fs;
use std::path::Path;

use haul_machine::sys::Sys;
use haul_machine::tuning::Tuning;

use crate::setup::{Setup, succeed_silently};

const PROGRAM: &str = "#include <string.h>\nchar a[9000], b[9000];\n\
    int main(int c, char **v) { memcpy(a, b, 8999); return a[c]; }";

/// Whether the text is used, and the instruction set in force.
fn in_force(text: &[u8]) -> Option<(bool, String)> {
    let setup = Setup::new();
    let path = setup.folder.path().join("haul.toml");
    fs::write(&path, text).expect("the folder is ours");
    in_force_at(&setup, &path)
}

fn in_force_at(setup: &Setup, path: &Path) -> Option<(bool, String)> {
    let program = setup.compile("p", PROGRAM, &["-O0", "-fno-builtin"])?;
    succeed_silently(setup.command(&program).env("HAUL_TUNING", path));
    let last = setup.profile().processes.pop()?;
    Some((last.has_policy_file, last.isa))
}

fn file_of(machine: &str, copy: &str) -> String {
    format!(
        "# comment\nschema = \"haul.tuning/1\"\nmachine = \"{machine}\"\nwritten = \"w\"\n\n\
         [copy]\n{copy}\n[[evidence]]\nexperiment = \"copy.tune\" # \"quoted\"\nwhat = \"w, [x]\"\n\
         ratio = 1.0\nfloor = 0.1\nrecords = \"r\"\n"
    )
}

#[test]
fn policy_of_this_machine_is_used() {
    let id = Sys::new().machine_id();
    let copy = "isa = \"scalar\" # of scalar, sse2\nsmall = \"pieces\"\nstream_copy_min = \"24 MiB\"\n\
                rep_movsb_min = \"never\"\nstream_fill_min = 65536";
    let text = file_of(&id, copy);
    let complete: Tuning = text.parse().expect("the complete reader reads it too");
    assert_eq!(complete.policy().isa.name(), "scalar");
    let Some(found) = in_force(text.as_bytes()) else { return };
    assert_eq!(found, (true, "scalar".into()));
    // The file as haul writes it.
    let written = complete.to_string();
    assert_eq!(in_force(written.as_bytes()), Some((true, "scalar".into())));
}

#[test]
fn bad_file_is_ignored_in_silence() {
    let id = Sys::new().machine_id();
    let good = file_of(&id, "isa = \"scalar\"");
    let Some((true, _)) = in_force(good.as_bytes()) else { return };
    let foreign = id.replacen(|c: char| c.is_ascii_digit(), "9", 1) + "0";
    let bad: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"\0\0\0".to_vec(),
        good.as_bytes()[..good.find("scalar").expect("it has it")].to_vec(),
        file_of(&foreign, "isa = \"scalar\"").into_bytes(),
        file_of("", "isa = \"scalar\"").into_bytes(),
        good.replace("haul.tuning/1", "haul.tuning/2").into_bytes(),
        file_of(&id, "isa = \"scalar\"\nno_such = 1").into_bytes(),
        file_of(&id, "stream_copy_min = -1").into_bytes(),
        file_of(&id, "stream_copy_min = 99999999999999999999999").into_bytes(),
        [good.as_bytes(), &[b'#'; 70_000]].concat(),
        [good.as_bytes(), b"\xff"].concat(),
    ];
    for text in bad {
        let (is_used, isa) = in_force(&text).expect("gcc is here");
        assert!(!is_used && isa != "scalar", "{}", String::from_utf8_lossy(&text));
    }
    let setup = Setup::new();
    for path in ["/nowhere/at/all", "/dev/zero", "/", "/proc/self/mem"] {
        let (is_used, _) = in_force_at(&setup, Path::new(path)).expect("gcc is here");
        assert!(!is_used, "{path}");
    }
}

/// What the processor lacks is replaced by the default, and other values stay.
#[test]
fn policy_for_another_processor_cannot_name_its_instructions() {
    let id = Sys::new().machine_id();
    let lacking = haul_kernels::Isa::ALL.into_iter().find(|isa| !isa.is_available());
    let lacking = lacking.expect("no processor has NEON and AVX2").name();
    let Some((is_used, isa)) = in_force(file_of(&id, &format!("isa = \"{lacking}\"")).as_bytes())
    else {
        return;
    };
    assert!(is_used && isa != lacking, "{isa}");
}
