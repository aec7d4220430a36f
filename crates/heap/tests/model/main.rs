//! Sequences of calls against a naive model.

mod model;

use haul_heap::Heap;
use proptest::prelude::*;

use model::{Call, Model};

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn heap_behaves_as_the_model(calls in prop::collection::vec(calls(), 1..600)) {
        let heap = Heap::builder().limit(64 << 20).nodes(1).build().unwrap();
        let mut model = Model::new(heap);
        calls.iter().for_each(|call| model.call(call));
        model.finish();
    }
}
