//! Checks that an option has one meaning in all commands: the whole tree of commands is compared
//! with a table.

use std::collections::BTreeMap;

use clap::{Arg, Command, CommandFactory as _};

use super::Arguments;

/// The options that several commands have: the name of the value (empty for a flag), and a word
/// that the help of each command must contain. A new option with one of these names must fit its
/// row; an option with another meaning needs another name.
const SHARED: &[(&str, &str, &str)] = &[
    ("against", "PEERS", "peers"),
    ("allow-user", "USER", "user"),
    ("argument", "N", "argument"),
    ("budget", "TIME", "time"),
    ("burst", "PACKETS", "packets"),
    ("deadline", "TIME", "longest"),
    ("driver", "dpdk-YY.MM", "release"),
    ("engine", "NAME", "engine"),
    ("export", "FORMAT", "format"),
    ("export-markdown", "FILE", "markdown"),
    ("fail-on", "WHAT", "exit with code"),
    ("for", "TIME", "time"),
    ("function", "NAME", "memcpy"),
    ("histogram", "HISTOGRAM", "polls"),
    ("json", "", "json"),
    ("link", "LINK", "link"),
    ("machine", "FILE", "settings"),
    ("mechanism", "NAME", "mechanism"),
    ("mix", "MIX", "mix"),
    ("mode", "MODE", "burst mode"),
    ("mps", "BYTES", "payload"),
    ("mrrs", "BYTES", "read request"),
    ("nic", "NAME", "nic"),
    ("operations", "N", "operations"),
    ("out", "DIR", "folder"),
    ("out-file", "FILE", "file"),
    ("packets", "N", "packets"),
    ("part", "HEAP", "heap"),
    ("program", "ELF", "workload"),
    ("progress", "WHEN", "show how much"),
    ("quick", "", "fewer"),
    ("rate", "RATE", "packets per second"),
    ("set", "NAME=VALUE", "setting"),
    ("settings", "FILE", "settings"),
    ("size", "BYTES", "size of"),
    ("sizes", "SIZES", "size"),
    ("sort", "ORDER", "order"),
    ("stream", "FILE|FOLDER|NAME", "recorded program"),
    ("threads", "N", "concurrent"),
    ("to", "SOCKET", "socket"),
    ("trust", "", "your own process"),
    ("busy-core", "N", "busy"),
    ("capture", "FILE", "capture"),
    ("with-fcs", "", "check sequence"),
];

/// An option of one command.
struct Found {
    command: String,
    value: String,
    help: String,
}

/// The options of all commands that a user sees, by name.
fn options() -> BTreeMap<String, Vec<Found>> {
    let mut options = BTreeMap::new();
    walk(&Arguments::command(), "", &mut options);
    options
}

fn walk(command: &Command, path: &str, options: &mut BTreeMap<String, Vec<Found>>) {
    let path = format!("{path} {}", command.get_name());
    for argument in command.get_arguments() {
        let Some(name) = argument.get_long() else { continue };
        let help = argument.get_long_help().or(argument.get_help());
        let help = help.map_or(String::new(), |help| help.to_string().to_lowercase());
        let found = Found { command: path.clone(), value: value_of(argument), help };
        options.entry(name.to_owned()).or_default().push(found);
    }
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below.for_each(|command| walk(command, &path, options));
}

/// The name of an option's value; empty for a flag.
fn value_of(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let names = argument.get_value_names().unwrap_or_default();
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")
}

/// `--ready` is memory of a heap in one command, and a server's text in another.
#[test]
fn shared_options_have_one_value_and_meaning() {
    let mut faults = Vec::new();
    for (name, found) in options() {
        let commands: Vec<&str> = found.iter().map(|found| found.command.as_str()).collect();
        match SHARED.iter().find(|row| row.0 == name) {
            None if found.len() == 1 => {}
            None if name == "ready" => {}
            Some(_) if found.len() == 1 => {
                faults.push(format!("{commands:?} alone has --{name}: remove its row"));
            }
            None => faults.push(format!("{commands:?}: --{name} has no row")),
            Some((_, value, word)) => faults.extend(
                found
                    .iter()
                    .filter(|found| found.value != *value || !found.help.contains(word))
                    .map(|Found { command, value, help }| {
                        format!("{command} --{name} <{value}> differs from its row: {help}")
                    }),
            ),
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn table_names_only_existing_options() {
    let options = options();
    for (name, ..) in SHARED {
        assert!(options.contains_key(*name), "no command has --{name}");
    }
}

/// `--help` shows more than the line in the list of commands.
#[test]
fn help_describes_every_command() {
    fn check(command: &Command) {
        if command.has_subcommands() {
            command.get_subcommands().for_each(check);
        } else if !command.is_hide_set() {
            let line = command.get_about().map(ToString::to_string).unwrap_or_default();
            let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            let (first, rest) = long.split_once("\n\n").unwrap_or((&long, ""));
            assert_eq!(first.trim_end_matches('.'), line, "{}", command.get_name());
            assert!(!rest.is_empty(), "{} has only {line:?}", command.get_name());
            let help = command.clone().render_long_help().to_string();
            let word = rest.split_whitespace().next().unwrap_or_default();
            assert!(help.contains(word), "{}: {help}", command.get_name());
        }
    }
    check(&Arguments::command());
}

/// `--out` is a folder in every command; a file has another name.
#[test]
fn out_is_a_folder_everywhere() {
    let options = options();
    assert!(options["out"].len() > 1 && options["out-file"].len() > 1);
    assert!(
        options["out"].iter().all(|found| found.value == "DIR" && found.help.contains("folder"))
    );
    for (name, found) in options.iter().filter(|(name, _)| name.contains("out")) {
        let is_known = ["out", "out-file"].contains(&name.as_str());
        let is_output = found.iter().any(|found| ["DIR", "FILE"].contains(&found.value.as_str()));
        assert!(is_known || !is_output, "--{name} is a third name for an output");
    }
}

/// A command lists by its subcommand `list`, and by no option.
#[test]
fn lists_are_subcommands() {
    assert!(!options().contains_key("list"));
}

/// An option with one possible value has nothing to choose.
#[test]
fn every_choice_has_two_values() {
    fn check(command: &Command) {
        for argument in command.get_arguments().filter(|one| one.get_action().takes_values()) {
            let values = argument.get_possible_values();
            assert!(values.len() != 1, "{} {argument}: {values:?}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
    check(&Arguments::command());
}

/// An option has one name: no alias, and no option that only its author knows.
#[test]
fn options_have_no_hidden_name() {
    fn check(command: &Command) {
        for argument in command.get_arguments() {
            assert!(!argument.is_hide_set(), "{} {argument}", command.get_name());
            let aliases = argument.get_all_aliases().unwrap_or_default();
            assert!(aliases.is_empty(), "{} {argument}: {aliases:?}", command.get_name());
            let values = argument.get_possible_values();
            let has_alias = values.iter().any(|value| value.get_name_and_aliases().count() > 1);
            assert!(!has_alias, "{} {argument}: {values:?}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
    check(&Arguments::command());
}

/// `..` is a range of single values: a step follows it, or the help says that a step may.
#[test]
fn ranges_have_one_grammar() {
    for (name, found) in options() {
        for Found { command, value, help } in found {
            let text = format!("{value} {help}").to_lowercase();
            for (at, _) in text.match_indices("first..last") {
                let rest = &text[at + "first..last".len()..];
                assert!(
                    rest.starts_with(":step") || rest.starts_with("[:step]"),
                    "{command} --{name}: {text}"
                );
            }
            assert!(!text.contains("from..to"), "{command} --{name}: {text}");
        }
    }
}
