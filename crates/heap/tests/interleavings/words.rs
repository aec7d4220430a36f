//! A signal handler reads words while another thread changes them.

use loom::sync::Arc;
use loom::thread;

use super::model;
use crate::protocol::versioned::Versioned;
use crate::sync::{AtomicU32, AtomicU64};

fn words(first: [u64; 2]) -> Arc<Versioned<2>> {
    Arc::new(Versioned { version: AtomicU32::new(0), words: first.map(AtomicU64::new) })
}

#[test]
fn reader_never_mixes_words_of_two_versions() {
    model(|| {
        let range = words([10, 20]);
        let other = range.clone();
        let thread = thread::spawn(move || {
            other.write([0, 0]);
            other.write([30, 40]);
        });
        let read = range.read();
        assert!([None, Some([10, 20]), Some([0, 0]), Some([30, 40])].contains(&read), "{read:?}");
        thread.join().unwrap();
        assert_eq!(range.read(), Some([30, 40]));
    });
}

/// A reader gets the words that were written before it began, or later words.
#[test]
fn unchanged_words_are_read() {
    model(|| {
        let (range, other) = (words([1, 2]), words([3, 4]));
        let writer = other.clone();
        let thread = thread::spawn(move || writer.write([5, 6]));
        assert_eq!(range.read(), Some([1, 2]));
        thread.join().unwrap();
        assert_eq!(other.read(), Some([5, 6]));
    });
}
