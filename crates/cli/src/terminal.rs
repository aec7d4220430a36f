//! Tables, marks and warnings for a person.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};

use crate::error::Error;

/// One line, or several, on standard error. Whether anybody reads it changes nothing.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", shown(text, std::env::args_os()));
}

/// Says on standard error what went wrong, on as many lines as it takes.
pub(crate) fn tell(error: &Error) {
    match error {
        Error::ReaderGone => {}
        // Its own colours, unless what it quotes has some as well.
        Error::Usage(usage) if !std::env::args_os().any(|argument| has_control(&argument)) => {
            // Whether anybody reads it changes nothing.
            let _ = usage.print();
        }
        Error::Usage(usage) => say(usage.to_string().trim_end()),
        error => say(&format!("haul: error: {error}")),
    }
}

/// Prints the help, or the version, that the command line asked for.
pub(crate) fn help(help: &clap::Error) -> Error {
    match help.print().and_then(|()| io::stdout().flush()) {
        Ok(()) => Error::ReaderGone,
        Err(reason) => unprinted(reason),
    }
}

fn has_control(argument: &OsStr) -> bool {
    argument.to_string_lossy().contains(char::is_control)
}

/// The text as a terminal may have it: what a file's name or an argument brings along is shown and
/// not obeyed. Line breaks stay, but for those that stand in an argument.
fn shown(text: &str, arguments: impl Iterator<Item = OsString>) -> String {
    let escaped = |text: &str, kept: &[char]| -> String {
        let show = |c: char| match c.is_control() && !kept.contains(&c) {
            true => c.escape_default().to_string(),
            false => c.to_string(),
        };
        text.chars().map(show).collect()
    };
    let mut text = text.to_owned();
    for argument in arguments {
        let argument = argument.to_string_lossy();
        if argument.contains('\n') {
            text = text.replace(&*argument, &escaped(&argument, &[]));
        }
    }
    escaped(&text, &['\n', '\t'])
}

/// Writes text and a line break to standard output.
///
/// # Errors
/// [`Error::ReaderGone`] where the reader closed it (`haul copy list | head`), else
/// [`Error::Output`].
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut output = io::stdout().lock();
    writeln!(output, "{text}").and_then(|()| output.flush()).map_err(unprinted)
}

/// Writes text and a line break over the `before` lines that stand above the cursor.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_over(text: &str, before: usize) -> Result<(), Error> {
    let up = if before > 0 { format!("\x1b[{before}A\r") } else { String::new() };
    print(&format!("{up}\x1b[J{text}"))
}

/// Whether a person sees standard output as it comes.
pub(crate) fn is_watched() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn unprinted(reason: io::Error) -> Error {
    match reason.kind() {
        io::ErrorKind::BrokenPipe => Error::ReaderGone,
        _ => Error::Output(reason),
    }
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

    /// The table as Markdown has it, without a last line break.
    pub(crate) fn markdown(&self) -> String {
        let titles = self.headings.iter().map(|h| h.trim_start_matches('>').to_owned());
        let rules = self.headings.iter().map(|heading| match heading.starts_with('>') {
            true => "---:".to_owned(),
            false => "---".to_owned(),
        });
        let columns = self.headings.len();
        let line = |cells: Vec<String>| {
            let mut cells: Vec<String> =
                cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            cells.resize(columns, String::new());
            format!("| {} |", cells.join(" | "))
        };
        let head = [line(titles.collect()), line(rules.collect())];
        let rows = self.rows.iter().filter(|row| !row.is_empty()).cloned().map(line);
        head.into_iter().chain(rows).collect::<Vec<_>>().join("\n")
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

/// How many lines a view of the terminal may have, the cursor's left out; 40 where nobody says.
pub(crate) fn height() -> usize {
    const WITHOUT: usize = 40;
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row >= 4 => usize::from(size.ws_row) - 1,
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
    fn what_a_name_brings_along_is_shown_and_not_obeyed() {
        let name = "x\n\u{1b}[31mred";
        let text = format!("cannot read {name}: no such file\nanother line\u{9b}2J");
        assert_eq!(
            shown(&text, [OsString::from("report"), OsString::from(name)].into_iter()),
            "cannot read x\\n\\u{1b}[31mred: no such file\nanother line\\u{9b}2J"
        );
    }

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
    fn markdown_has_a_line_a_row() {
        let mut table = Table::new(&["kernel", ">ratio"]);
        table.add(vec!["a|b".into(), "0.9".into()]);
        table.add(Vec::new());
        table.add(vec!["c".into()]);
        assert_eq!(
            table.markdown(),
            "| kernel | ratio |\n| --- | ---: |\n| a\\|b | 0.9 |\n| c |  |"
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
