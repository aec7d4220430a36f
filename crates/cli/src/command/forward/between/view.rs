//! The live view, and warnings.

use std::io::{self, IsTerminal};
use std::time::Duration;

use haul::forward::Snapshot;
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// Warnings that were printed, each once.
#[derive(Default)]
pub(super) struct Warned {
    obstacles: Vec<(String, String)>,
    notes: Vec<(String, String)>,
}

impl Warned {
    /// Prints new warnings.
    pub(super) fn update(&mut self, before: &Snapshot, now: &Snapshot, view: &View) {
        for obstacle in &now.obstacles {
            // An obstacle in two consecutive polls is not only a peer that is still connecting.
            if before.obstacles.contains(obstacle) && !self.obstacles.contains(obstacle) {
                let (port, reason) = obstacle;
                view.warn(&format!("haul: warning: {port} has no link: {reason}"));
                self.obstacles.push(obstacle.clone());
            }
        }
        for (port, note) in &now.notes {
            // The numbers in a note grow: it is printed once, and the last numbers are in the
            // summary.
            let about = (port.clone(), note.replace(|it: char| it.is_ascii_digit(), ""));
            if !self.notes.contains(&about) {
                view.warn(&format!("haul: warning: {port}: {note}"));
                self.notes.push(about);
            }
        }
    }
}

/// The live view for a person: in place on a terminal, otherwise hidden.
pub(super) struct View(ProgressBar);

impl View {
    pub(super) fn new() -> Self {
        let bar = if io::stderr().is_terminal() {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is fixed"));
        Self(bar)
    }

    pub(super) fn show(&self, lines: &[String], elapsed: Duration) {
        let clock = format!("{:.0} s, Ctrl-C stops", elapsed.as_secs_f64());
        self.0.set_message(format!("{}\n{clock}", lines.join("\n")));
        self.0.tick();
    }

    pub(super) fn warn(&self, text: &str) {
        self.0.suspend(|| terminal::say(text));
    }

    pub(super) fn end(&self) {
        self.0.finish_and_clear();
    }
}
