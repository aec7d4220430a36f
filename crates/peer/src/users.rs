//! Whose processes may be at the other end.
//!
//! The kernel says who that is, twice: who had the other end of the socket as it was connected (for
//! a listener, who began to listen), and who sent a packet. Both are looked at, the first before a
//! word is said. In a user namespace all users that have no number there are shown as one and the
//! same, and this process may be one of them: of such nobody can be told from another.

use std::fs;

use rustix::fd::AsFd;

use super::error::Error;
use super::socket;

/// Users whose processes may be at the other end of a socket: a channel's, a vhost-user port's or
/// that of telemetry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Users {
    /// One's own, which is that of [`geteuid(2)`], and root.
    ///
    /// [`geteuid(2)`]: https://docs.rs/rustix/latest/rustix/process/fn.geteuid.html
    #[default]
    Own,
    /// These as well, by their numbers.
    OwnAnd(Vec<u32>),
    /// All of them, also those that have no number in this user namespace.
    Any,
}

/// The number of users that have none in a namespace, DEFAULT_OVERFLOWUID of linux/highuid.h.
const OVERFLOW: u32 = 65_534;

impl Users {
    /// Asks the kernel whose process is at the other end of a connected socket, before a word is
    /// said.
    ///
    /// # Errors
    /// [`Error::OtherUser`] where it may not be there; [`Error::System`].
    pub fn check_other_end(&self, attempt: &'static str, socket: impl AsFd) -> Result<(), Error> {
        let (process, user, _) = socket::other_end(socket)?;
        // Process 0 is one in a PID namespace that this one cannot see.
        self.check(attempt, Some(process).filter(|process| *process > 0), user)
    }

    /// # Errors
    /// [`Error::OtherUser`] where a process of this user may not be at the other end.
    pub fn check(
        &self,
        attempt: &'static str,
        process: Option<i32>,
        user: u32,
    ) -> Result<(), Error> {
        let own = rustix::process::geteuid().as_raw();
        self.check_for(own, attempt, process, user, || is_one_of_many(user))
    }

    fn check_for(
        &self,
        own: u32,
        attempt: &'static str,
        process: Option<i32>,
        user: u32,
        is_one_of_many: impl FnOnce() -> bool,
    ) -> Result<(), Error> {
        let more: &[u32] = match self {
            Self::Any => return Ok(()),
            Self::Own => &[],
            Self::OwnAnd(more) => more,
        };
        if more.contains(&user) {
            return Ok(());
        }
        let is_unknown = is_one_of_many();
        if !is_unknown && (user == own || user == 0) {
            return Ok(());
        }
        let mut allowed = vec![0, own];
        allowed.extend(more);
        allowed.sort_unstable();
        allowed.dedup();
        Err(Error::OtherUser { attempt, process, user, is_unknown, allowed })
    }

    /// Whether a listener's path must be open to others.
    pub fn are_others(&self) -> bool {
        match self {
            Self::Own => false,
            Self::OwnAnd(more) => !more.is_empty(),
            Self::Any => true,
        }
    }
}

/// Who is at the other end, who may be, and what helps; `setting` is where others are allowed.
pub fn refusal(
    process: Option<i32>,
    user: u32,
    is_unknown: bool,
    allowed: &[u32],
    setting: &str,
) -> String {
    let process = match process {
        Some(process) => format!("process {process} of user {user}"),
        None => format!("a process of user {user} in a PID namespace that cannot be seen"),
    };
    let remedy = match is_unknown {
        true => format!(
            "{user} stands for every user without a number in this user namespace, so they cannot \
             be told apart: run both ends in one user namespace, or map the user there, or allow \
             all (--allow-user any, Users::Any)"
        ),
        false => format!(
            "name a socket where only you can make one, as in $XDG_RUNTIME_DIR, or allow that user \
             (--allow-user {user}, {setting})"
        ),
    };
    format!("at the other end is {process}, and only {} allowed; {remedy}", listed(allowed))
}

/// `user 0 is`, `users 0, 12 and 1000 are`.
fn listed(users: &[u32]) -> String {
    let words: Vec<String> = users.iter().map(ToString::to_string).collect();
    match words.split_last() {
        Some((last, [])) => format!("user {last} is"),
        Some((last, others)) => format!("users {} and {last} are", others.join(", ")),
        None => "nobody is".into(),
    }
}

/// Whether this number may stand for users that have none here.
fn is_one_of_many(user: u32) -> bool {
    let number = fs::read_to_string("/proc/sys/kernel/overflowuid");
    let overflow = number.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW);
    user == overflow
        && !fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| has_all_users(&map))
}

/// Whether a namespace's map, user_namespaces(7), has a number for each user: first here, first
/// there, and how many.
fn has_all_users(map: &str) -> bool {
    map.split_whitespace().nth(2).is_some_and(|count| count == u32::MAX.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 1000;

    fn check(users: &Users, user: u32, is_unknown: bool) -> Result<(), Error> {
        users.check_for(OWN, "connect", Some(7), user, || is_unknown)
    }

    fn message(refused: Result<(), Error>) -> String {
        match refused.unwrap_err() {
            Error::OtherUser { process, user, is_unknown, allowed, .. } => {
                refusal(process, user, is_unknown, &allowed, "Settings::users")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_ones_own_user_and_root_are_allowed_unless_it_is_said() {
        let (own, more) = (Users::default(), Users::OwnAnd(vec![12, 13]));
        assert!(check(&own, OWN, false).is_ok() && check(&own, 0, false).is_ok());
        let error = message(check(&own, 12, false));
        for part in ["process 7 of user 12", "0 and 1000", "--allow-user 12"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(check(&more, 12, false).is_ok() && check(&more, 0, false).is_ok());
        let error = message(check(&more, 14, false));
        assert!(error.contains("0, 12, 13 and 1000"), "{error}");
        assert!(check(&Users::Any, 14, true).is_ok());
    }

    #[test]
    fn a_number_that_many_share_is_nobodys_own() {
        let error = message(check(&Users::Own, OWN, true));
        assert!(error.contains("user namespace") && error.contains("--allow-user any"), "{error}");
        assert!(check(&Users::OwnAnd(vec![OWN]), OWN, true).is_ok(), "it was said");
        assert!(has_all_users("         0          0 4294967295\n"));
        assert!(!has_all_users("0 100000 65536\n") && !has_all_users(""));
        assert!(!is_one_of_many(OWN));
    }
}
