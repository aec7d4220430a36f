//! The command that measures a record again.

use std::fmt::Write as _;

use haul_model::Record;

use crate::select::field;

/// The record's own `rerun` parameter, else the command that its experiment and parameters name.
pub(crate) fn command(record: &Record) -> String {
    if let Some(own) = record.parameters.get("rerun").and_then(serde_json::Value::as_str) {
        return own.into();
    }
    match record.experiment.as_str() {
        "copy.distribution" => {
            bench(record, &[("distribution", "--distribution"), ("level", "--level")])
        }
        "copy.size_class" => bench(record, &[("size_class", "--size-class"), ("level", "--level")]),
        "copy.size" => bench(record, &[("size_bytes", "--sizes"), ("level", "--level")]),
        "copy.tune" => "haul copy tune".into(),
        _ => "haul survey".into(),
    }
}

fn bench(record: &Record, own: &[(&str, &str)]) -> String {
    let mut command = String::from("haul copy bench --against libc");
    let common = [("function", "--function"), ("threads", "--threads")];
    for (parameter, option) in own.iter().chain(&common) {
        if let Some(value) = field(record, parameter) {
            let _ = write!(command, " {option} {}", quoted(&value));
        }
    }
    command + " --json"
}

/// One word of a POSIX shell's command line.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_what_was_measured() {
        let record = Record::new("r", "copy.distribution", "haul", "time", "ns")
            .with("distribution", "it's; rm")
            .with("level", "l1")
            .with("function", "memcpy")
            .with("threads", 2);
        assert_eq!(
            command(&record),
            r"haul copy bench --against libc --distribution 'it'\''s; rm' --level l1 --function memcpy --threads 2 --json"
        );
        assert_eq!(command(&record.with("rerun", "haul x")), "haul x");
        assert_eq!(command(&Record::new("r", "memory.fault", "haul", "time", "ns")), "haul survey");
    }
}
