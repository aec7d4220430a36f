//! Tables, marks and warnings for a person.
//!
//! From the bottom up:
//!
//! - `table`: columns that fit the terminal.

mod table;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};

use crate::error::Error;

pub(crate) use table::{Mark, Table};

/// Prints lines on standard error. A failure to print changes nothing.
pub(crate) fn say(text: &str) {
    let shown = shown(text, std::env::args_os());
    let limit = io::stderr().is_terminal().then(|| columns(io::stderr()));
    let _ = writeln!(io::stderr(), "{}", fitted(&shown, limit.unwrap_or(usize::MAX)));
}

/// Prints an error on standard error.
pub(crate) fn report(error: &Error) {
    match error {
        Error::ReaderGone => {}
        // clap's own colours, unless a quoted argument has control characters too.
        Error::Usage(usage) if !std::env::args_os().any(|argument| has_control(&argument)) => {
            // A failure to print changes nothing.
            let _ = usage.print();
        }
        Error::Usage(usage) => say(usage.to_string().trim_end()),
        error => say(&format!("haul: error: {error}")),
    }
}

/// Prints the help, or the version, that the command line asked for.
pub(crate) fn help(help: &clap::Error) -> Error {
    let printed = output().and_then(|mut output| help.print().and_then(|()| output.flush()));
    match printed {
        Ok(()) => Error::ReaderGone,
        Err(reason) => unprinted(reason),
    }
}

fn has_control(argument: &OsStr) -> bool {
    argument.to_string_lossy().contains(char::is_control)
}

/// The text as it may go to a terminal: control characters of a file's name or an argument are
/// escaped, so that the terminal does not obey them. Line breaks stay, except those within an
/// argument.
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

/// Writes text and a line break to standard output. On a terminal, a line that is too long is
/// broken at spaces.
///
/// # Errors
/// [`Error::ReaderGone`] if the reader closed standard output (`haul copy list | head`),
/// otherwise [`Error::Output`].
pub(crate) fn print(text: &str) -> Result<(), Error> {
    print_as_it_is(&fitted(text, limit()))
}

fn print_as_it_is(text: &str) -> Result<(), Error> {
    let printed = output().and_then(|output| {
        let mut output = output.lock();
        writeln!(output, "{text}").and_then(|()| output.flush())
    });
    printed.map_err(unprinted)
}

/// Standard output.
///
/// # Errors
/// Standard output was closed when the program started: text written to it is lost, but no write
/// fails.
pub(crate) fn output() -> io::Result<io::Stdout> {
    match haul_measure::sys::was_output_closed() {
        true => Err(rustix::io::Errno::BADF.into()),
        false => Ok(io::stdout()),
    }
}

/// Writes text and a line break over the `before` lines above the cursor.
///
/// # Errors
/// The errors of [`print()`].
pub(crate) fn print_over(text: &str, before: usize) -> Result<(), Error> {
    let up = if before > 0 { format!("\x1b[{before}A\r") } else { String::new() };
    print_as_it_is(&format!("{up}\x1b[J{text}"))
}

/// Whether a person watches standard output live.
pub(crate) fn is_watched() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn unprinted(reason: io::Error) -> Error {
    match reason.kind() {
        io::ErrorKind::BrokenPipe => Error::ReaderGone,
        _ => Error::Output(reason),
    }
}

/// The terminal's width in characters; 100 without a terminal or if it reports less than 40.
pub(crate) fn width() -> usize {
    if io::stdout().is_terminal() { columns(io::stdout()) } else { WITHOUT }
}

/// Width of a line without a terminal.
const WITHOUT: usize = 100;

fn columns(terminal: impl std::os::fd::AsFd) -> usize {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_col >= 40 => size.ws_col.into(),
        _ => WITHOUT,
    }
}

/// The longest line on standard output: the terminal's width. Without a terminal there is no limit,
/// because programs that read lines need them unbroken.
fn limit() -> usize {
    if io::stdout().is_terminal() { width() } else { usize::MAX }
}

/// Text broken at spaces into lines of at most `limit` columns; each keeps its indent.
fn fitted(text: &str, limit: usize) -> String {
    let fit = |line: &str| {
        if visible(line) <= limit {
            return line.to_owned();
        }
        let (indent, words) = line.split_at(line.len() - line.trim_start().len());
        let room = limit.saturating_sub(visible(indent)).max(1);
        let wrapped = wrap(words, room, 0);
        format!("{indent}{}", wrapped.replace('\n', &format!("\n{indent}")))
    };
    text.split('\n').map(fit).collect::<Vec<_>>().join("\n")
}

/// Columns that a text occupies, without its colour codes.
fn visible(text: &str) -> usize {
    let mut is_colour = false;
    let mut count = 0;
    for c in text.chars() {
        match c {
            '\x1b' => is_colour = true,
            'm' if is_colour => is_colour = false,
            _ if is_colour => {}
            _ => count += 1,
        }
    }
    count
}

/// Lines that a view of the terminal may have, without the cursor's line; 40 if the terminal
/// reports none.
pub(crate) fn height() -> usize {
    const WITHOUT: usize = 40;
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row >= 4 => usize::from(size.ws_row) - 1,
        _ => WITHOUT,
    }
}

/// Whether standard output shows colours: it is a terminal, and neither `NO_COLOR` nor a terminal
/// named dumb turns them off.
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
        let last = lines.last().map_or(0, |line| visible(line));
        if last > indent && last + 1 + visible(word) > width {
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
    fn shown_escapes_control_characters_of_names() {
        let name = "x\n\u{1b}[31mred";
        let text = format!("cannot read {name}: no such file\nanother line\u{9b}2J");
        assert_eq!(
            shown(&text, [OsString::from("report"), OsString::from(name)].into_iter()),
            "cannot read x\\n\\u{1b}[31mred: no such file\nanother line\\u{9b}2J"
        );
    }

    #[test]
    fn fitted_breaks_long_lines_between_words() {
        let text = "short\n  one two three four\n\nx";
        assert_eq!(fitted(text, 12), "short\n  one two\n  three four\n\nx");
        assert_eq!(fitted(text, usize::MAX), text);
        assert_eq!(fitted("\x1b[1mgreen tree\x1b[0m", 10), "\x1b[1mgreen tree\x1b[0m");
    }

    #[test]
    fn wrap_keeps_words_and_limits_lines() {
        let text = "one two three four five six seven eight nine ten";
        let wrapped = wrap(text, 16, 4);
        assert!(wrapped.lines().all(|line| line.len() <= 16), "{wrapped}");
        assert!(wrapped.lines().skip(1).all(|line| line.starts_with("    ")), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>().join(" "), text);
        assert_eq!(wrap("unbreakableword", 4, 2), "unbreakableword");
    }
}
