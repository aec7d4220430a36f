//! Sequences of calls against a naive model: a map of live blocks and what was written into them.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use haul_heap::{Fault, Heap, Node};
use proptest::prelude::*;

/// One call. Which block is meant is a number that is taken modulo the number of live ones.
#[derive(Clone, Debug)]
enum Call {
    Alloc { size: usize, align_bits: u32 },
    Free { which: usize },
    Realloc { which: usize, size: usize },
    FreeTwice { which: usize },
    FreeWithin { which: usize, offset: usize },
}

/// A live block as the model has it.
#[derive(Clone, Copy, Debug)]
struct Live {
    size: usize,
    mark: u8,
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 0..2048usize,
        4 => (0..19u32, 0..3usize).prop_map(|(bits, add)| (1 << bits) + add - 1),
        2 => 2048..300_000usize,
        1 => 300_000..5_000_000usize,
    ]
}

fn calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        10 => (sizes(), 0..14u32).prop_map(|(size, align_bits)| Call::Alloc { size, align_bits }),
        6 => any::<usize>().prop_map(|which| Call::Free { which }),
        3 => (any::<usize>(), sizes()).prop_map(|(which, size)| Call::Realloc { which, size }),
        1 => any::<usize>().prop_map(|which| Call::FreeTwice { which }),
        1 => (any::<usize>(), 1..4096usize)
            .prop_map(|(which, offset)| Call::FreeWithin { which, offset }),
    ]
}

struct Model {
    heap: Heap,
    live: BTreeMap<usize, Live>,
    next_mark: u8,
}

impl Model {
    fn pick(&self, which: usize) -> Option<(usize, Live)> {
        let index = which.checked_rem(self.live.len())?;
        self.live.iter().nth(index).map(|(address, live)| (*address, *live))
    }

    fn add(&mut self, block: NonNull<u8>, size: usize) {
        let address = block.as_ptr().expose_provenance();
        let usable = self.heap.usable_size(block).unwrap();
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
        // SAFETY: a block of the model, which forgets it, or no block at all.
        unsafe { self.heap.free(pointer) }
    }

    fn call(&mut self, call: &Call) {
        match *call {
            Call::Alloc { size, align_bits } => {
                if let Ok(block) = self.heap.alloc(size, 1 << align_bits, Node::ANY) {
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
                // SAFETY: a block of the model, which replaces it by what is returned.
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_heap_does_what_the_model_does(calls in prop::collection::vec(calls(), 1..600)) {
        let heap = Heap::builder().limit(64 << 20).nodes(1).build().unwrap();
        let mut model = Model { heap, live: BTreeMap::new(), next_mark: 0 };
        calls.iter().for_each(|call| model.call(call));
        for (address, live) in &model.live {
            model.check(*address, live.size, live.mark);
        }
        let addresses: Vec<usize> = model.live.keys().copied().collect();
        addresses.iter().for_each(|address| model.free(*address).unwrap());
    }
}
