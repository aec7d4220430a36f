//! Columns that fit the terminal: unchanged if there is room, with broken text if that is enough,
//! otherwise with the remaining columns below each row.

use super::{is_coloured, limit, visible, wrap};

/// Columns as wide as their widest cell, numbers aligned right, two spaces between them.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<(Mark, Vec<String>)>,
}

/// How a row is judged, which gives the colour of its judged cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Neither better nor worse.
    #[default]
    Plain,
    Better,
    Worse,
}

/// Columns whose cells have the colour of their row.
const JUDGED: [&str; 3] = [">ratio", "verdict", "change"];

/// Spaces between two columns.
const GAP: usize = 2;

/// Indent of the lines below a row.
const BELOW: usize = 4;

/// Least width of a text column that is narrowed to save room.
const TEXT_MIN: usize = 16;

impl Table {
    /// Makes a table. A heading that starts with `>` marks a column of numbers.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Vec<String>) {
        self.add_marked(Mark::Plain, row);
    }

    pub(crate) fn add_marked(&mut self, mark: Mark, row: Vec<String>) {
        self.rows.push((mark, row));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table in Markdown, without a last line break.
    pub(crate) fn markdown(&self) -> String {
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
        let head = [line(self.titles()), line(rules.collect())];
        let rows = self.rows.iter().map(|(_, row)| row).filter(|row| !row.is_empty());
        let rows = rows.cloned().map(line);
        head.into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    }

    /// The table in the width of standard output, without a last line break.
    pub(crate) fn text(&self) -> String {
        self.text_in(limit(), is_coloured())
    }

    fn text_in(&self, limit: usize, is_coloured: bool) -> String {
        let natural = self.widths();
        let widths = self.narrowed(&natural, limit);
        let mut shown = widths.len();
        while shown > 1 && whole(&widths[..shown]) > limit {
            shown -= 1;
        }
        let is_broken = shown < widths.len();
        // Columns moved below a row leave their width to the other columns.
        let widths = match is_broken {
            true => self.narrowed(&natural[..shown], limit),
            false => widths,
        };
        let paint = |code: &str, text: String| match is_coloured && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text,
        };
        let titles = self.line(&self.titles(), &widths);
        let mut lines = vec![titles.into_iter().map(|line| paint("1", line)).collect::<Vec<_>>()];
        for (mark, row) in &self.rows {
            let colour = match (is_coloured, mark) {
                (true, Mark::Better) => Some("32"),
                (true, Mark::Worse) => Some("31"),
                _ => None,
            };
            let painted: Vec<String> = row
                .iter()
                .zip(&self.headings)
                .map(|(cell, heading)| match colour.filter(|_| JUDGED.contains(heading)) {
                    Some(code) => paint(code, cell.clone()),
                    None => cell.clone(),
                })
                .collect();
            let mut own = self.line(&painted, &widths);
            own.extend(self.below(&painted, shown, limit));
            lines.push(own);
        }
        lines.concat().join("\n")
    }

    fn titles(&self) -> Vec<String> {
        self.headings.iter().map(|h| h.trim_start_matches('>').to_owned()).collect()
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |(_, row)| Some(row.get(column)?.as_str()))
    }

    fn widths(&self) -> Vec<usize> {
        let title = |heading: &str| visible(heading.trim_start_matches('>'));
        let width = |(column, heading): (usize, &&str)| {
            self.cells(column).map(visible).fold(title(heading), usize::max)
        };
        self.headings.iter().enumerate().map(width).collect()
    }

    /// Widths at which text columns are broken between words, if that is enough for the limit; the
    /// widest columns are narrowed first.
    fn narrowed(&self, widths: &[usize], limit: usize) -> Vec<usize> {
        let least = |(column, &width): (usize, &usize)| match self.headings[column] {
            heading if heading.starts_with('>') => width,
            heading => {
                let words = self.cells(column).chain([heading]).flat_map(str::split_whitespace);
                words.map(visible).fold(width.min(TEXT_MIN), usize::max)
            }
        };
        let least: Vec<usize> = widths.iter().enumerate().map(least).collect();
        let mut narrowed = widths.to_vec();
        while whole(&narrowed) > limit {
            let can_give = (0..narrowed.len()).filter(|&at| narrowed[at] > least[at]);
            let Some(widest) = can_give.max_by_key(|&at| narrowed[at]) else { break };
            narrowed[widest] -= 1;
        }
        narrowed
    }

    /// A row, in as many lines as its highest cell has.
    fn line(&self, row: &[String], widths: &[usize]) -> Vec<String> {
        let cells = row.iter().zip(widths).zip(&self.headings);
        let cells: Vec<(Vec<String>, usize, bool)> = cells
            .map(|((cell, &width), heading)| {
                let parts = match visible(cell) > width {
                    true => wrap(cell, width, 0).lines().map(str::to_owned).collect(),
                    false => vec![cell.clone()],
                };
                (parts, width, heading.starts_with('>'))
            })
            .collect();
        let height = cells.iter().map(|(parts, ..)| parts.len()).max().unwrap_or(1);
        let line = |at: usize| {
            let part = |(parts, width, is_number): &(Vec<String>, usize, bool)| {
                let part = parts.get(at).map_or("", String::as_str);
                let padding = " ".repeat(width.saturating_sub(visible(part)));
                if *is_number { padding + part } else { part.to_owned() + &padding }
            };
            let parts: Vec<String> = cells.iter().map(part).collect();
            parts.join(&" ".repeat(GAP)).trim_end().to_owned()
        };
        (0..height).map(line).collect()
    }

    /// The cells of a row that have no column: each with its heading, as many per line as fit.
    fn below(&self, row: &[String], shown: usize, limit: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for (cell, title) in row.iter().zip(self.titles()).skip(shown) {
            if cell.is_empty() {
                continue;
            }
            let item = format!("{title} {cell}").trim_start().to_owned();
            match lines.last_mut() {
                Some(last) if visible(last) + GAP + visible(&item) <= limit => {
                    last.push_str(&" ".repeat(GAP));
                    last.push_str(&item);
                }
                _ => lines.push(format!("{}{item}", " ".repeat(BELOW))),
            }
        }
        lines
    }
}

/// The width of all columns with the gaps between them.
fn whole(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels() -> Table {
        let mut table = Table::new(&["kernel", ">ratio", "verdict"]);
        table.add_marked(Mark::Better, vec!["avx2".into(), "0.9".into(), "faster".into()]);
        let slower = "slower, as its start costs more than all of a short copy";
        table.add_marked(Mark::Worse, vec!["rep_movsb".into(), "12.25".into(), slower.into()]);
        table
    }

    #[test]
    fn table_aligns_columns() {
        assert_eq!(
            kernels().text_in(usize::MAX, false),
            "kernel     ratio  verdict\n\
             avx2         0.9  faster\n\
             rep_movsb  12.25  slower, as its start costs more than all of a short copy"
        );
    }

    #[test]
    fn table_breaks_text_between_words() {
        assert_eq!(
            kernels().text_in(48, false),
            "kernel     ratio  verdict\n\
             avx2         0.9  faster\n\
             rep_movsb  12.25  slower, as its start costs\n\
             \x20                 more than all of a short copy"
        );
    }

    #[test]
    fn table_moves_columns_below_their_row() {
        let mut table = Table::new(&[">size", "by", ">GB/s", ">latency", ">floor"]);
        table
            .add(["64 B", "haul:auto (inline)", "0.83", "308 ns", "0.01"].map(String::from).into());
        table.add(Vec::new());
        table.add(["1 MiB", "pipe", "2.1", "", ""].map(String::from).into());
        assert_eq!(
            table.text_in(34, false),
            " size  by                  GB/s\n\
             \x2064 B  haul:auto (inline)  0.83\n\
             \x20   latency 308 ns  floor 0.01\n\
             \n\
             1 MiB  pipe                 2.1"
        );
    }

    #[test]
    fn table_limits_lines_and_keeps_words() {
        let table = kernels();
        let words = |text: &str| text.split_whitespace().count();
        for limit in 40..80 {
            let text = table.text_in(limit, false);
            assert!(text.lines().all(|line| line.chars().count() <= limit), "{limit}: {text}");
            assert_eq!(words(&text), words(&table.text_in(usize::MAX, false)), "{limit}: {text}");
        }
    }

    #[test]
    fn colours_occupy_no_columns() {
        let (plain, coloured) = (kernels().text_in(48, false), kernels().text_in(48, true));
        assert!(coloured.contains("\x1b[32mfaster\x1b[0m"), "{coloured}");
        assert!(coloured.contains("\x1b[31m12.25\x1b[0m"), "{coloured}");
        let without = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"];
        let bare = without.iter().fold(coloured.clone(), |text, code| text.replace(code, ""));
        assert_eq!(bare, plain);
    }

    #[test]
    fn markdown_has_one_line_per_row() {
        let mut table = Table::new(&["kernel", ">ratio"]);
        table.add(vec!["a|b".into(), "0.9".into()]);
        table.add(Vec::new());
        table.add(vec!["c".into()]);
        assert_eq!(
            table.markdown(),
            "| kernel | ratio |\n| --- | ---: |\n| a\\|b | 0.9 |\n| c |  |"
        );
    }
}
