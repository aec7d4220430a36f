//! Packets to a guest that ask for checksums and segmentation: the packet, its header, and the
//! program's own copy of it must be the same with the library and without.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::checksums::add_buffer;
use crate::front::{BUFFER_BYTES, Front, MERGEABLE, TO_GUEST, VERSION_1};
use crate::testpmd::{Preload, has, skip, turn};

/// Packets of one run.
const PACKETS: u32 = 2000;

/// A time limit that is longer than any step needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Compiles the program that sends the packets. If DPDK's headers are missing, prints the skip and
/// returns `None`.
fn compile(what: &str) -> Option<PathBuf> {
    for (tool, package) in [("pkg-config", "pkg-config"), ("cc", "gcc")] {
        if !has(tool) {
            skip(what, &format!("no {tool} on PATH"), &format!("apt-get install {package}"));
            return None;
        }
    }
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output();
    let flags = flags.expect("pkg-config runs");
    if !flags.status.success() {
        skip(what, "no package libdpdk", "apt-get install libdpdk-dev");
        return None;
    }
    let flags = String::from_utf8(flags.stdout).expect("flags are text");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dpdk/sender.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sender");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-Wno-alloc-size-larger-than", "-o"]);
    compiler.arg(&program).arg(source).args(flags.split_whitespace());
    assert!(compiler.status().expect("cc runs").success(), "sender.c does not compile");
    Some(program)
}

/// The program; it ends when it is dropped.
struct Sender(Option<Child>);

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The guest's buffers after each packet, and the output of the program.
fn run(program: &Path, preload: &Preload, features: u64) -> (Vec<Vec<u8>>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vm");
    let mut command = Command::new(program);
    command.args(["--no-pci", "--no-huge", "-m64", "--iova-mode=va", "-l0", "--no-shconf", "--"]);
    command.arg(&socket).arg(PACKETS.to_string());
    preload.set(&mut command);
    let (log, path) = tempfile::NamedTempFile::new().expect("a file").into_parts();
    let errors = log.try_clone().expect("a descriptor");
    let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("it runs");
    let mut sender = Sender(Some(child));
    let said = || std::fs::read_to_string(&path).expect("text");
    let started = Instant::now();
    let check = |what: &str| assert!(started.elapsed() < PATIENCE, "{what}: {}", said());
    // The program listens shortly after the socket exists.
    let connected = loop {
        if let Ok(connected) = UnixStream::connect(&socket) {
            break connected;
        }
        check("it does not listen");
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut front = Front::over(connected);
    front.start(features);
    front.send_packet(0, 1);
    let mut buffers = Vec::new();
    for number in 0..PACKETS {
        let end = front.used(TO_GUEST).wrapping_add(1);
        if number % 2 == 0 {
            front.put(Front::buffer(TO_GUEST, 0), &[0xA5; BUFFER_BYTES as usize]);
            front.add_buffer(0);
        } else {
            add_buffer(&mut front);
        }
        while front.used(TO_GUEST) != end {
            check("a packet does not arrive");
            std::thread::yield_now();
        }
        let mut bytes = vec![0; BUFFER_BYTES as usize];
        front.get(Front::buffer(TO_GUEST, 0), &mut bytes);
        buffers.push(bytes);
    }
    drop(front);
    let status = sender.0.take().expect("it runs").wait().expect("it ends");
    let text = said();
    assert!(status.success(), "{status}: {text}");
    (buffers, text)
}

#[test]
fn offloads_to_guest_equal_those_without_library() {
    let Some(program) = compile("offloads_to_guest_equal_those_without_library") else { return };
    let _turn = turn();
    for features in [VERSION_1 | MERGEABLE, VERSION_1, 0] {
        let [without, with] = [Preload::NONE, Preload::TELL].map(|it| run(&program, &it, features));
        let packets = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with("packet ")).map(String::from).collect()
        };
        let (here, there) = (packets(&with.1), packets(&without.1));
        assert_eq!((here.len(), there.len()), (PACKETS as usize, PACKETS as usize));
        for (number, packet) in there.iter().enumerate() {
            assert_eq!(&here[number], packet, "{features:x}: the program's packet");
            let [here, there] = [&with.0[number], &without.0[number]];
            // DPDK leaves the number of buffers as it was if the guest cannot merge buffers.
            let skip = if features == VERSION_1 { 10..12 } else { 0..0 };
            let is_equal =
                here[..skip.start] == there[..skip.start] && here[skip.end..] == there[skip.end..];
            let ends = [here, there].map(|bytes| format!("{:02x?}", &bytes[..100]));
            assert!(is_equal, "{features:x}: {packet}: {ends:?}");
        }
        // The header's first byte says that the packet lacks a checksum; the second, how it is
        // divided.
        let count = |at: usize| with.0.iter().filter(|bytes| bytes[at] != 0).count();
        assert!(count(0) > 500 && count(1) > 100, "{} {}", count(0), count(1));
        // Honest packets are the library's, and some of the others.
        let served = crate::served(&with.1);
        let [(here, there)] = served[..] else { panic!("one device: {}", with.1) };
        assert_eq!(here + there, u64::from(PACKETS) + 1);
        assert!(here > u64::from(PACKETS) / 2 && there > 100, "{here} {there}");
    }
}
