//! Hides the functions of `haul-copy` under their C names: a program that uses libhaul has its own.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo:rerun-if-changed=build.rs");
}
