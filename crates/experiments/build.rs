//! Lists the streams in `bench/streams/`, so that the crate contains every file there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let folder = Path::new(&root).join("../../bench/streams");
    // Cargo would run this again each time if the folder did not exist.
    let watched = if folder.exists() { "../../bench/streams" } else { "../../bench" };
    println!("cargo::rerun-if-changed={watched}");
    let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?,
        Err(_) => Vec::new(),
    };
    files.retain(|file| file.extension().is_some_and(|extension| extension == "stream"));
    files.sort();
    let mut table = String::from("static BUILT_IN: &[(&str, &[u8])] = &[\n");
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let _ = writeln!(table, "    ({name:?}, include_bytes!({:?})),", file.canonicalize()?);
    }
    table.push_str("];\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("streams.rs"), table)
}
