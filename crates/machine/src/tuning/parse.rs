//! Parses text to a [`Tuning`]. The code is written by hand, not derived, so that every error
//! names the key, the value and the valid values.

use std::collections::BTreeMap;
use std::str::FromStr;

use haul_copy::{Policy, Thresholds};
use toml::{Table, Value};

use super::value::{number_of, only_known, shorten, text_of, threshold, wrong};
use super::{Evidence, SCHEMA, Tuning, channel, engine};
use crate::error::Error;

const SECTIONS: [&str; 7] =
    ["schema", "machine", "written", "copy", "channel", "engine", "evidence"];
const EVIDENCE: [&str; 5] = ["experiment", "what", "ratio", "floor", "records"];

impl FromStr for Tuning {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| Error::NotToml { reason: one_line(&error, text) })?;
        // The schema is checked first, because a file of another version may have other keys.
        match table.get("schema") {
            Some(Value::String(found)) if found == SCHEMA => {}
            Some(Value::String(found)) => {
                return Err(Error::Schema { found: shorten(found), known: SCHEMA });
            }
            Some(other) => return Err(wrong("schema", other, "a string")),
            None => {
                return Err(Error::MissingKey { key: "schema".into() });
            }
        }
        only_known(&table, "", &SECTIONS)?;
        let (choices, copy) = copy_section(&table)?;
        Ok(Self {
            machine: text_of(&table, "", "machine")?,
            written: text_of(&table, "", "written")?,
            choices,
            copy,
            channel: channel::section(&table)?,
            engine: engine::section(&table)?,
            evidence: evidence_section(&table)?,
        })
    }
}

/// Like [`str::parse`], for bytes that may not be text.
pub(super) fn bytes(bytes: &[u8]) -> Result<Tuning, Error> {
    std::str::from_utf8(bytes)
        .map_err(|error| Error::NotText { offset_bytes: error.valid_up_to() })?
        .parse()
}

/// Choices and thresholds.
type CopySection = (BTreeMap<String, String>, BTreeMap<String, usize>);

fn copy_section(table: &Table) -> Result<CopySection, Error> {
    let Some(section) = table.get("copy") else {
        return Ok(CopySection::default());
    };
    let Value::Table(section) = section else {
        return Err(wrong("copy", section, "a table: [copy]"));
    };
    let known: Vec<&str> = Policy::CHOICES.iter().chain(Thresholds::NAMES).copied().collect();
    only_known(section, "copy.", &known)?;
    let (mut choices, mut thresholds) = CopySection::default();
    for (name, value) in section {
        if Policy::CHOICES.contains(&name.as_str()) {
            choices.insert(name.clone(), text_of(section, "copy.", name)?);
        } else {
            thresholds.insert(name.clone(), threshold(&format!("copy.{name}"), value)?);
        }
    }
    Ok((choices, thresholds))
}

fn evidence_section(table: &Table) -> Result<Vec<Evidence>, Error> {
    let Some(section) = table.get("evidence") else {
        return Ok(Vec::new());
    };
    let expected = "a list of tables: [[evidence]]";
    let Value::Array(entries) = section else {
        return Err(wrong("evidence", section, expected));
    };
    entries
        .iter()
        .map(|entry| {
            let Value::Table(entry) = entry else {
                return Err(wrong("evidence", entry, expected));
            };
            only_known(entry, "evidence.", &EVIDENCE)?;
            Ok(Evidence {
                experiment: text_of(entry, "evidence.", "experiment")?,
                what: text_of(entry, "evidence.", "what")?,
                ratio: number_of(entry, "evidence.", "ratio")?,
                floor: number_of(entry, "evidence.", "floor")?,
                records: text_of(entry, "evidence.", "records")?,
            })
        })
        .collect()
}

/// The parser's message with the line number, on one line, without the excerpt of the source.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    let before = error.span().and_then(|span| text.get(..span.start));
    match before {
        Some(before) => {
            let line = before.matches('\n').count() + 1;
            format!("line {line}: {}", shorten(&message))
        }
        None => shorten(&message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "schema = \"haul.tuning/1\"\nmachine = \"m\"\nwritten = \"w\"\n";

    fn error_of(rest: &str) -> Error {
        let text = format!("{HEAD}{rest}");
        text.parse::<Tuning>().expect_err(&text)
    }

    #[test]
    fn size_is_an_integer_a_text_or_never() {
        let text = format!(
            "{HEAD}[copy]\nrep_movsb_min = 0\nrep_movsb_max = \"never\"\n\
             stream_copy_min = \"24 MiB\"\nstream_fill_min = 9223372036854775807\n"
        );
        let copy = text.parse::<Tuning>().unwrap().copy;
        assert_eq!(copy["rep_movsb_min"], 0);
        assert_eq!(copy["rep_movsb_max"], usize::MAX);
        assert_eq!(copy["stream_copy_min"], 24 << 20);
        assert_eq!(copy["stream_fill_min"], usize::try_from(i64::MAX).unwrap_or(usize::MAX));
    }

    #[test]
    fn hostile_size_is_rejected_by_key_and_value() {
        for value in [
            "-1",
            "nan",
            "inf",
            "-0.0",
            "1.5",
            "true",
            "[]",
            "{}",
            "\"\"",
            "\"-1\"",
            "\"lots\"",
            "\"NaN\"",
            "\"Never\"",
            "\"18446744073709551616\"",
            "1979-05-27",
            "\"1e9\"",
        ] {
            let error = error_of(&format!("[copy]\nrep_movsb_min = {value}"));
            let Error::Value { key, .. } = &error else { panic!("{value}: {error:?}") };
            assert_eq!(key, "copy.rep_movsb_min");
            assert!(error.to_string().contains("haul copy tune"), "{error}");
        }
    }

    #[test]
    fn invalid_toml_is_rejected_with_its_line() {
        for bad in [
            "[copy]\nrep_movsb_min = 9223372036854775808",
            "[copy]\nrep_movsb_min = 18446744073709551616",
            "[copy]\nrep_movsb_min = 1\nrep_movsb_min = 2",
            "[copy]\n[copy]",
            "[copy",
            "copy = \"",
            "machine = \"again\"",
            "x = \u{0}",
        ] {
            let error = error_of(bad);
            assert!(matches!(error, Error::NotToml { .. }), "{bad}: {error:?}");
            let message = error.to_string();
            assert!(message.contains("line ") && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn deepest_nesting_is_an_error_and_no_crash() {
        let deep = 30_000;
        for bad in [
            format!("copy = {}{}", "[".repeat(deep), "]".repeat(deep)),
            format!("copy = {}", "[".repeat(deep)),
            format!("copy = {}1{}", "{a=".repeat(deep / 2), "}".repeat(deep / 2)),
            format!("copy.{}x = 1", "a.".repeat(deep)),
            format!("[copy.{}x]", "a.".repeat(deep)),
        ] {
            assert!(format!("{HEAD}{bad}").parse::<Tuning>().is_err());
        }
    }

    #[test]
    fn unknown_and_missing_keys_are_errors() {
        let unknown = |rest: &str| matches!(error_of(rest), Error::UnknownKey { .. });
        assert!(unknown("[coppy]"));
        assert!(unknown("[copy]\nrep_movsb = 1"));
        assert!(unknown("[[evidence]]\nextra = 1"));
        let message = error_of("[copy]\nrep_movsb = 1").to_string();
        assert!(message.contains("rep_movsb_min"), "does not list the known names: {message}");

        for missing in ["schema", "machine", "written"] {
            let text: String = HEAD
                .lines()
                .filter(|l| !l.starts_with(missing))
                .map(|l| format!("{l}\n"))
                .collect();
            let error = text.parse::<Tuning>().unwrap_err();
            assert!(matches!(&error, Error::MissingKey { key } if key == missing), "{error}");
        }
        assert!(matches!(error_of("[[evidence]]"), Error::MissingKey { .. }));
    }

    #[test]
    fn wrong_types_are_errors() {
        let not_a_value = |rest: &str| matches!(error_of(rest), Error::Value { .. });
        assert!(not_a_value("copy = 1"));
        assert!(not_a_value("evidence = {}"));
        assert!(not_a_value("evidence = [1]"));
        let entry = "[[evidence]]\nexperiment = \"e\"\nwhat = \"w\"\nrecords = \"r\"\nratio = 1";
        assert!(not_a_value(&format!("{entry}\nfloor = nan")));
        assert!(not_a_value(&format!("{entry}\nfloor = \"low\"")));
    }

    #[test]
    fn other_version_and_invalid_text_have_their_own_errors() {
        let error = "schema = \"haul.tuning/2\"\nnew = 1".parse::<Tuning>().unwrap_err();
        assert!(matches!(error, Error::Schema { .. }));
        assert!(matches!("schema = 1".parse::<Tuning>().unwrap_err(), Error::Value { .. }));
        let error = bytes(b"schema = \"\xff\"").unwrap_err();
        assert!(matches!(error, Error::NotText { offset_bytes: 10 }), "{error:?}");
        assert!(matches!("".parse::<Tuning>().unwrap_err(), Error::MissingKey { .. }));
    }

    #[test]
    fn hostile_text_is_shortened_in_errors() {
        let long = "x".repeat(60_000);
        let error = error_of(&format!("[copy]\nrep_movsb_min = \"{long}\\u001b[31m\""));
        assert!(error.to_string().len() < 400);
        let error = format!("schema = \"\\u001b{long}\"").parse::<Tuning>().unwrap_err();
        assert!(error.to_string().len() < 400 && !error.to_string().contains('\u{1b}'));
    }

    /// Every file in the documents is valid.
    #[test]
    fn files_in_the_documents_are_valid() {
        let documents =
            [include_str!("../../../../docs/copy.md"), include_str!("../../../../docs/channel.md")];
        let mut read = Vec::new();
        for block in documents.iter().flat_map(|text| text.split("```toml\n").skip(1)) {
            let text = block.split("```").next().unwrap_or_default();
            let tuning = text.parse::<Tuning>().unwrap_or_else(|error| panic!("{error}:\n{text}"));
            assert!(tuning.policy().choice("isa").is_some());
            read.push(tuning);
        }
        assert_eq!(read.len(), 2);
        assert!(read.iter().any(|tuning| tuning.copy.contains_key("rep_movsb_min")));
        assert!(read.iter().any(|tuning| !tuning.channel.choices.is_empty()));
    }

    /// A file of an older version contains no choices by name: the processor's defaults apply.
    #[test]
    fn file_without_choices_keeps_the_defaults() {
        let tuning = format!("{HEAD}[copy]\nstream_copy_min = 65536\n").parse::<Tuning>().unwrap();
        let mut expected = Policy::for_this_processor();
        assert!(expected.thresholds.set("stream_copy_min", 65536));
        assert_eq!(tuning.policy(), expected.clamped());
        assert!(tuning.choices.is_empty() && tuning.passed_over().is_empty());
    }

    #[test]
    fn known_choice_is_used_and_unknown_one_reported() {
        let text =
            format!("{HEAD}[copy]\nsmall = \"pieces\"\nisa = \"scalar\"\nstrings = \"any\"\n");
        let policy = text.parse::<Tuning>().unwrap().policy();
        let chosen = ["small", "isa", "strings"].map(|name| policy.choice(name).unwrap());
        assert_eq!(chosen, ["pieces", "scalar", "any"]);
        for bad in ["", "MASKS", "avx1024", "\\u0007", "any\\u0000"] {
            let text = format!(
                "{HEAD}[copy]\nsmall = \"{bad}\"\nisa = \"scalar\"\nrep_movsb_min = 4096\n"
            );
            let tuning = text.parse::<Tuning>().unwrap();
            let policy = tuning.policy();
            assert_eq!(policy.small, Policy::for_this_processor().small);
            assert_eq!((policy.isa.name(), policy.thresholds.rep_movsb_min), ("scalar", 4096));
            let [unused] = &tuning.passed_over()[..] else { panic!("{:?}", tuning.passed_over()) };
            assert!(unused.contains("copy.small") && unused.contains("pieces"), "{unused}");
            assert!(!unused.contains(char::is_control), "{unused}");
        }
    }

    #[test]
    fn instruction_set_of_another_processor_is_reported() {
        let foreign = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
        let text = format!("{HEAD}[copy]\nisa = \"{foreign}\"\nstrings = \"alike\"\n");
        let tuning = text.parse::<Tuning>().unwrap();
        assert_eq!(tuning.policy().isa, Policy::for_this_processor().isa);
        assert_eq!(tuning.policy().choice("strings"), Some("alike"));
        let [unused] = &tuning.passed_over()[..] else { panic!("{:?}", tuning.passed_over()) };
        assert!(
            unused.contains(foreign) && unused.contains(tuning.policy().isa.name()),
            "{unused}"
        );
    }

    #[test]
    fn choice_that_is_not_text_is_an_error() {
        for bad in ["small = 1", "isa = true", "strings = [\"any\"]"] {
            let error = error_of(&format!("[copy]\n{bad}"));
            assert!(matches!(error, Error::Value { .. }), "{bad}: {error:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parser_never_panics(text in "\\PC*", tail in ".{0,200}") {
            let _ = text.parse::<Tuning>();
            let _ = format!("{HEAD}[copy]\nrep_movsb_min = {tail}").parse::<Tuning>();
        }

        /// Any integer, even a hostile one, results in thresholds that a second clamping does not
        /// change.
        #[test]
        fn every_size_is_clamped(sizes in proptest::collection::vec(0_i64.., Thresholds::NAMES.len())) {
            let mut text = format!("{HEAD}[copy]\n");
            for (name, size) in Thresholds::NAMES.iter().zip(sizes) {
                text += &format!("{name} = {size}\n");
            }
            let thresholds = text.parse::<Tuning>().unwrap().thresholds();
            proptest::prop_assert_eq!(thresholds, thresholds.clamped());
        }
    }
}
