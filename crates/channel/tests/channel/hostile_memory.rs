//! A peer whose memory changes: files that grow while they are checked, and pages that it keeps
//! pinned. Each case ends in time, in a named error or a message, and this process keeps no
//! descriptor or mapping of the memory.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Building, Error, Mechanism, Settings};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::pipe::{IoSliceRaw, SpliceFlags};

use crate::raw::{
    ABANDONED, LANE_BYTES, LEASE_FILLED, Liar, OFFERED, PUBLISHED, greeting, offered, receive, send,
};
use crate::support::{SHORT, impatient, patient};
use crate::watched::{Answer, can_watch, watch};

const PAGE: usize = 4096;
const CHUNK_BYTES: u64 = 256 << 10;
const REGION_BYTES: u64 = 8192 + 32 * 8320 + 14 * CHUNK_BYTES;
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The numbers of descriptors and mappings of a file in this process.
fn held(file: &impl AsRawFd) -> (usize, usize) {
    let of = |name: String| fs::metadata(name).ok().map(|found| (found.dev(), found.ino()));
    let this = of(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let files = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        of(format!("/proc/self/fd/{}", entry.ok()?.file_name().into_string().ok()?))
    });
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let number = this.1.to_string();
    let mappings = maps.lines().filter(|line| {
        line.contains("memfd") && line.split_whitespace().nth(4) == Some(number.as_str())
    });
    (files.filter(|found| *found == this).count(), mappings.count())
}

/// Waits until this process has the expected numbers of descriptors and mappings of a file: a
/// background thread closes descriptors that a peer handed over, so that no peer delays a call.
#[track_caller]
fn assert_held(file: &impl AsRawFd, expected: (usize, usize), what: &str) {
    let start = Instant::now();
    while held(file) != expected {
        assert!(start.elapsed() < 40 * SHORT, "{what}: {:?} remain, not {expected:?}", held(file));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Calls `run` while a file grows continuously, without using memory.
fn while_it_grows<T>(file: &OwnedFd, size: u64, run: impl FnOnce() -> T) -> T {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let (is_over, start) = (AtomicBool::new(false), Instant::now());
    rustix::fs::ftruncate(file, size).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for pages in 1.. {
                rustix::fs::ftruncate(file, size + pages * PAGE as u64).unwrap();
                if is_over.load(Relaxed) {
                    return;
                }
            }
        });
        // The file also stops growing if `run` panics.
        let over = Over(&is_over);
        let result = run();
        drop(over);
        assert!(start.elapsed() < 40 * SHORT);
        result
    })
}

fn memory(size: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(c"liar-memory", flags).unwrap();
    rustix::fs::ftruncate(&file, size).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Files that may still grow: memory with no seal, memory sealed against shrinking alone, and an
/// ordinary file.
fn growing() -> [OwnedFd; 3] {
    let shrink = SealFlags::SHRINK;
    [memory(0, SealFlags::empty()), memory(0, shrink), tempfile::tempfile().unwrap().into()]
}

fn packet(kind: u8, number: u64) -> Vec<u8> {
    std::iter::once(kind).chain(number.to_le_bytes()).collect()
}

#[test]
fn growing_file_is_refused_as_memory_of_channel() {
    for file in growing() {
        let handed = file.try_clone().unwrap();
        let result = while_it_grows(&file, REGION_BYTES, || {
            offered(&patient(), move |socket, nonce| {
                send(socket, &greeting(2, CHUNK_BYTES, 1, nonce), &[handed.as_fd()]);
            })
        });
        let error = result.map(drop).unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{error}");
        assert_held(&file, (1, 0), &error.to_string());
    }
}

#[test]
fn growing_file_is_refused_as_memory_of_message() {
    for kind in [3, 5] {
        for file in growing() {
            let (liar, mut victim) = Liar::meet(&impatient());
            let error = while_it_grows(&file, 8192, || {
                send(&liar.socket, &packet(1, 0), &[file.as_fd()]);
                liar.publish(0, [0, kind, 8192, 0]);
                victim.recv().map(|got| got.len()).unwrap_err()
            });
            assert!(matches!(error, Error::Memory { .. }), "{kind}: {error}");
            assert!(matches!(victim.recv(), Err(Error::Broken)));
            drop((liar, victim));
            assert_held(&file, (1, 0), &format!("entry of kind {kind}"));
        }
    }
}

#[test]
fn growing_file_is_refused_as_pool() {
    for file in growing() {
        let settings = Settings { mechanism: Some(Mechanism::Lease), ..impatient() };
        let (liar, mut victim) = Liar::meet_trusted(&settings);
        let error = while_it_grows(&file, 1 << 20, || {
            send(&liar.socket, &packet(2, 5), &[file.as_fd()]);
            liar.poke(LANE_BYTES + OFFERED + 8, 0);
            liar.poke(LANE_BYTES + OFFERED + 16, 5);
            liar.poke(LANE_BYTES + OFFERED + 24, u64::MAX);
            liar.poke(LANE_BYTES + OFFERED, 1);
            victim.send(&[1; 500_000]).unwrap_err()
        });
        // The message falls back to the ring, which this peer does not empty.
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
        assert_eq!(liar.peek(LANE_BYTES + ABANDONED), 1);
        drop((liar, victim));
        assert_held(&file, (1, 0), "of the file");
    }
}

/// Calls `run`, which checks a file. Just before the check with this number, the file is
/// truncated and then sealed. Returns the number of checks and the result.
fn cut_before_check<T: Send>(
    number: u32,
    file: &OwnedFd,
    seals: SealFlags,
    run: impl FnOnce() -> T + Send,
) -> (u32, T) {
    let checks = Arc::new(AtomicU32::new(0));
    let (cut, counted) = (file.try_clone().unwrap(), Arc::clone(&checks));
    let result = thread::scope(|scope| {
        let checking = scope.spawn(move || {
            let calls = [libc::SYS_fcntl, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_fstatfs];
            watch(&calls, move |_, _| {
                if counted.fetch_add(1, Relaxed) == number {
                    rustix::fs::ftruncate(&cut, 4096).unwrap();
                    rustix::fs::fcntl_add_seals(&cut, seals).unwrap();
                }
                Answer::Continue
            });
            run()
        });
        checking.join().unwrap()
    });
    (checks.load(Relaxed), result)
}

/// For any order of checks, the mapped memory must be the sealed memory.
#[test]
fn memory_of_message_truncated_and_sealed_between_checks_is_refused() {
    if !can_watch("memory of a message between two checks") {
        return;
    }
    for kind in [3, 5] {
        for number in 0.. {
            let file = memory(8192, SealFlags::empty());
            rustix::io::pwrite(&file, &[7; 8192], 0).unwrap();
            let (liar, mut victim) = Liar::meet(&impatient());
            send(&liar.socket, &packet(1, 0), &[file.as_fd()]);
            liar.publish(0, [0, kind, 8192, 0]);
            let seals = SIZE_SEALS | SealFlags::WRITE;
            let (checks, result) = cut_before_check(number, &file, seals, || {
                victim.recv().map(|got| got.iter().filter(|byte| **byte == 7).count())
            });
            let is_named = matches!(result, Err(Error::Memory { .. }));
            assert!(is_named, "{kind}, before check {number} of {checks}: {result:?}");
            if checks <= number {
                assert!(checks >= 2, "the file was not checked");
                break;
            }
        }
    }
}

#[test]
fn memory_of_channel_truncated_and_sealed_between_checks_is_refused() {
    if !can_watch("memory of a channel between two checks") {
        return;
    }
    for number in 0.. {
        let file = memory(REGION_BYTES, SealFlags::empty());
        let handed = file.try_clone().unwrap();
        let (checks, result) = cut_before_check(number, &file, SIZE_SEALS, || {
            offered(&patient(), move |socket, nonce| {
                send(socket, &greeting(2, CHUNK_BYTES, 1, nonce), &[handed.as_fd()]);
            })
        });
        let error = result.map(drop).unwrap_err();
        assert!(
            matches!(error, Error::Memory { .. }),
            "before check {number} of {checks}: {error}"
        );
        if checks <= number {
            assert!(checks >= 2, "the file was not checked");
            break;
        }
    }
}

/// Pages that are kept pinned.
struct Pinned {
    /// A pipe that contains the pages, or an io_uring with which they are registered.
    #[expect(dead_code, reason = "it keeps the pages pinned")]
    keeper: OwnedFd,
    reader: Option<OwnedFd>,
}

impl Pinned {
    /// Pins the first pages of a file with a pipe. Afterwards the pages are no longer mapped.
    fn in_pipe(file: &impl AsFd, pages: usize) -> Self {
        let (reader, keeper) = rustix::pipe::pipe().unwrap();
        let base = map(file, pages * PAGE, ProtFlags::READ);
        // SAFETY: pages that were just mapped, of a file that has at least this length.
        let bytes = unsafe { std::slice::from_raw_parts(base.cast::<u8>(), pages * PAGE) };
        let slices = [IoSliceRaw::from_slice(bytes)];
        // SAFETY: the slice is borrowed; the later changes of its bytes are what the test is about.
        let count = unsafe { rustix::pipe::vmsplice(&keeper, &slices, SpliceFlags::empty()) };
        assert_eq!(count, Ok(pages * PAGE));
        // SAFETY: mapped above, and neither `bytes` nor `slices` is used again.
        unsafe { unmap(base, pages * PAGE) };
        Self { keeper, reader: Some(reader) }
    }

    /// Like [`in_pipe`](Self::in_pipe), but with an io_uring. Returns `None` if no io_uring can
    /// be made.
    fn in_uring(file: &impl AsFd, pages: usize) -> Option<Self> {
        // sizeof(struct io_uring_params) of linux/io_uring.h.
        let mut parameters = [0_u8; 120];
        // SAFETY: room for the structure, zeroed as the kernel requires.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
        if ring < 0 {
            return None;
        }
        // SAFETY: just opened, and owned by this function alone.
        let keeper = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(ring as i32) };
        let base = map(file, pages * PAGE, ProtFlags::READ | ProtFlags::WRITE);
        let vector = libc::iovec { iov_base: base, iov_len: pages * PAGE };
        // SAFETY: IORING_REGISTER_BUFFERS (0) with one vector that names a mapping of this
        // length.
        let done =
            unsafe { libc::syscall(libc::SYS_io_uring_register, ring, 0, &raw const vector, 1) };
        // SAFETY: mapped above, and no reference to it was made.
        unsafe { unmap(base, pages * PAGE) };
        (done == 0).then(|| Self { keeper, reader: None })
    }

    /// The bytes in the pipe.
    fn bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let got = rustix::io::read(self.reader.as_ref().unwrap(), &mut bytes).unwrap();
        bytes.truncate(got);
        bytes
    }
}

fn map(file: &impl AsFd, size: usize, protection: ProtFlags) -> *mut libc::c_void {
    let flags = MapFlags::SHARED;
    // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, protection, flags, file, 0) }.unwrap()
}

/// # Safety
/// `base` and `size` are those of one `map`, and nothing refers to the memory any more.
unsafe fn unmap(base: *mut libc::c_void, size: usize) {
    // SAFETY: the caller's promise is munmap's condition.
    unsafe { rustix::mm::munmap(base, size) }.unwrap();
}

/// The kernel does not seal memory whose pages are pinned for writing, and the receiver refuses it
/// without the seal.
#[test]
fn memory_pinned_for_writing_is_refused() {
    for is_pipe in [true, false] {
        let file = memory(8192, SIZE_SEALS.difference(SealFlags::SEAL));
        rustix::io::pwrite(&file, &[7; 8192], 0).unwrap();
        let pinned = match is_pipe {
            true => Some(Pinned::in_pipe(&file, 2)),
            false => Pinned::in_uring(&file, 2),
        };
        let Some(pinned) = pinned else { continue };
        let sealed = rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SEAL);
        if is_pipe && sealed.is_ok() {
            // This kernel copies bytes into a pipe, so no page is pinned.
            continue;
        }
        assert_eq!(sealed, Err(Errno::BUSY), "the kernel does not seal pinned pages");
        let start = Instant::now();
        for kind in [3, 5] {
            let (liar, mut victim) = Liar::meet(&impatient());
            send(&liar.socket, &packet(1, 0), &[file.as_fd()]);
            liar.publish(0, [0, kind, 8192, 0]);
            let error = victim.recv().map(|got| got.len()).unwrap_err();
            assert!(matches!(error, Error::Memory { .. }), "{kind}: {error}");
            drop((liar, victim));
            assert_held(&file, (1, 0), "of the file");
        }
        assert!(start.elapsed() < 40 * SHORT);
        drop(pinned);
    }
}

/// Pages stay pinned although they can no longer be written to: neither end sees the other's
/// writes.
#[test]
fn sealed_pages_pinned_by_sender_are_private_to_receiver() {
    for kind in [3, 5] {
        let file = memory(8192, SealFlags::empty());
        rustix::io::pwrite(&file, &[7; 8192], 0).unwrap();
        rustix::fs::fcntl_add_seals(&file, SIZE_SEALS | SealFlags::WRITE).unwrap();
        let pinned = Pinned::in_pipe(&file, 2);
        let (liar, mut victim) = Liar::meet(&impatient());
        send(&liar.socket, &packet(1, 0), &[file.as_fd()]);
        liar.publish(0, [0, kind, 8192, 0]);
        let mut got = victim.recv().unwrap();
        assert!(got.iter().all(|byte| *byte == 7));
        got.fill(9);
        assert_eq!(pinned.bytes(8192), [7; 8192]);
        assert_eq!(rustix::io::pwrite(&file, &[8], 0), Err(Errno::PERM));
        assert!(got.iter().all(|byte| *byte == 9));
        drop((got, liar, victim));
        assert_held(&file, (1, 0), "of the file");
    }
}

/// The sender keeps nothing of a handed-over message, even if the receiver pins its pages.
#[test]
fn sender_keeps_nothing_of_message_pinned_by_receiver() {
    let (liar, mut victim) = Liar::meet(&impatient());
    let mut building = Building::new(3 * PAGE).unwrap();
    building.fill(5);
    victim.send_built(building).unwrap();
    let file = receive(&liar.socket).1.unwrap();
    let pinned = Pinned::in_pipe(&file, 3);
    assert_held(&file, (1, 0), "of the file");
    drop((liar, victim));
    assert_eq!(pinned.bytes(3 * PAGE), [5; 3 * PAGE]);
}

/// This end frees the memory of a channel and of a pool although the peer pins pages of both.
#[test]
fn pages_pinned_by_peer_keep_no_memory_open_here() {
    let (liar, mut victim) = Liar::meet_trusted(&patient());
    let kept = Pinned::in_pipe(&liar.memory, 10);
    liar.publish(0, [0, 7, 50_000, 0]);
    let (buffer, pool) = thread::scope(|scope| {
        let filling = scope.spawn(|| {
            liar.wait_for(OFFERED, 1);
            let pool = File::from(receive(&liar.socket).1.unwrap());
            pool.write_all_at(&[3; 50_000], liar.peek(OFFERED + 8)).unwrap();
            liar.poke(LEASE_FILLED, 1);
            pool
        });
        (victim.recv().unwrap(), filling.join().unwrap())
    });
    let kept_pool = Pinned::in_pipe(&pool, 10);
    assert!(buffer.iter().all(|byte| *byte == 3));
    victim.send(b"still there").unwrap();
    assert_eq!(liar.peek(LANE_BYTES + PUBLISHED), 1);
    drop(victim);
    // The channel's memory is freed with the channel, the pool with its last message.
    assert_held(&pool, (2, 1), "of the pool that was taken");
    assert_held(&liar.memory, (1, 0), "of the memory");
    drop(buffer);
    assert_held(&pool, (1, 0), "of the pool");
    drop((kept, kept_pool));
}
