//! Runs the commands that README.md and docs/ show, in a form that takes seconds; docs/sim.md has
//! its own test. A unit test of the command line checks that every flag exists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{away, haul, run};

/// How a shown command is tested.
enum Shown {
    /// The command is run with these additional words, which may replace options of the command,
    /// and prints this text.
    Run(&'static str, &'static str),
    /// The command needs another process, minutes, or an optional package. Another test, named
    /// here, runs it.
    Elsewhere(&'static str),
}

use Shown::{Elsewhere, Run};

/// The beginning of each command, and its test.
const COMMANDS: &[(&str, Shown)] = &[
    ("cargo run --release -- survey", Elsewhere("scripts/test benchmark, with --quick")),
    ("scripts/test", Elsewhere("the step that runs this test")),
    ("haul copy list", Run("", "threshold")),
    ("haul copy advise --sizes 200 --predictable --read", Run("--budget 0.3", "of libc's time")),
    ("haul copy bench --stream", Elsewhere("copy_stream.rs, of its own streams")),
    ("haul copy bench --distribution service --level l1", Run("--budget 0.3", "service")),
    ("haul copy bench --size-class 0-16 --json", Run("--budget 0.3", "copy.size_class")),
    ("haul copy bench --handed", Run("--budget 0.3", "other processor")),
    ("haul copy bench --sizes", Run("--sizes 2KiB..4KiB --budget 0.3", "2 KiB")),
    ("haul copy tune", Elsewhere("scripts/test benchmark, with --budget 5")),
    ("haul copy tune --profile", Elsewhere("copy_preload.rs")),
    ("HAUL_TUNING=sort.toml haul field", Elsewhere("field.rs, and copy_preload.rs for the file")),
    ("haul doctor", Elsewhere("doctor.rs")),
    ("haul engine fake", Elsewhere("engine_fake.rs")),
    ("haul engine list", Run("", "worker")),
    ("haul engine bench --sizes", Run("--sizes 4KiB --against thread --budget 0.5", "latency")),
    ("haul engine bench --depth", Run("--against none --budget 0.5", "depth")),
    ("haul engine bench --busy-core", Elsewhere("engine_tuning.rs")),
    ("haul engine bench --against dma_skeleton", Run("--sizes 4KiB --budget 0.5", "overlap")),
    ("haul channel list", Run("", "ring")),
    ("haul channel recv", Elsewhere("channel.rs, both ends")),
    ("haul channel send", Elsewhere("channel.rs, both ends")),
    ("producer | haul channel send", Elsewhere("channel.rs, both ends")),
    ("haul channel bench", Elsewhere("channel_bench.rs, of few sizes")),
    (
        "haul forward --port gen:size=64,rate=1M --port sink --for",
        Run("--for 300ms", "arrived, 0 lost"),
    ),
    ("haul forward --port nic:model=ice", Run("--for 300ms", "nic0")),
    ("haul forward --port gen --port vhost", Elsewhere("forward.rs, both ends")),
    ("haul forward --port gen:size=9000", Elsewhere("forward_between.rs, both ends")),
    ("haul forward --port virtio", Elsewhere("forward.rs, both ends")),
    ("haul forward --allow-user", Elsewhere("forward_users.rs, both ends")),
    ("haul forward --port gen:count=1000 --port pcap:out=made", Run("", "pcap0")),
    ("haul forward --port pcap:in=made.pcapng,loop=100", Run("", "99000 twice")),
    ("haul forward --port afxdp", Elsewhere("forward_ports.rs, on linked interfaces")),
    ("haul forward --port afpacket", Elsewhere("forward_ports.rs, on linked interfaces")),
    ("haul forward pvp", Elsewhere("forward.rs, of few restarts")),
    ("scripts/vhost-guest --image", Elsewhere("forward_guest.rs")),
    (
        "HAUL_TUNING=haul-survey/haul.toml haul forward pvp",
        Elsewhere("forward.rs, of few restarts"),
    ),
    ("haul heap bench --test growth", Elsewhere("heap_bench.rs, of fewer blocks")),
    ("haul heap bench --test pairs", Elsewhere("heap_bench.rs, of fewer pairs")),
    ("haul heap bench --help", Run("", "growth")),
    ("haul pcie list", Run("", "")),
    ("haul pcie estimate --nic", Run("", "rx descriptor fetch")),
    ("haul pcie list --nics", Run("", "ixgbe")),
    ("haul pcie estimate --nic ice --rate 10M --sizes", Run("", "full at packets/s")),
    ("haul pcie explain", Run("", "link gen3x8 -> gen4x8")),
    ("haul pcie sweep", Run("", "polls of 8")),
    ("haul pcie bandwidth", Run("", "20.65")),
    ("haul pcie watch", Elsewhere("pcie_watch.rs, with a simulated program")),
    ("dpdk-testpmd", Elsewhere("the tests of haul-dpdk-burst")),
    ("HAUL_RECORD=", Elsewhere("the tests of haul-record")),
    ("haul channel explain", Elsewhere("channel_stream.rs, with a receiver")),
    ("haul copy record", Elsewhere("copy_record.rs")),
    ("haul copy run", Elsewhere("copy_preload.rs")),
    ("haul copy profile", Elsewhere("copy_preload.rs")),
    ("haul report sort.jsonl", Elsewhere("copy_preload.rs")),
    ("head", Elsewhere("copy_record.rs: the first line of a stream")),
    ("haul heap record", Elsewhere("heap_record.rs")),
    ("seq", Elsewhere("heap_record.rs, with the next commands")),
    ("haul heap info", Elsewhere("heap_record.rs")),
    ("haul heap list", Run("", "heap")),
    ("haul compare", Elsewhere("compare.rs")),
    ("haul field", Elsewhere("field.rs, of programs with a known difference")),
    ("haul heap replay", Elsewhere("heap_replay.rs, of its own trace")),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every document except the simulated server's, by name and text.
fn documents() -> Vec<(String, String)> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = docs.chain([root().join("README.md")]).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|name| name == "md") && !path.ends_with("sim.md")
    });
    paths.sort();
    let read = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The blocks of these languages, with the language.
fn blocks(document: &str) -> Vec<(&str, &str)> {
    let fenced = document.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n')).collect()
}

/// The commands of all shell blocks, without their remarks.
fn commands(document: &str) -> Vec<String> {
    let shells = blocks(document).into_iter().filter(|(language, _)| ["", "sh"].contains(language));
    let joined: String =
        shells.map(|(_, body)| format!("{}\n", body.replace("\\\n", " "))).collect();
    let bare = |line: &str| line.split(" #").next().unwrap_or_default().trim().to_owned();
    joined.lines().map(bare).filter(|line| !line.is_empty()).collect()
}

#[test]
fn every_documented_command_has_a_test() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = [false; COMMANDS.len()];
    for (name, text) in documents() {
        for line in commands(&text) {
            if let Some(package) = line.strip_prefix("cargo build --release -p ") {
                assert!(is_package(package), "{name}: there is no package {package}");
                continue;
            }
            if line.starts_with("LD_PRELOAD=") {
                continue; // tested with the drop-in
            }
            // The longest matching beginning counts: `haul copy bench --help` is not `haul copy
            // bench`.
            let fits =
                COMMANDS.iter().enumerate().filter(|(_, (shown, _))| line.starts_with(shown));
            let Some((place, (shown, how))) = fits.max_by_key(|(_, (shown, _))| shown.len()) else {
                panic!("{name} shows {line:?}: add its test to COMMANDS");
            };
            seen[place] = true;
            match how {
                Run(more, holds) => does(&name, shown, &line, more, holds, folder.path()),
                Elsewhere(who) => assert!(!who.is_empty()),
            }
        }
    }
    for (seen, (shown, _)) in seen.into_iter().zip(COMMANDS) {
        assert!(seen, "no document shows {shown:?} any more");
    }
}

/// Runs a command as shown, with additional words. If the additional words name an option that
/// the command has, their value replaces the command's value.
fn does(name: &str, shown: &str, line: &str, more: &str, holds: &str, folder: &Path) {
    let option = more.split(' ').next().filter(|option| !option.is_empty());
    let is_replaced = option.is_some_and(|option| shown.ends_with(option));
    let line = if is_replaced { shown.rsplit_once(' ').unwrap().0 } else { line };
    let words: Vec<&str> = line.split_whitespace().chain(more.split_whitespace()).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.args(&words[1..]).current_dir(folder);
    away(&mut command);
    let ran = run(&mut command).expect(0);
    assert!(ran.out.contains(holds), "{name}: {words:?} says no {holds:?}: {ran:#?}");
}

fn is_package(name: &str) -> bool {
    let folders = ["crates", "ffi", "ffi/preload", "ffi/dpdk"].map(|folder| root().join(folder));
    let members = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let manifests = members.map(|entry| entry.unwrap().path().join("Cargo.toml"));
    let line = format!("name = \"{name}\"");
    manifests.filter_map(|path| fs::read_to_string(path).ok()).any(|text| text.contains(&line))
}

/// Whether this is a complete `haul.toml`.
fn is_tuning(text: &str) -> bool {
    match text.parse::<haul_machine::tuning::Tuning>() {
        Ok(_) => true,
        Err(error) => panic!("{text}\n{error}"),
    }
}

/// Whether `haul forward pvp` accepts these settings: it then refuses the size.
fn is_settings(text: &str) -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, text).unwrap();
    let words = ["forward", "pvp", "--search", "ndr", "--sizes", "59", "--settings"];
    run(haul(&words).arg(file.path())).expect(2).says(&["59 B"]);
    true
}

/// Rust blocks are run as examples of the crate that includes the document; tests look for C and
/// TOML blocks. A block that no test runs could be wrong.
#[test]
fn every_block_has_a_language_that_a_test_runs() {
    let library = fs::read_to_string(root().join("crates/haul/src/lib.rs")).unwrap();
    for (name, text) in documents() {
        let file = Path::new(&name).file_name().unwrap().to_str().unwrap();
        for (language, body) in blocks(&text) {
            let is_run = match language {
                "" | "sh" => true,
                "rust" | "rust,no_run" => library.contains(&format!("/{file}\")]")),
                "c" => body.contains("haul.h"),
                "toml" if body.contains("schema") => is_tuning(body),
                "toml" => is_settings(body),
                "text" => true,
                _ => false,
            };
            assert!(is_run, "{name}: no test runs this {language:?}:\n{body}");
        }
    }
}
