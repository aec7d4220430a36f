//! What users and developers of other programs have reported about DSA, each as a test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{LIMIT, PAGE_BYTES, Pages, Rig, WRITTEN, copy};
use crate::contract::Engine as _;
use crate::dsa::fake::{Event, Fake, Settings, When};
use crate::dsa::sysfs::tests::root_with;
use crate::dsa::{Link, Options, chain};
use crate::operation::Operation;
use crate::outcome::{Access, Outcome, Refusal};

fn write_only() -> Options {
    Options { only_write: true, ..Options::default() }
}

/// SPDK#2486: status 131 with 0 bytes. It is a page fault of a write, and keeps its address.
#[test]
fn status_131_is_a_page_fault_of_a_write() {
    let (source, target) = (Pages::filled(2), Pages::new(2));
    target.protect_from(0, rustix::mm::MprotectFlags::READ);
    let event = Event::Status { byte: 131, bytes: 0 };
    let rig = Rig::new(Settings::default().inject(When::At(1), event));
    let outcome = rig.run(copy(&source, &target, 100));
    assert!(
        matches!(outcome, Outcome::Partial { bytes_done: 0, access: Access::Write, .. }),
        "{outcome:?}"
    );
    // The same from memory, with its address.
    let address = target.start.addr();
    let partial = Outcome::Partial { bytes_done: 0, address, access: Access::Write };
    assert_eq!(rig.run(copy(&source, &target, 100)), partial);
}

/// DML#48 and #42: faults although the pages were touched, or the descriptor blocks on faults. The
/// engine resumes at the byte, twice in one copy; the third fault is a partial result.
#[test]
fn copies_survive_two_faults_at_any_byte() {
    let (source, target) = (Pages::filled(4), Pages::new(4));
    let length = 4 * PAGE_BYTES;
    for block_on_fault in [false, true] {
        for (first, second) in [(0, 0), (1, 1), (4095, 1), (4096, 4096), (16_000, 383), (16_383, 0)]
        {
            let fault = |byte| Event::Fault { byte, access: Access::Write };
            let settings = Settings::default()
                .inject(When::At(1), fault(first))
                .inject(When::At(2), fault(second));
            let options = Options { block_on_fault, ..Options::default() };
            let rig = Rig::with(settings.clone(), 0, options, 4);
            target.fill(|_| 0);
            assert_eq!(rig.run(copy(&source, &target, length)), WRITTEN, "{first} {second}");
            assert_eq!(target.bytes(), source.bytes());
            let rig = Rig::with(settings.inject(When::At(3), fault(0)), 0, options, 4);
            target.fill(|_| 0);
            let bytes_done = (first + second) as usize;
            let address = target.start.addr() + bytes_done;
            let partial = Outcome::Partial { bytes_done, address, access: Access::Write };
            assert_eq!(rig.run(copy(&source, &target, length)), partial);
            assert_eq!(target.bytes()[..bytes_done], source.bytes()[..bytes_done]);
            assert!(target.bytes()[bytes_done..].iter().all(|byte| *byte == 0));
        }
    }
}

/// A device that cannot resolve faults meets memory that nothing has touched.
#[test]
fn untouched_target_of_two_pages_is_copied_whole() {
    let (source, target) = (Pages::filled(2), Pages::new(2));
    let rig = Rig::new(Settings { strict: true, ..Settings::default() });
    assert_eq!(rig.run(copy(&source, &target, 2 * PAGE_BYTES)), WRITTEN);
    assert_eq!(target.bytes(), source.bytes());
}

/// DML#46: random internal errors under threads.
#[test]
fn eight_threads_share_a_queue() {
    const COPIES: usize = 1_000_000 / 8;
    const BYTES: usize = 32;
    let rig = Rig::with(Settings { engines: 2, ..Settings::default() }, 0, Options::default(), 64);
    let by_cpu = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (source, target) = (Pages::filled(1), Pages::new(1));
                let bytes = source.bytes();
                for number in 0..COPIES {
                    let offset = number % (PAGE_BYTES - BYTES);
                    let from = source.start.wrapping_add(offset).cast_const();
                    let operation =
                        Operation::Copy { source: from, target: target.start, length: BYTES };
                    match rig.start(operation) {
                        Ok(index) => assert_eq!(rig.wait(index), WRITTEN),
                        Err(Refusal::Full) => {
                            by_cpu.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                    // SAFETY: the copy has ended, and the page is this thread's.
                    let copied = unsafe { target.start.cast::<[u8; BYTES]>().read_volatile() };
                    assert_eq!(copied, bytes[offset..offset + BYTES], "{number}");
                }
            });
        }
    });
    let counts = rig.fake.counts();
    assert_eq!(counts.completed as usize + by_cpu.load(Ordering::Relaxed), 8 * COPIES);
    assert_eq!((counts.unrecorded, rig.engine.troubles().len()), (0, 0));
}

/// DML#41: "error 16". The text names the queue, the cause and the remedy.
#[test]
fn status_16_is_explained() {
    let event = Event::Status { byte: 16, bytes: 0 };
    let rig = Rig::new(Settings::default().inject(When::At(1), event));
    let (source, target) = (Pages::filled(1), Pages::new(1));
    assert_eq!(rig.run(copy(&source, &target, 9)), Outcome::Refused(Refusal::Status(16)));
    let text = rig.engine.troubles()[0].to_string();
    assert_eq!(
        text,
        "dsa:wq0.0 reported 1 times status 0x10: the device or the queue does not allow this \
         operation; read op_cap of the device and op_config of the queue"
    );
}

/// idxd-config#46 and #78: no SVA, no queue. Each reads as that.
#[test]
fn missing_sva_and_missing_queues_read_as_that() {
    let files = [
        ("sys/bus/dsa/devices/dsa0/state", "enabled"),
        ("sys/bus/dsa/devices/dsa0/pasid_enabled", "0"),
    ];
    let (_folder, sysfs) = root_with(&files);
    let step = chain(&sysfs).pop().unwrap();
    assert_eq!(step.link, Link::Sva);
    assert!(step.remedy.unwrap().contains("intel_iommu=on,sm_on"));
    let (_folder, sysfs) = root_with(&[files[0], ("sys/bus/dsa/devices/dsa0/pasid_enabled", "1")]);
    let step = chain(&sysfs).pop().unwrap();
    assert_eq!(step.link, Link::Queue);
    assert!(step.detail.contains("none is enabled"));
    // The kernel refuses to open a queue without SVA.
    let fake = Fake::new(Settings { sva: false, ..Settings::default() }).unwrap();
    assert_eq!(fake.open(0).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
}

/// idxd-config#85: a guest sees the device, but has no queue.
#[test]
fn guest_without_sva_is_referred_to_its_iommu() {
    let (_folder, sysfs) = root_with(&[
        ("sys/bus/pci/devices/0000:00:05.0/vendor", "0x8086"),
        ("sys/bus/pci/devices/0000:00:05.0/device", "0x0b25"),
        ("sys/bus/dsa/devices/dsa0/pasid_enabled", "0"),
    ]);
    let step = chain(&sysfs).pop().unwrap();
    assert_eq!(step.link, Link::Sva);
    assert!(step.remedy.unwrap().contains("in a guest"));
}

/// dsa-perf-micros#3: "halted, need FLR". All pending operations end, and their number is known.
#[test]
fn halted_device_ends_128_pending_operations() {
    let queue = crate::dsa::fake::QueueSettings { size: 128, ..Default::default() };
    let rig = Rig::with(Settings::default().queues([queue]), 0, Options::default(), 128);
    let (source, target) = (Pages::filled(1), Pages::new(1));
    rig.fake.wedge();
    let pending: Vec<_> =
        (0..128).map(|_| rig.start(copy(&source, &target, 16)).unwrap()).collect();
    rig.fake.halt();
    // No wait was called: polls alone find that the device is disabled.
    for index in pending {
        assert_eq!(rig.wait(index), Outcome::Gone);
    }
    assert_eq!(rig.start(copy(&source, &target, 16)), Err(Refusal::Gone));
}

/// SPDK#2586: a completion loop that its own callbacks feed starves everything. A poll ends a
/// bounded number of operations.
#[test]
fn poll_ends_a_bounded_number_of_operations() {
    let rig = Rig::new(Settings::default());
    let (source, target) = (Pages::filled(1), Pages::new(1));
    let mut pending = Vec::new();
    while pending.len() < 100 {
        pending.extend(rig.start(copy(&source, &target, 16)));
    }
    let end = Instant::now() + LIMIT;
    while rig.fake.counts().completed < 100 {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(1));
    }
    rig.engine.poll(pending[0]);
    let ended = pending.iter().filter(|index| rig.slots.outcome(**index).is_some()).count();
    assert!((1..=9).contains(&ended), "{ended}");
    for index in pending {
        assert_eq!(rig.wait(index), WRITTEN);
    }
}

/// libfabric#10187: machines on which only `write` submits.
#[test]
fn write_alone_does_everything() {
    let settings = Settings { portal: false, batches: false, ..Settings::default() };
    for queue in [0, 1] {
        let rig = Rig::with(settings.clone(), queue, write_only(), 64);
        let (source, target) = (Pages::filled(8), Pages::new(8));
        for length in [1, 63, 4096, 4097, 8 * PAGE_BYTES] {
            target.fill(|_| 0);
            assert_eq!(rig.run(copy(&source, &target, length)), WRITTEN);
            assert_eq!(target.bytes()[..length], source.bytes()[..length]);
            assert!(target.bytes()[length..].iter().all(|byte| *byte == 0));
        }
    }
}

/// vllm#46278: a store read what was not yet written. Of two copies, the second starts when the
/// first has ended, and reads all of it.
#[test]
fn dependent_copies_see_each_other() {
    let delay = Event::Delay(Duration::from_micros(200));
    let rig =
        Rig::new(Settings { engines: 4, ..Settings::default() }.inject(When::Every(2), delay));
    let pages: Vec<Pages> = (0..10).map(|_| Pages::new(2)).collect();
    pages[0].fill(|index| (index % 250 + 1) as u8);
    for two in pages.windows(2) {
        assert_eq!(rig.run(copy(&two[0], &two[1], 2 * PAGE_BYTES)), WRITTEN);
    }
    assert_eq!(pages[9].bytes(), pages[0].bytes());
}

/// Open vSwitch, 2022: submission on one thread, completion on another, the target's owner gone.
#[test]
fn completion_on_another_thread_after_the_owner_has_ended() {
    let rig = Rig::new(Settings::default());
    let source = Pages::filled(1);
    for unmaps in [false, true] {
        let target = Pages::new(1);
        rig.fake.wedge();
        let index = thread::scope(|scope| {
            scope.spawn(|| rig.start(copy(&source, &target, 100)).unwrap()).join().unwrap()
        });
        if unmaps {
            target.unmap_from(0);
        }
        rig.fake.reset();
        let outcome = thread::scope(|scope| scope.spawn(|| rig.wait(index)).join().unwrap());
        match unmaps {
            false => assert_eq!(outcome, WRITTEN),
            true => {
                assert!(matches!(outcome, Outcome::Partial { bytes_done: 0, .. }), "{outcome:?}")
            }
        }
    }
}
