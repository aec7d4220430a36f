//! A program that uses the heap for all its allocations, with threads that start and end.

use std::collections::BTreeMap;
use std::thread;

use haul_heap::{Global, Node};

#[global_allocator]
static GLOBAL: Global = Global;

#[test]
fn program_runs_on_the_heap() {
    let words: BTreeMap<String, Vec<usize>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    (0..2000)
                        .map(|word| (format!("{thread} {word}"), vec![word; word % 300]))
                        .collect::<BTreeMap<_, _>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(words.len(), 16_000);
    assert!(words["7 299"].iter().all(|word| *word == 299));
    let heap = Global::heap().unwrap();
    assert!(heap.stats(Node::ANY).live.blocks >= 32_000 - 8 * 7);
    drop(words);
    assert_eq!(heap.validate(), Ok(()));
}

/// One after the other: the threads of the second part leave thousands of caches.
#[test]
fn threads_start_and_end() {
    consecutive_threads_use_few_caches();
    thousands_of_live_threads_are_served();
}

fn consecutive_threads_use_few_caches() {
    for round in 0..300 {
        thread::spawn(move || vec![round; 100]).join().unwrap();
    }
    let heap = Global::heap().unwrap();
    let cached = heap.stats(Node::ANY).cached.bytes;
    assert!(cached < 64 << 20, "{cached}");
}

/// There are more threads than caches. Each is served; otherwise the program would abort.
fn thousands_of_live_threads_are_served() {
    const THREADS: usize = 5000;
    let barrier = std::sync::Barrier::new(THREADS);
    let sum: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                let (barrier, builder) = (&barrier, thread::Builder::new().stack_size(256 << 10));
                let work = move || {
                    let bytes = vec![index as u8; 100 + index % 1000];
                    barrier.wait();
                    bytes.iter().filter(|byte| **byte == index as u8).count()
                };
                builder.spawn_scoped(scope, work).unwrap()
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sum, (0..THREADS).map(|index| 100 + index % 1000).sum());
    assert_eq!(Global::heap().unwrap().validate(), Ok(()));
}

/// Any process with the descriptor, and safe code in this process, could write to the memory of a
/// collection.
#[cfg(feature = "allocator-api2")]
#[test]
fn shared_heap_refuses_memory_for_collections() {
    use allocator_api2::vec::Vec;
    use haul_heap::{Heap, Pages, Request};
    let builder = || Heap::builder().limit(64 << 20).nodes(1).pages(Pages::Plain);
    let made = builder().shared_fd().unwrap();
    let attached = builder().attach_fd(made.fd().unwrap()).unwrap();
    for heap in [&made, &attached] {
        let mut texts: Vec<&str, &Heap> = Vec::new_in(heap);
        assert!(texts.try_reserve(1).is_err());
        assert!(heap.alloc(Request::new(16).aligned(8)).is_ok(), "the heap has blocks");
    }
}

#[cfg(feature = "allocator-api2")]
#[test]
fn collection_allocates_from_its_heap() {
    use allocator_api2::vec::Vec;
    let heap = haul_heap::Heap::builder().limit(64 << 20).nodes(1).build().unwrap();
    let mut numbers = Vec::new_in(&heap);
    (0..10_000u64).for_each(|number| numbers.push(number));
    assert_eq!(heap.stats(Node::ANY).live.blocks, 1);
    drop(numbers);
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
}
