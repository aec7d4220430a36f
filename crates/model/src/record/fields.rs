//! The fields of a record as they are parsed. A record must have all fields of a comparison, or
//! none.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::Deserialize;

use super::{Comparison, Kind, RatioOf, Record};

/// The fields of a [`Record`]. `flatten` on an optional struct would parse a comparison with a
/// missing or mistyped field as `None`, so its fields are parsed one by one.
#[derive(Deserialize)]
pub(super) struct RecordFields {
    schema: String,
    run: String,
    time: String,
    machine: String,
    kind: Kind,
    experiment: String,
    subject: String,
    parameters: BTreeMap<String, serde_json::Value>,
    metric: String,
    unit: String,
    samples: Vec<f64>,
    #[serde(default, deserialize_with = "present")]
    quantiles_of: Option<NonZeroU64>,
    #[serde(default, deserialize_with = "present")]
    ratio_of: Option<RatioOf>,
    #[serde(default, deserialize_with = "present")]
    baseline: Option<String>,
    #[serde(default, deserialize_with = "present")]
    ratio: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    ratio_low: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    ratio_high: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    floor: Option<f64>,
}

/// A field that may be absent but not `null`.
fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl TryFrom<RecordFields> for Record {
    type Error = String;

    fn try_from(fields: RecordFields) -> Result<Self, String> {
        let comparison = fields.comparison()?;
        Ok(Self {
            schema: fields.schema,
            run: fields.run,
            time: fields.time,
            machine: fields.machine,
            kind: fields.kind,
            experiment: fields.experiment,
            subject: fields.subject,
            parameters: fields.parameters,
            metric: fields.metric,
            unit: fields.unit,
            samples: fields.samples,
            quantiles_of: fields.quantiles_of,
            ratio_of: fields.ratio_of,
            comparison,
        })
    }
}

impl RecordFields {
    /// All five fields of a comparison, or none of them.
    fn comparison(&self) -> Result<Option<Comparison>, String> {
        match (&self.baseline, self.ratio, self.ratio_low, self.ratio_high, self.floor) {
            (None, None, None, None, None) if self.ratio_of.is_none() => Ok(None),
            (Some(baseline), Some(ratio), Some(ratio_low), Some(ratio_high), Some(floor)) => {
                Ok(Some(Comparison {
                    baseline: baseline.clone(),
                    ratio,
                    ratio_low,
                    ratio_high,
                    floor,
                }))
            }
            _ => {
                let missing: Vec<&str> = [
                    ("baseline", self.baseline.is_none()),
                    ("ratio", self.ratio.is_none()),
                    ("ratio_low", self.ratio_low.is_none()),
                    ("ratio_high", self.ratio_high.is_none()),
                    ("floor", self.floor.is_none()),
                ]
                .iter()
                .filter_map(|(name, absent)| absent.then_some(*name))
                .collect();
                Err(format!("its comparison lacks {}", missing.join(", ")))
            }
        }
    }
}
