//! The parts of a Cargo.toml that the rules need: the package's name and its dependencies.

/// The table of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Normal,
    Development,
    Build,
}

/// One package.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    /// The packages on which it depends, with their original names.
    pub(crate) dependencies: Vec<(Table, String)>,
}

impl Manifest {
    /// Reads the form that this repository uses: one dependency per line, or one table per
    /// dependency.
    pub(crate) fn parse(text: &str) -> Self {
        let mut manifest = Self { name: String::new(), dependencies: Vec::new() };
        let mut table = String::new();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                table = name.into();
                if let Some((kind, Some(dependency))) = dependency_table(&table) {
                    manifest.dependencies.push((kind, dependency.into()));
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            if table == "package" && key.trim() == "name" {
                manifest.name = unquoted(value).into();
            }
            match dependency_table(&table) {
                Some((kind, None)) => manifest.dependencies.push((kind, package(key, value))),
                Some((_, Some(_))) if key.trim() == "package" => {
                    manifest.dependencies.last_mut().expect("its table was just opened").1 =
                        unquoted(value).into();
                }
                _ => {}
            }
        }
        manifest
    }
}

/// The kind of a dependency table, and the dependency if the table describes only one.
fn dependency_table(table: &str) -> Option<(Table, Option<&str>)> {
    let kinds = [
        ("dev-dependencies", Table::Development),
        ("build-dependencies", Table::Build),
        ("dependencies", Table::Normal),
    ];
    // `target.'cfg(...)'.dependencies` is for some machines only, but the layers apply to all
    // machines.
    let parts: Vec<_> = table.rsplit('.').collect();
    kinds.into_iter().find_map(|(name, kind)| match parts[..] {
        [last, ..] if last == name => Some((kind, None)),
        [dependency, last, ..] if last == name => Some((kind, Some(dependency))),
        _ => None,
    })
}

fn package(key: &str, value: &str) -> String {
    let renamed = value.split_once("package").map(|(_, rest)| rest);
    let key = key.split('.').next().unwrap_or(key);
    renamed.map_or_else(|| key.trim().into(), |rest| unquoted(rest).into())
}

/// The text between the first two quotation marks.
fn unquoted(value: &str) -> &str {
    value.split('"').nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_every_form_of_dependency() {
        let manifest = Manifest::parse(
            "[package]\nname = \"haul-x\"\n\n[dependencies]\nhaul-copy.workspace = true\n\
             inner = { package = \"haul\", path = \"..\" }\nlibc = \"0.2\"\n# gone = \"1\"\n\
             [dev-dependencies]\nproptest.workspace = true\n\
             [target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n\
             [build-dependencies.cc]\nversion = \"1\"\n\
             [dependencies.odd]\npackage = \"even\"\n[features]\nx = []\n",
        );
        assert_eq!(manifest.name, "haul-x");
        let read: Vec<_> =
            manifest.dependencies.iter().map(|(table, name)| (*table, name.as_str())).collect();
        assert_eq!(
            read,
            [
                (Table::Normal, "haul-copy"),
                (Table::Normal, "haul"),
                (Table::Normal, "libc"),
                (Table::Development, "proptest"),
                (Table::Normal, "rustix"),
                (Table::Build, "cc"),
                (Table::Normal, "even"),
            ]
        );
    }
}
