//! The rules for combining options of `haul forward pvp`.

use haul_experiments::forward::{
    Bench, Buffers, Flow, GUEST_ROOM_BYTES, Layout, VhostPort, is_ceiling,
};
use haul_model::Bytes;

use crate::arguments::forward::{Pvp as Arguments, PvpSettings};
use crate::error::Error;
use crate::terminal;

/// The shortest and the longest frames, without their check sequence.
const SIZE_MIN: u64 = 60;
const SIZE_MAX: u64 = haul::forward::PACKET_BYTES_MAX as u64;

/// The longest frames that a kernel's NIC accepts by default.
const SIZE_OF_KERNEL_MAX: u64 = 1514;

/// Whether this switch was named.
pub(super) fn is_asked(arguments: &Arguments, name: &str) -> bool {
    arguments.switch.iter().any(|switch| switch.program == name)
}

/// Whether haul is the only switch.
fn is_alone(arguments: &Arguments) -> bool {
    arguments.switch.iter().all(|switch| switch.program == "haul")
}

/// Checks that the options fit together.
///
/// # Errors
/// An option belongs to another flow or to other switches.
pub(super) fn check(arguments: &Arguments, settings: &PvpSettings) -> Result<(), Error> {
    let unused = |option, belongs, remedy| Err(Error::Unused { option, belongs, remedy });
    let flow = arguments.flow;
    if is_asked(arguments, "ovs") && ![Flow::Pvp, Flow::Return].contains(&flow) {
        let belongs = "--flow pvp and --flow return";
        return unused("--switch ovs", belongs, "name one of these");
    }
    if settings.ovs_port != VhostPort::default() && !is_asked(arguments, "ovs") {
        return unused("the setting ovs_port", "--switch ovs", "add it");
    }
    if arguments.is_to_kernel() {
        fits_kernel(arguments, settings)?;
    } else if settings.guest_image.is_some() {
        return unused("the setting guest_image", "--guest qemu", "add it");
    }
    if flow == Flow::Return && arguments.guest != "haul" {
        return unused("--guest testpmd", "the other flows", "name --guest haul");
    }
    if settings.buffers.is_some() && arguments.guest != "testpmd" {
        return unused("the setting buffers", "--guest testpmd", "name it");
    }
    if settings.queues > 1 {
        fits_queues(arguments, settings)?;
    }
    let is_for_search = [
        ("the setting trial", settings.trial.is_some()),
        ("the setting trial_sum", settings.trial_sum.is_some()),
        ("the setting latency", settings.latency),
    ];
    if arguments.search.is_empty()
        && let Some((setting, _)) = is_for_search.iter().find(|(_, is_given)| *is_given)
    {
        return unused(*setting, "--search", "add it");
    }
    if arguments.sweep.is_none() {
        return Ok(());
    }
    if ![Flow::Pvp, Flow::Enqueue].contains(&flow) {
        return unused("--sweep", "--flow pvp and --flow enqueue", "name one of these");
    }
    if !is_alone(arguments) {
        return unused("--sweep", "--switch haul alone", "leave the others out");
    }
    Ok(())
}

/// Checks that several queues are possible with these options.
///
/// # Errors
/// An option belongs to another program, or makes packets of only one flow.
fn fits_queues(arguments: &Arguments, settings: &PvpSettings) -> Result<(), Error> {
    let option = "queues of more than 1";
    let unused = |belongs, remedy| Err(Error::Unused { option, belongs, remedy });
    if !is_alone(arguments) || arguments.guest != "haul" {
        return unused("--switch haul and --guest haul", "name these alone");
    }
    if arguments.flow == Flow::Loopback {
        return unused("the other flows", "name one of these");
    }
    if settings.source.as_deref() == Some("null") {
        return unused("source = gen, whose packets belong to many flows", "name it");
    }
    // Packets that were not copied have random content, and so a random flow.
    if arguments.copy.iter().any(|copy| is_ceiling(copy)) {
        return unused("a --copy that copies packets", "name haul or libc");
    }
    Ok(())
}

/// Checks that a kernel can be the guest with these options.
///
/// # Errors
/// An option is for other guests.
fn fits_kernel(arguments: &Arguments, settings: &PvpSettings) -> Result<(), Error> {
    let processes = "--guest haul and --guest testpmd";
    let unused = |option, remedy| Err(Error::Unused { option, belongs: processes, remedy });
    if arguments.flow != Flow::Pvp {
        return unused("another --flow than pvp", "name --flow pvp");
    }
    if ![Layout::Split, Layout::Packed].contains(&settings.layout) {
        return unused("this layout", "name split or packed");
    }
    if is_asked(arguments, "ovs") {
        return unused("--switch ovs", "name haul or testpmd");
    }
    if arguments.sweep.is_some() {
        return unused("--sweep", "name --sizes");
    }
    // A kernel drops packets without addresses.
    if arguments.copy.iter().any(|copy| is_ceiling(copy)) {
        return unused("a --copy that copies nothing", "name haul or libc");
    }
    Ok(())
}

/// The sizes of a run, if every side accepts them.
///
/// # Errors
/// A size is impossible, or a packet of this size needs more buffers than the rings' layout allows.
pub(super) fn sizes(
    arguments: &Arguments,
    settings: &PvpSettings,
    buffers: Buffers,
) -> Result<Vec<usize>, Error> {
    let sizes = arguments.sweep.as_ref().unwrap_or(&arguments.sizes);
    let limit = if arguments.is_to_kernel() { SIZE_OF_KERNEL_MAX } else { SIZE_MAX };
    let mut checked = Vec::new();
    for size in &sizes.0 {
        if !(SIZE_MIN..=limit).contains(&size.0) {
            let (least, most) = (Bytes(SIZE_MIN), Bytes(limit));
            return Err(Error::PacketSize { asked: *size, least, most });
        }
        checked.extend(usize::try_from(size.0));
    }
    checked.dedup();
    if settings.buffers.is_some() && checked.iter().all(|size| *size <= GUEST_ROOM_BYTES) {
        let (option, belongs) = ("the setting buffers", "sizes above 2048 B");
        return Err(Error::Unused { option, belongs, remedy: "name one of these" });
    }
    let is_one = settings.layout.is_mergeable()
        || checked.iter().all(|size| *size <= GUEST_ROOM_BYTES)
        || arguments.guest == "testpmd" && buffers == Buffers::One;
    if is_one {
        return Ok(checked);
    }
    let (option, belongs) = match settings.buffers {
        Some(Buffers::Several) => ("buffers=several", "the layouts with mergeable buffers"),
        _ => ("sizes above 2048 B", "layouts with mergeable buffers, and for --guest testpmd"),
    };
    Err(Error::Unused { option, belongs, remedy: "name one of these" })
}

/// Warns if queues share threads. If there is only one processor, another check refuses the run.
pub(super) fn warn_of_threads(bench: &Bench) {
    let (queues, processors) = (usize::from(bench.queues), haul_measure::sys::affinity().len());
    let threads = bench.threads(processors);
    if threads < queues && processors > 1 {
        let threads = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
        terminal::say(&format!(
            "haul: warning: {queues} queues share {threads} on each side: this process may \
             run on {processors} processors, but {} would give each queue its own",
            2 * queues
        ));
    }
}
