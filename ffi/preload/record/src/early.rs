//! Memory for calls before the real allocator is known: the dynamic linker allocates while it looks
//! up the real functions. Each byte is given out once and is never reused.

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

/// The size of the memory in bytes. glibc 2.36 allocates nothing while it looks up existing
/// names, and some hundreds of bytes for the message about each missing name.
const ROOM_BYTES: usize = 64 << 10;

/// The size in bytes of the header before each block, which contains the block's size.
const HEADER_BYTES: usize = 16;

#[repr(align(64))]
struct Room(UnsafeCell<[u8; ROOM_BYTES]>);

// SAFETY: `NEXT` ensures that every byte is given to at most one caller, which then owns it.
unsafe impl Sync for Room {}

static ROOM: Room = Room(UnsafeCell::new([0; ROOM_BYTES]));
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Allocates zeroed bytes. Returns null if the memory is used up, or if the alignment is larger
/// than a page.
pub(crate) fn allocate(size: usize, align: usize) -> *mut u8 {
    let align = align.max(HEADER_BYTES);
    if size > ROOM_BYTES || align > 4096 || !align.is_power_of_two() {
        return ptr::null_mut();
    }
    let base = ROOM.0.get().cast::<u8>();
    let taken = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
        let end = start(base, next, align) + size;
        (end <= ROOM_BYTES).then_some(end)
    });
    let Ok(next) = taken else { return ptr::null_mut() };
    let at = start(base, next, align);
    // SAFETY: `at - HEADER_BYTES` is not below `next` and `at + size` not beyond the room.
    let block = unsafe { base.add(at) };
    // SAFETY: as above; the header precedes the block.
    let header = unsafe { block.sub(HEADER_BYTES) }.cast::<usize>();
    // SAFETY: this caller owns the bytes, and the header is aligned as the block is.
    unsafe { header.write(size) };
    block
}

/// The size of a block from this memory; `None` for any other block.
pub(crate) fn size_of(block: NonNull<u8>) -> Option<usize> {
    let base = ROOM.0.get().cast::<u8>().addr();
    let offset = block.as_ptr().addr().wrapping_sub(base);
    if !(HEADER_BYTES..ROOM_BYTES).contains(&offset) {
        return None;
    }
    // SAFETY: the block lies in the room, and not in the room's first bytes.
    let header = unsafe { block.as_ptr().sub(HEADER_BYTES) }.cast::<usize>();
    // SAFETY: the block came from `allocate`, so its header precedes it and is not written again.
    Some(unsafe { header.read_unaligned() })
}

/// The offset of the next block, in bytes from the start of the memory.
fn start(base: *mut u8, next: usize, align: usize) -> usize {
    let address = base.addr() + next + HEADER_BYTES;
    next + HEADER_BYTES + (address.next_multiple_of(align) - address)
}
