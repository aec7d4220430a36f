//! The rules for combining options of `haul forward pvp`.

use haul_experiments::forward::{Bench, Flow, Layout, VhostPort, is_ceiling};

use crate::arguments::forward::{Pvp as Arguments, PvpSettings};
use crate::error::Error;
use crate::terminal;

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
