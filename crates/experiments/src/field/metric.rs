//! The metric of a field test: what is compared, and how it is read from a run.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use regex::{Regex, RegexBuilder};

use super::words::words;

/// The largest compiled expression, in bytes. A larger one would search for too long.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;

/// Units that programs print behind a figure. A figure whose unit is one of these in one run and
/// another of these in the next has changed its unit.
const UNITS: [&str; 34] = [
    "ns", "us", "µs", "μs", "usec", "usecs", "ms", "msec", "msecs", "s", "sec", "secs", "seconds",
    "m", "min", "h", "B", "bytes", "k", "K", "kB", "KB", "KiB", "M", "MB", "MiB", "G", "GB", "GiB",
    "T", "TB", "TiB", "%", "Kbits",
];

/// What is compared.
#[derive(Clone, Debug)]
pub enum Metric {
    /// The time from the start to the end of the command, or of the load.
    Wall,
    /// The processor time of the command, or of the server.
    Cpu,
    /// The largest resident memory of one process of the command, or of the server.
    MaxRss,
    /// A figure that the command, or the load, prints on standard output.
    Stdout(Expression),
    /// A figure in a file that the run writes.
    File {
        /// The file.
        path: PathBuf,
        /// Where the figure is in it.
        expression: Expression,
    },
    /// A figure that another command prints after the run, before a server ends.
    Command {
        /// The command as it was written.
        text: String,
        /// Its words.
        words: Vec<OsString>,
    },
}

/// A regular expression that finds a figure.
#[derive(Clone, Debug)]
pub struct Expression(Regex);

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Above 0.
    pub value: f64,
    /// The unit behind it, if it is one of the usual ones.
    pub unit: Option<String>,
}

impl Expression {
    fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("write a regular expression, such as 'tps = ([0-9.]+)'".into());
        }
        let built =
            RegexBuilder::new(text).size_limit(EXPRESSION_BYTES_MAX).multi_line(true).build();
        built.map(Self).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("the regular expression is wrong: {reason}")
        })
    }

    /// Whether the expression matches.
    #[must_use]
    pub fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The figure in a text: the first group of the last match, or the whole match if the
    /// expression has no group.
    ///
    /// # Errors
    /// The expression matches nothing, or something that is not a number above 0.
    pub fn figure(&self, text: &str) -> Result<Figure, String> {
        let last = self.0.captures_iter(text).last();
        let Some(found) = last else {
            return Err(format!("/{}/ matches nothing in it", self.0));
        };
        let figure = found.get(1).or_else(|| found.get(0).filter(|_| found.len() == 1));
        match figure {
            Some(figure) => number(figure.as_str(), &text[figure.end()..]),
            None => Err(format!("the group of /{}/ matches nothing in it", self.0)),
        }
    }
}

/// The number of a text, and the unit that begins the text behind it.
///
/// # Errors
/// The text is not a number above 0.
pub(super) fn number(text: &str, behind: &str) -> Result<Figure, String> {
    let text = text.trim();
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
    match value {
        Some(value) if value > 0.0 => Ok(Figure { value, unit: unit(behind) }),
        Some(value) => Err(format!("{value} is not above 0, so it has no ratio")),
        None => Err(format!("{:?} is not a number", shortened(text))),
    }
}

/// The unit at the beginning of a text, directly or behind a space.
fn unit(text: &str) -> Option<String> {
    let text = text.strip_prefix(' ').unwrap_or(text);
    let is_of_word = |c: char| c.is_alphabetic() || c == '%';
    let word: String = text.chars().take_while(|c| is_of_word(*c)).collect();
    let known = UNITS.contains(&word.as_str());
    let is_rate = text[word.len()..].starts_with("/s");
    known.then(|| if is_rate { format!("{word}/s") } else { word })
}

/// The beginning of a text for a message.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    text.chars().take(SHOWN).collect()
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.0)
    }
}

impl FromStr for Expression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::new(text)
    }
}

impl FromStr for Metric {
    type Err = String;

    /// Reads `wall`, `cpu`, `max-rss`, `stdout:REGEX`, `file:PATH:REGEX` or `cmd:COMMAND`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("wall", "") => Ok(Self::Wall),
            ("cpu", "") => Ok(Self::Cpu),
            ("max-rss", "") => Ok(Self::MaxRss),
            ("stdout", rest) => Expression::new(rest).map(Self::Stdout),
            ("file", rest) => match rest.split_once(':') {
                Some((path, expression)) if !path.is_empty() => {
                    Ok(Self::File { path: path.into(), expression: Expression::new(expression)? })
                }
                _ => Err("write 'file:PATH:REGEX', such as 'file:result.txt:tps ([0-9.]+)'".into()),
            },
            ("cmd", rest) => words(rest).map(|words| Self::Command { text: rest.into(), words }),
            _ => Err("write wall, cpu, max-rss, 'stdout:REGEX', 'file:PATH:REGEX' or \
                      'cmd:COMMAND'"
                .into()),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wall => f.write_str("wall"),
            Self::Cpu => f.write_str("cpu"),
            Self::MaxRss => f.write_str("max-rss"),
            Self::Stdout(expression) => write!(f, "stdout:{}", expression.0),
            Self::File { path, expression } => {
                write!(f, "file:{}:{}", path.display(), expression.0)
            }
            Self::Command { text, .. } => write!(f, "cmd:{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(expression: &str, text: &str) -> Result<(f64, Option<String>), String> {
        let figure = Expression::new(expression)?.figure(text)?;
        Ok((figure.value, figure.unit))
    }

    #[test]
    fn figure_is_the_group_of_the_last_match() {
        let progress = "tps = 7.0\ntps = 1234.5 (without connections)\n";
        assert_eq!(of("tps = ([0-9.]+)", progress), Ok((1234.5, None)));
        assert_eq!(of("[0-9.]+$", "a 1\nb 2\n"), Ok((2.0, None)));
        assert_eq!(of("^b ([0-9]+)$", "a 1\nb 2\nc 3"), Ok((2.0, None)));
        assert_eq!(
            of("Latency +([0-9.]+)", "Latency   635.91us  1.02ms"),
            Ok((635.91, Some("us".into())))
        );
        assert_eq!(of("([0-9.]+)", "1.25 MB/s"), Ok((1.25, Some("MB/s".into()))));
        assert_eq!(of("([0-9.]+)", "5 apples").unwrap().1, None);
        assert_eq!(of("([0-9.e+]+)", "1.5e+3 s").unwrap().0, 1500.0);
    }

    #[test]
    fn text_without_figure_is_refused_with_reason() {
        for (expression, text, reason) in [
            ("tps = (.*)", "no", "matches nothing"),
            ("tps = (.*)", "tps = many", "\"many\" is not a number"),
            ("tps = (.*)", "tps = 1,234", "is not a number"),
            ("tps = (.*)", "tps = 0", "not above 0"),
            ("tps = (.*)", "tps = -3", "not above 0"),
            ("tps = (.*)", "tps = inf", "is not a number"),
            ("a(b)?c", "ac", "group"),
            ("(", "", "regular expression is wrong"),
            ("", "", "write a regular expression"),
            (r"\w{1000}{1000}", "", "regular expression is wrong"),
        ] {
            let error = of(expression, text).unwrap_err();
            assert!(error.contains(reason), "{expression} {text}: {error}");
        }
    }

    #[test]
    fn metrics_are_shown_as_written() {
        for text in ["wall", "cpu", "max-rss", "stdout:a (b)", "file:/a/b:c:d", "cmd:a 'b c'"] {
            assert_eq!(text.parse::<Metric>().unwrap().to_string(), text);
        }
        for bad in ["", "walls", "wall:x", "stdout:", "stdout:(", "file:a", "file::x", "cmd:"] {
            assert!(bad.parse::<Metric>().is_err(), "{bad}");
        }
    }
}
