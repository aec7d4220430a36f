//! Machines that cannot exist.

use std::fs;

use super::elf::{self, ENDS};
use super::{sim, text};
use crate::run;

#[test]
fn impossible_settings_are_named() {
    // Settings for which the workload is not built.
    for (setting, part) in [
        ("memory.mshrs=0", "memory.mshrs = 0"),
        ("memory.line_bytes=8192", "memory.line_bytes"),
        ("memory.line_bytes=65536", "memory.line_bytes = 65536"),
        ("memory.latency_ns=-80", "memory.latency_ns=-80"),
        ("memory.latency_ns=1", "memory.latency_ns = 1"),
        ("memory.latency_ns=1e30", "not a whole number"),
        ("memory.dram.row_ns=-15", "memory.dram.row_ns=-15"),
        ("memory.dram.channels=3", "a power of two"),
        ("memory.bus.mhz=0", "memory.bus.mhz = 0"),
        ("memory.second_cache.bytes=1073741824", "memory.second_cache.bytes"),
        ("memory.data_cache.ways=3", "memory.data_cache.ways"),
        ("engine.policy=warp", "sync-nlb"),
        ("engine.speed=9", "no such setting"),
        ("engine.engines=0", "engine.engines = 0"),
        ("engine.share_percent=100", "engine.share_percent = 100"),
        ("engine.target=cache", "engine.placement"),
        ("engine.overlap=perhaps", "not true or false"),
        ("core.width=0", "core.width = 0"),
        ("core.window_entries=5000", "core.window_entries = 5000"),
        ("core.window_entries=99999999999", "core.window_entries=99999999999"),
        ("core.tlb.page_bytes=64", "core.tlb.page_bytes = 64"),
        ("core=4", "a group of them"),
        ("copying=magic", "unrolled-words"),
        ("packets=99999999999999999999", "packets=99999999999999999999"),
        ("nonsense", "NAME=VALUE"),
        ("=3", "lacks a name or a value"),
    ] {
        run(&mut sim(&["run", "--set", setting])).expect(2).says(&[part]);
    }
}

#[test]
fn impossible_setting_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf::program(folder.path(), "ends.elf", &ENDS);
    let file = folder.path().join("machine.toml");
    for (settings, part) in [
        ("[memory]\nmshrs = 0\n", "memory.mshrs = 0"),
        ("[memory]\nlatency_ns = -80\n", "latency_ns"),
        ("[memory]\nmshrs = \"many\"\n", "mshrs"),
        ("[memory]\nspeed = 9\n", "speed"),
        ("[memory\n", "machine.toml"),
        ("\0\u{1}", "machine.toml"),
    ] {
        fs::write(&file, settings).unwrap();
        let ran = run(&mut sim(&["run", text(&program), "--machine", text(&file)])).expect(2);
        ran.says(&["machine.toml", part]);
    }
    for missing in [folder.path().join("none.toml"), folder.path().to_owned()] {
        let ran = run(&mut sim(&["run", text(&program), "--machine", text(&missing)]));
        assert!(matches!(ran.code, Some(1 | 2)), "{ran:#?}");
        ran.says(&[text(&missing)]);
    }
    fs::write(&file, "[memory]\nlatency_ns = 95\n[core]\nissue = \"in-order\"\n").unwrap();
    run(&mut sim(&["run", text(&program), "--machine", text(&file)])).expect(0);
}

#[test]
fn impossible_packets_are_refused_before_building() {
    let folder = tempfile::tempdir().unwrap();
    for (setting, says) in [
        ("payload_bytes=0", "payload_bytes=0"),
        ("payload_bytes=1461", "from 1 to 1460"),
        ("warm_packets=1000", "warm_packets=1000"),
        ("packets=0", "packets=0"),
    ] {
        run(&mut sim(&["run", "--set", setting])).expect(2).says(&[says]);
        let out = folder.path().join("plan.jsonl");
        let mut command = sim(&["sweep", "--vary", setting, "--out-file", text(&out)]);
        run(&mut command).expect(2).says(&[says]);
        assert!(!out.exists());
    }
}
