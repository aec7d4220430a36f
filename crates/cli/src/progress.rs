//! How far, and how long still: a bar on a terminal, a line a step elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// A plan whose budgets are known, and how much of it is done. What is left is the sum of the
/// budgets that are left: a promise kept by each step, not a guess from the past.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Whether steps are told line by line, as there is no terminal for a bar.
    lines: bool,
    total: Duration,
    done: Duration,
    current: Duration,
    started: Instant,
    number: usize,
    steps: usize,
}

impl Progress {
    /// For a plan of so many steps and so much time.
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

    /// The next step begins.
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

    /// The step is at this part of it. How far that is, the clock tells: a step of many parts has
    /// one budget.
    pub(crate) fn advance(&self, part: &str) {
        self.show(part, self.started.elapsed());
    }

    /// Steps that have not begun.
    pub(crate) fn steps_left(&self) -> usize {
        self.steps - self.number
    }

    /// Says something to a person without tearing the bar.
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
    fn time_left_is_what_the_plan_still_holds() {
        let second = Duration::from_secs(1);
        let mut progress = Progress::new(2, 10 * second);
        progress.begin("a", 4 * second);
        assert_eq!(progress.bar.prefix(), "0:10 left");
        progress.show("a", 3 * second);
        assert_eq!(progress.bar.prefix(), "0:07 left");
        progress.show("a", 9 * second); // overran: no less is left than the steps to come
        assert_eq!(progress.bar.prefix(), "0:06 left");
        progress.begin("b", 6 * second);
        assert_eq!(progress.bar.prefix(), "0:06 left");
    }

    #[test]
    fn clocks_round_up() {
        assert_eq!(clock(Duration::from_millis(125_001)), "2:06");
        assert_eq!(clock(Duration::ZERO), "0:00");
    }
}
