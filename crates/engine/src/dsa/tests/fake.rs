//! The fake as a device: descriptors in, records out.

use std::time::{Duration, Instant};

use rustix::mm::MprotectFlags;

use super::{LIMIT, PAGE_BYTES, Pages};
use crate::dsa::fake::{Client, Event, Fake, QueueSettings, Settings, When};
use crate::dsa::{
    Completion, Descriptor, Mode, Opcode, Placement, QueueType, Record, Status, flag,
};
use crate::outcome::Access;

fn fake(settings: Settings) -> (Fake, Client) {
    let fake = Fake::new(settings).unwrap();
    let client = fake.open(0).unwrap();
    (fake, client)
}

fn wait(record: &Record) -> Completion {
    let end = Instant::now() + LIMIT;
    loop {
        match record.poll() {
            Some(completion) => return completion,
            None => assert!(Instant::now() < end, "the record is not written"),
        }
        std::thread::yield_now();
    }
}

fn run(client: &Client, descriptor: Descriptor) -> Completion {
    let record = Record::new();
    let descriptor = descriptor.record(record.address());
    // SAFETY: the record lives until it is written, and the tests keep the pages.
    assert_eq!(unsafe { client.write(descriptor.bytes()) }.unwrap(), 64);
    wait(&record)
}

#[test]
fn operations_do_what_the_processor_does() {
    let (_fake, client) = fake(Settings::default());
    let (source, target) = (Pages::filled(5), Pages::new(5));
    let (from, to) = (source.address() + 3, target.address() + 5);
    let size = 4 * PAGE_BYTES as u32 + 77;
    let bytes = source.bytes()[3..3 + size as usize].to_vec();
    let crc = crate::crc32c(9, &bytes);
    let at = |completion: Completion| (completion.status, completion.result, completion.completed);
    assert_eq!(at(run(&client, Descriptor::copy(from, to, size))), (Status::Success, 0, 0));
    assert_eq!(target.bytes()[5..5 + size as usize], bytes);
    assert_eq!(at(run(&client, Descriptor::compare(from, to, size))), (Status::Success, 0, 0));
    assert_eq!(run(&client, Descriptor::crc(from, size, 9)).crc, crc);
    run(&client, Descriptor::fill(0x0807_0605_0403_0201, to, 20));
    assert_eq!(target.bytes()[5..25], [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]);
    assert_eq!(target.bytes()[25..5 + size as usize], bytes[20..]);
    let different = run(&client, Descriptor::compare(from + 20, to + 20, size - 20));
    assert_eq!(at(different), (Status::Success, 0, 0));
    let different = run(&client, Descriptor::compare(from, to, size));
    assert_eq!((different.status, different.result), (Status::Success, 1));
    let first = (0..20).find(|index| bytes[*index] != target.bytes()[5 + index]).unwrap();
    assert_eq!(different.completed as usize, first);
    assert_eq!(run(&client, Descriptor::copy_crc(from, to, size, 9)).crc, crc);
    assert_eq!(target.bytes()[5..5 + size as usize], bytes);
    assert_eq!(run(&client, Descriptor::noop()).status, Status::Success);
}

#[test]
fn overlapping_copies_are_those_of_memmove() {
    let (_fake, client) = fake(Settings::default());
    for (from, to) in [(0usize, 1000usize), (1000, 0), (10, 20_000), (20_000, 10)] {
        let pages = Pages::filled(12);
        let size = 5 * PAGE_BYTES + 99;
        let mut expected = pages.bytes();
        expected.copy_within(from..from + size, to);
        let (source, target) = (pages.address() + from as u64, pages.address() + to as u64);
        let completion = run(&client, Descriptor::copy(source, target, size as u32));
        assert_eq!(completion.status, Status::Success);
        assert_eq!(pages.bytes(), expected);
    }
    let pages = Pages::filled(1);
    let crc = Descriptor::copy_crc(pages.address(), pages.address() + 1, 100, 0);
    assert_eq!(run(&client, crc).status, Status::Overlap);
}

/// Each check of the device, by a descriptor that fails it.
#[test]
fn invalid_descriptors_get_the_status_of_the_specification() {
    let queue = QueueSettings {
        blocks_on_fault: false,
        transfer_bytes_max: 1 << 16,
        ..QueueSettings::default()
    };
    let (fake, client) = fake(Settings::default().queues([queue]));
    let pages = Pages::filled(2);
    let at = pages.address();
    let with_bytes = |first: usize, bytes: &[u8]| {
        let mut all = *Descriptor::copy(at, at + 4096, 64).bytes();
        all[first..first + bytes.len()].copy_from_slice(bytes);
        Descriptor::from_bytes(all)
    };
    for (descriptor, status) in [
        (with_bytes(7, &[0x7f]), Status::Opcode),
        (with_bytes(6, &[0x80]), Status::Flags),
        (Descriptor::copy(at, at + 4096, 64).block_on_fault(true), Status::Flags),
        (Descriptor::compare(at, at, 64).placement(Placement::Cache), Status::Flags),
        (Descriptor::crc(at, 64, 0).placement(Placement::Cache), Status::Flags),
        (Descriptor::noop().placement(Placement::Cache), Status::Flags),
        // Byte 4 has the flags: an expected result of a copy.
        (with_bytes(4, &[0x8c]), Status::Flags),
        (with_bytes(3, &[0x80]), Status::Privilege),
        (with_bytes(2, &[0x10]), Status::Reserved),
        (with_bytes(38, &[1]), Status::Reserved),
        (Descriptor::copy(at, at + 4096, 0), Status::Size),
        (Descriptor::copy(at, at + 4096, (1 << 16) + 1), Status::Size),
        (Descriptor::batch(at, 1), Status::Count),
        (Descriptor::batch(at, 33), Status::Count),
        (Descriptor::batch(at + 8, 2), Status::ListAlignment),
        (Descriptor::batch(64, 2), Status::BatchPageFault),
    ] {
        assert_eq!(run(&client, descriptor).status, status, "{descriptor:?}");
    }
    let misaligned = Descriptor::copy(at, at + 4096, 64).record(at + 8);
    // SAFETY: the kernel refuses the descriptor.
    let refused = unsafe { client.write(misaligned.bytes()) }.unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    // A portal does not check the record, and the device cannot write it.
    // SAFETY: the ranges live until the client is closed.
    assert!(unsafe { client.enqueue(&misaligned) });
    let end = Instant::now() + LIMIT;
    while fake.counts().unrecorded == 0 {
        assert!(Instant::now() < end);
    }
}

#[test]
fn faults_name_byte_address_and_access() {
    let (_fake, client) = fake(Settings::default());
    let (source, target) = (Pages::filled(4), Pages::new(4));
    target.protect_from(2, MprotectFlags::READ);
    let size = 4 * PAGE_BYTES as u32;
    let copy = Descriptor::copy(source.address(), target.address(), size);
    let write_fault = Completion {
        status: Status::PageFault,
        access: Access::Write,
        result: 0,
        completed: 2 * PAGE_BYTES as u32,
        fault_address: target.address() + 2 * PAGE_BYTES as u64,
        crc: 0,
    };
    assert_eq!(run(&client, copy), write_fault);
    let blocked = Completion { status: Status::PageFaultInvalid, ..write_fault };
    assert_eq!(run(&client, copy.block_on_fault(true)), blocked);
    let fill = Descriptor::fill(0, target.address(), size);
    assert_eq!(run(&client, fill), write_fault);
    source.unmap_from(1);
    let read_fault = Completion {
        access: Access::Read,
        completed: PAGE_BYTES as u32,
        fault_address: source.address() + PAGE_BYTES as u64,
        ..write_fault
    };
    assert_eq!(run(&client, copy), read_fault);
    let crc = run(&client, Descriptor::crc(source.address(), size, 0));
    assert_eq!(Completion { crc: 0, ..crc }, read_fault);
    assert_eq!(crc.crc, crate::crc32c(0, &target.bytes()[..PAGE_BYTES]));
    let null = run(&client, Descriptor::copy(0, target.address(), 8));
    assert_eq!((null.status, null.completed, null.access), (Status::PageFault, 0, Access::Read));
}

/// Every byte of a copy, forward and from its end.
#[test]
fn injected_faults_stop_at_their_byte() {
    let (source, target) = (Pages::filled(2), Pages::new(2));
    for byte in [0u32, 1, 63, 64, 4095, 4096, 4097, 8191] {
        for access in [Access::Read, Access::Write] {
            let event = Event::Fault { byte, access };
            let (_fake, client) = fake(Settings::default().inject(When::At(1), event));
            target.fill(|_| 0);
            let copy = Descriptor::copy(source.address(), target.address(), 8192);
            let completion = run(&client, copy);
            let side = if access == Access::Read { &source } else { &target };
            assert_eq!(completion.status, Status::PageFault);
            assert_eq!((completion.completed, completion.access), (byte, access));
            assert_eq!(completion.fault_address, side.address() + u64::from(byte));
            let bytes = target.bytes();
            assert_eq!(bytes[..byte as usize], source.bytes()[..byte as usize]);
            assert!(bytes[byte as usize..].iter().all(|byte| *byte == 0));
            // The next descriptor has no fault.
            assert_eq!(run(&client, copy).status, Status::Success);
        }
    }
    let event = Event::Fault { byte: 100, access: Access::Write };
    let (_fake, client) = fake(Settings::default().inject(When::At(1), event));
    let pages = Pages::filled(2);
    let before = pages.bytes();
    let completion = run(&client, Descriptor::copy(pages.address(), pages.address() + 10, 5000));
    assert_eq!((completion.result, completion.completed), (1, 100));
    assert_eq!(completion.fault_address, pages.address() + 10 + 5000 - 1 - 100);
    let mut expected = before;
    expected.copy_within(4900..5000, 4910);
    assert_eq!(pages.bytes(), expected);
}

#[test]
fn strict_device_faults_in_pages_that_no_access_has_touched() {
    let (source, target) = (Pages::filled(3), Pages::new(3));
    let (_fake, client) = fake(Settings { strict: true, ..Settings::default() });
    let copy = Descriptor::copy(source.address(), target.address(), 3 * PAGE_BYTES as u32);
    let first = run(&client, copy);
    assert_eq!((first.status, first.completed), (Status::PageFault, 0));
    assert_eq!((first.access, first.fault_address), (Access::Write, target.address()));
    // The device asks the kernel for the page, and goes on.
    assert_eq!(run(&client, copy.block_on_fault(true)).status, Status::Success);
    assert_eq!(run(&client, copy).status, Status::Success);
}

#[test]
fn every_status_byte_can_be_injected() {
    for byte in 1..=u8::MAX {
        let event = Event::Status { byte, bytes: 0 };
        let (_fake, client) = fake(Settings::default().inject(When::At(1), event));
        let completion = run(&client, Descriptor::noop());
        assert_eq!(completion.status.byte(completion.access), byte);
    }
}

#[test]
fn full_queues_answer_as_their_mechanism_does() {
    let small = |mode| QueueSettings { mode, size: 4, ..QueueSettings::default() };
    let settings = Settings::default().queues([small(Mode::Shared), small(Mode::Dedicated)]);
    let fake = Fake::new(settings).unwrap();
    fake.wedge();
    let (shared, dedicated) = (fake.open(0).unwrap(), fake.open(1).unwrap());
    let six = Descriptor::noop().bytes().repeat(6);
    // SAFETY: a no-operation accesses no memory.
    let taken = unsafe { shared.write(&six) }.unwrap();
    assert_eq!(taken, 4 * 64, "a short write");
    // SAFETY: as above.
    let refused = unsafe { shared.write(&six) }.unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
    // SAFETY: as above.
    assert!(!unsafe { shared.enqueue(&Descriptor::noop()) });
    for _ in 0..6 {
        // SAFETY: as above.
        unsafe { dedicated.store(&Descriptor::noop()) };
    }
    assert_eq!(fake.counts().full, 2 + 1 + 2 - 1 + 1);
    fake.reset();
    let end = Instant::now() + LIMIT;
    while fake.counts().completed < 8 {
        assert!(Instant::now() < end);
    }
}

#[test]
fn opening_follows_the_kernels_rules() {
    let queue = QueueSettings::default();
    let fake = Fake::new(Settings::default().queues([
        QueueSettings { mode: Mode::Dedicated, ..queue.clone() },
        QueueSettings { is_enabled: false, ..queue.clone() },
        QueueSettings { queue_type: QueueType::Kernel, ..queue },
    ]))
    .unwrap();
    let error = |queue: usize| fake.open(queue).map(drop).unwrap_err().raw_os_error();
    let first = fake.open(0).unwrap();
    assert_eq!(error(0), Some(libc::EBUSY));
    drop(first);
    assert!(fake.open(0).is_ok());
    assert_eq!([error(1), error(2), error(3)], [Some(libc::ENXIO); 3]);
    fake.remove();
    assert_eq!(error(0), Some(libc::ENODEV));
    let without = Fake::new(Settings { sva: false, ..Settings::default() }).unwrap();
    assert_eq!(without.open(0).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    let unsafe_device = Settings { portal: false, batches: false, ..Settings::default() };
    let (fake, client) = (Fake::new(unsafe_device).unwrap(), 0);
    let client = fake.open(client).unwrap();
    assert_eq!(client.check_map().unwrap_err().raw_os_error(), Some(libc::EPERM));
    let batch = Descriptor::batch(0, 2);
    // SAFETY: the kernel refuses the descriptor.
    let refused = unsafe { client.write(batch.bytes()) }.unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    assert!(!fake.settings().operations().has(Opcode::Batch));
}

#[test]
fn batches_complete_in_order_and_count() {
    let event = Event::Status { byte: 0x20, bytes: 0 };
    // The batch is number 1, its descriptors are 2 to 4.
    let (_fake, client) = fake(Settings::default().inject(When::At(3), event));
    let (source, target) = (Pages::filled(3), Pages::new(3));
    let records = [const { Record::new() }; 3];
    let page = |index: u64| index * PAGE_BYTES as u64;
    let mut list: Vec<Descriptor> = (0..3)
        .map(|index| {
            let (from, to) = (source.address() + page(index), target.address() + page(index));
            Descriptor::copy(from, to, PAGE_BYTES as u32).record(records[index as usize].address())
        })
        .collect();
    let batch = |list: &[Descriptor]| Descriptor::batch(list.as_ptr().addr() as u64, 3);
    let completion = run(&client, batch(&list));
    assert_eq!((completion.status, completion.completed), (Status::BatchFailed, 2));
    let statuses = [Status::Success, Status::Hardware, Status::Success];
    assert_eq!([0, 1, 2].map(|index: usize| records[index].poll().unwrap().status), statuses);
    assert_eq!(target.bytes()[2 * PAGE_BYTES..], source.bytes()[2 * PAGE_BYTES..]);
    // A fence keeps the last from being executed after a failure.
    let (_fake, client) = self::fake(Settings::default().inject(When::At(3), event));
    list[2] = list[2].fence();
    records.iter().for_each(Record::reset);
    let completion = run(&client, batch(&list));
    assert_eq!((completion.status, completion.completed), (Status::BatchFailed, 1));
    assert_eq!(records[2].poll(), None);
    assert_eq!(list[2].flags() & flag::FENCE, flag::FENCE);
}

#[test]
fn close_waits_for_what_is_pending() {
    let delay = Event::Delay(Duration::from_millis(50));
    let (_fake, client) = fake(Settings::default().inject(When::At(1), delay));
    let (source, target, record) = (Pages::filled(1), Pages::new(1), Record::new());
    let copy = Descriptor::copy(source.address(), target.address(), 4096).record(record.address());
    // SAFETY: the pages and the record live until the client is closed.
    unsafe { client.write(copy.bytes()) }.unwrap();
    drop(client);
    assert_eq!(record.poll().unwrap().status, Status::Success);
    let (fake, client) = fake(Settings::default());
    fake.wedge();
    // SAFETY: as above.
    unsafe { client.write(copy.bytes()) }.unwrap();
    let client = client.close_within(Duration::from_millis(20)).unwrap_err();
    fake.halt();
    assert!(client.close_within(LIMIT).is_ok());
}
