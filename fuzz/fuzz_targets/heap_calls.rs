//! Any sequence of calls to a private heap, to a shared heap, or to a heap in debug mode,
//! compared with the naive model from the heap's own tests.
#![no_main]

#[path = "../../crates/heap/tests/model/model.rs"]
mod model;

use haul_heap::{Heap, Pages};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

use model::{Call, Model};

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    calls: Vec<AnyCall>,
}

#[derive(Arbitrary, Debug)]
enum AnyCall {
    Alloc { size: Size, align_bits: u8 },
    Free { which: u16 },
    Realloc { which: u16, size: Size },
    FreeTwice { which: u16 },
    FreeWithin { which: u16, offset: u32 },
}

/// Most sizes are small, as in real programs; some are around powers of two.
#[derive(Arbitrary, Debug)]
enum Size {
    Small(u16),
    Around { bits: u8, below: bool },
    Large(u32),
}

impl Size {
    fn bytes(&self) -> usize {
        match *self {
            Self::Small(bytes) => bytes.into(),
            Self::Around { bits, below } => (1 << (bits % 23)) + 1 - 2 * usize::from(below),
            Self::Large(bytes) => bytes as usize % (5 << 20),
        }
    }
}

impl AnyCall {
    fn call(&self) -> Call {
        match self {
            Self::Alloc { size, align_bits } => {
                Call::Alloc { size: size.bytes(), align_bits: u32::from(align_bits % 23) }
            }
            Self::Free { which } => Call::Free { which: (*which).into() },
            Self::Realloc { which, size } => {
                Call::Realloc { which: (*which).into(), size: size.bytes() }
            }
            Self::FreeTwice { which } => Call::FreeTwice { which: (*which).into() },
            Self::FreeWithin { which, offset } => {
                Call::FreeWithin { which: (*which).into(), offset: (*offset as usize).max(1) }
            }
        }
    }
}

fuzz_target!(|input: Input| {
    let builder = Heap::builder().limit(32 << 20).nodes(1).caches(8).pages(Pages::Plain);
    let heap = match input.kind % 3 {
        0 => builder.build(),
        1 => builder.shared_fd(),
        _ => builder.debug(true).build(),
    };
    let mut model = Model::new(heap.expect("a small heap"));
    input.calls.iter().take(400).for_each(|call| model.call(&call.call()));
    model.finish();
});
