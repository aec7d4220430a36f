//! Arbitrary distribution files: each is used, or rejected with an error that names the file, the
//! value, the limit and the remedy. No file makes the reader hang.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haul_measure::distribution::{Distribution, SIZE_MAX_BYTES, file};
use haul_measure::error::{DistributionFault, Error};

/// The fault of a rejected file, after a check that the message names the file and the remedy.
fn refused(path: &Path) -> DistributionFault {
    let started = Instant::now();
    let error = Distribution::find(path.to_str().unwrap()).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20), "{error} took {:?}", started.elapsed());
    let message = error.to_string();
    assert!(message.contains(&path.display().to_string()), "{message}");
    assert!(message.contains("one line of probabilities"), "{message}");
    let Error::Distribution { fault, .. } = error else { panic!("{message}") };
    fault
}

fn written(folder: &tempfile::TempDir, contents: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join("sizes.csv");
    fs::write(&path, contents).unwrap();
    path
}

#[test]
fn valid_file_gives_a_distribution_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, "0.25,0.5,0.25,\n");
    let distribution = file::read(&path).unwrap();
    assert_eq!(distribution.name(), "sizes");
    assert_eq!(distribution.shares(), [(0, 0.25), (1, 0.5), (2, 0.25)]);
}

#[test]
fn invalid_contents_are_rejected_with_their_fault() {
    use DistributionFault as F;
    let folder = tempfile::tempdir().unwrap();
    let fault = |contents: &[u8]| refused(&written(&folder, contents));
    assert!(matches!(fault(b""), F::Empty));
    assert!(matches!(fault(b"\n \n"), F::Empty));
    assert!(matches!(fault(b"0.5,0.5\n1\n"), F::ManyLines(2)));
    assert!(matches!(fault(b"0.5,\xff0.5"), F::NotText(4)));
    assert!(matches!(fault(b"0.5,half"), F::NotANumber { index: 1, last: true, .. }));
    assert!(matches!(fault(b"0.5,,0.5"), F::NotANumber { index: 1, last: false, .. }));
    assert!(matches!(fault(b"1.5,-0.5"), F::Negative { index: 1, .. }));
    assert!(matches!(fault(b"0.5,nan,0.5"), F::NotFinite { index: 1, .. }));
    assert!(matches!(fault(b"inf"), F::NotFinite { index: 0, .. }));
    assert!(matches!(fault(b"1e308,1e308"), F::Sum { .. }));
    assert!(matches!(fault(b"0,0,0"), F::Sum { .. }));
    assert!(matches!(fault(b"0.5,0.498"), F::Sum { .. }));
    // Rounding explains an error of half the last decimal per entry.
    let message = fault(b"0.5,0.4995").to_string();
    assert!(message.contains("sum to 0.9995") && message.contains("0.0001"), "{message}");
    assert!(Distribution::find(written(&folder, "0.5,0.4999").to_str().unwrap()).is_ok());
}

/// A file that is truncated anywhere in its first nine tenths is rejected. A file that is
/// truncated inside a number with an exponent is rejected too.
#[test]
fn truncated_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let whole: String = (0..100)
        .map(|size| if size == 0 { "0.01".into() } else { format!(",{:e}", 0.01) })
        .collect();
    assert!(file::read(&written(&folder, &whole)).is_ok());
    for length in 0..whole.len() - 5 {
        refused(&written(&folder, &whole[..length]));
    }
    let fault = refused(&written(&folder, &whole[..whole.len() - 1]));
    assert!(
        matches!(fault, DistributionFault::NotANumber { index: 99, last: true, .. }),
        "{fault}"
    );
    assert!(fault.to_string().contains("truncated"), "{fault}");
}

/// Truncates haul's own files, and those of `shared/data` if they exist, so that a hundredth of
/// their bytes is lost. A hundredth of the bytes is a much smaller share of the calls.
#[test]
fn file_without_a_hundredth_of_its_bytes_is_rejected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ours = root.join("bench/definitions/distributions");
    let mut files: Vec<PathBuf> =
        ["service", "packets", "messages"].map(|name| ours.join(name).with_extension("csv")).into();
    let shared = root.join("../shared/data/memcpy-distributions");
    match fs::read_dir(&shared) {
        Ok(entries) => files.extend(entries.map(|entry| entry.unwrap().path())),
        Err(_) => eprintln!(
            "SKIPPED: the fleet's distributions, cut off: no file {}: put the shared data there",
            shared.display()
        ),
    }
    let folder = tempfile::tempdir().unwrap();
    let mut cuts = 0;
    for path in files.iter().filter(|path| path.extension().is_some_and(|e| e == "csv")) {
        let whole = file::read(path).unwrap();
        let text = fs::read_to_string(path).unwrap();
        let commas: Vec<usize> = text.match_indices(',').map(|(at, _)| at).collect();
        for (size, &at) in commas.iter().enumerate().step_by(commas.len() / 20) {
            if whole.bytes_share_above(size) > 0.01 {
                let fault = refused(&written(&folder, &text[..at]));
                let is_sum = matches!(fault, DistributionFault::Sum { .. });
                assert!(is_sum, "{} cut after {size} B: {fault}", path.display());
                cuts += 1;
            }
        }
    }
    assert!(cuts > 20, "{cuts} cuts");
}

#[test]
fn too_many_entries_and_too_large_files_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let mut longest = "0,".repeat(SIZE_MAX_BYTES);
    longest.push('1');
    assert_eq!(file::read(&written(&folder, &longest)).unwrap().size_max_bytes(), SIZE_MAX_BYTES);
    let fault = refused(&written(&folder, format!("0,{longest}")));
    assert!(
        matches!(fault, DistributionFault::TooLong { entries: 1_048_578, limit: 1_048_577 }),
        "{fault}"
    );
    let path = folder.path().join("huge.csv");
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(refused(&path), DistributionFault::TooLarge { .. }));
}

#[test]
fn path_without_regular_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(refused(folder.path()), DistributionFault::NotAFile("directory")));
    assert!(matches!(refused(&folder.path().join("absent.csv")), DistributionFault::Unreadable(_)));
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert!(matches!(refused(&socket), DistributionFault::NotAFile("socket")));
    assert!(matches!(refused(Path::new("/dev/zero")), DistributionFault::NotAFile("device")));
    let dangling = folder.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    assert!(matches!(refused(&dangling), DistributionFault::Unreadable(_)));
}

#[test]
fn fifo_without_writer_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(refused(&path), DistributionFault::NotAFile("FIFO")));
}

#[test]
fn unreadable_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, "1");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    match fs::read(&path) {
        Ok(_) => eprintln!(
            "SKIPPED: an unreadable distribution file: running as root: run the tests as a user"
        ),
        Err(_) => assert!(matches!(refused(&path), DistributionFault::Unreadable(_))),
    }
}
