//! Runs tasks on all processors that the test may use.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work(state, task)` for every task. Every thread creates its `state` once.
///
/// If tasks panic, this function panics with the message of the first one.
pub(crate) fn for_each<T: Sync, S>(
    tasks: &[T],
    make_state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &T) + Sync,
) {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut state = make_state();
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(&mut state, task);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if threads == 1 || cfg!(miri) {
        return worker();
    }
    let panics: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(8)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().filter_map(|worker| worker.join().err()).collect()
    });
    if let Some(panic) = panics.into_iter().next() {
        std::panic::resume_unwind(panic);
    }
}
