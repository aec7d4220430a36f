//! The embedded workloads: `scripts/sim-workload` builds the same files, and every method of
//! copying delivers the bytes that were sent, on the interpreter and on the timing core.

use std::path::{Path, PathBuf};
use std::process::Command;

use haul_sim::configuration::Issue;
use haul_sim::nic::Nic;
use haul_sim::{Configuration, Image, Interpreter, Job, Outcome, Traffic, workload};

const COMPILER: &str = "riscv64-unknown-elf-gcc";
/// A limit of instructions that no run here approaches.
const LIMIT: u64 = 100_000_000;
const PACKETS: u64 = 300;
/// The loop, the engine, and the two unrolled loops.
const HOW: [u64; 4] = [0, 1, 2, 3];
const POLICIES: [&str; 3] = ["sync-nlb", "sync-wlb", "async"];

/// The folder of the built programs; `None` if the compiler is missing.
fn built() -> Option<PathBuf> {
    if Command::new(COMPILER).arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: the simulated server's workloads: no {COMPILER} on PATH: install \
             gcc-riscv64-unknown-elf"
        );
        return None;
    }
    static BUILD: std::sync::Once = std::sync::Once::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-workloads");
    BUILD.call_once(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/sim-workload");
        let run = Command::new(script).arg(&folder).output().expect("the script can be run");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    });
    Some(folder)
}

/// The embedded workload of this name.
fn image(name: &str) -> Image {
    Image::from_elf(workload::named(name).expect("a workload")).expect("a sound program")
}

fn image_of(file: &Path) -> Image {
    Image::from_elf(&std::fs::read(file).expect("the script made it")).expect("a sound program")
}

/// The compiler of the embedded workloads, and the compiler of this machine.
fn compilers() -> (String, String) {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("workload/built/compiler.txt");
    let here = Command::new(COMPILER).arg("--version").output().expect("it is here").stdout;
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let built = std::fs::read_to_string(built).expect("it is committed");
    (first(&built), first(&String::from_utf8_lossy(&here)))
}

/// The same compiler must build the same bytes; another compiler must build a program that
/// behaves in the same way.
#[test]
fn embedded_workloads_match_their_sources() {
    let Some(folder) = built() else { return };
    let (with, here) = compilers();
    for name in workload::names() {
        let file = folder.join(format!("{name}.elf"));
        let is_same =
            std::fs::read(&file).expect("the script made it") == workload::named(name).unwrap();
        assert!(
            is_same || with != here,
            "{name}.elf differs from a build of its sources: run scripts/sim-workload \
             --embed"
        );
        eprintln!("{name}: the same bytes: {is_same} (built by {with}, here is {here})");
    }
    let traffic = Traffic { packets: PACKETS, payload_bytes: 1400 };
    let arguments = [PACKETS, 1400, 1, 0, 0];
    let image = image_of(&folder.join("receive.elf"));
    let mut machine = Interpreter::new(&image, &arguments, traffic).expect("possible traffic");
    machine.run(&image, LIMIT).expect("the program ends itself");
    assert_received(&machine, 1400);
}

/// Asserts that the user's buffer holds the last packets and that all packets were acknowledged.
fn assert_received(machine: &Interpreter, payload_bytes: u64) {
    assert_eq!(machine.exit_code, Some(0));
    assert_eq!(machine.nic.acknowledged_bytes, PACKETS * payload_bytes);
    // Payloads are line-aligned and cycle through 64 KiB.
    let stride = payload_bytes.next_multiple_of(64);
    let mut place = 0;
    for packet in 0..PACKETS {
        if place + payload_bytes > 64 * 1024 {
            place = 0;
        }
        let is_last_there = packet + 40 >= PACKETS;
        if is_last_there {
            let bytes = machine.memory.read(machine.nic.user_buffer + place, payload_bytes);
            let wanted: Vec<u8> = (packet * payload_bytes..(packet + 1) * payload_bytes)
                .map(Nic::stream_byte)
                .collect();
            assert_eq!(bytes, Some(wanted.as_slice()), "packet {packet}");
        }
        place += stride;
    }
}

fn timed(
    image: &Image,
    arguments: &[u64],
    traffic: Traffic,
    policy: &str,
    issue: Issue,
) -> Outcome {
    let mut configuration = Configuration::default();
    configuration.engine.policy = policy.into();
    configuration.core.issue = issue;
    let job =
        Job { arguments: arguments.to_vec(), traffic, instructions_max: LIMIT, ..Job::default() };
    haul_sim::run(&configuration, image, &job).expect("the program ends itself")
}

#[test]
fn packets_are_received_intact() {
    let image = image("receive");
    for payload_bytes in [1, 511, 512, 1024, 1400, 1460] {
        let traffic = Traffic { packets: PACKETS, payload_bytes };
        for how in HOW {
            let arguments = [PACKETS, payload_bytes, how, 0, 0];
            let mut machine =
                Interpreter::new(&image, &arguments, traffic).expect("possible traffic");
            machine.run(&image, LIMIT).expect("the program ends itself");
            assert_received(&machine, payload_bytes);
            if how == 1 && payload_bytes == 1400 {
                for (policy, issue) in
                    POLICIES.iter().zip([Issue::InOrder, Issue::OutOfOrder].iter().cycle())
                {
                    let outcome = timed(&image, &arguments, traffic, policy, *issue);
                    assert_received(&outcome.interpreter, payload_bytes);
                    assert_eq!(outcome.instructions, machine.executed);
                    assert_eq!(outcome.core.copies, PACKETS);
                }
            }
        }
    }
}

#[test]
fn concurrent_builds_of_one_program_share_no_file() {
    if built().is_none() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-own");
    let source = folder.join("own.c");
    // A temporary file of another build, under a name that both builds would use.
    std::fs::create_dir_all(folder.join("own.elf.new")).expect("a folder");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("a source");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/sim-workload");
    let mut command = Command::new(script);
    command.arg("--program").arg(folder.join("own.elf")).arg(source);
    let run = command.output().expect("the script can be run");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let outcome =
        timed(&image_of(&folder.join("own.elf")), &[], Traffic::default(), "async", Issue::InOrder);
    assert_eq!(outcome.interpreter.exit_code, Some(0));
    let left = std::fs::read_dir(&folder).expect("it is there").count();
    assert_eq!(left, 3, "a build left a file behind: {folder:?}");
}

#[test]
fn values_are_returned_as_stored() {
    let image = image("values");
    for (bytes, how) in [(8, 0), (100, 1), (4096, 2), (4096, 1), (5000, 3)] {
        let arguments = [400, bytes, how, 256];
        let outcome = timed(&image, &arguments, Traffic::default(), "async", Issue::OutOfOrder);
        assert_eq!(outcome.interpreter.exit_code, Some(0), "{bytes} bytes, copied by {how}");
    }
    let too_many =
        timed(&image, &[1, 65536, 1, 65536], Traffic::default(), "async", Issue::InOrder);
    assert_eq!(too_many.interpreter.exit_code, Some(1));
}

/// The paper's main trend: the engine is faster than the loop, and overlap with computation makes
/// it faster still.
#[test]
fn engine_saves_time_and_overlap_saves_more() {
    let image = image("receive");
    let traffic = Traffic { packets: PACKETS, payload_bytes: 1024 };
    for issue in [Issue::InOrder, Issue::OutOfOrder] {
        let cycles =
            |how, policy| timed(&image, &[PACKETS, 1024, how, 0, 0], traffic, policy, issue).cycles;
        let loops = cycles(0, "async");
        let [nlb, wlb, asynchronous] = POLICIES.map(|policy| cycles(1, policy));
        eprintln!("{issue:?}: {loops} by loops, {nlb}, {wlb} and {asynchronous} cycles by engine");
        assert!(loops > nlb && nlb > wlb && wlb > asynchronous);
    }
}
