//! The calls of profiled programs, from the files of `haul copy profile`.

use std::path::{Path, PathBuf};

use haul_model::Line;
use haul_model::experiment::{key, name};
use haul_model::profile::{Calls, Profile, layout};

use crate::command::report::read_lines;
use crate::error::{Error, InputError};

/// The calls of all programs of these files together: of records, and of files that programs map
/// while they run.
///
/// # Errors
/// A file cannot be read, or has no profile.
pub(super) fn calls(paths: &[PathBuf]) -> Result<Calls, Error> {
    let read = |path: &PathBuf| {
        let calls = of_file(path)?;
        let name = || path.display().to_string();
        if calls.is_empty() {
            Err(InputError::EmptyProfile { name: name() }.into())
        } else {
            Ok(calls)
        }
    };
    let all = paths.iter().map(read).collect::<Result<Vec<Calls>, Error>>()?;
    Ok(Calls::sum(&all))
}

fn of_file(path: &Path) -> Result<Calls, Error> {
    let name = || path.display().to_string();
    if begins_as_mapped(path) {
        let bytes = haul_machine::file::read_limited(path, layout::FILE_BYTES as u64)?;
        return Ok(Calls::of_sites(&Profile::parse(&bytes)?.sites));
    }
    let lines = read_lines(path)?;
    let records = lines.iter().filter_map(|line| match line {
        Line::Record(record) if record.experiment == name::COPY_PROFILE => Some(record),
        _ => None,
    });
    let whole: Vec<_> = records.filter(|record| record.text(key::BY) == Some("all")).collect();
    if whole.is_empty() {
        return Err(InputError::NoProfile { name: name() }.into());
    }
    let calls: Option<Vec<Calls>> = whole.into_iter().map(Calls::of).collect();
    let calls = calls.map(|all| Calls::sum(&all));
    calls.ok_or_else(|| InputError::OldProfile { name: name() }.into())
}

/// Whether a file begins as one that programs map. Any other, also one that cannot be read, is
/// read as records, which reports the reason.
fn begins_as_mapped(path: &Path) -> bool {
    use std::io::Read as _;
    // A FIFO or a device would lose what is read here.
    let is_file = std::fs::metadata(path).is_ok_and(|facts| facts.is_file());
    let mut first = [0; layout::MAGIC.len()];
    let file = if is_file { std::fs::File::open(path) } else { return false };
    file.is_ok_and(|mut file| file.read_exact(&mut first).is_ok()) && first == layout::MAGIC
}
