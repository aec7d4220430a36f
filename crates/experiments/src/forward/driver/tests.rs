use super::*;
use crate::forward::ledger::Ledger;

#[test]
fn switch_writes_addresses_if_kernel_needs_them() {
    for (role, source, is_to_kernel, writes) in [
        (Role::Switch, Source::Null, true, true),
        (Role::Switch, Source::Null, false, false),
        (Role::Switch, Source::Generator, true, false),
        (Role::Guest, Source::Null, false, true),
    ] {
        let start = Start {
            role,
            flow: "pvp".into(),
            layout: "split".into(),
            size_bytes: 64,
            copy: "haul".into(),
            engine: None,
            source,
            socket: "/none".into(),
            queues: 1,
            cpus: vec![0],
            is_to_kernel,
            guest_listens: false,
        };
        let found = mode(&start, Flow::Pvp);
        assert_eq!(matches!(found, Mode::Mac { .. }), writes, "{start:?}");
    }
}

/// Each side has two threads, which share a processor. Each generator receives its own packets
/// through its own queue pair, and the ledger of all packets closes.
#[test]
fn threads_of_a_side_have_separate_queue_pairs() {
    let cpus = haul_measure::sys::affinity();
    let folder = tempfile::tempdir().unwrap();
    let start = |role, cpu| Start {
        role,
        flow: "pvp".into(),
        layout: "split".into(),
        size_bytes: 64,
        copy: "haul".into(),
        engine: None,
        source: Source::Generator,
        socket: folder.path().join("socket"),
        queues: 3,
        cpus: vec![cpu; 2],
        is_to_kernel: false,
        guest_listens: false,
    };
    // A side may have no processor for a second: then it makes few packets, or the other side ends
    // before it has returned them.
    let mut reasons = Vec::new();
    let has_passed = [1, 2, 4, 8, 16].into_iter().any(|seconds| {
        let guest = start(Role::Guest, *cpus.last().unwrap());
        let passed = pass(&start(Role::Switch, cpus[0]), &guest, Duration::from_secs(seconds));
        passed.map_err(|reason| reasons.push(reason)).is_ok()
    });
    assert!(has_passed, "{reasons:#?}");
    assert!(Forwarding::start(&Start { queues: 1, ..start(Role::Switch, cpus[0]) }).is_err());
}

/// Lets packets of three queue pairs pass between both sides for a while, and checks the counts.
fn pass(switch: &Start, guest: &Start, time: Duration) -> Result<(), String> {
    let mut switch = Forwarding::start(switch)?;
    let mut guest = Forwarding::start(guest)?;
    guest.await_link()?;
    switch.await_link()?;
    guest.go(None)?;
    switch.go(Some(20_000.0))?;
    std::thread::sleep(time);
    let counted = switch.halt()?;
    // Also if a side had no processor.
    assert_eq!(counted.made, counted.returned + counted.missing, "{counted:?}");
    assert_eq!(Ledger::of(&counted).unaccounted, 0, "{counted:?}");
    assert_eq!(counted.rx_batches.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    let counted_there = guest.halt()?;
    let came = |batches: &Vec<u64>| batches.iter().skip(1).any(|count| *count > 0);
    let has_all = counted.made > 2000
        && counted.returned > 0
        && counted.rx_batches.values().all(came)
        // The other side has received every packet that one side sent.
        && counted_there.rx_packets == counted.tx_packets;
    if has_all { Ok(()) } else { Err(format!("{counted:?} {counted_there:?}")) }
}
