//! A window of cycles as text: time runs from left to right, a letter stands for some cycles.

use std::ops::Range;

use super::trace::{Row, Window};

/// Columns of a row's name, and of its remark.
const NAME_COLUMNS: usize = 34;
const REMARK_COLUMNS: usize = 44;

/// Least and largest number of letters on the time axis.
const LETTERS_MIN: usize = 40;
const LETTERS_MAX: usize = 160;

/// The largest number of rows per part. More rows are unreadable.
const ROWS_MAX: usize = 80;

const LEGEND_PIPELINE: &str = "f fetched  d in the window, waits  x executes  m waits for memory  = done, waits to commit  C commits  ! dropped";
const LEGEND_MEMORY: &str = "c caches  t translated  b bus  a announced  h chipset  e engine's queue  q memory queue  M memory  d data on the bus  n notification";

/// The whole window in `width` columns, without a last line break.
pub(super) fn text(window: &Window, width: usize) -> String {
    let letters = letters(&window.cycles, width);
    let Range { start, end } = window.cycles;
    let each = (end - start).div_ceil(letters as u64);
    let mut lines = vec![format!("cycles {start} to {end}, {each} a letter")];
    for (what, legend, rows, none) in [
        ("instructions", LEGEND_PIPELINE, &window.instructions, "was dispatched"),
        ("transactions", LEGEND_MEMORY, &window.transactions, "was active"),
    ] {
        lines.push(format!("{what}: {legend}"));
        if rows.is_empty() {
            lines.push(format!("  none {none} in this window"));
        }
        lines.extend(rows.iter().take(ROWS_MAX).map(|row| line(row, &window.cycles, letters)));
        let more = rows.len().saturating_sub(ROWS_MAX);
        if more > 0 {
            lines.push(format!("  and {more} more {what}: choose a shorter window"));
        }
        lines.push(String::new());
    }
    if window.is_full {
        lines.push(format!(
            "The window holds more than {MAX} instructions or transactions, and the rest of them is not \
             recorded: choose a shorter window.",
            MAX = haul_sim::memory::trace::TRANSACTIONS_MAX
        ));
    }
    lines.join("\n").trim_end().to_owned()
}

fn letters(cycles: &Range<u64>, width: usize) -> usize {
    let free = width.saturating_sub(NAME_COLUMNS + 2);
    let cycles = usize::try_from(cycles.end - cycles.start).unwrap_or(LETTERS_MAX);
    free.clamp(LETTERS_MIN, LETTERS_MAX).min(cycles.max(1))
}

fn line(row: &Row, cycles: &Range<u64>, letters: usize) -> String {
    let mut axis = Axis::new(cycles, letters);
    row.spans.iter().for_each(|span| axis.fill(span.from, span.to, span.letter));
    let name: String = row.name.chars().take(NAME_COLUMNS).collect();
    let remark: String = row.remark.chars().take(REMARK_COLUMNS).collect();
    let gap = if remark.is_empty() { "" } else { " " };
    format!("{name:<NAME_COLUMNS$} {}|{gap}{remark}", axis.letters)
}

/// A row of letters over a window.
struct Axis {
    window: Range<u64>,
    letters: String,
}

impl Axis {
    fn new(window: &Range<u64>, letters: usize) -> Self {
        Self { window: window.clone(), letters: " ".repeat(letters) }
    }

    fn place(&self, at: u64) -> usize {
        let Range { start, end } = self.window;
        let at = at.clamp(start, end) - start;
        let place = u128::from(at) * self.letters.len() as u128 / u128::from(end - start);
        place as usize
    }

    /// Fills the letters from one cycle to another: at least one letter, if a part of these
    /// cycles is inside the window.
    fn fill(&mut self, from: u64, to: u64, letter: char) {
        if to <= from || to <= self.window.start || from >= self.window.end {
            return;
        }
        let first = self.place(from).min(self.letters.len() - 1);
        let last = self.place(to).max(first + 1).min(self.letters.len());
        self.letters.replace_range(first..last, &letter.to_string().repeat(last - first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::sim::trace::Span;

    #[test]
    fn axis_places_letters_by_cycle() {
        let mut axis = Axis::new(&(100..200), 10);
        axis.fill(120, 150, 'x');
        axis.fill(199, 900, 'y');
        axis.fill(0, 50, 'z');
        axis.fill(130, 130, '!');
        assert_eq!(axis.letters, "  xxx    y");
    }

    #[test]
    fn text_shows_rows_with_remarks() {
        let row = |name: &str| Row {
            name: name.into(),
            spans: vec![Span { letter: 'q', from: 20, to: 100 }],
            remark: "waits for #1 on channel 1".into(),
        };
        let window = Window {
            cycles: 0..400,
            instructions: Vec::new(),
            transactions: (0..=ROWS_MAX).map(|n| row(&format!("#{n} load"))).collect(),
            is_full: true,
        };
        let drawn = text(&window, 100);
        assert!(drawn.contains("none was dispatched"), "{drawn}");
        assert!(drawn.contains("and 1 more transactions"), "{drawn}");
        assert!(drawn.ends_with("is not recorded: choose a shorter window."), "{drawn}");
        let line = drawn.lines().find(|line| line.starts_with("#2 ")).expect("it is drawn");
        assert!(line.contains(" qqqq") && line.ends_with("| waits for #1 on channel 1"), "{drawn}");
    }
}
