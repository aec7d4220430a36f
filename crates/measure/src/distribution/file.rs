//! Reads a size distribution from an untrusted file.
//!
//! The file is opened without blocking (a FIFO does not hang), rejected unless it is a regular
//! file, read up to a limit, and parsed and checked entry by entry.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::{Distribution, SIZE_MAX_BYTES, SUM_TOLERANCE, SUM_TOLERANCE_ROUNDED};
use crate::error::{DistributionFault, Error};

/// The largest file: The size of 1 MiB + 1 entries of 24 characters, which is the most that a
/// double needs.
pub const FILE_MAX_BYTES: u64 = 24 << 20;

/// The number of characters of a malformed entry that an error shows.
const SHOWN_CHARACTERS: usize = 24;

/// Reads a distribution. The distribution's name is the file's name without folder and extension.
///
/// # Errors
/// [`Error::Distribution`] with the [`DistributionFault`].
pub fn read(path: &Path) -> Result<Distribution, Error> {
    let fail = |fault| Error::Distribution { name: path.display().to_string(), fault };
    let bytes = contents(path).map_err(fail)?;
    let probabilities = parse(&bytes).map_err(fail)?;
    let name =
        path.file_stem().map_or_else(|| "file".into(), |stem| stem.to_string_lossy().into_owned());
    let tolerance = tolerance(&bytes, probabilities.len());
    match Distribution::from_rounded(&name, &probabilities, tolerance) {
        Err(Error::Distribution { fault, .. }) => Err(fail(fault)),
        other => other.map(|found| Distribution { file: Some(path.into()), ..found }),
    }
}

/// Parses the probabilities on the only line of the text; a trailing comma and blank lines are
/// allowed.
///
/// # Errors
/// The text is not UTF-8, is empty, has several lines, is too long, or contains an entry that is
/// not a number.
pub fn parse(bytes: &[u8]) -> Result<Vec<f64>, DistributionFault> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| DistributionFault::NotText(error.valid_up_to()))?;
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, line) = lines.next().ok_or(DistributionFault::Empty)?;
    if let Some((number, _)) = lines.next() {
        return Err(DistributionFault::ManyLines(number + 1));
    }
    let line = line.trim();
    let line = line.strip_suffix(',').unwrap_or(line);
    let entries = line.split(',').count();
    if entries > SIZE_MAX_BYTES + 1 {
        return Err(DistributionFault::TooLong { entries, limit: SIZE_MAX_BYTES + 1 });
    }
    let number = |(index, text): (usize, &str)| {
        let text = text.trim();
        text.parse().map_err(|_| DistributionFault::NotANumber {
            index,
            text: text.chars().take(SHOWN_CHARACTERS).collect(),
            last: index + 1 == entries,
        })
    };
    line.split(',').enumerate().map(number).collect()
}

/// The accepted distance of the sum from 1: the rounding error for the largest number of decimals
/// of any entry, but at least [`SUM_TOLERANCE`] and at most [`SUM_TOLERANCE_ROUNDED`].
fn tolerance(bytes: &[u8], entries: usize) -> f64 {
    let texts = bytes.split(|&byte| byte == b',').filter_map(|text| str::from_utf8(text).ok());
    let decimals = texts.map(|text| decimals(text.trim())).max().unwrap_or(0);
    let rounding = 0.5 * entries as f64 * 10_f64.powi(-decimals);
    rounding.clamp(SUM_TOLERANCE, SUM_TOLERANCE_ROUNDED)
}

/// The decimal places of a number as written: 3 of `0.125`, 4 of `1.2e-3`.
fn decimals(text: &str) -> i32 {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let places = mantissa.split_once('.').map_or(0, |(_, places)| places.len());
    let exponent: i32 = exponent.parse().unwrap_or(0);
    i32::try_from(places).unwrap_or(i32::MAX).saturating_sub(exponent)
}

fn contents(path: &Path) -> Result<Vec<u8>, DistributionFault> {
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = file.map_err(|error| explain(path, error))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(DistributionFault::NotAFile(kind_name(metadata.file_type())));
    }
    if metadata.len() > FILE_MAX_BYTES {
        return Err(DistributionFault::TooLarge { bytes: metadata.len(), limit: FILE_MAX_BYTES });
    }
    bounded(file)
}

/// Reads up to the limit, because the file may grow, or report a wrong length, like files in
/// `/proc`.
fn bounded(file: File) -> Result<Vec<u8>, DistributionFault> {
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(DistributionFault::TooLarge {
            bytes: bytes.len() as u64,
            limit: FILE_MAX_BYTES,
        });
    }
    Ok(bytes)
}

/// Explains the error of a socket, which cannot be opened: the kernel's message would be "no such
/// device".
fn explain(path: &Path, error: io::Error) -> DistributionFault {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => DistributionFault::NotAFile("socket"),
        _ => DistributionFault::Unreadable(error),
    }
}

fn kind_name(kind: std::fs::FileType) -> &'static str {
    if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "FIFO"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn trailing_comma_and_blank_lines_are_accepted() {
        for text in ["0.5,0.5", "0.5,0.5\n", "0.5,0.5,\n", " 0.5 , 0.5 \r\n\n", "\n0.5,0.5"] {
            assert_eq!(parse(text.as_bytes()).unwrap(), [0.5, 0.5], "{text:?}");
        }
    }

    #[test]
    fn tolerance_follows_from_the_decimals_of_entries() {
        for (text, expected) in
            [("0.125", 3), ("1", 0), ("1.2e-3", 4), ("1E-05", 5), ("2e3", -3), ("", 0)]
        {
            assert_eq!(decimals(text), expected, "{text}");
        }
        assert_eq!(tolerance(b"0.5,0.4995", 2), 1e-4);
        assert_eq!(tolerance(b"0.123456,0", 4096), SUM_TOLERANCE_ROUNDED);
        assert_eq!(tolerance(b"0,1.23456789012e-1", 4096), SUM_TOLERANCE);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(probabilities) = parse(&bytes) {
                let _ = Distribution::from_probabilities("any", &probabilities);
            }
        }

        #[test]
        fn never_panics_on_number_like_text(text in "[-0-9.eE+naif, \n]{0,80}") {
            if let Ok(probabilities) = parse(text.as_bytes()) {
                let _ = Distribution::from_probabilities("any", &probabilities);
            }
        }
    }
}
