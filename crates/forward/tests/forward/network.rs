//! Pairs of virtual interfaces, each in a network namespace of its own, which ends with the thread
//! that created it.

use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Why this machine cannot create a pair, as a line that is printed once per test.
fn lacks() -> Option<&'static str> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&folders).any(|it| it.join("ip").is_file()) {
        return Some("no ip on PATH: apt-get install iproute2");
    }
    if !rustix::process::geteuid().is_root() {
        return Some("not running as root: run it as root");
    }
    None
}

/// Runs `test` on a separate thread, in a network namespace with two interfaces, `haul0` and
/// `haul1`. Each interface receives the packets that the other one sends. The namespace and its
/// interfaces end with the thread and the sockets created there.
pub(crate) fn with_pair(what: &str, test: impl FnOnce() + Send) {
    if let Some(why) = lacks() {
        eprintln!("SKIPPED: {what}: {why}");
        return;
    }
    std::thread::scope(|scope| {
        let run = || {
            // SAFETY: changes only this thread's network namespace; no descriptors are unshared.
            let result = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
            if result.is_err() {
                eprintln!("SKIPPED: {what}: no network namespaces: run it outside a container");
                return;
            }
            // Only the test sends there: no IPv6, no ARP.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            if !make_pair() {
                eprintln!("SKIPPED: {what}: no virtual interfaces: modprobe veth");
                return;
            }
            test();
        };
        let thread = scope.spawn(run);
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Creates both interfaces; returns whether that succeeded.
pub(crate) fn make_pair() -> bool {
    let is_made = ip("link add name haul0 type veth peer name haul1");
    let is_up = |name| ip(&format!("link set dev {name} addrgenmode none arp off up"));
    is_made && is_up("haul0") && is_up("haul1")
}

/// Runs `ip` in this thread's namespace; returns whether it succeeded.
pub(crate) fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).status().unwrap().success()
}
