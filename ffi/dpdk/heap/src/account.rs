//! DPDK's statistics, as they would be without the drop-in: memory that a heap holds but has not
//! allocated counts as free.

use core::ffi::{c_int, c_uint};
use std::fmt::Write as _;
use std::time::Duration;

use haul_heap::Node;

use crate::dpdk::SocketStats;
use crate::dropin::{Dropin, SocketHeap};

/// How often the counts are read if an extent is in transit meanwhile, with a pause before each
/// retry. Together the pauses last as long as DPDK needs to clear the longest extent. If an
/// extent never arrives because its process died, the counts are wrong by its size and every read
/// lasts that long.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_micros(100);

/// Lets `ask` read DPDK's statistics of a socket, which count the heaps' extents as blocks, and
/// corrects them. Returns the result of `ask`, which is 0 on success.
pub(crate) fn count(
    dropin: &Dropin,
    socket: c_int,
    stats: &mut SocketStats,
    ask: impl Fn(&mut SocketStats) -> c_int,
) -> c_int {
    for tried in 1..=TRIES {
        let before = dropin.directory.transit_epoch();
        let result = ask(stats);
        if result != 0 {
            return result;
        }
        correct(dropin, socket, stats);
        if before.is_some() && before == dropin.directory.transit_epoch() {
            break;
        }
        if tried < TRIES {
            std::thread::sleep(PAUSE);
        }
    }
    0
}

fn correct(dropin: &Dropin, socket: c_int, stats: &mut SocketStats) {
    let Some(heap) = dropin.heaps.iter().find(|each| each.range.socket == socket) else {
        return;
    };
    let held = held(dropin, heap);
    let live = live(heap);
    let allocated = stats.allocated_bytes.saturating_sub(held.bytes).saturating_add(live.bytes);
    stats.allocated_bytes = allocated.min(stats.total_bytes);
    stats.free_bytes = stats.total_bytes - stats.allocated_bytes;
    stats.allocated_count =
        stats.allocated_count.saturating_sub(held.count).saturating_add(live.count);
}

/// The content of the heaps as text: one paragraph for each socket.
pub(crate) fn describe(dropin: &Dropin) -> String {
    let mut text = String::new();
    for heap in &dropin.heaps {
        let held = held(dropin, heap);
        // Writing into a String cannot fail.
        let _ = writeln!(text, "Heap of haul on socket:{}", heap.range.socket);
        let _ = writeln!(text, "\tExtent_size:{},", held.bytes);
        let _ = writeln!(text, "\tExtent_count:{},", held.count);
        let _ = heap.heap.dump(&mut text);
    }
    text
}

/// A number of blocks, and the number of their bytes.
struct Sum {
    count: c_uint,
    bytes: usize,
}

fn held(dropin: &Dropin, heap: &SocketHeap) -> Sum {
    let extents = dropin.directory.extents().filter(|each| each.socket == heap.range.socket);
    extents.fold(Sum { count: 0, bytes: 0 }, |sum, extent| Sum {
        count: sum.count + 1,
        bytes: sum.bytes + extent.cost_bytes(),
    })
}

fn live(heap: &SocketHeap) -> Sum {
    let live = heap.heap.stats(Node::ANY).live;
    Sum { count: live.blocks as c_uint, bytes: live.bytes as usize }
}
