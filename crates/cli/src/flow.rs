//! How much of a stream was transferred, how fast, and the time left, in the form of pv.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use haul_model::Bytes;
use haul_model::units::three_digits;
use indicatif::{ProgressBar, ProgressStyle};

use crate::progress::clock;
use crate::terminal;

/// When the progress of a stream is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Show {
    /// Shown if standard error is a terminal.
    #[default]
    Auto,
    /// Always; without a terminal, one line every second.
    Always,
    /// Never.
    Never,
}

/// The progress of a stream.
pub(crate) struct Flow {
    bar: ProgressBar,
    has_lines: bool,
    total: Option<u64>,
    done: u64,
    started: Instant,
    /// Time of the last line, and the bytes transferred by then.
    reported: (Instant, u64),
}

/// Interval between two lines, and between two updates of the bar.
const LINE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(200);

impl Show {
    /// Whether progress is shown.
    pub(crate) fn is_shown(self) -> bool {
        match self {
            Self::Auto => io::stderr().is_terminal(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

impl Flow {
    /// A stream that begins now, of `total` bytes if that is known.
    pub(crate) fn new(show: Show, total: Option<u64>) -> Self {
        let has_bar = show.is_shown() && io::stderr().is_terminal();
        let bar = match total {
            _ if !has_bar => ProgressBar::hidden(),
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        let style = match total {
            Some(_) => WITH_TOTAL,
            None => WITHOUT_TOTAL,
        };
        bar.set_style(
            ProgressStyle::with_template(style).expect("the template is checked by a test"),
        );
        if has_bar {
            bar.enable_steady_tick(TICK);
        }
        let now = Instant::now();
        let has_lines = show.is_shown() && !has_bar;
        Self { bar, has_lines, total, done: 0, started: now, reported: (now, 0) }
    }

    /// Adds transferred bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        self.bar.set_position(self.done);
        if self.has_lines && self.reported.0.elapsed() >= LINE {
            terminal::say(&format!("haul: {}", self.line(Instant::now())));
            self.reported = (Instant::now(), self.done);
        }
    }

    /// Bytes transferred until now.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// `1.21 GiB, 410 MB/s, 40%, 0:05 left`; the rate is the rate since the last line.
    fn line(&self, now: Instant) -> String {
        let (then, before) = self.reported;
        let rate = (self.done - before) as f64 / now.duration_since(then).as_secs_f64();
        let mut line = format!("{}, {}", Bytes(self.done).approximate(), per_second(rate));
        let mean = self.done as f64 / now.duration_since(self.started).as_secs_f64();
        if let Some(total) = self.total.filter(|total| *total > 0 && mean > 0.0) {
            let share = 100 * self.done.min(total) / total;
            let left = Duration::try_from_secs_f64(total.saturating_sub(self.done) as f64 / mean);
            let left = left.map_or_else(|_| "-:--".into(), clock);
            line.push_str(&format!(", {share}%, {left} left"));
        }
        line
    }
}

const WITH_TOTAL: &str =
    "{bytes:>11} {elapsed_precise} [{bytes_per_sec:>13}] [{wide_bar}] {percent:>3}% ETA {eta}";
const WITHOUT_TOTAL: &str = "{bytes:>11} {elapsed_precise} [{bytes_per_sec:>13}]";

/// `410 MB/s`, in powers of 1000.
fn per_second(bytes: f64) -> String {
    let units = [("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)];
    let found = units.into_iter().find(|(_, unit)| bytes >= *unit);
    let (name, unit) = found.unwrap_or(("B/s", 1.0));
    format!("{} {name}", three_digits(bytes / unit))
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_shows_bytes_rate_and_time_left() {
        let mut flow = Flow::new(Show::Never, Some(4_000_000));
        flow.add(1_000_000);
        let after = |milliseconds| flow.started + Duration::from_millis(milliseconds);
        assert_eq!(flow.line(after(2000)), "977 KiB, 500 kB/s, 25%, 0:06 left");
        let mut endless = Flow::new(Show::Never, None);
        endless.add(3 << 30);
        let line = endless.line(endless.started + Duration::from_secs(1));
        assert_eq!(line, "3.00 GiB, 3.22 GB/s");
    }

    #[test]
    fn line_caps_share_at_all_of_it() {
        let mut flow = Flow::new(Show::Never, Some(10));
        flow.add(20);
        let line = flow.line(flow.started + Duration::from_secs(1));
        assert_eq!(line, "20 B, 20.0 B/s, 100%, 0:00 left");
    }
}
