//! The content of a profile.

use super::layout::{
    ALIGNMENTS, CLASSES, DISTANCES, FILE_BYTES, MAGIC, MODULES, PARTS_OF_A_CALL, PROCESSES, SITES,
    THREADS, VERSION, head, module, process, site, thread,
};

/// What a profile contains.
///
/// ```
/// use haul_model::profile::{Profile, ProfileError, layout};
/// let mut file = vec![0; layout::FILE_BYTES];
/// assert_eq!(Profile::parse(&file), Err(ProfileError::NoProfile));
/// file[..8].copy_from_slice(&layout::MAGIC);
/// file[layout::head::VERSION_AT..][..4].copy_from_slice(&layout::VERSION.to_ne_bytes());
/// let profile = Profile::parse(&file).unwrap();
/// assert_eq!((profile.calls(), profile.bytes()), (0.0, 0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The mean work between two samples of a thread, in bytes. With 1, the numbers are exact.
    pub work_per_sample: u64,
    /// The processes, in the order of their starts.
    pub processes: Vec<Process>,
    /// The threads with a sample.
    pub threads: Vec<Thread>,
    /// The call sites with a sample, those with the most bytes first. The site of module "" sums
    /// those for which the file has no room.
    pub sites: Vec<Site>,
}

/// A profiled process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its ID; `None` for a forked child, which makes no system call to get it.
    pub id: Option<u32>,
    /// The index of the process that it was forked from.
    pub parent: Option<usize>,
    /// The name of its program; that of its parent for a forked child.
    pub program: String,
    /// The instruction set of its copies.
    pub isa: String,
    /// Whether its policy of copies comes from a `haul.toml`.
    pub has_policy_file: bool,
}

/// A thread. Calls and bytes are estimates.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// The index of its process; `None` for the sum of threads without an entry.
    pub process: Option<usize>,
    /// Samples.
    pub samples: u64,
    /// Calls.
    pub calls: f64,
    /// Bytes.
    pub bytes: u64,
}

/// A call site. All numbers but the samples are estimates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// The path of the file with its code, or "(no file)".
    pub module: String,
    /// The offset of the return address from the module's lowest address.
    pub offset: u64,
    /// Samples.
    pub samples: u64,
    /// Calls.
    pub calls: f64,
    /// Bytes.
    pub bytes: u64,
    /// Calls of memcpy, of memmove, of memset with 0, and of memset with another byte.
    pub kinds: [f64; 4],
    /// Calls and bytes by the [class](super::layout::CLASSES) of the size.
    pub classes: Vec<(f64, u64)>,
    /// Copies whose source and target overlap.
    pub overlaps: f64,
    /// Copies by the [class](super::layout::DISTANCES) of the distance of source and target.
    pub distances: [f64; DISTANCES],
    /// Calls by the alignment of the target: 1, 2, 4 to 64 bytes.
    pub targets: [f64; ALIGNMENTS],
    /// Copies by the alignment of the source.
    pub sources: [f64; ALIGNMENTS],
}

/// Why a file is not read as a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// It does not begin as a profile does.
    #[error(
        "the file is not a profile of copies: it does not begin with \"haulcpp\"; name a file that libhaul_copy.so wrote"
    )]
    NoProfile,
    /// It is of another version of haul.
    #[error(
        "the profile has version {found}, and this haul reads version {VERSION}; read it with the haul that wrote it"
    )]
    Version {
        /// The file's version.
        found: u32,
    },
    /// It has another length, for example because it was truncated.
    #[error("the profile has {found} bytes instead of {FILE_BYTES}; profile the program again")]
    Length {
        /// The file's length in bytes.
        found: usize,
    },
}

/// The bytes of a file.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn long(self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }

    fn number(self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    /// A text up to its first zero, with one character for each byte that is not text.
    fn text(self, at: usize, length: usize) -> String {
        let bytes = self.0.get(at..at + length).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(&bytes[..end]);
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }

    fn calls(self, at: usize) -> f64 {
        self.long(at) as f64 / PARTS_OF_A_CALL as f64
    }

    fn calls_of<const COUNT: usize>(self, at: usize) -> [f64; COUNT] {
        std::array::from_fn(|index| self.calls(at + 8 * index))
    }
}

impl Profile {
    /// Reads the bytes of a file. They may change while the program still runs; each number is
    /// then that of one moment.
    ///
    /// # Errors
    /// The file is not a profile of this version. No other content is an error.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProfileError> {
        let file = Reader(bytes);
        if !bytes.starts_with(&MAGIC) {
            return Err(ProfileError::NoProfile);
        }
        match file.number(head::VERSION_AT) {
            VERSION => {}
            found => return Err(ProfileError::Version { found }),
        }
        if bytes.len() != FILE_BYTES {
            return Err(ProfileError::Length { found: bytes.len() });
        }
        let mut sites: Vec<Site> =
            (0..SITES.entries).filter_map(|reference| site_of(file, reference)).collect();
        sites.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(b.calls.total_cmp(&a.calls)));
        Ok(Self {
            work_per_sample: file.long(head::WORK_PER_SAMPLE).max(1),
            processes: processes(file),
            threads: (0..THREADS.entries).filter_map(|it| thread_of(file, it)).collect(),
            sites,
        })
    }

    /// The calls of all sites.
    #[must_use]
    pub fn calls(&self) -> f64 {
        self.sites.iter().map(|site| site.calls).sum::<f64>() + 0.0
    }

    /// The bytes of all sites.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sites.iter().fold(0, |sum, site| sum.saturating_add(site.bytes))
    }

    /// The sum of some sites, as a site without a module.
    #[must_use]
    pub fn sum<'a>(sites: impl IntoIterator<Item = &'a Site>) -> Site {
        let mut sum = Site { classes: vec![(0.0, 0); CLASSES], ..Site::default() };
        for site in sites {
            sum.samples = sum.samples.saturating_add(site.samples);
            sum.calls += site.calls;
            sum.bytes = sum.bytes.saturating_add(site.bytes);
            sum.overlaps += site.overlaps;
            for (sum, more) in sum.classes.iter_mut().zip(&site.classes) {
                sum.0 += more.0;
                sum.1 = sum.1.saturating_add(more.1);
            }
            add(&mut sum.kinds, &site.kinds);
            add(&mut sum.distances, &site.distances);
            add(&mut sum.targets, &site.targets);
            add(&mut sum.sources, &site.sources);
        }
        sum
    }
}

fn add(sum: &mut [f64], more: &[f64]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn processes(file: Reader<'_>) -> Vec<Process> {
    let count = (file.number(head::PROCESSES) as usize).min(PROCESSES.entries - 1);
    let mut all: Vec<Process> = Vec::with_capacity(count);
    for index in 0..count {
        let at = PROCESSES.entry(index + 1);
        let id = Some(file.number(at + process::ID)).filter(|id| *id != 0);
        // A parent began before its child.
        let parent = (file.number(at + process::PARENT) as usize).checked_sub(1);
        let parent = parent.filter(|parent| *parent < index);
        let one = Process {
            id,
            parent,
            program: file.text(at + process::PROGRAM, process::PROGRAM_BYTES),
            isa: file.text(at + process::ISA, process::ISA_BYTES),
            has_policy_file: file.number(at + process::HAS_POLICY_FILE) == 1,
        };
        all.push(match parent {
            Some(parent) => Process { id, parent: Some(parent), ..all[parent].clone() },
            None => one,
        });
    }
    all
}

fn thread_of(file: Reader<'_>, reference: usize) -> Option<Thread> {
    let at = THREADS.entry(reference);
    let samples = file.long(at + thread::SAMPLES);
    let process = (file.number(at + thread::PROCESS) as usize).checked_sub(1);
    let count = (file.number(head::PROCESSES) as usize).min(PROCESSES.entries - 1);
    (samples > 0).then(|| Thread {
        process: process.filter(|process| *process < count && reference > 0),
        samples,
        calls: file.calls(at + thread::CALLS),
        bytes: file.long(at + thread::BYTES),
    })
}

fn site_of(file: Reader<'_>, reference: usize) -> Option<Site> {
    let at = SITES.entry(reference);
    let samples = file.long(at + site::SAMPLES);
    if samples == 0 {
        return None;
    }
    let key = file.long(at + site::KEY);
    let (module, offset) = match reference {
        0 => (String::new(), 0),
        _ => (module_of(file, (key >> 48) as usize), key & ((1 << 48) - 1)),
    };
    let class = |class| {
        let at = at + 8 * class;
        (file.calls(at + site::CLASS_CALLS), file.long(at + site::CLASS_BYTES))
    };
    Some(Site {
        module,
        offset,
        samples,
        calls: file.calls(at + site::CALLS),
        bytes: file.long(at + site::BYTES),
        kinds: file.calls_of(at + site::KINDS),
        classes: (0..CLASSES).map(class).collect(),
        overlaps: file.calls(at + site::OVERLAPS),
        distances: file.calls_of(at + site::DISTANCES),
        targets: file.calls_of(at + site::TARGETS),
        sources: file.calls_of(at + site::SOURCES),
    })
}

fn module_of(file: Reader<'_>, reference: usize) -> String {
    let at = MODULES.entry(reference);
    let length = (file.number(at + module::LENGTH) as usize).min(module::PATH_BYTES);
    match reference {
        0 => "(unknown)".into(),
        _ => file.text(at + module::PATH, length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with a process, its forked child, a thread of each and a site.
    pub(super) fn file() -> Vec<u8> {
        let mut file = vec![0; FILE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(head::VERSION_AT, &VERSION.to_ne_bytes());
        put(head::WORK_PER_SAMPLE, &1_u64.to_ne_bytes());
        put(head::PROCESSES, &2_u32.to_ne_bytes());
        put(PROCESSES.entry(1) + process::ID, &7_u32.to_ne_bytes());
        put(PROCESSES.entry(1) + process::PROGRAM, b"sort");
        put(PROCESSES.entry(2) + process::PARENT, &1_u32.to_ne_bytes());
        put(THREADS.entry(1) + thread::PROCESS, &2_u32.to_ne_bytes());
        put(THREADS.entry(1) + thread::SAMPLES, &3_u64.to_ne_bytes());
        put(MODULES.entry(5) + module::LENGTH, &9_u32.to_ne_bytes());
        put(MODULES.entry(5) + module::PATH, b"/bin/sortXXX");
        let at = SITES.entry(77);
        put(at + site::KEY, &(5_u64 << 48 | 0x1234).to_ne_bytes());
        for (field, number) in [
            (site::SAMPLES, 3_u64),
            (site::CALLS, 3 * PARTS_OF_A_CALL),
            (site::BYTES, 192),
            (site::KINDS, 3 * PARTS_OF_A_CALL),
            (site::CLASS_CALLS + 8 * 7, 3 * PARTS_OF_A_CALL),
            (site::CLASS_BYTES + 8 * 7, 192),
        ] {
            put(at + field, &number.to_ne_bytes());
        }
        file
    }

    #[test]
    fn file_is_read_as_it_was_written() {
        let profile = Profile::parse(&file()).unwrap();
        let programs: Vec<_> =
            profile.processes.iter().map(|it| (it.id, it.parent, it.program.as_str())).collect();
        assert_eq!(programs, [(Some(7), None, "sort"), (None, Some(0), "sort")]);
        assert_eq!((profile.threads.len(), profile.threads[0].process), (1, Some(1)));
        let [site] = &profile.sites[..] else { panic!("{:?}", profile.sites) };
        assert_eq!((site.module.as_str(), site.offset), ("/bin/sort", 0x1234));
        assert_eq!((site.calls, site.bytes, site.classes[7]), (3.0, 192, (3.0, 192)));
        assert_eq!((profile.calls(), profile.bytes()), (3.0, 192));
    }

    #[test]
    fn other_file_is_an_error_that_names_the_reason() {
        let file = file();
        assert_eq!(Profile::parse(b""), Err(ProfileError::NoProfile));
        let short = Profile::parse(&file[..FILE_BYTES - 1]).unwrap_err();
        assert_eq!(short, ProfileError::Length { found: FILE_BYTES - 1 });
        let mut newer = file;
        newer[head::VERSION_AT] = 9;
        assert!(Profile::parse(&newer).unwrap_err().to_string().contains("version 9"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_content_is_read_without_harm(places in prop::collection::vec((64..FILE_BYTES, any::<u8>()), 0..2000)) {
            let mut file = file();
            places.into_iter().for_each(|(at, byte)| file[at] = byte);
            let profile = Profile::parse(&file).unwrap();
            prop_assert!(profile.threads.iter().all(|it| it.process.is_none_or(|at| at < profile.processes.len())));
            let _ = Profile::sum(&profile.sites);
        }
    }
}
