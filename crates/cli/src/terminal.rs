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

/// One line, or several, on standard error. Whether anybody reads it changes nothing.
pub(crate) fn say(text: &str) {
    let shown = shown(text, std::env::args_os());
    let limit = io::stderr().is_terminal().then(|| columns(io::stderr()));
    let _ = writeln!(io::stderr(), "{}", fitted(&shown, limit.unwrap_or(usize::MAX)));
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
    let printed = output().and_then(|mut output| help.print().and_then(|()| output.flush()));
    match printed {
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

/// Writes text and a line break to standard output; on a terminal a line that it has no room for is
/// broken at spaces.
///
/// # Errors
/// [`Error::ReaderGone`] where the reader closed it (`haul copy list | head`), else
/// [`Error::Output`].
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
/// It was closed as the program began: what is written to it is lost, and no write says so.
pub(crate) fn output() -> io::Result<io::Stdout> {
    match haul_measure::sys::was_output_closed() {
        true => Err(rustix::io::Errno::BADF.into()),
        false => Ok(io::stdout()),
    }
}

/// Writes text and a line break over the `before` lines that stand above the cursor.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_over(text: &str, before: usize) -> Result<(), Error> {
    let up = if before > 0 { format!("\x1b[{before}A\r") } else { String::new() };
    print_as_it_is(&format!("{up}\x1b[J{text}"))
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

/// How wide the terminal is, in characters; 100 where there is none, or none to speak of.
pub(crate) fn width() -> usize {
    if io::stdout().is_terminal() { columns(io::stdout()) } else { WITHOUT }
}

/// A line's width where no terminal says it.
const WITHOUT: usize = 100;

fn columns(terminal: impl std::os::fd::AsFd) -> usize {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_col >= 40 => size.ws_col.into(),
        _ => WITHOUT,
    }
}

/// What no line may be wider than: the terminal's width, and nothing where there is none, for a
/// program that reads lines wants them whole.
fn limit() -> usize {
    if io::stdout().is_terminal() { width() } else { usize::MAX }
}

/// Text whose lines are at most so wide, broken at spaces; what they are indented by stays.
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

/// How many columns a text takes, which its colours do not.
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
    fn what_a_name_brings_along_is_shown_and_not_obeyed() {
        let name = "x\n\u{1b}[31mred";
        let text = format!("cannot read {name}: no such file\nanother line\u{9b}2J");
        assert_eq!(
            shown(&text, [OsString::from("report"), OsString::from(name)].into_iter()),
            "cannot read x\\n\\u{1b}[31mred: no such file\nanother line\\u{9b}2J"
        );
    }

    #[test]
    fn a_line_that_has_no_room_is_broken_between_words() {
        let text = "short\n  one two three four\n\nx";
        assert_eq!(fitted(text, 12), "short\n  one two\n  three four\n\nx");
        assert_eq!(fitted(text, usize::MAX), text);
        assert_eq!(fitted("\x1b[1mgreen tree\x1b[0m", 10), "\x1b[1mgreen tree\x1b[0m");
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
