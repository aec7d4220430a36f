//! Passes on the versions that Cargo.lock names.

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let lock = std::fs::read_to_string("Cargo.lock").expect("cargo writes it before a build");
    for name in ["rayon", "tokio"] {
        let after = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1);
        let version = after.and_then(|text| text.split('"').next()).unwrap_or("unknown");
        println!("cargo::rustc-env={}_VERSION={version}", name.to_uppercase());
    }
}
