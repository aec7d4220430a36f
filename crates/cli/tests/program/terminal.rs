//! Output on a terminal: tables that fit it, and colour; a pipe gets neither.

use std::process::{Command, Stdio};

use crate::{haul, run};

/// A line without its colour codes.
fn bare(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |bare, part| bare + part.split_once('m').map_or("", |(_, text)| text))
}

/// The list of channel mechanisms on a terminal of this width.
fn shown(columns: usize, environment: &str) -> String {
    let program = env!("CARGO_BIN_EXE_haul");
    let line = format!(
        "stty cols {columns} rows 40 && {environment} HAUL_TUNING=off {program} channel list"
    );
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
    run(command.stdin(Stdio::null())).expect(0).out.replace('\r', "")
}

#[test]
fn table_fits_terminal_and_has_colour_only_there() {
    let is_here = Command::new("script").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_here {
        eprintln!("SKIPPED: a table on a terminal: no script on PATH: apt-get install bsdutils");
        return;
    }
    let piped = run(&mut haul(&["channel", "list"])).expect(0).out;
    assert!(!piped.contains('\x1b') && piped.lines().any(|line| line.len() > 100), "{piped}");
    let words = |text: &str| -> Vec<String> {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words
    };
    for columns in [60, 80, 200] {
        let text = shown(columns, "");
        assert!(text.contains("\x1b[1m"), "{text:?}");
        let bare: Vec<String> = text.lines().map(bare).collect();
        assert!(bare.iter().all(|line| line.chars().count() <= columns), "{columns}: {bare:#?}");
        // If a column does not fit, each row names it.
        let mut all = words(&bare.join("\n"));
        all.retain(|word| word != "needs");
        let mut expected = words(&piped);
        expected.retain(|word| word != "needs");
        assert_eq!(all, expected, "a word was broken at {columns} columns");
    }
    assert!(!shown(80, "NO_COLOR=1").contains('\x1b'));
}
