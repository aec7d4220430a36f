//! The processes of a run that do not have the library, because they are static or set-user-id, or
//! removed `LD_PRELOAD`. Their copies are not in the profile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::time::{Duration, Instant};

/// Time between two checks. A process that lives for less than two is not seen.
const INTERVAL: Duration = Duration::from_millis(100);

/// The processes that were seen.
#[derive(Default)]
pub(super) struct Lost {
    last: Option<Instant>,
    /// The name of a process and its program, and how often it was seen without the library. A
    /// program that is still being loaded does not have it either.
    without: HashMap<(u32, String), u32>,
}

impl Lost {
    /// Checks the descendants of a process, from time to time.
    pub(super) fn poll(&mut self, root: u32) {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return;
        }
        self.last = Some(Instant::now());
        for (id, name) in descendants(root) {
            let has_library = fs::read_to_string(format!("/proc/{id}/maps"))
                .map(|maps| maps.contains(super::LIBRARY) || maps.is_empty());
            match has_library {
                Ok(true) => {
                    self.without.remove(&(id, name));
                }
                Ok(false) => *self.without.entry((id, name)).or_default() += 1,
                Err(_) => {}
            }
        }
    }

    /// The programs of processes without the library, with their numbers: `sleep (2), busybox`.
    pub(super) fn names(&self) -> Option<String> {
        let mut counts: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for ((id, name), _) in self.without.iter().filter(|(_, times)| **times > 1) {
            counts.entry(name).or_default().insert(*id);
        }
        let shown = counts.iter().map(|(name, ids)| match ids.len() {
            1 => (*name).to_owned(),
            count => format!("{name} ({count})"),
        });
        let names: Vec<String> = shown.collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// A process and all that descend from it, with the names of their programs.
fn descendants(root: u32) -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut all: Vec<(u32, u32, String)> = ids.filter_map(process).collect();
    all.sort_unstable();
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        let children = all.iter().filter(|(_, parent, _)| found.contains(parent));
        let ids: Vec<u32> = children.map(|(id, ..)| *id).collect();
        found.extend(ids);
        if found.len() == before {
            break;
        }
    }
    all.into_iter().filter(|(id, ..)| found.contains(id)).map(|(id, _, name)| (id, name)).collect()
}

/// The ID, the parent and the name of a process that has not ended (proc_pid_stat(5)).
fn process(id: u32) -> Option<(u32, u32, String)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then(|| (id, parent, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_without_the_library_is_named() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut lost = Lost::default();
        let limit = Instant::now() + Duration::from_secs(20);
        while lost.names().is_none() && Instant::now() < limit {
            lost.poll(child.id());
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lost.names().as_deref(), Some("sleep"));
        let seen = Lost { last: None, without: HashMap::from([((7, "true".into()), 1)]) };
        assert_eq!(seen.names(), None, "a program that is being loaded is not lost");
    }
}
