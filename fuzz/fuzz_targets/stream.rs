//! Any bytes as a stream, and as a recording: the result is an error, or a stream that is the same
//! after it is written and read.
#![no_main]

use haul_model::stream::recording::{About, Modules, Recording};
use haul_model::stream::{Stream, StreamError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(stream) = Stream::read(bytes) {
        assert_round_trip(&stream);
    }
    if let Ok(recording) = Recording::parse(bytes) {
        let mut modules = Modules::default();
        recording.processes.iter().for_each(|process| modules.add(&process.maps));
        for thread in 0..recording.threads.len() {
            assert_round_trip(&recording.stream(thread, &modules, &About::default()));
        }
    }
});

fn assert_round_trip(stream: &Stream) {
    let arena = stream.arena_bytes();
    for call in &stream.calls {
        assert!(usize::from(call.site) < stream.sites.len());
        for offset in [Some(call.target), call.source].into_iter().flatten() {
            assert!(u64::from(offset) + u64::from(call.size) <= arena);
        }
    }
    let file = stream.write().expect("what was read can be written");
    let again: Result<Stream, StreamError> = Stream::read(&file);
    assert_eq!(&again.expect("what was written can be read"), stream);
}
