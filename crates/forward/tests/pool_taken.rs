//! A back end that removes the memory that haul's virtio port shares with the back end: if the
//! memory consists of huge pages, an access then finds no page. The port disconnects the back
//! end, with a reason, and continues when the pages are available again. This is a separate
//! program, because the machine has only one pool of huge pages.

#[path = "../../heap/tests/pool/guard.rs"]
#[allow(dead_code, reason = "the heap's tests use the rest")]
mod pages;

use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use haul_forward::{Burst, DropReason, Link, Pool, Port, Virtio, VirtioSettings};
use rustix::fs::FallocateFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Time limit for a link on a loaded machine.
const LONG: Duration = Duration::from_secs(20);

/// Features of the back end: VIRTIO_F_VERSION_1, packed rings, and protocol features.
const FEATURES: u64 = 1 << 32 | 1 << 34 | 1 << 30;

/// A back end that accepts everything.
struct BackEnd {
    socket: UnixStream,
    /// The pool's file, and its size in bytes.
    memory: Option<(File, u64)>,
}

impl BackEnd {
    /// Accepts a front end, and answers it until its rings are enabled.
    fn accept(listener: &UnixListener) -> Self {
        let (socket, _) = listener.accept().unwrap();
        let mut back_end = Self { socket, memory: None };
        let mut enabled = 0;
        while enabled < 2 {
            let (request, has_answer, body) = back_end.receive();
            match request {
                1 => back_end.answer(request, FEATURES),
                // VHOST_USER_PROTOCOL_F_REPLY_ACK.
                15 => back_end.answer(request, 1 << 3),
                _ if has_answer => back_end.answer(request, 0),
                _ => {}
            }
            enabled += u32::from(request == 18 && body[4] == 1);
        }
        back_end
    }

    /// The next message: its number, whether it wants an answer, and its body. Keeps a file that
    /// arrives with the table of memory.
    fn receive(&mut self) -> (u32, bool, Vec<u8>) {
        let (header, first) = self.take(12);
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        let (body, file) = self.take(word(8) as usize);
        let (request, flags) = (word(0), word(4));
        if let Some(file) = first.or(file).filter(|_| request == 5) {
            let bytes = u64::from_ne_bytes(body[16..24].try_into().unwrap());
            self.memory = Some((file.into(), bytes));
        }
        (request, flags & 8 != 0, body)
    }

    fn take(&self, count: usize) -> (Vec<u8>, Option<OwnedFd>) {
        let (mut bytes, mut file) = (vec![0; count], None);
        let mut done = 0;
        while done < count {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut part = [IoSliceMut::new(&mut bytes[done..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let read = recvmsg(&self.socket, &mut part, &mut ancillary, flags).unwrap();
            assert!(read.bytes > 0, "the front end has disconnected");
            done += read.bytes;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(mut files) = message {
                    file = files.next().or(file);
                }
            }
        }
        (bytes, file)
    }

    fn answer(&mut self, request: u32, value: u64) {
        let header = [request, 5, 8].map(u32::to_ne_bytes).concat();
        self.socket.write_all(&[&header[..], &value.to_ne_bytes()].concat()).unwrap();
    }

    /// Removes all of the memory, and occupies every free page of the machine.
    fn take_memory(&self) -> File {
        let (file, bytes) = self.memory.as_ref().unwrap();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, hole, 0, *bytes).unwrap();
        pages::hold_free_pages()
    }
}

/// The port with its pool, and the number of packets that were given to the port.
struct Front {
    port: Virtio,
    pool: Pool,
    given: u64,
}

impl Front {
    fn wait_for(&mut self, link: Link) {
        let start = Instant::now();
        while self.port.link() != link {
            assert!(start.elapsed() < LONG, "no {link:?}: {:?}", self.port.obstacle());
            self.poll();
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn poll(&mut self) {
        let mut burst = Burst::new();
        self.port.rx_burst(&mut self.pool, &mut burst);
        self.pool.free_burst(&mut burst);
        for _ in 0..8 {
            self.pool.take(100).into_iter().for_each(|packet| burst.push(packet));
        }
        self.given += burst.len() as u64;
        self.port.tx_burst(&mut self.pool, &mut burst);
        self.given -= burst.len() as u64;
        self.pool.free_burst(&mut burst);
        self.port.service(&mut self.pool).unwrap();
    }
}

#[test]
fn back_end_that_removes_pages_is_disconnected_until_they_return() {
    let Some(kernel) = pages::Pool::take("a back end that takes huge pages") else { return };
    assert!(kernel.set(40), "pages for the packets' pool");
    for is_packed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("vm")).unwrap();
        let settings =
            VirtioSettings { is_packed, ..VirtioSettings::new(folder.path().join("vm")) };
        let port = Virtio::open("virtio0", &settings).unwrap().pop().unwrap();
        let free_before = pages::pool_free().unwrap();
        let mut front = Front { port, pool: Pool::new(2048).unwrap(), given: 0 };
        let of_pool = free_before - pages::pool_free().unwrap();
        assert!(of_pool > 0, "the packets' pool is of huge pages");

        let accepting = thread::spawn(move || (BackEnd::accept(&listener), listener));
        front.wait_for(Link::Up);
        let (back_end, listener) = accepting.join().unwrap();
        front.poll();
        let held = back_end.take_memory();
        front.wait_for(Link::Down);
        let why = front.port.obstacle().expect("a reason");
        assert!(why.contains("pages of the pool's memory"), "{why}");
        assert_eq!(front.port.counters().resets, 1);
        // Packets without a target are counted as well, and no other back end is accepted.
        (0..200).for_each(|_| front.poll());
        let why = front.port.obstacle().expect("a reason");
        assert!(why.contains("vm.nr_hugepages"), "{why}");
        assert_eq!(front.pool.available(), front.pool.size());

        drop((back_end, held));
        let accepting = thread::spawn(move || BackEnd::accept(&listener));
        front.wait_for(Link::Up);
        let back_end = accepting.join().unwrap();
        front.poll();
        assert_eq!(front.port.obstacle(), None);
        // The back end sees the front end's writes: the first ring, of buffers, is not empty.
        let (file, bytes) = back_end.memory.as_ref().unwrap();
        assert!(has_something(file, *bytes), "packed {is_packed}");

        front.port.stop(&mut front.pool);
        let tx = &front.port.counters().tx;
        let [reset, no_link] = [DropReason::Reset, DropReason::NoLink].map(|of| tx.drops_for(of));
        assert_eq!(tx.drops_sum(), reset + no_link, "{tx:?}");
        // The packets that the back end owned when it was disconnected had been given to it before.
        let gone = front.given - no_link;
        assert!((tx.packets..=tx.packets + reset).contains(&gone), "{gone}: {tx:?}");
        assert_eq!(front.pool.available(), front.pool.size());
    }
}

/// Whether a byte of the file is not zero.
fn has_something(file: &File, bytes: u64) -> bool {
    let mut page = vec![0; 2 << 20];
    (0..bytes)
        .step_by(page.len())
        .any(|at| file.read_exact_at(&mut page, at).is_ok() && page.iter().any(|byte| *byte != 0))
}
