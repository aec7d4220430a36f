//! Options of the linker for the shared library.

fn main() {
    // The functions of `haul-copy` under their C names stay hidden: a program that uses libhaul has
    // its own.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    // The linker that rustc uses by default keeps the standard library's panics for the sake of
    // their unwind tables, and with them its thread-local storage and 40 functions of libc. This
    // one removes all of that, because nothing here refers to it.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo:rerun-if-changed=build.rs");
}
