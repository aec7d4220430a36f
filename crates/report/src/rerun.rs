//! The command that measures a record again.

use std::fmt::Write as _;

use haul_model::experiment::{key, name};
use haul_model::shell::quoted;
use haul_model::{Bytes, Record};

use crate::select::{NO_READER, branches, bytes, field, reader};

/// The record's own `rerun` parameter, or else the command that its experiment and parameters
/// imply.
pub(crate) fn command(record: &Record) -> String {
    if let Some(own) = record.text(key::RERUN) {
        return own.into();
    }
    match record.experiment.as_str() {
        name::COPY_DISTRIBUTION => {
            // For a distribution read from a file, the name lacks folder and extension, so the path
            // is used.
            let is_file = record.parameters.contains_key(key::FILE);
            let sizes = if is_file { key::FILE } else { key::DISTRIBUTION };
            bench(record, &[(sizes, "--distribution"), (key::LEVEL, "--level")])
        }
        name::COPY_SIZE_CLASS => {
            bench(record, &[(key::SIZE_CLASS, "--size-class"), (key::LEVEL, "--level")])
        }
        name::COPY_SIZE => bench(record, &[(key::SIZE_BYTES, "--sizes"), (key::LEVEL, "--level")]),
        name::COPY_HANDED => {
            let mut command = String::from("haul copy bench --handed");
            options(&mut command, record, &[(key::SIZE_BYTES, "--sizes")]);
            command + " --json"
        }
        name::COPY_STREAM => "haul copy bench --stream STREAM".into(),
        name::COPY_ADVISE => "haul copy advise".into(),
        name::COPY_TUNE => "haul copy tune".into(),
        name::COPY_PROFILE => "haul copy profile -- CMD".into(),
        name::CHANNEL_TRANSFER => channel_bench(record),
        name::ENGINE_LIST => "haul engine list".into(),
        engine if engine.starts_with(name::ENGINE) => "haul engine bench".into(),
        test if test.starts_with(name::FIELD) => "haul field -- CMD".into(),
        name::FORWARD_BURST => "haul forward --port gen --port sink --for 5s".into(),
        flow if flow.starts_with(name::FORWARD) => forward_pvp(record),
        name::HEAP_REPLAY => of_trace("haul heap replay", record),
        name::HEAP_MAP => of_trace("haul heap map --trace", record),
        name::HEAP_LIST => "haul heap list".into(),
        heap if heap.starts_with(name::HEAP) => heap_bench(record),
        name::SIM_PROGRAM | name::SIM_TRACE => "haul sim run PROGRAM".into(),
        name::SIM_SWEEP | name::SIM_WORKERS => "haul sim sweep".into(),
        sim if sim.starts_with(name::SIM) => "haul sim reproduce".into(),
        name::PCIE_BURST => "haul pcie watch".into(),
        pcie if pcie.starts_with(name::PCIE) => {
            format!("haul pcie {}", quoted(pcie.trim_start_matches(name::PCIE)))
        }
        _ => "haul survey".into(),
    }
}

/// One command for all records of a plot if there is one, or else that of the first.
pub(crate) fn command_of_all(records: &[&Record]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let mut sizes: Vec<u64> =
        records.iter().filter_map(|record| bytes(record, key::SIZE_BYTES)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let own = records.iter().any(|record| record.parameters.contains_key(key::RERUN));
    let by_size = matches!(first.experiment.as_str(), name::COPY_SIZE | name::CHANNEL_TRANSFER);
    if own || !by_size || sizes.len() < 2 {
        return command(first);
    }
    let doubles = sizes.windows(2).all(|pair| pair[0] > 0 && pair[1] == 2 * pair[0]);
    let sizes = if doubles && sizes[0].is_power_of_two() {
        format!("{}..{}", sizes[0], Bytes(sizes[sizes.len() - 1])).replace(' ', "")
    } else {
        sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
    };
    command(&(*first).clone().with(key::SIZE_BYTES, sizes))
}

fn forward_pvp(record: &Record) -> String {
    let mut command = String::from("haul forward pvp");
    let flow = record.experiment.trim_start_matches(name::FORWARD);
    if flow != "pvp" {
        let _ = write!(command, " --flow {flow}");
    }
    let own = [(key::SIZE_BYTES, "--sizes"), (key::GUEST, "--guest")];
    options(&mut command, record, &own);
    for setting in [key::LAYOUT, key::BUFFERS, key::QUEUES, key::OVS_PORT] {
        if let Some(value) = field(record, setting) {
            let _ = write!(command, " --set {setting}={}", quoted(&value));
        }
    }
    if let Some(engine) = field(record, key::ENGINE) {
        let _ = write!(command, " --copy haul --engine {}", quoted(&engine));
    } else if record.subject == "haul" {
        options(&mut command, record, &[(key::COPY, "--copy")]);
    }
    let baseline = record.comparison.as_ref().map_or("", |comparison| &comparison.baseline);
    if let Some(library) = field(record, key::LIBRARY) {
        let program = record.subject.split('+').next().unwrap_or_default();
        let _ = write!(command, " --switch {}", quoted(&format!("{program},{program}:{library}")));
        return command;
    }
    for peer in ["testpmd", "ovs"] {
        if record.subject == peer || baseline == peer {
            let _ = write!(command, " --switch haul,{peer}");
        }
    }
    command
}

/// The command for a recorded trace.
fn of_trace(command: &str, record: &Record) -> String {
    let trace = field(record, key::TRACE).unwrap_or_else(|| "TRACE".into());
    format!("{command} {}", quoted(&trace))
}

fn bench(record: &Record, own: &[(&str, &str)]) -> String {
    let mut command = String::from("haul copy bench");
    let common = [(key::FUNCTION, "--function"), (key::THREADS, "--threads")];
    options(&mut command, record, own);
    options(&mut command, record, &common);
    match branches(record).as_str() {
        "random" => {}
        branches => {
            let _ = write!(command, " --branches {}", quoted(branches));
        }
    }
    match reader(record).as_str() {
        NO_READER => {}
        reader => {
            let _ = write!(command, " --then-read {}", quoted(reader));
        }
    }
    options(
        &mut command,
        record,
        &[(key::MISALIGNED, "--misaligned"), (key::OVERLAP, "--overlap")],
    );
    command + " --json"
}

fn heap_bench(record: &Record) -> String {
    let mut command = format!(
        "haul heap bench --test {}",
        quoted(record.experiment.trim_start_matches(name::HEAP))
    );
    let own = [
        (key::SIZE_BYTES, "--sizes"),
        (key::ALIGN_BYTES, "--align"),
        (key::ROUNDS, "--rounds"),
        (key::COUNT, "--count"),
        (key::THREADS, "--threads"),
    ];
    options(&mut command, record, &own);
    let is = |name: &str| record.parameters.get(name).and_then(serde_json::Value::as_bool);
    if is(key::SHARED) == Some(true) {
        command.push_str(" --shared");
    }
    if is(key::POOL) == Some(false) {
        command.push_str(" --no-pool");
    }
    command + " --json"
}

fn channel_bench(record: &Record) -> String {
    let mut command = String::from("haul channel bench");
    let own =
        [(key::SIZE_BYTES, "--sizes"), (key::TARGET, "--target"), (key::BUSY_CORE, "--busy-core")];
    options(&mut command, record, &own);
    command + " --json"
}

/// The options for these parameters, as far as the record has them.
fn options(command: &mut String, record: &Record, own: &[(&str, &str)]) {
    for (parameter, option) in own {
        if let Some(value) = field(record, parameter) {
            let _ = write!(command, " {option} {}", quoted(&value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_repeats_the_recorded_measurement() {
        let record = Record::new("r", "copy.distribution", "haul", "time", "ns")
            .with("distribution", "it's; rm")
            .with("level", "l1")
            .with("function", "memcpy")
            .with("threads", 2);
        assert_eq!(
            command(&record),
            r"haul copy bench --distribution 'it'\''s; rm' --level l1 --function memcpy --threads 2 --json"
        );
        let of_file = record.clone().with("distribution", "service").with("file", "in/service.csv");
        let start = "haul copy bench --distribution in/service.csv --level l1";
        assert!(command(&of_file).starts_with(start), "{}", command(&of_file));
        assert_eq!(command(&record.with("rerun", "haul x")), "haul x");
        let of = |size: u64| {
            Record::new("r", "copy.size", "haul", "time", "ns").with("size_bytes", size)
        };
        let start = "haul copy bench --sizes";
        assert_eq!(command(&of(64)), format!("{start} 64 --json"));
        assert_eq!(
            command_of_all(&[&of(128), &of(64), &of(256)]),
            format!("{start} 64..256B --json")
        );
        assert_eq!(command_of_all(&[&of(64), &of(100)]), format!("{start} 64,100 --json"));
        let of = |experiment: &str| command(&Record::new("r", experiment, "haul", "time", "ns"));
        assert_eq!(of("memory.fault"), "haul survey");
        assert_eq!(of("heap.list"), "haul heap list");
        assert_eq!(of("heap.replay"), "haul heap replay TRACE");
        assert_eq!(of("pcie.bandwidth"), "haul pcie bandwidth");
        assert_eq!(of("sim.table2"), "haul sim reproduce");
        let growth = Record::new("r", "heap.growth", "dpdk", "alloc_time", "ns")
            .with("size_bytes", 4096)
            .with("align_bytes", 4096)
            .with("rounds", 5)
            .with("threads", 1)
            .with("shared", true);
        assert_eq!(
            command(&growth),
            "haul heap bench --test growth --sizes 4096 --align 4096 --rounds 5 --threads 1 --shared --json"
        );
        let flow = Record::new("r", "forward.enqueue", "haul", "rate_peak", "packets/s")
            .with("size_bytes", 64)
            .with("guest", "haul")
            .with("layout", "packed")
            .with("buffers", "one")
            .with("queues", 2)
            .with("copy", "libc");
        let settings = "--set layout=packed --set buffers=one --set queues=2";
        assert_eq!(
            command(&flow),
            format!(
                "haul forward pvp --flow enqueue --sizes 64 --guest haul {settings} --copy libc"
            )
        );
        let ovs = flow.with("library", "lib=target/openvswitch/memcpy").with("copy", "memcpy");
        let ovs =
            Record { subject: "ovs+memcpy".into(), ..ovs.with("ovs_port", "dpdkvhostuserclient") };
        let library = "--switch ovs,ovs:lib=target/openvswitch/memcpy";
        let own = format!("{settings} --set ovs_port=dpdkvhostuserclient {library}");
        let flow = "haul forward pvp --flow enqueue --sizes 64 --guest haul";
        assert_eq!(command(&ovs), format!("{flow} {own}"));
        let transfer = Record::new("r", "channel.transfer", "ucx", "cpu", "s/GB")
            .with("target", "warm")
            .with("busy_core", 1);
        let of = |size: u64| transfer.clone().with("size_bytes", size);
        assert_eq!(
            command_of_all(&[&of(64), &of(128)]),
            "haul channel bench --sizes 64..128B --target warm --busy-core 1 --json"
        );
    }
}
