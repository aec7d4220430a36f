//! What a `haul.toml` changes besides copies, and how to use the file.

use std::path::Path;

use haul_machine::tuning::Tuning;

/// What a file changes besides copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tables {
    channels: bool,
    engine: bool,
}

impl Tables {
    pub(super) fn of(tuning: &Tuning) -> Self {
        Self { channels: !tuning.channel.choices.is_empty(), engine: tuning.engine.is_some() }
    }

    fn text(self) -> Option<&'static str> {
        match (self.channels, self.engine) {
            (false, false) => None,
            (true, false) => Some("table of channels"),
            (false, true) => Some("break-even sizes"),
            (true, true) => Some("table of channels and break-even sizes"),
        }
    }
}

/// One line: how to use the file, or that it has nothing to use.
pub(super) fn what_next(path: &Path, is_tuned: bool, tables: Tables) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let path = path.display();
    let what = match (is_tuned, tables.text()) {
        (false, None) => {
            return format!(
                "Nothing to do: the defaults of this processor stay, and {path} changes nothing."
            );
        }
        (false, Some(tables)) => format!("Copies keep the defaults. To use the file's {tables}"),
        (true, _) => "To use it".into(),
    };
    format!("{what}: export HAUL_TUNING={path}, or copy that file to ~/.config/haul/haul.toml.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_says_how_to_use_the_file() {
        let of = |is_tuned, channels, engine| {
            what_next(Path::new("/x/haul.toml"), is_tuned, Tables { channels, engine })
        };
        assert!(of(true, false, false).starts_with("To use it: export HAUL_TUNING=/x/haul.toml"));
        let table = of(false, true, false);
        assert!(table.starts_with("Copies keep the defaults. To use the file's table"), "{table}");
        assert!(of(false, false, true).contains("use the file's break-even sizes: export"));
        let nothing = of(false, false, false);
        assert!(nothing.starts_with("Nothing to do: the defaults of this processor stay"));
    }
}
