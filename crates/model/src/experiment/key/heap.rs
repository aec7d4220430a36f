//! Keys of heaps.

/// The alignment of blocks.
pub const ALIGN_BYTES: &str = "align_bytes";
/// The number of rounds in a repetition.
pub const ROUNDS: &str = "rounds";
/// The number of the round.
pub const ROUND: &str = "round";
/// The number of blocks in a round.
pub const COUNT: &str = "count";
/// Whether other processes can share the heap.
pub const SHARED: &str = "shared";
/// Whether huge pages of the kernel's pool may be used.
pub const POOL: &str = "pool";
/// The memory that the heap keeps ready in advance.
pub const GROW_AHEAD_BYTES: &str = "grow_ahead_bytes";
/// The part of the heap that has memory before the first allocation.
pub const READY_BYTES: &str = "ready_bytes";
/// The recorded history.
pub const TRACE: &str = "trace";
/// The number of recorded threads.
pub const THREADS_RECORDED: &str = "threads_recorded";
/// The number of operations in a history.
pub const OPERATIONS: &str = "operations";
/// The number of operations that are done at this point.
pub const OPERATIONS_DONE: &str = "operations_done";
/// The recorded time of this point.
pub const AT_MS: &str = "at_ms";
/// The shared heap that was inspected.
pub const HEAP: &str = "heap";
/// The unit by which shares are counted: heap, class, tag or page.
pub const BY: &str = "by";
/// The class of blocks.
pub const CLASS: &str = "class";
/// The size of the class.
pub const CLASS_BYTES: &str = "class_bytes";
/// The number of blocks.
pub const BLOCKS: &str = "blocks";
/// The tag of the blocks.
pub const TAG: &str = "tag";
/// The number of the blocks' tag.
pub const TAG_NUMBER: &str = "tag_number";
/// The number of the page.
pub const PAGE: &str = "page";
/// The offset of the page in the heap.
pub const OFFSET_BYTES: &str = "offset_bytes";
/// The NUMA node of its memory.
pub const NODE: &str = "node";
/// The kind of memory behind the page.
pub const BACKING: &str = "backing";
/// The state of the page.
pub const STATE: &str = "state";
/// The content of each slice, see [`picture`](crate::picture).
pub const SLICES: &str = "slices";
