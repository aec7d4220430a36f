//! A whole record file as text: JSON Lines, blank lines allowed.

use crate::record::{Line, LineError};

/// An error in one line of a record file.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct FileError {
    /// The line's number, from 1.
    pub line: usize,
    /// The error of that line.
    #[source]
    pub error: LineError,
}

impl FileError {
    /// Whether the line ends in the middle of its JSON, because its writer was stopped or its disk
    /// was full. False for a complete line with wrong content.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        matches!(&self.error, LineError::Malformed(error) if error.is_eof())
    }
}

/// Reads every line of a record file.
///
/// ```
/// let text = "\n{\"schema\":\"haul.record/9\"}\n";
/// let error = haul_model::parse(text).unwrap_err();
/// assert_eq!(error.line, 2);
/// assert!(error.to_string().starts_with("line 2: schema \"haul.record/9\" is not known"));
/// ```
///
/// # Errors
/// Returns the error of the first line that is neither blank nor a [`Line`].
pub fn parse(text: &str) -> Result<Vec<Line>, FileError> {
    numbered(text).collect()
}

/// Reads every valid line of a record file and returns the errors of the others. Use it for files
/// whose last line was cut off because the writer was stopped.
#[must_use]
pub fn parse_what_can_be(text: &str) -> (Vec<Line>, Vec<FileError>) {
    let (mut lines, mut errors) = (Vec::new(), Vec::new());
    for result in numbered(text) {
        match result {
            Ok(line) => lines.push(line),
            Err(error) => errors.push(error),
        }
    }
    (lines, errors)
}

fn numbered(text: &str) -> impl Iterator<Item = Result<Line, FileError>> {
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(|(index, line)| {
        Line::parse(line).map_err(|error| FileError { line: index + 1, error })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn truncated_line_does_not_affect_other_lines() {
        let whole = Line::from(Record::new("r", "copy.size", "haul", "time", "ns")).to_json();
        let text = format!("{whole}\r\n\n{whole}\n{}", &whole[..whole.len() / 2]);
        let error = parse(&text).unwrap_err();
        assert_eq!(error.line, 4);
        let (lines, errors) = parse_what_can_be(&text);
        assert_eq!((lines.len(), errors.len(), errors[0].line), (2, 1, 4));
    }

    #[test]
    fn is_cut_off_distinguishes_truncated_from_invalid() {
        let whole = Line::from(Record::new("r", "copy.size", "haul", "time", "ns")).to_json();
        for length in (1..whole.len()).filter(|&length| whole.is_char_boundary(length)) {
            assert!(parse(&whole[..length]).unwrap_err().is_cut_off(), "{}", &whole[..length]);
        }
        for wrong in ["nonsense", "{\"schema\":\"haul.record/9\"}", "{}", "{]"] {
            assert!(!parse(wrong).unwrap_err().is_cut_off(), "{wrong}");
        }
    }

    #[test]
    fn blank_file_has_no_lines() {
        assert!(parse("").unwrap().is_empty());
        assert!(parse("\n \n").unwrap().is_empty());
    }
}
