use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;

use super::*;

fn header(pages: u32) -> Header {
    Header {
        program: "redis-server".into(),
        about: "a benchmark".into(),
        time: "2026-11-27T06:00:00Z".into(),
        machine: "zen5-2cpu".into(),
        libc: "glibc 2.36".into(),
        thread: 3,
        process_calls: 5000,
        thread_calls: 4000,
        skipped: 100,
        left_out: 2,
        reads_by: ReadsBy::LaterCalls,
        pages,
    }
}

fn site(offset: u64) -> Site {
    Site { module: "libc.so.6".into(), offset, symbol: None, sampled: 10, read_soon: 7 }
}

fn call(size: u32, target: u32, source: Option<u32>) -> Call {
    let function = match source {
        Some(_) => Function::Memcpy,
        None => Function::Memset { zero: true },
    };
    let (since, read) = (TimeClass::of_ns(90), Read::Unknown);
    Call { function, site: 0, size, target, source, since, read }
}

fn stream(calls: Vec<Call>) -> Stream {
    Stream { header: header(4), sites: vec![site(9), site(u64::MAX)], calls }
}

#[test]
fn write_and_read_keep_stream() {
    let last = 4 * PAGE_BYTES - 1;
    let calls = vec![
        call(0, 4 * PAGE_BYTES, Some(0)),
        Call { function: Function::Memmove, site: 1, ..call(1, last, Some(0)) },
        Call { read: Read::NotRead, ..call(4 * PAGE_BYTES, 0, None) },
        Call {
            function: Function::Memset { zero: false },
            read: Read::After(TimeClass::new(TimeClass::LAST).unwrap()),
            since: TimeClass::new(TimeClass::LAST).unwrap(),
            ..call(2, 5, None)
        },
    ];
    let stream = stream(calls);
    assert_eq!(Stream::read(&stream.write().unwrap()).unwrap(), stream);
    let empty = Stream { header: header(0), sites: vec![], calls: vec![] };
    assert_eq!(Stream::read(&empty.write().unwrap()).unwrap(), empty);
}

#[test]
fn header_is_one_line_of_json() {
    let file = stream(vec![call(40, 0, None)]).write().unwrap();
    let line = file.split(|byte| *byte == b'\n').next().unwrap();
    let line: serde_json::Value = serde_json::from_slice(line).unwrap();
    for (key, value) in [
        ("schema", "haul.stream/1".into()),
        ("program", "redis-server".into()),
        ("reads_by", "later calls".into()),
        ("calls", 1.into()),
        ("bytes", serde_json::Value::from(40)),
    ] {
        assert_eq!(line[key], value, "{key}");
    }
    assert_eq!(line["sites"][1]["offset"], u64::MAX);
}

#[test]
fn repeated_calls_need_less_than_a_byte() {
    let calls: Vec<Call> = (0..10_000).map(|_| call(64, 128, Some(4096))).collect();
    let file = stream(calls).write().unwrap();
    assert!(file.len() < 2000, "{} bytes for 10,000 equal calls", file.len());
}

#[test]
fn classes_of_times_are_powers_of_two() {
    for (ns, number, least) in
        [(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 2, 2), (4, 3, 4), (1023, 10, 512), (1024, 11, 1024)]
    {
        let class = TimeClass::of_ns(ns);
        assert_eq!((class.number(), class.least_ns()), (number, least), "{ns} ns");
    }
    assert_eq!(TimeClass::of_ns(u64::MAX).number(), TimeClass::LAST);
    assert_eq!(TimeClass::new(TimeClass::LAST + 1), None);
    assert_eq!(Read::After(TimeClass::of_ns(READ_SOON_NS - 1)).is_soon(), Some(true));
    assert_eq!(Read::After(TimeClass::of_ns(READ_SOON_NS)).is_soon(), Some(false));
}

#[test]
fn write_rejects_stream_that_read_would_reject() {
    let reason = |stream: Stream| stream.write().unwrap_err().to_string();
    let with_call = |call| reason(stream(vec![call]));
    assert!(with_call(Call { site: 2, ..call(1, 0, None) }).contains("call 0"));
    assert!(with_call(call(2, 4 * PAGE_BYTES - 1, None)).contains("offset 16383"));
    assert!(with_call(call(2, 0, Some(4 * PAGE_BYTES - 1))).contains("at most 16382"));
    assert!(with_call(call(SIZE_MAX + 1, 0, None)).contains("size"));
    assert!(with_call(Call { source: None, ..call(1, 0, Some(0)) }).contains("disagree"));
    assert!(with_call(Call { source: Some(0), ..call(1, 0, None) }).contains("disagree"));
    let with_header = |header| reason(Stream { header, sites: vec![], calls: vec![] });
    assert!(with_header(Header { pages: PAGES_MAX + 1, ..header(0) }).contains("pages is 65537"));
    let path = Header { program: "/usr/bin/git".into(), ..header(0) };
    assert!(with_header(path).contains("slash"));
    assert!(with_header(Header { about: "a\nb".into(), ..header(0) }).contains("about"));
    assert!(with_header(Header { libc: "x".repeat(1025), ..header(0) }).contains("libc"));
    let sites = vec![Site { read_soon: 11, ..site(1) }];
    assert!(reason(Stream { sites, ..stream(vec![]) }).contains("read_soon is 11"));
}

#[test]
fn read_rejects_files_of_other_formats() {
    let reason = |bytes: &[u8]| Stream::read(bytes).unwrap_err().to_string();
    assert!(reason(b"").contains("not a haul stream"));
    assert!(reason(b"\x7fELF\n").contains("not a haul stream"));
    assert!(reason(b"{\"schema\":\"haul.record/1\"}\n").contains("\"haul.record/1\""));
    assert!(reason(b"{\"schema\":\"haul.stream/1\"}\n").contains("missing field"));
}

/// A file whose header announces `calls` calls, with these bytes as columns.
fn file_of(calls: usize, columns: &[u8]) -> Vec<u8> {
    let line = FirstLine::new(header(4), vec![site(1)], calls as u64, 0);
    let mut file = line.to_bytes().unwrap();
    let mut encoder = ZlibEncoder::new(&mut file, Compression::fast());
    encoder.write_all(columns).unwrap();
    encoder.finish().unwrap();
    file
}

#[test]
fn read_rejects_invalid_columns() {
    let reason =
        |calls, columns: &[u8]| Stream::read(&file_of(calls, columns)).unwrap_err().to_string();
    assert!(Stream::read(&file_of(1, &[0, 0, 0, 0, 0, 0])).is_ok(), "a memcpy of no bytes");
    assert!(reason(1, &[]).contains("do not unpack to 1 calls"));
    assert!(reason(1, &[43 << 2, 0, 0, 0, 0, 0]).contains("class"));
    assert!(reason(1, &[0, 41, 0, 0, 0, 0]).contains("class"));
    assert!(reason(1, &[0, 0, 1, 0, 0, 0]).contains("site 1, which must be at most 0"));
    assert!(reason(1, &[0, 0, 0, 0, 0]).contains("does not end"));
    assert!(reason(1, &[0, 0, 0, 0, 0, 0, 0]).contains("follow the last"));
    assert!(reason(1, &[0, 0, 0, 0, 1, 0]).contains("offset"), "below the arena");
    assert!(reason(1, &[0, 0, 0, 1, 0x80, 0x80, 2, 0]).contains("at most 16383"));
    assert!(reason(1, &[0, 0, 0, 1, 0, 0]).contains("have 1 bytes"));
    assert!(reason(1 << 22, &[0; 100]).contains("do not unpack"));
    assert!(reason(0, &[0; 1 << 20]).contains("do not unpack"), "more than the calls may have");
    let mut cut = file_of(1, &[0, 0, 0, 0, 0, 0]);
    cut.pop();
    assert!(Stream::read(&cut).is_err());
    let longer = [&file_of(1, &[0, 0, 0, 0, 0, 0])[..], &[0]].concat();
    assert!(Stream::read(&longer).is_err());
}

fn any_call() -> impl Strategy<Value = Call> {
    let arena = 4 * PAGE_BYTES;
    let places = (0..=arena).prop_flat_map(move |size| {
        (Just(size), 0..=arena - size, proptest::option::of(0..=arena - size))
    });
    let read = prop_oneof![
        Just(Read::Unknown),
        Just(Read::NotRead),
        any::<u64>().prop_map(|ns| Read::After(TimeClass::of_ns(ns))),
    ];
    (places, any::<bool>(), 0..2_u16, any::<u64>(), read).prop_map(
        |((size, target, source), variant, site, since, read)| {
            let function = match (source, variant) {
                (None, zero) => Function::Memset { zero },
                (Some(_), true) => Function::Memcpy,
                (Some(_), false) => Function::Memmove,
            };
            let since = TimeClass::of_ns(since);
            Call { function, site, size, target, source, since, read }
        },
    )
}

proptest! {
    #[test]
    fn any_stream_is_read_as_written(calls in proptest::collection::vec(any_call(), 0..200)) {
        let stream = stream(calls);
        prop_assert_eq!(Stream::read(&stream.write().unwrap()).unwrap(), stream);
    }

    #[test]
    fn any_columns_are_a_stream_or_an_error(calls in 0..20_usize, columns: Vec<u8>) {
        if let Ok(stream) = Stream::read(&file_of(calls, &columns)) {
            prop_assert_eq!(Stream::read(&stream.write().unwrap()).unwrap(), stream);
        }
    }
}
