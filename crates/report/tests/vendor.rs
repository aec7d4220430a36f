//! Vendored files must match the checksums in their README.

use sha2::{Digest, Sha256};

#[test]
fn vendored_files_match_their_checksums() {
    let readme = include_str!("../assets/vendor/uplot/README.md");
    let files: [(&str, &[u8]); 3] = [
        ("uPlot.iife.min.js", include_bytes!("../assets/vendor/uplot/uPlot.iife.min.js")),
        ("uPlot.min.css", include_bytes!("../assets/vendor/uplot/uPlot.min.css")),
        ("LICENSE", include_bytes!("../assets/vendor/uplot/LICENSE")),
    ];
    for (name, bytes) in files {
        let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{name}`"))).expect(name);
        assert!(row.contains(&sum), "{name} has the sum {sum}, and its row says {row}");
    }
}
