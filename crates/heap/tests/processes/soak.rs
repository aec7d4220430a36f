//! Four processes with four threads each on one heap: each thread fills blocks of all sizes, sends
//! some to threads of other processes, and frees those that it receives. Processes are killed
//! meanwhile and replaced. Afterwards no block may be lost: blocks in a mailbox are intact,
//! blocks of dead processes belong to their heir, and no other block is live.
//!
//! `HAUL_SOAK_SECONDS` sets the duration (default 4).

use std::collections::BTreeSet;
use std::process::Child;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::thread;
use std::time::{Duration, Instant};

use haul_heap::{AllocError, Block, Heap, Node, Offset, Pages, Request, Tag};

use crate::support::random::Random;
use crate::{MIB, finish, start};

const PROCESSES: usize = 4;
const THREADS: usize = 4;

/// The most blocks in one thread's mailbox.
const MAILBOX: usize = 32;

/// The most blocks that a thread holds at once.
const HELD: usize = 40;

/// How long the processes work between two checks.
const ROUND: Duration = Duration::from_secs(1);

/// The holder number for a block in a mailbox. No process's life has this number.
const MAILED: u64 = 1 << 40;

/// The holder number for a block that is not filled yet, or that is about to be freed.
const NO_HOLDER: u64 = 0;

/// Bytes of the head of a block: its holder, and its size and mark.
const HEAD: usize = 16;

/// The state that all processes share, in a block of the heap.
#[repr(C)]
struct Board {
    /// Set to end the processes.
    stop: AtomicU64,
    /// The number of the current life in each seat. A process that replaces a dead process has a
    /// new number.
    lives: [AtomicU64; PROCESSES],
    /// How many blocks came from another process.
    received: AtomicU64,
    /// The mailbox of each thread, which contains the offsets of blocks.
    mail: [[AtomicU64; MAILBOX]; PROCESSES * THREADS],
}

/// The board in a block of the heap, which contains only zeros at first.
fn board(heap: &Heap, offset: u64) -> &Board {
    let block = heap.pointer(Offset::new(offset)).unwrap();
    // SAFETY: the parent allocated the zeroed block with this size and frees it after its last
    // use, and only atomics access it.
    unsafe { block.cast().as_ref() }
}

/// A block that this thread holds.
struct Parcel(NonNull<u8>);

impl Parcel {
    fn new(heap: &Heap, random: &mut Random, tag: Tag, life: u64) -> Result<Self, AllocError> {
        let size = HEAD + random.size();
        let block = heap.alloc(Request::new(size).aligned(1 << random.index(13)).tagged(tag))?;
        let parcel = Self(block);
        parcel.word(0).store(life, Relaxed);
        parcel.fill(size, random.index(256) as u8);
        Ok(parcel)
    }

    /// A word in the head.
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: a block has room for the head of two words, and is aligned to at least 64
        // bytes.
        let words: &[AtomicU64; 2] = unsafe { self.0.cast().as_ref() };
        &words[index]
    }

    fn fill(&self, size: usize, mark: u8) {
        self.word(1).store((size as u64) << 8 | u64::from(mark), Relaxed);
        // SAFETY: the block has `size` bytes, at least `HEAD`.
        let start = unsafe { self.0.add(HEAD) };
        // SAFETY: as above.
        unsafe { start.write_bytes(mark, size - HEAD) };
    }

    fn size_and_mark(&self) -> (usize, u8) {
        let word = self.word(1).load(Relaxed);
        ((word >> 8) as usize, word as u8)
    }

    /// Whether the first `size` bytes still have the content with which the block was filled.
    fn assert_is_whole(&self, size: usize, mark: u8) {
        // SAFETY: the caller knows that the block has this many bytes and that no other code
        // writes to them.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.as_ptr(), size) };
        assert!(bytes[HEAD..].iter().all(|byte| *byte == mark), "a block of {size} bytes");
    }

    fn check(&self, heap: &Heap) {
        let (size, mark) = self.size_and_mark();
        // SAFETY: the owner of the value owns the block.
        assert!(unsafe { heap.usable_size(self.0) }.unwrap() >= size);
        self.assert_is_whole(size, mark);
    }

    fn resize(&mut self, heap: &Heap, size: usize, life: u64) {
        let (old, mark) = self.size_and_mark();
        self.word(0).store(NO_HOLDER, Relaxed);
        // SAFETY: this thread owns the block and replaces it with the returned block.
        if let Ok(block) = unsafe { heap.realloc(self.0, size, 64) } {
            self.0 = block;
            self.assert_is_whole(size.min(old), mark);
            self.fill(size, mark);
        }
        self.word(0).store(life, Relaxed);
    }

    fn free(self, heap: &Heap) {
        self.check(heap);
        self.word(0).store(NO_HOLDER, Relaxed);
        // SAFETY: this thread owns the block and does not use it any more.
        unsafe { heap.free(self.0) }.unwrap();
    }
}

/// The work of a child: `argument` contains the board's offset and, in its upper bits, the number
/// of the child's seat.
pub(crate) fn work(heap: &Heap, argument: u64) {
    let (offset, seat) = (argument & ((1 << 48) - 1), (argument >> 48) as usize);
    // SAFETY: the call only returns a number.
    heap.set_heir(Some(unsafe { libc::getppid() } as u32));
    let board = board(heap, offset);
    let life = board.lives[seat].load(SeqCst);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || Worker::new(heap, board, seat * THREADS + thread, life).work());
        }
    });
}

/// Each thread uses one of three tags.
fn tag_name(number: usize) -> String {
    format!("soak {}", number % 3)
}

/// One thread of a child.
struct Worker<'a> {
    heap: &'a Heap,
    board: &'a Board,
    /// The thread's number among the threads of all processes.
    number: usize,
    life: u64,
    tag: Tag,
    random: Random,
    held: Vec<Parcel>,
}

impl<'a> Worker<'a> {
    fn new(heap: &'a Heap, board: &'a Board, number: usize, life: u64) -> Self {
        let seed = life << 8 | number as u64;
        let tag = heap.tag(&tag_name(number));
        Self { heap, board, number, life, tag, random: Random::new(seed), held: Vec::new() }
    }

    fn work(mut self) {
        while self.board.stop.load(Relaxed) == 0 {
            match self.random.index(64) {
                0..24 => self.allocate(),
                24..32 => self.send(),
                32..40 => self.receive(),
                40..44 => self.resize(),
                44 => _ = self.heap.maintain(),
                _ => self.free_one(),
            }
        }
        for parcel in self.held {
            parcel.free(self.heap);
        }
    }

    fn allocate(&mut self) {
        if self.held.len() == HELD {
            return self.free_one();
        }
        match Parcel::new(self.heap, &mut self.random, self.tag, self.life) {
            Ok(parcel) => self.held.push(parcel),
            Err(AllocError::Exhausted) => self.free_one(),
            Err(error) => panic!("{error}"),
        }
    }

    fn free_one(&mut self) {
        if let Some(parcel) = self.any() {
            parcel.free(self.heap);
        }
    }

    fn resize(&mut self) {
        if let Some(mut parcel) = self.any() {
            parcel.resize(self.heap, HEAD + self.random.size(), self.life);
            self.held.push(parcel);
        }
    }

    /// Puts a block into an entry of a random thread's mailbox, if the entry is empty.
    fn send(&mut self) {
        let box_number = self.random.index(self.board.mail.len());
        let entry = &self.board.mail[box_number][self.random.index(MAILBOX)];
        let Some(parcel) = self.any() else { return };
        parcel.check(self.heap);
        parcel.word(0).store(MAILED, Relaxed);
        let offset = self.heap.offset(parcel.0).unwrap().bytes();
        // The entry is the offset plus 1, because 0 is a valid offset.
        if entry.compare_exchange(0, offset + 1, Release, Relaxed).is_err() {
            parcel.word(0).store(self.life, Relaxed);
            self.held.push(parcel);
        }
    }

    fn receive(&mut self) {
        for entry in &self.board.mail[self.number] {
            let offset = entry.swap(0, Acquire);
            if offset != 0 {
                let parcel = Parcel(self.heap.pointer(Offset::new(offset - 1)).unwrap());
                assert_eq!(parcel.word(0).swap(self.life, Relaxed), MAILED);
                parcel.check(self.heap);
                self.board.received.fetch_add(1, Relaxed);
                match self.held.len() < HELD && self.random.index(2) == 0 {
                    true => self.held.push(parcel),
                    false => parcel.free(self.heap),
                }
            }
        }
    }

    /// Removes one of the blocks that the thread holds.
    fn any(&mut self) -> Option<Parcel> {
        let count = self.held.len();
        (count > 0).then(|| self.held.swap_remove(self.random.index(count)))
    }
}

/// The processes, and the numbers of the lives that a kill has ended.
struct Soak<'a> {
    heap: &'a Heap,
    name: &'a str,
    offset: u64,
    children: Vec<Child>,
    lives: u64,
    killed: BTreeSet<u64>,
    random: Random,
}

impl Soak<'_> {
    fn board(&self) -> &Board {
        board(self.heap, self.offset)
    }

    fn start(&mut self, seat: usize) -> Child {
        self.lives += 1;
        self.board().lives[seat].store(self.lives, SeqCst);
        start("soak", self.name, &(self.offset | (seat as u64) << 48).to_string())
    }

    /// Waits while the processes work, and kills one now and then if `kills`.
    fn round(&mut self, kills: bool) {
        self.board().stop.store(0, SeqCst);
        self.children = (0..PROCESSES).map(|seat| self.start(seat)).collect();
        let began = Instant::now();
        while began.elapsed() < ROUND {
            thread::sleep(Duration::from_micros(self.random.index(80_000) as u64));
            if kills {
                let seat = self.random.index(PROCESSES);
                self.killed.insert(self.board().lives[seat].load(SeqCst));
                self.children[seat].kill().unwrap();
                self.children[seat].wait().unwrap();
                // A new process takes the seat while threads of this process still reap.
                thread::scope(|scope| {
                    for _ in 0..THREADS {
                        scope.spawn(|| assert_eq!(self.heap.reap().damaged, 0));
                    }
                });
                self.children[seat] = self.start(seat);
            }
        }
        self.board().stop.store(1, SeqCst);
        for child in std::mem::take(&mut self.children) {
            finish(child, "a process of the soak");
        }
    }

    /// Checks that every live block is the board, an intact block in a mailbox, or a dead
    /// process's block, and that the counts are consistent. Frees all blocks except the board.
    fn account(&mut self, deaths: usize) {
        assert_eq!(self.heap.reap().damaged, 0);
        self.heap.validate().unwrap();
        let mut blocks = Vec::new();
        self.heap.walk(|block| blocks.push(block));
        self.assert_counts(&blocks);
        let mut mail = BTreeSet::new();
        for entry in self.board().mail.iter().flatten() {
            let offset = entry.swap(0, Acquire);
            assert!(offset == 0 || mail.insert(offset - 1), "a block in two mailboxes");
        }
        let (mut mailed, mut loose) = (0, 0);
        for block in blocks.iter().filter(|block| block.offset.bytes() != self.offset) {
            let parcel = Parcel(block.address);
            match (mail.contains(&block.offset.bytes()), parcel.word(0).load(Relaxed)) {
                (true, holder) => {
                    assert_eq!(holder, MAILED);
                    parcel.check(self.heap);
                    mailed += 1;
                }
                (false, life) if self.killed.contains(&life) => {}
                // The holder died before it had filled the block (its earlier content is equal
                // bytes), or while it was sending the block.
                (false, life) => {
                    let is_loose = life == NO_HOLDER || life >= MAILED;
                    assert!(is_loose, "life {life} ended normally and left {block:?}");
                    loose += 1;
                }
            }
            // SAFETY: no other process uses the heap any more.
            unsafe { self.heap.free(block.address) }.unwrap();
        }
        assert_eq!(mailed, mail.len(), "a block in a mailbox is not live");
        // A thread that is killed while it moves a block leaves both the old and the new block.
        assert!(
            loose <= 2 * deaths * THREADS,
            "{loose} blocks have no holder after {deaths} deaths"
        );
        assert!(deaths > 0 || blocks.len() == mail.len() + 1, "{} blocks", blocks.len());
        assert_eq!(self.heap.stats(Node::ANY).live.blocks, 1);
    }

    /// Checks that the counts are the sums over the blocks, and that all blocks belong to this
    /// process, the heir.
    fn assert_counts(&self, blocks: &[Block]) {
        let stats = self.heap.stats(Node::ANY);
        let sum = |blocks: &mut dyn Iterator<Item = &Block>| {
            blocks.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.bytes as u64))
        };
        assert_eq!(sum(&mut blocks.iter()), (stats.live.blocks, stats.live.bytes));
        let tags = [0, 1, 2].map(|number| self.heap.tag(&tag_name(number)));
        for tag in tags.into_iter().chain([Tag::NONE]) {
            let counted = stats.tag(tag);
            let of_tag = &mut blocks.iter().filter(|block| block.tag == tag);
            assert_eq!(sum(of_tag), (counted.blocks, counted.bytes));
        }
        let own = blocks.iter().find(|block| block.offset.bytes() == self.offset).unwrap().process;
        assert!(blocks.iter().all(|block| block.process == own), "{blocks:?}");
    }
}

#[test]
fn killed_processes_of_many_threads_lose_no_block() {
    let seconds = std::env::var("HAUL_SOAK_SECONDS").ok();
    let seconds: u64 = seconds.map_or(4, |text| text.parse().expect("a number"));
    let name = format!("test-soak-{}", std::process::id());
    let builder = Heap::builder().limit(crate::PAGES * 2 * MIB).nodes(1).pages(Pages::Plain);
    let heap = builder.caches(512).decay(Some(0)).shared_named(&name).unwrap();
    let named = crate::Named { heap, name };
    let block = named.heap.zalloc(Request::new(size_of::<Board>())).unwrap();
    let mut soak = Soak {
        heap: &named.heap,
        name: &named.name,
        offset: named.heap.offset(block).unwrap().bytes(),
        children: Vec::new(),
        lives: 0,
        killed: BTreeSet::new(),
        random: Random::new(0x50A4),
    };
    // In the first round no process dies, so the counts must be exact.
    for round in 0..seconds {
        let before = soak.killed.len();
        soak.round(round > 0);
        soak.account(soak.killed.len() - before);
    }
    let (received, kills) = (soak.board().received.load(Relaxed), soak.killed.len());
    eprintln!("{received} blocks went to another thread, {kills} of {} processes died", soak.lives);
    assert!(received > 0 && (seconds < 2 || kills > 0));
    // SAFETY: no process uses the board any more.
    unsafe { named.heap.free(block) }.unwrap();
    crate::assert_whole(&named.heap);
}
