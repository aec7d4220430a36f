//! Tables, marks and warnings for a person.

use std::io::{self, IsTerminal, Write};

use crate::error::Error;

/// One line, or several, on standard error. Whether anybody reads it changes nothing.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Says on standard error what went wrong, on as many lines as it takes.
pub(crate) fn tell(error: &Error) {
    if !matches!(error, Error::ReaderGone) {
        say(&format!("haul: error: {error}"));
    }
}

/// Writes text and a line break to standard output.
///
/// # Errors
/// [`Error::ReaderGone`] where the reader closed it (`haul copy list | head`), else
/// [`Error::Output`].
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut output = io::stdout().lock();
    writeln!(output, "{text}").and_then(|()| output.flush()).map_err(|reason| match reason.kind() {
        io::ErrorKind::BrokenPipe => Error::ReaderGone,
        _ => Error::Output(reason),
    })
}

/// Columns as wide as their widest cell, numbers to the right; two spaces between.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A heading that starts with `>` stands for a column of numbers.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table without a last line break.
    pub(crate) fn text(&self) -> String {
        let titles: Vec<String> =
            self.headings.iter().map(|h| h.trim_start_matches('>').to_owned()).collect();
        let widths: Vec<usize> = (0..titles.len())
            .map(|column| {
                let cells = self.rows.iter().chain([&titles]).filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).zip(&self.headings);
            let cells = cells.map(|((cell, &width), heading)| match heading.starts_with('>') {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        [&titles].into_iter().chain(&self.rows).map(line).collect::<Vec<_>>().join("\n")
    }
}

/// How wide the terminal is, in characters; 100 where there is none, or none to speak of.
pub(crate) fn width() -> usize {
    const WITHOUT: usize = 100;
    if !io::stdout().is_terminal() {
        return WITHOUT;
    }
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col >= 40 => size.ws_col.into(),
        _ => WITHOUT,
    }
}

/// Whether standard output shows colours: it is a terminal, and nobody asked for none
/// (`NO_COLOR`, or a terminal that calls itself dumb).
pub(crate) fn is_coloured() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stdout().is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_some_and(|term| term != "dumb")
}

/// Text broken at spaces so that no line is longer than `width`, later lines indented.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > indent && last + 1 + word.chars().count() > width {
            lines.push(" ".repeat(indent));
        } else if last > indent || (lines.len() == 1 && last > 0) {
            lines.last_mut().expect("never empty").push(' ');
        }
        lines.last_mut().expect("never empty").push_str(word);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["kernel", ">ratio", "verdict"]);
        table.add(vec!["avx2".into(), "0.9".into(), "faster".into()]);
        table.add(vec!["rep_movsb".into(), "12.25".into(), "slower".into()]);
        assert_eq!(
            table.text(),
            "kernel     ratio  verdict\n\
             avx2         0.9  faster\n\
             rep_movsb  12.25  slower"
        );
    }

    #[test]
    fn wrapping_keeps_every_word_and_no_long_line() {
        let text = "one two three four five six seven eight nine ten";
        let wrapped = wrap(text, 16, 4);
        assert!(wrapped.lines().all(|line| line.len() <= 16), "{wrapped}");
        assert!(wrapped.lines().skip(1).all(|line| line.starts_with("    ")), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>().join(" "), text);
        assert_eq!(wrap("unbreakableword", 4, 2), "unbreakableword");
    }
}
