//! A time on the command line. Every command accepts the same forms: `5s`, `500ms`, `2m`, `1h`, or
//! a number of seconds.

use std::time::Duration;

/// A time from `SHORTEST_MS` milliseconds to `LONGEST_S` seconds; the `value_parser` of an option.
pub(crate) fn time<const SHORTEST_MS: u64, const LONGEST_S: u64>(
    text: &str,
) -> Result<Duration, String> {
    let (shortest, longest) = (Duration::from_millis(SHORTEST_MS), Duration::from_secs(LONGEST_S));
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = digits.parse::<f64>().map_or(f64::NAN, |number| number * unit);
    let time = Duration::try_from_secs_f64(seconds).ok();
    time.filter(|time| (shortest..=longest).contains(time)).ok_or_else(|| {
        format!(
            "write a time from {} to {}, such as 500ms, 5s or 2m",
            spelled(shortest),
            spelled(longest)
        )
    })
}

/// A time of at most an hour, for commands that can be repeated to measure longer.
pub(super) fn budget(text: &str) -> Result<Duration, String> {
    time::<1, 3600>(text)
}

/// The time as a whole number of the largest unit that divides it.
fn spelled(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let unit = units.into_iter().find(|(_, size)| ms >= *size && ms.is_multiple_of(*size));
    unit.map_or_else(|| format!("{ms}ms"), |(name, size)| format!("{}{name}", ms / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_parse_with_units() {
        for (text, ms) in [
            ("5s", 5000),
            ("500ms", 500),
            ("2m", 120_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("0.5", 500),
            ("1.5s", 1500),
            ("5", 5000),
        ] {
            assert_eq!(budget(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        let bad = ["", "s", "0", "0s", "-1", "-1s", "NaN", "inf", "1e99", "5 s", "5x", "2h", "é"];
        for bad in bad.into_iter().chain(["0.1ms", "ten", "9999h"]) {
            assert!(budget(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refusal_names_both_limits() {
        let refused = time::<50, 90>("49ms").unwrap_err();
        assert_eq!(refused, "write a time from 50ms to 90s, such as 500ms, 5s or 2m");
        assert_eq!(time::<50, 90>("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(time::<50, 90>("1.5m"), Ok(Duration::from_secs(90)));
        assert!(time::<1, 604_800>("169h").unwrap_err().contains("from 1ms to 168h"));
    }
}
