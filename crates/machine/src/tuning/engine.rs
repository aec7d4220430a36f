//! The break-even sizes of engines in `haul.toml`: from which size on a copy beside the CPU pays.
//!
//! ```toml
//! [engine.worker]            # the helper thread of the engine auto
//! break_even = "256 KiB"     # bytes, or "never": while it has a processor of its own
//! break_even_busy = "never"  # bytes, or "never": for a while after other threads have taken it
//! ```
//!
//! A size that is absent keeps its default. A wrong size can only make a copy slower.

use std::fmt;

use toml::{Table, Value};

use haul_engine::BreakEven;

use super::value::{only_known, shown, threshold, wrong};
use crate::error::Error;

const ENGINES: [&str; 1] = ["worker"];
const KEYS: [&str; 2] = ["break_even", "break_even_busy"];

/// Writes the section `[engine.worker]` of a file, if there are sizes.
pub(super) fn write(sizes: Option<BreakEven>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(BreakEven { idle, busy }) = sizes else { return Ok(()) };
    writeln!(f, "\n[engine.worker] # the sizes from which auto uses its helper thread")?;
    for (name, bytes) in KEYS.into_iter().zip([idle, busy]) {
        writeln!(f, "{name} = {}", shown(bytes))?;
    }
    Ok(())
}

/// Parses the section `[engine.worker]` of a file. The section may be absent.
pub(super) fn section(table: &Table) -> Result<Option<BreakEven>, Error> {
    let Some(engines) = table.get("engine") else { return Ok(None) };
    let Value::Table(engines) = engines else {
        return Err(wrong("engine", engines, "a table: [engine.worker]"));
    };
    only_known(engines, "engine.", &ENGINES)?;
    let Some(worker) = engines.get("worker") else { return Ok(None) };
    let Value::Table(worker) = worker else {
        return Err(wrong("engine.worker", worker, "a table: [engine.worker]"));
    };
    only_known(worker, "engine.worker.", &KEYS)?;
    let mut sizes = BreakEven::default();
    for (name, size) in KEYS.into_iter().zip([&mut sizes.idle, &mut sizes.busy]) {
        if let Some(value) = worker.get(name) {
            *size = threshold(&format!("engine.worker.{name}"), value)?;
        }
    }
    Ok(Some(sizes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Tuning;

    const HEAD: &str = "schema = \"haul.tuning/1\"\nmachine = \"m\"\nwritten = \"w\"\n";

    fn parsed(text: &str) -> Result<Option<BreakEven>, Error> {
        format!("{HEAD}{text}").parse::<Tuning>().map(|tuning| tuning.engine)
    }

    #[test]
    fn written_sizes_are_read_back() {
        let mut tuning: Tuning = HEAD.parse().unwrap();
        assert_eq!(tuning.engine, None);
        for (idle, busy) in [(256 << 10, usize::MAX), (usize::MAX, 4096)] {
            tuning.engine = Some(BreakEven { idle, busy });
            assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning);
        }
    }

    #[test]
    fn absent_size_keeps_its_default() {
        let default = BreakEven::default();
        let busy = parsed("[engine.worker]\nbreak_even_busy = \"2 MiB\"").unwrap();
        assert_eq!(busy, Some(BreakEven { busy: 2 << 20, ..default }));
        assert_eq!(parsed("[engine.worker]").unwrap(), Some(default));
        assert_eq!(parsed("[engine]").unwrap(), None);
    }

    #[test]
    fn invalid_sections_are_errors_that_name_the_key() {
        for (bad, part) in [
            ("engine = 1", "engine"),
            ("[engine]\nworker = 1", "engine.worker"),
            ("[engine.dsa]", "engine.dsa"),
            ("[engine.worker]\nsize = 1", "engine.worker.size"),
            ("[engine.worker]\nbreak_even = \"soon\"", "engine.worker.break_even"),
            ("[engine.worker]\nbreak_even = -1", "engine.worker.break_even"),
            ("[engine.worker]\nbreak_even_busy = 1.5", "engine.worker.break_even_busy"),
        ] {
            let error = parsed(bad).expect_err(bad).to_string();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
}
