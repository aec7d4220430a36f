//! Reads captures of every form, complete and damaged, and captures that the port has written.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const NS: u32 = 0xa1b2_3c4d;
const US: u32 = 0xa1b2_c3d4;

fn word(number: u32, is_big: bool) -> [u8; 4] {
    if is_big { number.to_be_bytes() } else { number.to_le_bytes() }
}

/// A pcap file. Each packet is given by its time in the file's unit, its captured length and its
/// original length.
fn pcap(magic: u32, is_big: bool, packets: &[(u32, usize, usize)]) -> Vec<u8> {
    let header = [magic, 0, 0, 0, 65_535, 1].into_iter();
    let mut file: Vec<u8> = header.flat_map(|it| word(it, is_big)).collect();
    for (index, (time, kept, original)) in packets.iter().enumerate() {
        let head = [1_700_000_000, *time, *kept as u32, *original as u32].into_iter();
        file.extend(head.flat_map(|it| word(it, is_big)));
        file.extend(frame(index, *kept));
    }
    file
}

fn frame(index: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at + index * 7) as u8).collect()
}

fn pcapng(is_big: bool, packets: &[(u64, usize)]) -> Vec<u8> {
    let words =
        |numbers: &[u32]| -> Vec<u8> { numbers.iter().flat_map(|it| word(*it, is_big)).collect() };
    let version = if is_big { 0x0001_0000 } else { 1 };
    let link = if is_big { 0x0001_0000 } else { 1 };
    let mut file = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, version, u32::MAX, u32::MAX, 28]);
    file.extend(words(&[1, 20, link, 65_535, 20]));
    for (index, (time_us, length)) in packets.iter().enumerate() {
        let block = 32 + length.next_multiple_of(4) as u32;
        let bytes = *length as u32;
        let (high, low) = ((time_us >> 32) as u32, *time_us as u32);
        file.extend(words(&[6, block, 0, high, low, bytes, bytes]));
        file.extend(frame(index, *length));
        file.resize(file.len().next_multiple_of(4), 0);
        file.extend(words(&[block]));
    }
    file
}

fn file(folder: &TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("in.pcap");
    fs::write(&path, bytes).unwrap();
    path
}

fn reading(path: &Path) -> PcapSettings {
    PcapSettings { input: Some(path.into()), passes: Some(1), ..PcapSettings::default() }
}

/// All packets that arrive until the port is finished.
fn all(port: &mut Pcap) -> Result<Vec<Vec<u8>>, Error> {
    let mut pool = Pool::new(300).unwrap();
    let mut burst = Burst::new();
    let mut found = Vec::new();
    while port.link() != Link::Finished {
        port.rx_burst(&mut pool, &mut burst);
        while let Some(packet) = burst.pop() {
            let mut bytes = vec![0; pool.length(&packet)];
            assert!(pool.read(&packet, 0, &mut bytes));
            found.push(bytes);
            pool.free(packet);
        }
        port.service(&mut pool)?;
    }
    assert_eq!(found.len() as u64, port.counters().rx.packets);
    Ok(found)
}

fn read(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, Counters), Error> {
    let folder = tempfile::tempdir().unwrap();
    let mut port = Pcap::open("pcap0", &reading(&file(&folder, bytes)))?;
    let found = all(&mut port)?;
    Ok((found, port.counters))
}

#[test]
fn every_form_delivers_its_packets() {
    let sizes = [60, 61, 62, 63, 64, 1514, 2048, 2049, PACKET_BYTES_MAX, 60];
    let expected: Vec<_> = sizes.iter().enumerate().map(|(at, size)| frame(at, *size)).collect();
    let short: Vec<_> = sizes.iter().map(|size| (1, *size, *size)).collect();
    let long: Vec<_> = sizes.iter().map(|size| (1, *size)).collect();
    for is_big in [false, true] {
        for bytes in [
            pcap(US, is_big, &short),
            pcap(NS, is_big, &short),
            pcapng(is_big, &long),
            [pcapng(is_big, &long[..5]), pcapng(!is_big, &[])].concat(),
        ] {
            let (found, counters) = read(&bytes).unwrap();
            assert_eq!(found, expected[..found.len()]);
            assert!(found.len() == expected.len() || found.len() == 5);
            assert_eq!(counters.rx.drops_sum(), 0);
        }
    }
}

#[test]
fn input_drops_invalid_packets_by_reason() {
    let giant = 70_000;
    let packets = [
        (0, 60, 60),
        (0, 0, 0),
        (0, 13, 13),
        (0, 40, 1514),
        (0, giant, giant),
        (0, 100, giant),
        (0, PACKET_BYTES_MAX + 1, PACKET_BYTES_MAX + 1),
        (0, 61, 61),
    ];
    let whole = pcap(US, false, &packets);
    let (found, counters) = read(&whole).unwrap();
    assert_eq!(found, [frame(0, 60), frame(7, 61)]);
    let drops = |counters: &Counters, reason| counters.rx.drops_for(reason);
    assert_eq!(drops(&counters, DropReason::TooShort), 2);
    assert_eq!(drops(&counters, DropReason::Cut), 1);
    assert_eq!(drops(&counters, DropReason::TooLong), 3);
    assert_eq!(counters.rx.drops_sum(), 6);
    // The file ends within the last packet or its header: this packet is truncated.
    for cut in 1..61 + 16 {
        let (found, counters) = read(&whole[..whole.len() - cut]).unwrap();
        assert_eq!((found.len(), drops(&counters, DropReason::Cut)), (1, 2), "{cut}");
    }
    // A giant packet at the end is truncated likewise.
    let last = pcap(US, false, &packets[..5]);
    let (found, counters) = read(&last[..last.len() - 1]).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((drops(&counters, DropReason::Cut), drops(&counters, DropReason::TooLong)), (2, 0));
    // A block without its end is truncated as well.
    let blocks = pcapng(false, &[(0, 60), (0, 60)]);
    for cut in 1..92 {
        let (found, counters) = read(&blocks[..blocks.len() - cut]).unwrap();
        assert_eq!((found.len(), drops(&counters, DropReason::Cut)), (1, 1), "{cut}");
    }
}

#[test]
fn file_without_packets_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, &pcap(NS, true, &[]));
    let mut port = Pcap::open("p", &PcapSettings { passes: None, ..reading(&path) }).unwrap();
    assert!(all(&mut port).unwrap().is_empty());
}

/// tcpdump and Wireshark accept such a packet: it consists of its captured bytes.
#[test]
fn understated_packet_arrives_with_captured_bytes() {
    let short = pcap(US, false, &[(0, 60, 60), (0, 64, 60), (0, 60, 0), (0, 61, 61)]);
    let folder = tempfile::tempdir().unwrap();
    let mut port = Pcap::open("p", &reading(&file(&folder, &short))).unwrap();
    let lengths: Vec<_> = all(&mut port).unwrap().iter().map(Vec::len).collect();
    assert_eq!((lengths, port.counters.rx.drops_sum()), (vec![60, 64, 60, 61], 0));
    let notes = port.notes();
    assert!(notes.len() == 1 && notes[0].starts_with("2 packets of the capture have a"));
}

/// A block of pcapng in this machine's byte order.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let body = [body, &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
    let length = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, &body, &length].concat()
}

fn interface(link: u16, kept_max: u32, options: &[u8]) -> Vec<u8> {
    block(1, &[&link.to_le_bytes()[..], &[0, 0], &kept_max.to_le_bytes(), options].concat())
}

/// A packet of 60 B of an interface, at this time in ticks.
fn enhanced(interface: u32, ticks: u64) -> Vec<u8> {
    let words = [interface, (ticks >> 32) as u32, ticks as u32, 60, 60];
    let head: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    block(6, &[&head[..], &frame(0, 60)].concat())
}

/// A section of pcapng with these blocks.
fn section(blocks: &[Vec<u8>]) -> Vec<u8> {
    [pcapng(false, &[])[..28].to_vec(), blocks.concat()].concat()
}

#[test]
fn input_delivers_only_ethernet_packets() {
    let mixed = [interface(101, 0, &[]), interface(1, 0, &[]), enhanced(0, 1), enhanced(1, 2)];
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, &section(&mixed));
    let mut port = Pcap::open("p", &reading(&path)).unwrap();
    assert_eq!(all(&mut port).unwrap().len(), 1);
    assert_eq!(port.counters.rx.drops_for(DropReason::Foreign), 1);
    let notes = port.notes();
    assert!(notes[0].contains("1 packets of the capture are not Ethernet (raw IP"));
    // A file without an Ethernet packet ends, with any number of passes.
    let path = file(&folder, &section(&[interface(101, 0, &[]), enhanced(0, 1)]));
    let mut port = Pcap::open("p", &PcapSettings { passes: None, ..reading(&path) }).unwrap();
    assert_eq!(all(&mut port).unwrap().len(), 0);
    assert_eq!(port.counters.rx.drops_for(DropReason::Foreign), 1);
}

/// A simple packet holds at most as many bytes as its interface captures; padding fills the block.
#[test]
fn truncated_simple_packet_is_dropped_as_cut() {
    let simple = |kept: usize, original: u32| {
        block(3, &[&original.to_le_bytes()[..], &frame(0, kept)].concat())
    };
    for (limit, originals, whole, cut) in
        [(61, [61, 63, 1514], 1, 2), (0, [61, 62, 64], 3, 0), (64, [60, 64, 65], 2, 1)]
    {
        let kept = |it: u32| if limit == 0 { it } else { it.min(limit) };
        let packets = originals.map(|it| simple(kept(it) as usize, it));
        let (found, counters) =
            read(&section(&[vec![interface(1, limit, &[])], packets.to_vec()].concat())).unwrap();
        assert_eq!((found.len(), counters.rx.drops_for(DropReason::Cut)), (whole, cut), "{limit}");
        assert_eq!(counters.rx.drops_sum(), cut, "{limit}");
    }
}

/// How long the packets of a capture take at their recorded distances, their number, and the notes.
fn timed(blocks: &[Vec<u8>], pause_max: Option<Duration>) -> (Duration, usize, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, &section(blocks));
    let settings = PcapSettings { replay: Replay::Recorded, pause_max, ..reading(&path) };
    let mut port = Pcap::open("p", &settings).unwrap();
    let start = std::time::Instant::now();
    let came = all(&mut port).unwrap().len();
    (start.elapsed(), came, port.notes())
}

#[test]
fn times_include_offset_of_interface() {
    let offset = |seconds: i64| [&[14, 0, 8, 0][..], &seconds.to_le_bytes(), &[0; 4]].concat();
    let second = 1_000_000;
    // Two clocks that agree because of their offsets, although their ticks differ by 54 years.
    for (first, ticks) in
        [(1_700_000_000, 0), (-5, (1_700_000_005) * second), (0, 1_700_000_000 * second)]
    {
        let blocks = [
            interface(1, 0, &offset(first)),
            interface(1, 0, &offset(0)),
            enhanced(0, ticks),
            enhanced(1, 1_700_000_000 * second + 20_000),
            enhanced(0, ticks + 40_000),
        ];
        let (elapsed, came, notes) = timed(&blocks, None);
        assert_eq!((came, notes.len()), (3, 0), "{notes:?}");
        assert!(
            (Duration::from_millis(40)..Duration::from_secs(30)).contains(&elapsed),
            "{elapsed:?}"
        );
    }
}

#[test]
fn long_pause_is_skipped_and_reported() {
    let blocks = |times: &[u64]| {
        let packets = times.iter().map(|time| enhanced(0, *time));
        std::iter::once(interface(1, 0, &[])).chain(packets).collect::<Vec<_>>()
    };
    let years = 54 * 31_557_600_000_000;
    let (elapsed, came, notes) = timed(&blocks(&[0, years, years + 30_000]), None);
    assert_eq!(came, 3);
    assert!((Duration::from_millis(30)..Duration::from_secs(30)).contains(&elapsed), "{elapsed:?}");
    assert!(
        notes.len() == 1 && notes[0].contains("longer than 60 s, 54 years in sum"),
        "{notes:?}"
    );
    let limit = Some(Duration::from_millis(20));
    let (elapsed, came, notes) = timed(&blocks(&[0, 10_000, 40_000, 0]), limit);
    assert_eq!((came, notes.len()), (4, 2), "{notes:?}");
    assert!(elapsed >= Duration::from_millis(10), "{elapsed:?}");
}

#[test]
fn passes_repeat_all_packets() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, &pcap(NS, false, &[(0, 60, 60), (0, 10, 20), (0, 64, 64)]));
    let mut port = Pcap::open("p", &PcapSettings { passes: Some(50), ..reading(&path) }).unwrap();
    assert_eq!(all(&mut port).unwrap().len(), 100);
    assert_eq!(port.counters().rx.drops_for(DropReason::TooShort), 0);
    assert_eq!(port.counters().rx.drops_for(DropReason::Cut), 50);
    let mut port = Pcap::open("p", &PcapSettings { passes: None, ..reading(&path) }).unwrap();
    let (mut pool, mut burst) = (Pool::new(64).unwrap(), Burst::new());
    for _ in 0..1000 {
        port.rx_burst(&mut pool, &mut burst);
        pool.free_burst(&mut burst);
    }
    assert!(port.counters().rx.packets > 1000 && port.link() == Link::Up);
    port.quiesce();
    assert_eq!(port.link(), Link::Finished);
    assert_eq!(port.rx_burst(&mut pool, &mut burst), 0);
}

#[test]
fn invalid_capture_is_refused_with_offset() {
    let mut lie = pcap(US, false, &[(0, 60, 60)]);
    lie.extend([0, 0, u32::MAX, 60].into_iter().flat_map(u32::to_le_bytes));
    let mut other = pcap(US, false, &[(0, 60, 60)]);
    other[20] = 101;
    for (bytes, holds) in [
        (vec![], "at byte 0, the file ends within its header"),
        (vec![0x1f; 100], "does not begin as a pcap"),
        (other, "are not Ethernet: raw IP, link type 101"),
        (lie, "at byte 100, a packet says that more than 128 MiB of it were kept"),
    ] {
        let message = read(&bytes).unwrap_err().to_string();
        assert!(message.contains(holds) && message.contains("in.pcap"), "{holds}: {message}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for (settings, holds) in [
        (reading(&path.join("none")), "No such file"),
        (reading(path), "not a regular file"),
        (reading(Path::new("/dev/null")), "not a regular file"),
        (PcapSettings { output: Some(path.into()), ..PcapSettings::default() }, "cannot write"),
        (
            PcapSettings { output: Some(path.join("a/b")), ..PcapSettings::default() },
            "in an existing folder",
        ),
        (PcapSettings::default(), "without files"),
    ] {
        let message = Pcap::open("p", &settings).unwrap_err().to_string();
        assert!(message.contains(holds), "{holds}: {message}");
    }
    for rate in [0.0, -1.0, f64::NAN, 1e10] {
        let settings = PcapSettings { replay: Replay::Rate(rate), ..PcapSettings::default() };
        assert!(matches!(Pcap::open("p", &settings), Err(Error::Value { .. })), "{rate}");
    }
}

#[test]
fn output_refuses_file_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = pcap(NS, false, &[(0, 60, 60)]);
    let path = file(&folder, &bytes);
    let both = PcapSettings { output: Some(path.clone()), ..reading(&path) };
    let message = Pcap::open("p", &both).unwrap_err().to_string();
    assert!(message.contains("the port reads the same file"), "{message}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let writing = PcapSettings { output: Some(path.clone()), ..PcapSettings::default() };
    let _first = Pcap::open("p", &writing).unwrap();
    let message = Pcap::open("q", &writing).unwrap_err().to_string();
    assert!(message.contains("another port writes it"), "{message}");
}

#[test]
fn written_capture_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.pcap", "out.PcapNg"] {
        let path = folder.path().join(name);
        fs::write(&path, "previous content is replaced").unwrap();
        let settings = PcapSettings { output: Some(path.clone()), ..PcapSettings::default() };
        let mut port = Pcap::open("out", &settings).unwrap();
        let mut pool = Pool::new(64).unwrap();
        let mut burst = Burst::new();
        let lengths = [13, 14, 60, 61, 62, 63, 1514, 9000, PACKET_BYTES_MAX];
        for (index, length) in lengths.into_iter().enumerate() {
            let packet = pool.take(length).unwrap();
            assert!(pool.write(&packet, 0, &frame(index, length)));
            burst.push(packet);
        }
        assert_eq!(port.tx_burst(&mut pool, &mut burst), lengths.len() - 1);
        assert_eq!(port.tx_burst(&mut pool, &mut burst), 0);
        assert_eq!(port.counters().tx.drops_for(DropReason::TooShort), 1);
        assert_eq!(pool.available(), pool.size());
        // The file is complete before the port is dropped.
        let (found, counters) = read(&fs::read(&path).unwrap()).unwrap();
        let expected = lengths.iter().enumerate().skip(1);
        let expected: Vec<_> = expected.map(|(at, length)| frame(at, *length)).collect();
        assert_eq!((found, counters.rx.drops_sum()), (expected, 0), "{name}");
    }
}

#[test]
fn full_disk_refuses_packets_and_fails_port() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let settings = PcapSettings { output: Some(path.clone()), ..PcapSettings::default() };
    let mut port = Pcap::open("out", &settings).unwrap();
    let before = fs::metadata(&path).unwrap().len();
    // A write to a file that is open for reading alone fails like one on a full disk.
    port.output.as_mut().unwrap().spoil(fs::File::open(&path).unwrap());
    let mut pool = Pool::new(64).unwrap();
    let mut burst = Burst::new();
    for _ in 0..3 {
        burst.push(pool.take(64).unwrap());
    }
    assert_eq!(port.tx_burst(&mut pool, &mut burst), 0);
    assert_eq!(port.counters().tx.drops_for(DropReason::Refused), 3);
    assert_eq!((pool.available(), port.counters().tx.packets), (pool.size(), 0));
    assert!(port.service(&mut pool).unwrap_err().to_string().contains("cannot write the capture"));
    assert_eq!(fs::metadata(&path).unwrap().len(), before);
}

#[test]
fn packets_arrive_at_rate_or_recorded_distances() {
    let folder = tempfile::tempdir().unwrap();
    let packets: Vec<_> = (0..20).map(|index| (index * 1_000_000, 60, 60)).collect();
    let path = file(&folder, &pcap(NS, false, &packets));
    // 19 distances of 1 ms, twice; 39 of 1 ms.
    for (replay, at_least_ms) in [(Replay::Recorded, 38), (Replay::Rate(1000.0), 39)] {
        let settings = PcapSettings { passes: Some(2), replay, ..reading(&path) };
        let mut port = Pcap::open("p", &settings).unwrap();
        let start = std::time::Instant::now();
        assert_eq!(all(&mut port).unwrap().len(), 40);
        let elapsed = start.elapsed().as_millis();
        assert!(elapsed >= at_least_ms, "{replay:?}: {elapsed} ms");
    }
    // Times that go back delay no packet.
    let back: Vec<_> = (0..100).map(|index| (99_000_000 - index * 1000, 60, 60)).collect();
    let path = file(&folder, &pcap(US, false, &back));
    let settings = PcapSettings { replay: Replay::Recorded, ..reading(&path) };
    assert_eq!(all(&mut Pcap::open("p", &settings).unwrap()).unwrap().len(), 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_terminate_or_are_refused(
        at in 0_usize..400,
        to in any::<u8>(),
        length in 0_usize..600,
        is_ng in any::<bool>(),
    ) {
        let mut bytes = match is_ng {
            true => pcapng(false, &[(0, 60), (1, 61), (2, 200)]),
            false => pcap(US, true, &[(0, 60, 60), (1, 61, 61), (2, 200, 200)]),
        };
        let at = at % bytes.len();
        bytes[at] = to;
        bytes.truncate(length);
        if let Ok((found, counters)) = read(&bytes) {
            prop_assert!(found.len() as u64 + counters.rx.drops_sum() <= 400);
        }
    }
}
