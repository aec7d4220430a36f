//! Processes independent items on several threads. The result of an item does not depend on the
//! number of threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// Processes every item on `threads` concurrent threads. The items begin in their order. Passes
/// each result to `done` on the calling thread as soon as the result is complete. No item begins
/// after `stop` was set or `done` has returned false.
pub fn each<I: Sync, R: Send>(
    items: &[I],
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn(&I) -> R + Sync,
    mut done: impl FnMut(usize, R) -> bool,
) {
    let next = AtomicUsize::new(0);
    let enough = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            let (sender, next, enough, work) = (sender.clone(), &next, &enough, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && !enough.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else {
                        break;
                    };
                    if sender.send((index, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in receiver {
            if !done(index, result) {
                enough.store(true, Ordering::Relaxed);
            }
        }
    });
}

/// The number of threads: the requested number, or the number of processors.
#[must_use]
pub fn threads(asked: Option<usize>) -> usize {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or_else(available).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processes_every_item_once_with_any_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7] {
            let mut results = vec![None; items.len()];
            let stop = AtomicBool::new(false);
            each(
                &items,
                threads,
                &stop,
                |n| n * n,
                |index, square| {
                    assert_eq!(results[index].replace(square), None);
                    true
                },
            );
            assert!(results.iter().zip(&items).all(|(got, n)| *got == Some(n * n)));
        }
    }

    #[test]
    fn no_item_begins_after_done_returned_false() {
        let items: Vec<u64> = (0..1000).collect();
        let begun = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let work = |_: &u64| {
            // The thread that calls `done` may have no processor for seconds.
            std::thread::sleep(std::time::Duration::from_millis(50));
            begun.fetch_add(1, Ordering::Relaxed)
        };
        each(&items, 2, &stop, work, |_, _| false);
        assert!(begun.load(Ordering::Relaxed) < 500);
    }
}
