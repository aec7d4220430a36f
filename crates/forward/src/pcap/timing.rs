//! The times at which packets arrive, at their recorded distances.
//!
//! A pause above a limit occurs in joined captures, or if a clock was set during the capture. It is
//! skipped and counted, and so is a step back above the limit. A smaller step back occurs if
//! packets were captured in parallel: such packets arrive at once.

/// The times of a file's packets, relative to the clock. Times may have any value, so their
/// differences use more bits.
#[derive(Debug)]
pub(super) struct Timing {
    pause_max_ns: i128,
    /// The recorded time at which this pass began, and that of the previous packet.
    pass: Option<(i128, i128)>,
    skipped: u64,
    skipped_ns: i128,
    stepped_back: u64,
}

impl Timing {
    /// The state at the beginning of a pass.
    pub(super) fn new(pause_max_ns: u64) -> Self {
        let pause_max_ns = pause_max_ns.into();
        Self { pause_max_ns, pass: None, skipped: 0, skipped_ns: 0, stepped_back: 0 }
    }

    /// Begins a pass.
    pub(super) fn begin(&mut self) {
        self.pass = None;
    }

    /// How long after the beginning of the pass the next packet, with this recorded time, arrives.
    /// Repeated calls for the same packet return the same value.
    pub(super) fn due_ns(&mut self, time_ns: i64) -> u64 {
        let time = i128::from(time_ns);
        let (start, before) = self.pass.get_or_insert((time, time));
        let gap = time - *before;
        *before = time;
        if gap > self.pause_max_ns {
            *start += gap;
            self.skipped += 1;
            self.skipped_ns += gap;
        } else if gap < -self.pause_max_ns {
            *start += gap;
            self.stepped_back += 1;
        }
        u64::try_from(time - *start).unwrap_or(0)
    }

    /// Reports the skipped pauses and the steps back.
    pub(super) fn notes(&self) -> Vec<String> {
        let limit = seconds(self.pause_max_ns);
        let mut notes = Vec::new();
        if self.skipped > 0 {
            notes.push(format!(
                "{} pauses of the capture that are longer than {limit}, {} in sum, were skipped \
                 (pause=TIME keeps longer ones)",
                self.skipped,
                seconds(self.skipped_ns)
            ));
        }
        if self.stepped_back > 0 {
            notes.push(format!(
                "the capture\u{2019}s times go back by more than {limit} {} times: the packet \
                 after each step came at once",
                self.stepped_back
            ));
        }
        notes
    }
}

/// A duration for an operator: `54 years`, `90 s`.
fn seconds(ns: i128) -> String {
    const UNITS: [(&str, i128); 3] = [("years", 31_557_600), ("days", 86_400), ("hours", 3600)];
    let seconds = ns / 1_000_000_000;
    match UNITS.iter().find(|(_, unit)| seconds >= 2 * unit) {
        Some((name, unit)) => format!("{} {name}", seconds / unit),
        None if seconds > 0 => format!("{seconds} s"),
        None => format!("{} ms", ns / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// When packets of these times, in seconds, arrive with pauses of up to 60 s.
    fn due(times: &[i64]) -> (Vec<u64>, Vec<String>) {
        let mut timing = Timing::new(60_000_000_000);
        let due = |time: &i64| {
            let due_ns = timing.due_ns(time.saturating_mul(SECOND));
            assert_eq!(timing.due_ns(time.saturating_mul(SECOND)), due_ns, "repeated call");
            due_ns / SECOND as u64
        };
        (times.iter().map(due).collect(), timing.notes())
    }

    #[test]
    fn packets_keep_distances_and_skip_long_pauses() {
        assert_eq!(due(&[5, 6, 66, 67]), (vec![0, 1, 61, 62], vec![]));
        assert_eq!(due(&[-7, -6, 1]), (vec![0, 1, 8], vec![]));
        // Captured in parallel: the packet arrives at once, and later ones keep their times.
        assert_eq!(due(&[10, 8, 11]), (vec![0, 0, 1], vec![]));
        let (times, notes) = due(&[0, 1, 1_700_000_000, 1_700_000_002, 1_700_000_090]);
        assert_eq!(times, [0, 1, 1, 3, 3]);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("2 pauses of the capture that are longer than 60 s, 53 years"));
        let (times, notes) = due(&[1_700_000_000, 1_700_000_001, 0, 2]);
        assert_eq!(times, [0, 1, 1, 3]);
        assert!(notes[0].contains("go back by more than 60 s 1 times"), "{notes:?}");
        // The two extremes of time.
        assert_eq!(due(&[i64::MIN, i64::MAX, i64::MIN]).0, [0, 0, 0]);
    }
}
