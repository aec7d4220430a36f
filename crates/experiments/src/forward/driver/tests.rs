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
    let mut switch = Forwarding::start(&start(Role::Switch, cpus[0])).unwrap();
    let last = *cpus.last().unwrap();
    let mut guest = Forwarding::start(&start(Role::Guest, last)).unwrap();
    guest.await_link().unwrap();
    switch.await_link().unwrap();
    guest.go(None).unwrap();
    switch.go(Some(20_000.0)).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let counted = switch.halt().unwrap();
    assert!(counted.made > 2000 && counted.returned > 0, "{counted:?}");
    assert_eq!(counted.made, counted.returned + counted.missing, "{counted:?}");
    assert_eq!(Ledger::of(&counted).unaccounted, 0, "{counted:?}");
    let came = |batches: &Vec<u64>| batches.iter().skip(1).any(|count| *count > 0);
    assert_eq!(counted.rx_batches.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    assert!(counted.rx_batches.values().all(came), "{counted:?}");
    // The other side has received every packet that one side sent.
    let counted_there = guest.halt().unwrap();
    assert_eq!(counted_there.rx_packets, counted.tx_packets);
    assert!(Forwarding::start(&Start { queues: 1, ..start(Role::Switch, cpus[0]) }).is_err());
}
