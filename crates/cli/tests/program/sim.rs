//! `haul sim`: programs of one's own, plans, and everything bad that can be put in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use haul_model::Kind;

use crate::{away, haul, run};

/// Where the simulated machine's programs begin.
const START: u64 = 0x8000_0000;

/// An ELF file of one segment with this code.
fn elf(folder: &Path, name: &str, code: &[u32], machine: u16) -> PathBuf {
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    let bytes = code.len() as u64 * 4;
    let halves = |file: &mut Vec<u8>, values: &[u16]| {
        values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    };
    halves(&mut file, &[2, machine]);
    file.extend(1_u32.to_le_bytes());
    [START, 64, 0].iter().for_each(|value| file.extend(value.to_le_bytes()));
    file.extend(0_u32.to_le_bytes());
    halves(&mut file, &[64, 56, 1, 0, 0, 0]);
    [1_u32, 5].iter().for_each(|value| file.extend(value.to_le_bytes()));
    [120, START, START, bytes, bytes, 4096].iter().for_each(|v| file.extend(v.to_le_bytes()));
    code.iter().for_each(|word| file.extend(word.to_le_bytes()));
    let path = folder.join(name);
    fs::write(&path, file).unwrap();
    path
}

/// RISC-V's number in an ELF file, and x86-64's.
const RISC_V: u16 = 243;
const X86_64: u16 = 62;
/// `li a7, 93; li a0, 0; ecall`: ends at once.
const ENDS: [u32; 3] = [0x05d0_0893, 0x0000_0513, 0x0000_0073];
/// `j .`
const LOOPS: [u32; 1] = [0x0000_006f];

fn sim(arguments: &[&str]) -> Command {
    let mut all = vec!["sim"];
    all.extend(arguments);
    haul(&all)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_program_of_ones_own_gives_modelled_records() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf(folder.path(), "ends.elf", &ENDS, RISC_V);
    let ran = run(&mut sim(&["run", text(&program), "--json"])).expect(0);
    let records = ran.records();
    let time =
        records.iter().find(|r| r.experiment == "sim.program" && r.metric == "time").unwrap();
    assert!(time.kind == Kind::Modelled && time.samples[0] > 100.0, "{time:?}");
    let speed = records.iter().find(|record| record.experiment == "sim.speed").unwrap();
    assert_eq!((speed.kind, speed.metric.as_str()), (Kind::Measured, "simulated_mips"));
    let again = run(&mut sim(&["run", text(&program), "--json"])).expect(0);
    let modelled = |records: Vec<haul_model::Record>| -> Vec<_> {
        let kept = records.into_iter().filter(|record| record.kind == Kind::Modelled);
        kept.map(|record| (record.metric, record.samples)).collect()
    };
    assert_eq!(modelled(again.records()), modelled(records), "deterministic");
    let drawn = run(&mut sim(&["run", text(&program), "--trace", "0..400"])).expect(0);
    assert!(drawn.out.contains("li a7, 0x5d") && drawn.out.contains("fetch 0x8000"), "{drawn:#?}");
}

#[test]
fn programs_that_cannot_run_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, code: &[u32], machine| elf(folder.path(), name, code, machine);
    let loops = file("loops.elf", &LOOPS, RISC_V);
    run(&mut sim(&["run", text(&loops), "--limit", "5000"])).expect(1).says(&["5000"]);
    let foreign = file("foreign.elf", &ENDS, X86_64);
    run(&mut sim(&["run", text(&foreign)])).expect(1).says(&["foreign.elf"]);
    let illegal = file("illegal.elf", &[0xffff_ffff], RISC_V);
    run(&mut sim(&["run", text(&illegal)])).expect(1).says(&["0x80000000"]);
    // lui a0, 0x1; ld a0, 0(a0): nothing is there.
    let unmapped = file("unmapped.elf", &[0x0000_1537, 0x0005_3503], RISC_V);
    run(&mut sim(&["run", text(&unmapped)])).expect(1).says(&["0x1000"]);
    let whole = fs::read(&loops).unwrap();
    let cut = folder.path().join("cut.elf");
    for length in [0, 3, 63, 100, whole.len() - 1] {
        fs::write(&cut, &whole[..length]).unwrap();
        run(&mut sim(&["run", text(&cut)])).expect(1).says(&["cut.elf"]);
    }
    run(&mut sim(&["run", "/nonexistent.elf"])).expect(1).says(&["nonexistent.elf"]);
}

#[test]
fn machines_that_cannot_be_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf(folder.path(), "ends.elf", &ENDS, RISC_V);
    for (setting, part) in [
        ("memory.mshrs=0", "memory.mshrs = 0"),
        ("memory.line_bytes=8192", "memory.line_bytes"),
        ("memory.latency_ns=-80", "memory.latency_ns=-80"),
        ("memory.dram.channels=3", "a power of two"),
        ("memory.second_cache.bytes=1073741824", "memory.second_cache.bytes"),
        ("engine.policy=warp", "sync-nlb"),
        ("engine.speed=9", "no such setting"),
        ("core.width=0", "core.width = 0"),
    ] {
        run(&mut sim(&["run", text(&program), "--set", setting])).expect(2).says(&[part]);
    }
    let file = folder.path().join("machine.toml");
    fs::write(&file, "[memory]\nmshrs = 0\n").unwrap();
    let ran = run(&mut sim(&["run", text(&program), "--machine", text(&file)])).expect(2);
    ran.says(&["machine.toml", "memory.mshrs = 0"]);
}

#[test]
fn a_plan_is_done_in_parts_and_joined() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf(folder.path(), "ends.elf", &ENDS, RISC_V);
    let plan = folder.path().join("plan.jsonl");
    let (plan, program) = (text(&plan), text(&program));
    let vary = "memory.latency_ns=80..110:15";
    run(&mut sim(&["sweep", "--vary", vary, "--program", program, "--out", plan])).expect(0);
    run(&mut sim(&["task", plan, "1"])).expect(0);
    run(&mut sim(&["task", plan, "1"])).expect(0);
    run(&mut sim(&["task", plan, "3"])).expect(1).says(&["0 to 2"]);
    let ran =
        run(&mut sim(&["collect", plan, "--json"])).expect(1).says(&["2 of 3", "0 (not done)"]);
    assert_eq!(ran.records().len(), 2, "the finished work is kept");
    run(&mut sim(&["task", plan, "0"])).expect(0);
    run(&mut sim(&["task", plan, "2"])).expect(0);
    let records = run(&mut sim(&["collect", plan, "--json"])).expect(0).records();
    let times: Vec<f64> =
        records.iter().filter(|record| record.metric == "time").map(|r| r.samples[0]).collect();
    assert!(times.len() == 3 && times[0] < times[1] && times[1] < times[2], "{times:?}");
    let edited =
        fs::read_to_string(plan).unwrap().replace("\"latency_ns\":95", "\"latency_ns\":96");
    fs::write(plan, edited).unwrap();
    run(&mut sim(&["collect", plan])).expect(1).says(&["line 3 was changed"]);
    let full = ["sweep", "--vary", vary, "--program", program, "--out", "/dev/full/plan"];
    run(&mut sim(&full)).expect(1).says(&["/dev/full/plan"]);
}

#[test]
fn a_missing_compiler_is_named_with_its_package() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/sim-workload");
    for name in ["scripts", "bin", "crates/sim/workload"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    fs::copy(script, folder.path().join("scripts/sim-workload")).unwrap();
    for tool in ["bash", "dirname", "mkdir"] {
        let found = ["/usr/bin", "/bin"].iter().map(|at| Path::new(at).join(tool));
        let found = found.into_iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(found, folder.path().join("bin").join(tool)).unwrap();
    }
    let mut command = sim(&["reproduce", "--quick", "--out", "out"]);
    away(&mut command);
    command.current_dir(folder.path()).env("PATH", folder.path().join("bin"));
    run(&mut command).expect(1).says(&["gcc-riscv64-unknown-elf"]);
}
