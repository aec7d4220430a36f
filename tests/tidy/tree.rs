//! The files of the repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Folders with generated files.
const SKIPPED_FOLDERS: [&str; 6] =
    [".git", "target", "fuzz/corpus", "fuzz/artifacts", "fuzz/coverage", "fuzz/target"];

/// One text file.
pub(crate) struct File {
    /// The path relative to the repository's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All text files, and the paths of all files.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    pub(crate) paths: Vec<String>,
    /// The size in bytes of each file in `paths`.
    pub(crate) sizes: BTreeMap<String, u64>,
}

impl Tree {
    /// Reads the tree from which this test was compiled.
    pub(crate) fn load() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut tree = Self { files: Vec::new(), paths: Vec::new(), sizes: BTreeMap::new() };
        tree.walk(&root, "");
        assert!(tree.get("Cargo.toml").is_some(), "{} is not the repository", root.display());
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree.paths.sort();
        tree
    }

    /// An artificial tree, for the unit tests of the rules.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files: Vec<_> = files
            .iter()
            .map(|&(path, text)| File { path: path.into(), text: text.into() })
            .collect();
        let paths = files.iter().map(|file| file.path.clone()).collect();
        let sizes = files.iter().map(|file| (file.path.clone(), file.text.len() as u64)).collect();
        Self { files, paths, sizes }
    }

    /// The text of one file.
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// The Cargo.toml files of all members of the workspace.
    pub(crate) fn member_manifests(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| {
            let parts: Vec<_> = file.path.split('/').collect();
            matches!(parts[..], ["crates" | "ffi", _, "Cargo.toml"] | ["ffi", _, _, "Cargo.toml"])
        })
    }

    fn walk(&mut self, folder: &Path, prefix: &str) {
        let entries = fs::read_dir(folder).expect("the repository can be listed");
        for entry in entries {
            let entry = entry.expect("the repository can be listed");
            let name = entry.file_name().into_string().expect("names in the repository are UTF-8");
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            let kind = entry.file_type().expect("the kind of an entry is known");
            if kind.is_dir() {
                if !SKIPPED_FOLDERS.contains(&path.as_str()) && name != "target" {
                    self.walk(&entry.path(), &path);
                }
            // In a worktree, .git is a file.
            } else if kind.is_file() && path != ".git" {
                // If a file vanishes after it was listed and before it is read, it belongs to
                // another program. A file that is not UTF-8 is a picture or a record. The rules
                // do not apply to these files.
                if let Ok(text) = fs::read_to_string(entry.path()) {
                    self.files.push(File { path: path.clone(), text });
                }
                if let Ok(status) = entry.metadata() {
                    self.sizes.insert(path.clone(), status.len());
                }
                self.paths.push(path);
            // A link to a file, such as a crate's licence: the rules read the file itself.
            } else if kind.is_symlink() && entry.path().is_file() {
                self.paths.push(path);
            }
        }
    }
}
