//! Formats a [`Tuning`] as text. The code is written by hand, so that the file contains
//! explanations for its reader.

use std::fmt;

use haul_copy::Policy;
use toml::Value;

use super::value::{quoted, shown};
use super::{SCHEMA, Tuning};

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# How haul copies, measured by `haul copy tune` on the machine below.")?;
        writeln!(f, "# Another machine ignores this file. No value here can make haul incorrect.")?;
        writeln!(
            f,
            "# In force where HAUL_TUNING names it, in ~/.config/haul/, or in /etc/haul/."
        )?;
        writeln!(f, "schema = {}", quoted(SCHEMA))?;
        writeln!(f, "machine = {}", quoted(&self.machine))?;
        writeln!(f, "written = {}", quoted(&self.written))?;
        writeln!(f, "\n[copy]")?;
        for (name, value) in &self.choices {
            let others: Vec<&str> = Policy::values(name).collect();
            writeln!(f, "{name} = {} # {}", quoted(value), others.join(", "))?;
        }
        writeln!(f, "# thresholds: bytes, or \"never\"")?;
        for (name, &bytes) in &self.copy {
            writeln!(f, "{name} = {}", shown(bytes))?;
        }
        super::channel::write(&self.channel, f)?;
        super::engine::write(self.engine, f)?;
        for evidence in &self.evidence {
            writeln!(f, "\n[[evidence]]")?;
            writeln!(f, "experiment = {}", quoted(&evidence.experiment))?;
            writeln!(f, "what = {}", quoted(&evidence.what))?;
            writeln!(f, "ratio = {}", Value::Float(evidence.ratio))?;
            writeln!(f, "floor = {}", Value::Float(evidence.floor))?;
            writeln!(f, "records = {}", quoted(&evidence.records))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::{ChannelTable, Evidence, FILE_BYTES_MAX};
    use haul_copy::Thresholds;
    use haul_model::{Comparison, Record};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_tuning_is_read_back(
            machine in any::<String>(),
            what in any::<String>(),
            choices in prop::collection::hash_map(
                prop::sample::select(Policy::CHOICES).prop_map(str::to_owned), any::<String>(), 0..=3),
            sizes in prop::collection::vec(0..=i64::MAX as u64, Thresholds::NAMES.len()),
            ratio in 0.0..1e9_f64,
        ) {
            let copy = Thresholds::NAMES.iter().map(|name| (*name).to_owned());
            let sizes = sizes.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX));
            let evidence = Evidence {
                experiment: "copy.tune".into(),
                what,
                ratio,
                floor: 0.01,
                records: "survey.jsonl".into(),
            };
            let tuning = Tuning {
                machine,
                written: "2026-01-31T12:00:00Z".into(),
                choices: choices.into_iter().collect(),
                copy: copy.zip(sizes).collect(),
                channel: ChannelTable::default(),
                engine: None,
                evidence: vec![evidence],
            };
            prop_assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning);
        }
    }

    #[test]
    fn never_is_written_and_read_back() {
        let mut policy = Policy::for_this_processor();
        assert!(policy.thresholds.set("stream_copy_min", usize::MAX));
        let tuning = Tuning::new("m", "w", policy);
        assert_eq!(tuning.policy(), policy.clamped());
        assert!(tuning.to_string().contains("stream_copy_min = \"never\""));
        assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning);
        assert_eq!(tuning.copy.len(), Thresholds::NAMES.len());
    }

    #[test]
    fn hundred_lines_of_evidence_fit_the_limit() {
        let mut record = Record::new("run", "copy.tune", "tuned", "time", "ns")
            .with("size_bytes", 4096)
            .with("level", "mixed")
            .with("phase", "check")
            .with("cpu_ns", 12.5);
        assert_eq!(Evidence::of(&record, "survey.jsonl"), None);
        let (ratio, floor) = (0.912_345, 0.012_345);
        record.comparison = Some(Comparison {
            baseline: "default".into(),
            ratio,
            ratio_low: ratio,
            ratio_high: ratio,
            floor,
        });
        let evidence = Evidence::of(&record, "survey.jsonl").unwrap();
        assert_eq!(evidence.what, "tuned, phase check, size_bytes 4096, level mixed");
        let mut tuning = Tuning::new("m", "w", Policy::for_this_processor());
        tuning.evidence = vec![evidence; 100];
        assert!((tuning.to_string().len() as u64) < FILE_BYTES_MAX);
    }
}
