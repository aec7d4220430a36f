//! DPDK's statistics, as if there were no drop-in: what a heap holds and has not handed out is free.

use core::ffi::{c_int, c_uint};
use std::fmt::Write as _;

use haul_heap::Node;

use crate::dpdk::SocketStats;
use crate::dropin::{Dropin, SocketHeap};

/// Corrects what DPDK counts on a socket: it takes our extents for blocks.
pub(crate) fn correct(dropin: &Dropin, socket: c_int, stats: &mut SocketStats) {
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

/// What the heaps hold, for people: one paragraph a socket.
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

/// Blocks and their bytes.
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
