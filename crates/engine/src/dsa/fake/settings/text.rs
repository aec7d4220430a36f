//! Settings as text: lines of words, read and written.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Event, Injection, QueueSettings, SETTINGS_BYTES_MAX, Settings, SettingsError, When};
use crate::dsa::descriptor::Opcode;
use crate::dsa::sysfs::{Mode, QueueType, number};
use crate::outcome::Access;

/// Threads that execute at most. A real device has four engines.
const ENGINES_MAX: u64 = 16;
/// Queues at most. A real device has eight.
const QUEUES_MAX: usize = 64;
/// Descriptors in a queue at most. A real device has 128 entries for all its queues.
const SIZE_MAX: u64 = 4096;
/// The largest delay.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// The words of a line after the first.
struct Words<'a> {
    line: usize,
    words: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Words<'a> {
    fn of(line: usize, words: impl Iterator<Item = &'a str>) -> Self {
        let split = |word: &'a str| match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (word, None),
        };
        Self { line, words: words.map(split).collect() }
    }

    fn error(&self, word: &str, reason: impl Into<String>) -> SettingsError {
        SettingsError { line: self.line, word: word.into(), reason: reason.into() }
    }

    /// Removes a word and returns its value.
    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|(name, value)| *name == key && value.is_some())?;
        self.words.remove(at).1
    }

    /// Removes a word without a value.
    fn take_bare(&mut self, key: &str) -> bool {
        let at = self.words.iter().position(|(name, value)| *name == key && value.is_none());
        at.map(|at| self.words.remove(at)).is_some()
    }

    fn number(&mut self, key: &str, least: u64, most: u64) -> Result<Option<u64>, SettingsError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match number(value).filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let word = format!("{key}={value}");
                Err(self.error(&word, format!("write a number from {least} to {most}")))
            }
        }
    }

    fn choice<T: Copy>(
        &mut self,
        key: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, SettingsError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match choices.iter().find(|(name, _)| *name == value) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                let word = format!("{key}={value}");
                Err(self.error(&word, format!("write {}", names.join(" or "))))
            }
        }
    }

    fn yes_or_no(&mut self, key: &str) -> Result<Option<bool>, SettingsError> {
        self.choice(key, &[("yes", true), ("no", false)])
    }

    /// Refuses words that were not taken.
    fn finish(self, known: &str) -> Result<(), SettingsError> {
        match self.words.first() {
            None => Ok(()),
            Some((word, _)) => Err(self.error(word, format!("the words here are {known}"))),
        }
    }
}

const MODES: [(&str, Mode); 2] = [("shared", Mode::Shared), ("dedicated", Mode::Dedicated)];

const TYPES: [(&str, QueueType); 3] =
    [("user", QueueType::User), ("kernel", QueueType::Kernel), ("none", QueueType::None)];

const ACCESSES: [(&str, Access); 2] = [("read", Access::Read), ("write", Access::Write)];

impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self { queues: Vec::new(), ..Self::default() };
        let error = |line: usize, word: &str, reason: String| SettingsError {
            line,
            word: word.into(),
            reason,
        };
        if text.len() > SETTINGS_BYTES_MAX {
            let reason = format!("they have more than {SETTINGS_BYTES_MAX} bytes");
            return Err(error(1, "the whole text", reason));
        }
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(first) = words.next() else { continue };
            let words = Words::of(line_number, words);
            match first {
                "device" => settings.read_device(words)?,
                "queue" if settings.queues.len() == QUEUES_MAX => {
                    let reason = format!("there are at most {QUEUES_MAX} queues");
                    return Err(error(line_number, first, reason));
                }
                "queue" => settings.queues.push(QueueSettings::read(words)?),
                "inject" => settings.injections.push(Injection::read(words)?),
                _ => {
                    let reason = "a line begins with device, queue or inject";
                    return Err(error(line_number, first, reason.into()));
                }
            }
        }
        if settings.queues.is_empty() {
            settings.queues = Self::default().queues;
        }
        Ok(settings)
    }
}

impl Settings {
    fn read_device(&mut self, mut words: Words<'_>) -> Result<(), SettingsError> {
        if let Some(engines) = words.number("engines", 1, ENGINES_MAX)? {
            self.engines = engines as u32;
        }
        for (key, field) in [
            ("batches", &mut self.batches),
            ("portal", &mut self.portal),
            ("sva", &mut self.sva),
            ("strict", &mut self.strict),
        ] {
            if let Some(value) = words.yes_or_no(key)? {
                *field = value;
            }
        }
        words.finish("engines=N, batches=, portal=, sva= and strict=yes|no")
    }
}

impl QueueSettings {
    fn read(mut words: Words<'_>) -> Result<Self, SettingsError> {
        let default = Self::default();
        let queue = Self {
            mode: words.choice("mode", &MODES)?.unwrap_or(default.mode),
            size: words.number("size", 1, SIZE_MAX)?.map_or(default.size, |size| size as u32),
            transfer_bytes_max: words
                .number("transfer", 1, 1 << 31)?
                .map_or(default.transfer_bytes_max, |bytes| bytes as u32),
            batch_max: words.number("batch", 2, 1024)?.map_or(default.batch_max, |n| n as u32),
            is_enabled: words.yes_or_no("enabled")?.unwrap_or(default.is_enabled),
            queue_type: words.choice("type", &TYPES)?.unwrap_or(default.queue_type),
            blocks_on_fault: words.yes_or_no("block")?.unwrap_or(default.blocks_on_fault),
        };
        words.finish("mode=, size=, transfer=, batch=, enabled=, type= and block=")?;
        Ok(queue)
    }
}

impl Injection {
    fn read(mut words: Words<'_>) -> Result<Self, SettingsError> {
        let at = words.number("at", 1, u64::MAX)?;
        let every = words.number("every", 1, u64::MAX)?;
        let from = words.number("from", 1, u64::MAX)?;
        let to = words.number("to", 1, u64::MAX)?;
        let when = match (at, every, from, to) {
            (Some(at), None, None, None) => When::At(at),
            (None, Some(step), None, None) => When::Every(step),
            (None, None, Some(from), to) => When::Between(from, to.unwrap_or(u64::MAX)),
            _ => return Err(words.error("inject", "write one of at=N, every=N and from=N to=N")),
        };
        let opcode = match words.number("opcode", 0, 255)? {
            None => None,
            Some(number) => Some(Opcode::of(number as u8).ok_or_else(|| {
                words.error(&format!("opcode={number}"), "name an operation that the fake executes")
            })?),
        };
        let event = Event::read(&mut words)?;
        words.finish("at=, every=, from=, to=, opcode= and one event")?;
        Ok(Self { when, opcode, event })
    }
}

impl Event {
    fn read(words: &mut Words<'_>) -> Result<Self, SettingsError> {
        if let Some(byte) = words.number("fault", 0, u64::from(u32::MAX))? {
            let access = words.choice("access", &ACCESSES)?.unwrap_or(Access::Read);
            return Ok(Self::Fault { byte: byte as u32, access });
        }
        if let Some(byte) = words.number("status", 1, 255)? {
            let bytes = words.number("bytes", 0, u64::from(u32::MAX))?.unwrap_or(0);
            return Ok(Self::Status { byte: byte as u8, bytes: bytes as u32 });
        }
        if let Some(micros) = words.number("delay_us", 0, DELAY_MAX.as_micros() as u64)? {
            return Ok(Self::Delay(Duration::from_micros(micros)));
        }
        let bare = [
            ("full", Self::Full),
            ("remove", Self::Remove),
            ("halt", Self::Halt),
            ("wedge", Self::Wedge),
        ];
        match bare.into_iter().find(|(name, _)| words.take_bare(name)) {
            Some((_, event)) => Ok(event),
            None => Err(words.error(
                "inject",
                "write an event: fault=BYTE, status=BYTE, delay_us=N, full, remove, halt or wedge",
            )),
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: bool| if value { "yes" } else { "no" };
        writeln!(
            f,
            "device engines={} batches={} portal={} sva={} strict={}",
            self.engines,
            word(self.batches),
            word(self.portal),
            word(self.sva),
            word(self.strict)
        )?;
        for queue in &self.queues {
            writeln!(
                f,
                "queue mode={} size={} transfer={} batch={} enabled={} type={} block={}",
                name_of(&MODES, queue.mode),
                queue.size,
                queue.transfer_bytes_max,
                queue.batch_max,
                word(queue.is_enabled),
                name_of(&TYPES, queue.queue_type),
                word(queue.blocks_on_fault)
            )?;
        }
        self.injections.iter().try_for_each(|injection| writeln!(f, "{injection}"))
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::At(at) => write!(f, "inject at={at}")?,
            When::Every(step) => write!(f, "inject every={step}")?,
            When::Between(first, last) => write!(f, "inject from={first} to={last}")?,
        }
        if let Some(opcode) = self.opcode {
            write!(f, " opcode={}", opcode as u8)?;
        }
        match self.event {
            Event::Fault { byte, access } => {
                write!(f, " fault={byte} access={}", name_of(&ACCESSES, access))
            }
            Event::Status { byte, bytes } => write!(f, " status={byte:#04x} bytes={bytes}"),
            Event::Delay(delay) => write!(f, " delay_us={}", delay.as_micros()),
            Event::Full => f.write_str(" full"),
            Event::Remove => f.write_str(" remove"),
            Event::Halt => f.write_str(" halt"),
            Event::Wedge => f.write_str(" wedge"),
        }
    }
}

/// The name of a value in a list; of a type that no list has, `none`.
fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, one)| *one == value).map_or("none", |(name, _)| name)
}

impl QueueSettings {
    /// The texts of the attributes `type` and `mode`.
    pub(crate) fn names(&self) -> (&'static str, &'static str) {
        (name_of(&TYPES, self.queue_type), name_of(&MODES, self.mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_text() {
        let settings = Settings { batches: false, strict: true, engines: 3, ..Settings::default() }
            .inject(When::At(3), Event::Fault { byte: 100, access: Access::Write })
            .inject(When::Every(5), Event::Status { byte: 0x83, bytes: 7 })
            .inject(When::Between(2, u64::MAX), Event::Delay(Duration::from_micros(50)))
            .inject(When::At(1), Event::Full)
            .inject(When::At(9), Event::Remove)
            .inject(When::At(9), Event::Halt)
            .inject(When::At(9), Event::Wedge);
        assert_eq!(settings.to_string().parse(), Ok(settings.clone()));
        assert_eq!("# nothing\n\n".parse(), Ok(Settings::default()));
        let one: Settings = "inject every=2 opcode=3 full # comment".parse().unwrap();
        assert_eq!(one.injections[0].opcode, Some(Opcode::Copy));
        assert_eq!(one.to_string().parse(), Ok(one));
    }

    #[test]
    fn settings_name_the_line_and_the_limit() {
        for (text, line, reason) in [
            ("\nqueue size=0", 2, "from 1 to 4096"),
            ("queue size=x", 1, "from 1 to 4096"),
            ("queue mode=both", 1, "shared or dedicated"),
            ("queue colour=red", 1, "mode="),
            ("device engines=17", 1, "from 1 to 16"),
            ("device portal=1", 1, "yes or no"),
            ("disk", 1, "device, queue or inject"),
            ("inject full", 1, "at=N"),
            ("inject at=1 every=2 full", 1, "at=N"),
            ("inject at=1", 1, "an event"),
            ("inject at=0 full", 1, "from 1"),
            ("inject at=1 full halt", 1, "one event"),
            ("inject at=1 opcode=99 full", 1, "operation"),
            ("inject at=1 delay_us=99999999999", 1, "60000000"),
        ] {
            let error = text.parse::<Settings>().unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
        assert!("queue\n".repeat(65).parse::<Settings>().is_err());
        assert!(" ".repeat(SETTINGS_BYTES_MAX + 1).parse::<Settings>().is_err());
    }

    /// Words of settings in random order: an error or settings that survive their text.
    #[test]
    fn random_words_cause_no_panic() {
        const WORDS: [&str; 16] = [
            "device",
            "queue",
            "inject",
            "\n",
            "at=1",
            "every=0",
            "full",
            "size=9",
            "fault=",
            "status=0x83",
            "=",
            "mode=shared",
            "access=write",
            "#",
            "\u{e9}",
            "to=18446744073709551616",
        ];
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..state % 9 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text += WORDS[(state >> 33) as usize % WORDS.len()];
                text.push(' ');
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(3);
            state ^= state >> 29;
            if let Ok(settings) = text.parse::<Settings>() {
                assert_eq!(settings.to_string().parse(), Ok(settings), "{text}");
            }
        }
    }
}
