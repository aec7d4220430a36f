//! A whole number on the command line; every command refuses a wrong one with the same message.

/// A whole number from `LEAST` to `MOST`; the `value_parser` of an option.
pub(super) fn number<T: TryFrom<u64>, const LEAST: u64, const MOST: u64>(
    text: &str,
) -> Result<T, String> {
    let read = text.parse::<u64>().ok().filter(|number| (LEAST..=MOST).contains(number));
    read.and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("write a whole number from {LEAST} to {MOST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_the_range() {
        assert_eq!(number::<u16, 1, 256>("32"), Ok(32));
        assert_eq!(number::<u8, 0, 1>("0"), Ok(0));
        for text in ["", "x", "-1", "0", "257", "1.5", "1e2", "99999999999999999999"] {
            let message = number::<u16, 1, 256>(text).expect_err(text);
            assert_eq!(message, "write a whole number from 1 to 256", "{text}");
        }
    }
}
