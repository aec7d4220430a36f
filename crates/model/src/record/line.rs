//! One line of a record file, as text and as a value.

use super::{MACHINE_SCHEMA, Machine, RECORD_SCHEMA, Record};

/// One line of a record file.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A figure.
    Record(Record),
    /// A machine.
    Machine(Machine),
}

/// The reason why a line is not a record or a machine.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is not JSON, or does not have the schema's shape.
    #[error(
        "not a line of a haul record file: {0}; write it with `haul ... --json` or `haul survey`"
    )]
    Malformed(#[from] serde_json::Error),
    /// The line is JSON of another schema.
    #[error(
        "schema {found:?} is not known to this version of haul, which reads {RECORD_SCHEMA:?} and \
         {MACHINE_SCHEMA:?}; read it with the version that wrote it, or measure again with \
         `haul survey`"
    )]
    UnknownSchema {
        /// The line's `schema`.
        found: String,
    },
    /// The line has a number that cannot be drawn or compared.
    #[error(
        "the record of {experiment:?} has {value} in {field:?}, which must be a finite number{}; \
         measure it again", if *.negative_allowed { "" } else { " not below 0" }
    )]
    BadNumber {
        /// The record's experiment.
        experiment: String,
        /// `samples`, `ratio`, ...
        field: &'static str,
        /// The number.
        value: f64,
        /// Whether the field may be negative.
        negative_allowed: bool,
    },
}

impl Line {
    /// Reads one line. Unknown fields are ignored.
    ///
    /// # Errors
    /// It is an error if the line is not JSON, has an unknown schema or another shape (for example,
    /// a comparison with a missing field), or has a number that [`Record::check`] rejects.
    pub fn parse(line: &str) -> Result<Self, LineError> {
        let value: serde_json::Value = serde_json::from_str(line)?;
        match value.get("schema").and_then(serde_json::Value::as_str) {
            Some(RECORD_SCHEMA) => {
                let record: Record = serde_json::from_value(value)?;
                record.check()?;
                Ok(Self::Record(record))
            }
            Some(MACHINE_SCHEMA) => Ok(Self::Machine(serde_json::from_value(value)?)),
            other => Err(LineError::UnknownSchema { found: other.unwrap_or("(none)").into() }),
        }
    }

    /// The line as JSON, without the line break. A number that is not finite becomes `null`, which
    /// [`Line::parse`] rejects: see [`Record::check`].
    ///
    /// # Panics
    /// Never, because both shapes are plain data with string keys.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Record(record) => serde_json::to_string(record),
            Self::Machine(machine) => serde_json::to_string(machine),
        }
        .expect("records are plain data")
    }
}

impl From<Record> for Line {
    fn from(record: Record) -> Self {
        Self::Record(record)
    }
}

impl From<Machine> for Line {
    fn from(machine: Machine) -> Self {
        Self::Machine(machine)
    }
}
