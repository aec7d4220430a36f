//! Shows how much is done, and the time left: a bar on a terminal, otherwise one line per step.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// A plan with known budgets, and the finished part of it. The time left is the sum of the
/// remaining budgets, which each step keeps; it is not extrapolated from the past.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Whether each step prints a line, because there is no terminal for a bar.
    lines: bool,
    total: Duration,
    done: Duration,
    current: Duration,
    started: Instant,
    number: usize,
    steps: usize,
}

impl Progress {
    /// Progress for a plan of this many steps and this total time.
    pub(crate) fn new(steps: usize, total: Duration) -> Self {
        let bar = ProgressBar::new(millis(total));
        let style = "{bar:30} {percent:>3}%  {prefix}  {wide_msg}";
        bar.set_style(
            ProgressStyle::with_template(style).expect("the template is checked by a test"),
        );
        let lines = !io::stderr().is_terminal() && steps > 1;
        Self {
            bar,
            lines,
            total,
            done: Duration::ZERO,
            current: Duration::ZERO,
            started: Instant::now(),
            number: 0,
            steps,
        }
    }

    /// Begins the next step.
    pub(crate) fn begin(&mut self, what: &str, budget: Duration) {
        self.done += self.current;
        self.current = budget;
        self.started = Instant::now();
        self.number += 1;
        if self.lines {
            let left = clock(self.total.saturating_sub(self.done));
            terminal::say(&format!("[{}/{}] {what}, {left} left", self.number, self.steps));
        }
        self.show(what, Duration::ZERO);
    }

    /// Shows the current part of the step. The clock determines the shown progress, because a
    /// step of many parts has one budget.
    pub(crate) fn advance(&self, part: &str) {
        self.show(part, self.started.elapsed());
    }

    /// Number of steps that have not begun.
    pub(crate) fn steps_left(&self) -> usize {
        self.steps - self.number
    }

    /// Prints a message without damaging the bar.
    pub(crate) fn say(&self, text: &str) {
        self.bar.suspend(|| terminal::say(text));
    }

    fn show(&self, what: &str, elapsed: Duration) {
        let done = self.done + elapsed.min(self.current);
        self.bar.set_position(millis(done));
        self.bar.set_prefix(format!("{} left", clock(self.total.saturating_sub(done))));
        self.bar.set_message(what.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `2:05`, minutes and seconds, rounded up.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1000);
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_sum_of_remaining_budgets() {
        let second = Duration::from_secs(1);
        let mut progress = Progress::new(2, 10 * second);
        progress.begin("a", 4 * second);
        assert_eq!(progress.bar.prefix(), "0:10 left");
        progress.show("a", 3 * second);
        assert_eq!(progress.bar.prefix(), "0:07 left");
        progress.show("a", 9 * second); // overrun: the budgets of later steps remain
        assert_eq!(progress.bar.prefix(), "0:06 left");
        progress.begin("b", 6 * second);
        assert_eq!(progress.bar.prefix(), "0:06 left");
    }

    #[test]
    fn clock_rounds_up() {
        assert_eq!(clock(Duration::from_millis(125_001)), "2:06");
        assert_eq!(clock(Duration::ZERO), "0:00");
    }
}
