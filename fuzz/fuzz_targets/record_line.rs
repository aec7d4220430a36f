//! Any text as a line of a record file, and as the whole file: the result is an error, or a line
//! that does not change when it is written and read again.
#![no_main]

use haul_model::Line;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(line) = Line::parse(text) {
        let written = line.to_json();
        assert!(!written.contains('\n'), "one line: {written}");
        assert_eq!(Line::parse(&written).expect("what haul wrote, haul reads"), line);
    }
    let (lines, errors) = haul_model::file::parse_what_can_be(text);
    match haul_model::file::parse(text) {
        Ok(all) => assert!(errors.is_empty() && all == lines),
        Err(_) => assert!(!errors.is_empty()),
    }
});
