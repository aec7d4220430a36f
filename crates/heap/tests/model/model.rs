//! A naive model of a heap: a map of live blocks and their content. The fuzz target `heap_calls`
//! also uses this model.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use haul_heap::{Fault, Heap, Node, Request};

/// One call. `which`, modulo the number of live blocks, selects a live block.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Alloc { size: usize, align_bits: u32 },
    Free { which: usize },
    Realloc { which: usize, size: usize },
    FreeTwice { which: usize },
    FreeWithin { which: usize, offset: usize },
}

/// A live block in the model.
#[derive(Clone, Copy, Debug)]
struct Live {
    size: usize,
    mark: u8,
}

/// A heap, and its expected content.
pub(crate) struct Model {
    heap: Heap,
    live: BTreeMap<usize, Live>,
    next_mark: u8,
}

impl Model {
    /// A model for an unused heap.
    pub(crate) fn new(heap: Heap) -> Self {
        Self { heap, live: BTreeMap::new(), next_mark: 0 }
    }

    /// Checks every live block and frees it. Asserts that the heap is then valid and empty.
    pub(crate) fn finish(self) {
        for (address, live) in &self.live {
            self.check(*address, live.size, live.mark);
        }
        self.live.keys().for_each(|address| self.free(*address).unwrap());
        self.heap.validate().unwrap();
        assert_eq!(self.heap.stats(Node::ANY).live.blocks, 0);
    }

    fn pick(&self, which: usize) -> Option<(usize, Live)> {
        let index = which.checked_rem(self.live.len())?;
        self.live.iter().nth(index).map(|(address, live)| (*address, *live))
    }

    fn add(&mut self, block: NonNull<u8>, size: usize) {
        let address = block.as_ptr().expose_provenance();
        // SAFETY: the model owns the block, which was just allocated.
        let usable = unsafe { self.heap.usable_size(block) }.unwrap();
        assert!(usable >= size);
        let below = self.live.range(..=address).next_back();
        assert!(below.is_none_or(|(start, live)| start + live.size.max(1) <= address));
        let above = self.live.range(address + 1..).next();
        assert!(above.is_none_or(|(start, _)| address + usable <= *start));
        self.next_mark = self.next_mark.wrapping_add(1);
        // SAFETY: the block was just allocated with that many bytes.
        unsafe { block.write_bytes(self.next_mark, size) };
        self.live.insert(address, Live { size, mark: self.next_mark });
    }

    fn check(&self, address: usize, size: usize, mark: u8) {
        let start: *const u8 = std::ptr::with_exposed_provenance(address);
        // SAFETY: the block is live with at least that many bytes, all written.
        let bytes = unsafe { std::slice::from_raw_parts(start, size) };
        assert!(bytes.iter().all(|byte| *byte == mark));
    }

    fn free(&self, address: usize) -> Result<(), haul_heap::Misuse> {
        let pointer = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap();
        // SAFETY: the block was one of the model's, which has removed it, or the pointer names no
        // block.
        unsafe { self.heap.free(pointer) }
    }

    /// Makes one call to the heap and to the model.
    pub(crate) fn call(&mut self, call: &Call) {
        match *call {
            Call::Alloc { size, align_bits } => {
                if let Ok(block) = self.heap.alloc(Request::new(size).aligned(1 << align_bits)) {
                    assert!((block.as_ptr() as usize).is_multiple_of(1 << align_bits));
                    self.add(block, size);
                }
            }
            Call::Free { which } => {
                let Some((address, live)) = self.pick(which) else { return };
                self.check(address, live.size, live.mark);
                self.live.remove(&address);
                self.free(address).unwrap();
            }
            Call::Realloc { which, size } => {
                let Some((address, live)) = self.pick(which) else { return };
                let pointer = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap();
                // SAFETY: the block is one of the model's, which replaces it with the returned
                // block.
                if let Ok(block) = unsafe { self.heap.realloc(pointer, size, 64) } {
                    self.live.remove(&address);
                    let kept = live.size.min(size);
                    self.check(block.as_ptr().expose_provenance(), kept, live.mark);
                    self.add(block, size);
                }
            }
            Call::FreeTwice { which } => {
                let Some((address, _)) = self.pick(which) else { return };
                self.live.remove(&address);
                self.free(address).unwrap();
                let misuse = self.free(address).unwrap_err();
                assert!(matches!(misuse.fault, Fault::Double | Fault::Wild), "{misuse}");
            }
            Call::FreeWithin { which, offset } => {
                let Some((address, live)) = self.pick(which) else { return };
                if offset < live.size {
                    assert_eq!(self.free(address + offset).unwrap_err().fault, Fault::Interior);
                }
            }
        }
    }
}
