//! Any text in the files in /proc, /sys and /etc that haul reads, and any values of its
//! environment variables. haul always describes a machine, and its tuning is found, off or
//! absent.
#![no_main]

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use haul_machine::sys::Sys;
use haul_machine::tuning::locate;
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

/// The files that haul reads, relative to a folder that replaces the root.
const FILES: [&str; 28] = [
    "proc/meminfo",
    "proc/cpuinfo",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/yama/ptrace_scope",
    "proc/sys/fs/pipe-max-size",
    "sys/fs/cgroup/memory.max",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "proc/sys/kernel/perf_event_paranoid",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu0/cache/index0/size",
    "sys/devices/system/cpu/cpu0/cache/index0/level",
    "sys/devices/system/cpu/cpu0/cache/index0/type",
    "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
    "sys/devices/system/node/online",
    "sys/devices/system/cpu/cpu0/topology/core_id",
    "sys/bus/dsa/devices/wq0.0/state",
    "usr/lib/x86_64-linux-gnu/pkgconfig/libdpdk.pc",
    "sys/bus/pci/devices/0000:01:00.0/class",
    "sys/bus/pci/devices/0000:01:00.0/config",
    "sys/bus/pci/devices/0000:01:00.0/current_link_speed",
    "sys/bus/pci/devices/0000:01:00.0/max_link_width",
    "sys/bus/pci/devices/0000:01:00.0/local_cpulist",
    "sys/bus/pci/devices/0000:01:00.0/net/eth0/speed",
];

/// The environment variables that locate the tuning.
const VARIABLES: [&str; 3] = ["HAUL_TUNING", "XDG_CONFIG_HOME", "HOME"];

#[derive(Arbitrary, Debug)]
struct Input {
    /// The index of a file in [`FILES`], and its content.
    files: Vec<(u8, Vec<u8>)>,
    variables: [Option<Vec<u8>>; 3],
}

/// One folder for all inputs of this process.
static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("haul-fuzz-{}", std::process::id()));
    for file in FILES {
        let folder = root.join(file);
        fs::create_dir_all(folder.parent().expect("a file in a folder")).expect("a folder");
    }
    root
});

fuzz_target!(|input: Input| {
    let root: &Path = &ROOT;
    for file in FILES {
        let _ = fs::remove_file(root.join(file));
    }
    for (index, text) in &input.files {
        let file = FILES[usize::from(*index) % FILES.len()];
        fs::write(root.join(file), text).expect("written");
    }
    let sys = Sys::at(root);
    let machine = sys.machine();
    assert!(machine.processors > 0);
    assert!(!machine.id.is_empty());
    for offer in sys.offers() {
        assert!(!format!("{offer:?}").is_empty());
    }
    let _ = (sys.devices(), sys.huge_pages(), sys.caches(), sys.memory(), sys.not_mounted());
    let _ = sys.pcie_devices();
    let _ = locate(|name| {
        let index = VARIABLES.iter().position(|variable| *variable == name)?;
        input.variables[index].clone().map(OsString::from_vec)
    });
});
