//! Text and numbers in the page's format.

use haul_model::Kind;
use haul_model::units::three_digits;
use serde_json::Value;

/// Escapes text for HTML and for a quoted attribute's value.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML, and therefore SVG, cannot represent the other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// JSON that is inert inside a `<script>` element. It contains no `<`, and so neither `</script`
/// nor `<!--`, and no line separators that old JavaScript treated as line ends.
pub(crate) fn script_json(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Text as part of an `id`: letters, digits and dashes only.
pub(crate) fn slug(text: &str) -> String {
    let slug: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    slug.trim_matches('-').to_string()
}

/// A share of 1 as a percentage: `21%`, and one decimal below 10: `0.8%`.
pub(crate) fn percent(share: f64) -> String {
    let value = (share * 100.0).abs();
    if value < 9.95 { format!("{value:.1}%") } else { format!("{value:.0}%") }
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `1 thread`, `2 threads`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", grouped(number)) }
}

/// A whole number with its thousands separated: `12,345`.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number for a table's cell: three digits, and no exponent unless it is necessary.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        "0".into()
    } else if !(1e-4..1e15).contains(&magnitude) {
        format!("{value:.3e}")
    } else if magnitude >= 1000.0 || (value.fract() == 0.0) {
        let sign = if value < 0.0 { "-" } else { "" };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "its magnitude is below 10^15"
        )]
        let whole = magnitude.round() as usize;
        format!("{sign}{}", grouped(whole))
    } else {
        let decimals = match magnitude {
            m if m >= 99.95 => 0,
            m if m >= 9.995 => 1,
            m if m >= 0.9995 => 2,
            m if m >= 0.1 => 3,
            m if m >= 0.01 => 4,
            _ => 6,
        };
        format!("{value:.decimals$}")
    }
}

/// A parameter's value for the reader: strings unquoted, everything else as JSON.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `measured` or `modelled`, as in records.
pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Measured => "measured",
        Kind::Modelled => "modelled",
    }
}

/// A level of the memory hierarchy in the usual spelling.
pub(crate) fn level(name: &str) -> String {
    match name {
        "l1" => "L1".into(),
        "l2" => "L2".into(),
        "llc" => "LLC".into(),
        other => other.into(),
    }
}

/// A size class with its unit: `0–16 B`.
pub(crate) fn size_class(name: &str) -> String {
    match name.parse::<haul_model::SizeClass>() {
        Ok(class) if class.last.0 < 1024 => format!("{}–{} B", class.first.0, class.last.0),
        // 257-1024 and 1025-16384 become 257 B–1 KiB and 1–16 KiB.
        Ok(class) if class.first.0 <= 1024 => format!("{} B–{}", class.first.0, class.last),
        Ok(class) if class.first.0 % 1024 == 1 => {
            format!("{}–{}", haul_model::Bytes(class.first.0 - 1), class.last)
        }
        Ok(class) => format!("{}–{}", class.first, class.last),
        Err(_) => name.into(),
    }
}

/// A rate that is already in GB/s.
pub(crate) fn gigabytes(rate: f64) -> String {
    format!("{} GB/s", three_digits(rate))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_and_sizes_are_readable() {
        assert_eq!(percent(0.2149), "21%");
        assert_eq!(percent(-0.008), "0.8%");
        assert_eq!(percent(0.0996), "10%");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123), "123");
        assert_eq!(number(0.79512), "0.795");
        assert_eq!(number(51.0), "51");
        assert_eq!(number(51.23), "51.2");
        assert_eq!(number(9.999), "10.0");
        assert_eq!(number(123.456), "123");
        assert_eq!(number(123_456.7), "123,457");
        assert_eq!(number(-1234.0), "-1,234");
        assert_eq!(number(1e-9), "1.000e-9");
        assert_eq!(size_class("17-64"), "17–64 B");
        assert_eq!(size_class("1024-4096"), "1024 B–4 KiB");
        assert_eq!(size_class("1025-16384"), "1 KiB–16 KiB");
        assert_eq!(size_class("small"), "small");
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
        assert_eq!(count(1, "thread"), "1 thread");
        assert_eq!(count(1200, "figure"), "1,200 figures");
    }

    proptest! {
        #[test]
        fn escaped_text_has_no_markup(text in ".*") {
            prop_assert!(!escape(&text).contains(['<', '>', '"', '\'']));
        }

        #[test]
        fn script_json_keeps_its_value(text in "[ -~<>&/\u{2028}\u{2029}]*") {
            let json = serde_json::to_string(&text).unwrap();
            let inert = script_json(&json);
            prop_assert!(!inert.contains('<'));
            prop_assert_eq!(serde_json::from_str::<String>(&inert).unwrap(), text);
        }

        #[test]
        fn slug_is_a_valid_id(text in ".*") {
            prop_assert!(slug(&text).chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
        }
    }
}
