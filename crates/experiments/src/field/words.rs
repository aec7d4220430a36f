//! The words of a command in one text, as a POSIX shell separates them.

use std::ffi::OsString;

/// Characters to which a shell gives a meaning that is not supported here.
const OF_SHELL: &str = "|&;<>()$`*?[#~";

/// The words of a command: separated by spaces, with single quotes, double quotes and backslashes
/// as in a POSIX shell.
///
/// ```
/// use haul_experiments::field::words;
/// assert_eq!(words(r#"grep -c 'a b' c\ d"#).unwrap(), ["grep", "-c", "a b", "c d"]);
/// assert!(words("yes | head").unwrap_err().contains("sh -c"));
/// ```
///
/// # Errors
/// The text has no word, a quote is open, or a character would need a shell.
pub fn words(text: &str) -> Result<Vec<OsString>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take().map(OsString::from)),
            '\'' => {
                let word = word.get_or_insert_default();
                quoted(&mut rest, word, text)?;
            }
            '"' => {
                let word = word.get_or_insert_default();
                in_double_quotes(&mut rest, word, text)?;
            }
            '\\' => word.get_or_insert_default().extend(rest.next()),
            // Only at the start of a word.
            '#' | '~' if word.is_some() => word.get_or_insert_default().push(c),
            c if OF_SHELL.contains(c) => return Err(needs_shell(text, c)),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.map(OsString::from));
    if words.is_empty() {
        return Err("it names no program".to_owned());
    }
    Ok(words)
}

fn quoted(rest: &mut std::str::Chars<'_>, word: &mut String, text: &str) -> Result<(), String> {
    loop {
        match rest.next() {
            Some('\'') => return Ok(()),
            Some(c) => word.push(c),
            None => return Err(open_quote(text)),
        }
    }
}

fn in_double_quotes(
    rest: &mut std::str::Chars<'_>,
    word: &mut String,
    text: &str,
) -> Result<(), String> {
    loop {
        match rest.next() {
            Some('"') => return Ok(()),
            Some('\\') => match rest.next() {
                Some(c) if "\"\\$`".contains(c) => word.push(c),
                Some(c) => word.extend(['\\', c]),
                None => return Err(open_quote(text)),
            },
            Some(c) if "$`".contains(c) => return Err(needs_shell(text, c)),
            Some(c) => word.push(c),
            None => return Err(open_quote(text)),
        }
    }
}

fn open_quote(text: &str) -> String {
    format!("a quote in {text:?} is not closed")
}

fn needs_shell(text: &str, c: char) -> String {
    format!(
        "{text:?} needs a shell for {c:?}, and haul starts programs without one; quote the \
         character, or write sh -c '...'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_match_those_of_a_shell() {
        for text in [
            "a b",
            " a\tb  c ",
            "'a b'c",
            r#""a \"b\" \\ \n" d"#,
            r"a\ b\'c",
            "'' x",
            "a'b'\"c\"d",
            "x#y z~",
            "--a='b c'",
            "a=b",
        ] {
            let script = format!("for word in {text}; do printf '%s\\n' \"$word\"; done");
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            let expected = String::from_utf8(output.stdout).unwrap();
            let expected: Vec<&str> = expected.lines().collect();
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn text_without_words_or_with_shell_syntax_is_refused() {
        for bad in ["", "  ", "'a", "\"a", "\"a\\", "a | b", "a > b", "$x", "\"$x\"", "a;b", "*"] {
            assert!(words(bad).is_err(), "{bad}");
        }
        for bad in ["a & b", "`a`", "(a)", "a ~", "# a", "a [b]"] {
            assert!(words(bad).unwrap_err().contains("sh -c '...'"), "{bad}");
        }
    }
}
