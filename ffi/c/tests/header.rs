//! `include/haul.h` is the output of cbindgen for the sources, so that header and code agree.

use std::path::Path;
use std::{env, fs};

use cbindgen::{Builder, Config};

/// The header that cbindgen generates from the sources.
fn generate() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config =
        Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml is valid");
    let includes =
        config.after_includes.take().expect("cbindgen.toml has the text after the includes");
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
        "engine.rs",
        "operation.rs",
        "completion.rs",
        "notification.rs",
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
fn header_matches_sources() {
    let generated = generate();
    if env::var_os("HAUL_BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/haul.h");
        fs::write(path, &generated).expect("the header can be written");
    }
    let header = read("include/haul.h");
    let line = header.lines().zip(generated.lines()).position(|(have, want)| have != want);
    assert!(
        header == generated,
        "include/haul.h differs from the generated header from line {} on; \
         write it with HAUL_BLESS=1 cargo test -p haul-c --test header",
        line.unwrap_or_else(|| header.lines().count().min(generated.lines().count())) + 1
    );
}

/// The results of `name` for all lines, sorted.
fn names<'a>(text: &'a str, name: impl Fn(&'a str) -> Option<&'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = text.lines().filter_map(name).collect();
    names.sort_unstable();
    names
}

fn is_name(name: &str) -> bool {
    name.starts_with("haul_") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[test]
fn map_versions_every_function_of_header() {
    let header = read("include/haul.h");
    let (interface, inline) =
        header.split_once("/* Small copies without a call.").expect("the inline code follows");
    // The variables that the inline code reads.
    let variables = names(inline, |line| {
        let name = line.strip_prefix("extern ")?.strip_suffix(';')?.rsplit(' ').next();
        name.filter(|name| is_name(name))
    });
    let mut declared = names(interface, |line| {
        // Declarations start a line; comments and preprocessor lines do not start with a name.
        let before = line.starts_with(char::is_alphabetic).then(|| line.split_once('('))??.0;
        before.rsplit([' ', '*']).next().filter(|name| is_name(name))
    });
    assert_eq!(variables, ["haul_small_by_masks"]);
    declared.extend(variables);
    declared.sort_unstable();
    let map = read("libhaul.map");
    let versioned = names(&map, |line| line.trim().strip_suffix(';').filter(|name| is_name(name)));
    assert!(declared.len() >= 35, "the header was misread: {declared:?}");
    assert_eq!(declared, versioned, "haul.h and libhaul.map");
}
