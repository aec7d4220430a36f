//! The varied parameters of a plan: the name of a parameter, with its values as a list or as a
//! range.

use super::TASKS_MAX;
use crate::sim::settings::Setting;

/// A parameter and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// A field of the task, or the path of a setting.
    pub name: String,
    /// The parameter's values as text.
    pub values: Vec<String>,
}

impl std::str::FromStr for Range {
    type Err = String;

    /// `NAME=A,B,C`, or `NAME=FIRST..LAST:STEP` for whole numbers.
    fn from_str(text: &str) -> Result<Self, String> {
        let setting: Setting = text.parse()?;
        let Some((first, rest)) = setting.value.split_once("..") else {
            let values = setting.value.split(',').map(|value| value.trim().to_owned()).collect();
            return Ok(Self { name: setting.name, values });
        };
        let (last, step) = rest.split_once(':').ok_or_else(|| {
            format!(
                "{text:?} has no step; write {text}:1 (FIRST..LAST:STEP), as FIRST..LAST alone means \
                 the powers of two"
            )
        })?;
        let number = |part: &str| {
            part.trim()
                .parse::<u64>()
                .map_err(|_| format!("{part:?} in {text:?} is not a whole number"))
        };
        let (first, last, step) = (number(first)?, number(last)?, number(step)?);
        if step == 0 || first > last || (last - first) / step >= TASKS_MAX as u64 {
            return Err(format!(
                "{text:?} is not a range: FIRST..LAST:STEP with FIRST at most LAST, a STEP above 0, \
                 and fewer than {TASKS_MAX} values"
            ));
        }
        let count = (last - first) / step;
        let values = (0..=count).map(|n| (first + n * step).to_string()).collect();
        Ok(Self { name: setting.name, values })
    }
}
