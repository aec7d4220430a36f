//! Rust text in which comments and strings are blank, so that a rule sees only code.

/// A Rust file in three forms. They have the same line breaks, and `text` and `code` have the
/// same length.
pub(crate) struct Source {
    /// The original text.
    pub(crate) text: String,
    /// The text with spaces for comments, strings and character literals.
    pub(crate) code: String,
    /// For each line, whether it is under `#[cfg(test)]`.
    pub(crate) is_test: Vec<bool>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let code = blank(text);
        let is_test = test_lines(&code);
        Self { text: text.into(), code, is_test }
    }

    /// The line number (from 1) and the code of every line outside of tests.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .lines()
            .enumerate()
            .filter(|(index, _)| !self.is_test.get(*index).copied().unwrap_or(false))
            .map(|(index, line)| (index + 1, line))
    }

    /// Whether the line, or a comment line right above it, contains `tidy: allow(RULE): why`.
    pub(crate) fn is_allowed(&self, line: usize, rule: &str) -> bool {
        let lines: Vec<&str> = self.text.lines().collect();
        let has_reason = |text: &str| {
            text.split_once(&format!("// tidy: allow({rule}): "))
                .is_some_and(|(_, why)| why.len() > 8)
        };
        let above =
            lines[..line - 1].iter().rev().take_while(|text| text.trim_start().starts_with("//"));
        has_reason(lines[line - 1]) || above.into_iter().any(|text| has_reason(text))
    }
}

/// The line number, from 1, of a byte of `text`.
pub(crate) fn line_of(text: &str, index: usize) -> usize {
    text[..index].matches('\n').count() + 1
}

/// Whether a word starts at `index`, that is, the text before does not continue into it.
pub(crate) fn starts_word(text: &str, index: usize) -> bool {
    !text[..index].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The identifier at the start of `text`; empty if there is none.
pub(crate) fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// The position after the brace that closes the brace at `open`; the end of the text if there is
/// none.
pub(crate) fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (index, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return index + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Blanks comments, strings and character literals; keeps every line break and byte position.
fn blank(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    let mut at = 0;
    while at < text.len() {
        let end = at + literal_length(text, at);
        if end == at {
            at += 1;
            continue;
        }
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(out).expect("whole literals were blanked")
}

/// The length of the comment, string or character literal at `at`; 0 if there is none.
fn literal_length(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    match bytes[at] {
        b'/' if bytes.get(at + 1) == Some(&b'/') => {
            text[at..].find('\n').unwrap_or(text.len() - at)
        }
        b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_length(&bytes[at..]),
        b'"' => string_length(&bytes[at..]),
        b'r' if raw_prefix_is_free(text, at) => raw_string_length(&text[at..]),
        b'\'' => character_length(&text[at..]),
        _ => 0,
    }
}

/// Whether an `r` here can begin a raw string: it must not continue a word, except after `b` or
/// `c`.
fn raw_prefix_is_free(text: &str, at: usize) -> bool {
    starts_word(text, at) || (text[..at].ends_with(['b', 'c']) && starts_word(text, at - 1))
}

fn block_comment_length(bytes: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < bytes.len() {
        match &bytes[at..(at + 2).min(bytes.len())] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'"' => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

fn raw_string_length(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|&byte| byte == b'#').count();
    if text.as_bytes().get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let body = 2 + hashes;
    text[body..].find(&close).map_or(text.len(), |index| body + index + close.len())
}

/// A character literal's length; 0 for a lifetime.
fn character_length(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(0, |index| index + 4),
        Some(_) => match characters.next() {
            Some((index, '\'')) => index + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// For each line, whether it belongs to an item under `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn test_lines(code: &str) -> Vec<bool> {
    let mut is_test = vec![false; code.lines().count()];
    for (start, _) in
        code.match_indices("#[cfg(").filter(|&(start, _)| is_test_only(&code[start..]))
    {
        let open = code[start..].find('{').map_or(code.len(), |index| start + index);
        let semicolon = code[start..].find(';').map_or(code.len(), |index| start + index);
        let end = if semicolon < open { semicolon } else { closing_brace(code, open) };
        let last = line_of(code, end.min(code.len())).min(is_test.len());
        is_test[line_of(code, start) - 1..last].fill(true);
    }
    is_test
}

fn is_test_only(attribute: &str) -> bool {
    attribute.starts_with("#[cfg(test)]") || attribute.starts_with("#[cfg(all(test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_blanks_comments_strings_and_characters() {
        for (text, code) in [
            ("a // b {", "a       "),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x\"{", 'y')"#, "f(      ,    )"),
            ("r#\"a\"b\"# c", "         c"),
            ("br\"{\" c", "b     c"),
            ("for x", "for x"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            (r"['\'', '{', '\u{1F}']", "[    ,    ,         ]"),
        ] {
            assert_eq!(Source::new(text).code, code, "{text}");
        }
    }

    #[test]
    fn product_lines_excludes_tests() {
        let source =
            Source::new("fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n");
        let lines: Vec<_> = source.product_lines().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 6]);
        let source = Source::new("#[cfg(test)]\nuse x::y;\nfn c() {}\n");
        let lines: Vec<_> = source.product_lines().map(|(line, _)| line).collect();
        assert_eq!(lines, [3]);
    }

    #[test]
    fn is_allowed_needs_rule_and_reason() {
        let allows = |text: &str| Source::new(text).is_allowed(2, "unwrap");
        assert!(allows("// tidy: allow(unwrap): checked just above\nx.unwrap();"));
        assert!(allows("//\nx.unwrap(); // tidy: allow(unwrap): checked just above"));
        assert!(!allows("// tidy: allow(unwrap): \nx.unwrap();"));
        assert!(!allows("// tidy: allow(print): checked just above\nx.unwrap();"));
        assert!(!allows("let y = 1; // checked just above\nx.unwrap();"));
    }
}
