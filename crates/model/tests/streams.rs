//! The committed streams: each can be read, and has what its README says.

use std::fs;
use std::path::{Path, PathBuf};

use haul_model::stream::{ReadsBy, Stream};
use proptest::prelude::*;

/// All streams together, in bytes.
const BYTES_MAX: u64 = 450_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/streams")
}

#[test]
fn committed_streams_are_those_of_the_readme() {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    let script = fs::read_to_string(folder().join("record")).unwrap();
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "stream")).collect();
    files.sort();
    assert!(files.len() >= 12, "{files:?}");
    let mut bytes = 0;
    for file in &files {
        let read = fs::read(file).unwrap();
        bytes += read.len() as u64;
        let stream = Stream::read(&read).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        let name = file.file_name().unwrap().to_string_lossy();
        let header = &stream.header;
        let begin = format!(
            "| `{name}` | {} | {} | {} |",
            header.program,
            header.about,
            stream.calls.len()
        );
        assert!(readme.contains(&begin), "README.md lacks the row {begin}");
        assert!(script.contains(&header.about), "{name}: {:?} is not in `record`", header.about);
        assert_eq!(header.reads_by, ReadsBy::Breakpoint, "{name}");
        assert_eq!(header.left_out, 0, "{name}");
        let in_order = stream.sites.iter().enumerate().map(|(index, _)| {
            stream.calls.iter().filter(|call| usize::from(call.site) == index).count()
        });
        assert!(in_order.is_sorted_by(|a, b| a >= b), "{name}: the busiest sites come first");
    }
    assert!(bytes <= BYTES_MAX, "{bytes} bytes of streams, of {BYTES_MAX}");
}

proptest! {
    /// A damaged file is rejected, or is another stream that can be written.
    #[test]
    fn damaged_streams_are_read_without_harm(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut: prop::sample::Index,
        is_cut: bool,
    ) {
        let mut file = fs::read(folder().join("zstd.stream")).unwrap();
        for (at, byte) in damage {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if is_cut {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(stream) = Stream::read(&file) {
            prop_assert_eq!(Stream::read(&stream.write().unwrap()).unwrap(), stream);
        }
    }
}
