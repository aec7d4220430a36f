//! `include/haul.h` is what cbindgen makes of the sources: the header and the code never drift
//! apart.

use std::path::Path;
use std::{env, fs};

use cbindgen::{Builder, Config};

/// The header as it has to be.
fn generate() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config =
        Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml is valid");
    let includes =
        config.after_includes.take().expect("cbindgen.toml says what follows the includes");
    config.after_includes = Some(includes.replace("@VERSION@", env!("CARGO_PKG_VERSION")));
    config.trailer = Some(read("inline.h").trim_end().to_owned());
    let mut builder = Builder::new().with_config(config);
    for file in [
        "status.rs",
        "library.rs",
        "copy.rs",
        "thresholds.rs",
        "heap.rs",
        "block.rs",
        "options.rs",
        "channel.rs",
        "account.rs",
        "buffer.rs",
        "message.rs",
        "sending.rs",
    ] {
        builder = builder.with_src(folder.join("src").join(file));
    }
    let mut text = Vec::new();
    builder.generate().expect("the sources parse").write(&mut text);
    String::from_utf8(text).expect("the header is text")
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_header_is_the_generated_one() {
    let generated = generate();
    if env::var_os("HAUL_BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/haul.h");
        fs::write(path, &generated).expect("the header can be written");
    }
    let header = read("include/haul.h");
    let line = header.lines().zip(generated.lines()).position(|(have, want)| have != want);
    assert!(
        header == generated,
        "include/haul.h differs from what the sources say, from line {} on; \
         HAUL_BLESS=1 cargo test -p haul-c --test header writes it anew",
        line.unwrap_or_else(|| header.lines().count().min(generated.lines().count())) + 1
    );
}

/// What `name` finds in each line, sorted.
fn names<'a>(text: &'a str, name: impl Fn(&'a str) -> Option<&'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = text.lines().filter_map(name).collect();
    names.sort_unstable();
    names
}

fn is_name(name: &str) -> bool {
    name.starts_with("haul_") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[test]
fn every_function_of_the_header_has_a_version() {
    let header = read("include/haul.h");
    let (interface, inline) =
        header.split_once("/* Small copies without a call.").expect("the inline code follows");
    // What the inline code looks at.
    let looked_at = names(inline, |line| {
        let name = line.strip_prefix("extern ")?.strip_suffix(';')?.rsplit(' ').next();
        name.filter(|name| is_name(name))
    });
    let mut declared = names(interface, |line| {
        // Declarations start a line; comments and preprocessor lines do not start with a name.
        let before = line.starts_with(char::is_alphabetic).then(|| line.split_once('('))??.0;
        before.rsplit([' ', '*']).next().filter(|name| is_name(name))
    });
    assert_eq!(looked_at, ["haul_small_by_masks"]);
    declared.extend(looked_at);
    declared.sort_unstable();
    let map = read("libhaul.map");
    let versioned = names(&map, |line| line.trim().strip_suffix(';').filter(|name| is_name(name)));
    assert!(declared.len() >= 35, "the header was misread: {declared:?}");
    assert_eq!(declared, versioned, "haul.h and libhaul.map");
}
