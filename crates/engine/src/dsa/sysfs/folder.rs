//! A folder of files for tests. The tests of haul-machine share it.

use std::fs;

use tempfile::TempDir;

/// A temporary folder with these files, each with its path below the folder and its text.
pub(crate) fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}
