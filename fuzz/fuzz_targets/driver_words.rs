//! Any text as a request to a peer's driver, as the driver's reply, and as a value on the command
//! line. The result is an error, or a value that does not change when it is written and read
//! again.
#![no_main]

use haul::channel::Mechanism;
use haul_experiments::channel::protocol::{Reply, Request};
use haul_experiments::{channel, heap};
use haul_measure::placement::Level;
use haul_model::{Bytes, SizeClass, Sizes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // Requests and replies are read line by line.
    for line in text.lines() {
        if let Ok(request) = line.parse::<Request>() {
            let written = request.to_string();
            assert_eq!(written.parse::<Request>().map(|r| r.to_string()), Ok(written));
        }
        if let Ok(reply) = line.parse::<Reply>() {
            let written = reply.to_string();
            assert!(!written.contains('\n'), "one line: {written:?}");
            assert_eq!(written.parse::<Reply>().map(|r| r.to_string()), Ok(written));
        }
    }
    if let Ok(size) = text.parse::<Bytes>() {
        let written = size.to_string();
        assert_eq!(written.parse::<Bytes>().ok(), Some(size), "{written}");
    }
    if let Ok(sizes) = text.parse::<Sizes>() {
        assert!(!sizes.0.is_empty() && sizes.0.is_sorted());
    }
    if let Ok(class) = text.parse::<SizeClass>() {
        let written = class.to_string();
        assert_eq!(written.parse::<SizeClass>().ok(), Some(class), "{written}");
    }
    let _ = text.parse::<Mechanism>();
    let _ = text.parse::<Level>();
    let _ = text.parse::<heap::Test>();
    let _ = text.parse::<heap::Peer>();
    let _ = text.parse::<channel::Peer>();
});
