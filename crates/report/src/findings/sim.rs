//! How close the simulated server comes to the paper of its copy engines: the only sentence on
//! modelled figures, which says that they are modelled.

use haul_model::Record;
use haul_model::experiment::{key, name};

use super::{Finding, Tone, finding};
use crate::select::{Section, field};

/// The error and the tiers of the last reproduction of the paper without calibration.
pub(super) fn reproduction(section: &Section<'_>) -> Option<Finding> {
    let is_described =
        |record: &&Record| field(record, key::CALIBRATION).as_deref() == Some("none");
    let of = |experiment: &str, metric: &'static str| {
        let records = section.of(experiment).into_iter().filter(is_described);
        records.filter(move |record| record.metric == metric).collect::<Vec<_>>()
    };
    let error = *of(name::SIM_TABLE2, "mean_absolute_error").last()?;
    let rows = field(error, key::ROWS).unwrap_or_default();
    let mut sentence = format!(
        "Simulated, not measured: of the copy engines’ paper, Table 2 comes out within {:.1} points in the mean of \
         {rows} undisputed rows",
        error.median()?
    );
    let tiers = of(name::SIM_TIERS, "tier").into_iter().filter(|tier| tier.run == error.run);
    let (held, missed): (Vec<_>, Vec<_>) = tiers.partition(|tier| tier.median() == Some(1.0));
    for (tiers, verb) in [(held, "held"), (missed, "missed")] {
        let names: Vec<String> = tiers.iter().filter_map(|tier| field(tier, key::TIER)).collect();
        match names.as_slice() {
            [] => {}
            [name] => sentence.push_str(&format!("; tier {name} is {verb}")),
            [names @ .., last] => {
                sentence.push_str(&format!("; tiers {} and {last} are {verb}", names.join(", ")));
            }
        }
    }
    Some(finding(name::SIM_TABLE2, Tone::Fact, sentence + "."))
}
