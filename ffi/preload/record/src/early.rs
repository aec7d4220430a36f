//! Memory for calls that come before there is an allocator: the dynamic linker looks the real
//! functions up, and allocates while it does. Given out once and never taken back.

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

/// In bytes. glibc 2.36 takes 0 while it looks up what is there, and some hundreds for the message
/// of each name that is not.
const ROOM_BYTES: usize = 64 << 10;

/// Before each block stands its size.
const HEADER_BYTES: usize = 16;

#[repr(align(64))]
struct Room(UnsafeCell<[u8; ROOM_BYTES]>);

// SAFETY: every byte is given to one caller at most, by `NEXT`, and is the caller's from then on.
unsafe impl Sync for Room {}

static ROOM: Room = Room(UnsafeCell::new([0; ROOM_BYTES]));
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Zeroed bytes; null where the room is used up, or the alignment is beyond a page.
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
    // SAFETY: as above: the header lies before the block.
    let header = unsafe { block.sub(HEADER_BYTES) }.cast::<usize>();
    // SAFETY: its bytes are this caller's alone, and it is aligned as the block is.
    unsafe { header.write(size) };
    block
}

/// The size of a block that came from here; `None` for any other.
pub(crate) fn size_of(block: NonNull<u8>) -> Option<usize> {
    let base = ROOM.0.get().cast::<u8>().addr();
    let offset = block.as_ptr().addr().wrapping_sub(base);
    if !(HEADER_BYTES..ROOM_BYTES).contains(&offset) {
        return None;
    }
    // SAFETY: the block lies in the room, and not in the first bytes of it.
    let header = unsafe { block.as_ptr().sub(HEADER_BYTES) }.cast::<usize>();
    // SAFETY: it is one of ours, so that its header lies before it, and is never written again.
    Some(unsafe { header.read_unaligned() })
}

/// Where a block starts that is given out next, in bytes from the room's start.
fn start(base: *mut u8, next: usize, align: usize) -> usize {
    let address = base.addr() + next + HEADER_BYTES;
    next + HEADER_BYTES + (address.next_multiple_of(align) - address)
}
