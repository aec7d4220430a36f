//! Checks which users may run the process at the other end.
//!
//! The kernel reports two users: the user of the process that connected the socket (for a
//! listener, of the process that began to listen), and the user of a packet's sender. This
//! process checks both, and the first user before it sends any packet. In a user namespace, all
//! users without a number there appear with the same number, perhaps even this process's own
//! user. So they cannot be distinguished.

use std::fs;

use rustix::fd::AsFd;

use super::error::Error;
use super::socket;

/// Which users may run the process at the other end of a socket. The socket may belong to a
/// channel, a vhost-user port or telemetry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Users {
    /// The calling process's effective user ([`geteuid(2)`]) and root.
    ///
    /// [`geteuid(2)`]: https://docs.rs/rustix/latest/rustix/process/fn.geteuid.html
    #[default]
    Own,
    /// The users of [`Self::Own`], and the users with these numbers.
    OwnAnd(Vec<u32>),
    /// All users, even users without a number in this user namespace.
    Any,
}

/// The number that the kernel reports for a user without a number in a namespace:
/// DEFAULT_OVERFLOWUID of linux/highuid.h.
const OVERFLOW: u32 = 65_534;

impl Users {
    /// Checks the user at the other end of a connected socket, before any packet is sent.
    ///
    /// # Errors
    /// [`Error::OtherUser`] if the user is not allowed; [`Error::System`].
    pub fn check_other_end(&self, attempt: &'static str, socket: impl AsFd) -> Result<(), Error> {
        let (process, user, _) = socket::other_end(socket)?;
        // A process of 0 means that the process is not visible in this PID namespace.
        self.check(attempt, Some(process).filter(|process| *process > 0), user)
    }

    /// # Errors
    /// [`Error::OtherUser`] if this user is not allowed.
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

    /// Whether other users must be able to reach a listener's path.
    pub fn are_others(&self) -> bool {
        match self {
            Self::Own => false,
            Self::OwnAnd(more) => !more.is_empty(),
            Self::Any => true,
        }
    }
}

/// The text of a refusal. It names the process at the other end, the allowed users and the
/// remedy. `setting` is the name of the setting that allows other users.
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
             be distinguished: run both ends in one user namespace, or map the user there, or allow \
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
        None => "no user is".into(),
    }
}

/// Whether the kernel may report this number for users without a number in this namespace.
fn is_one_of_many(user: u32) -> bool {
    let number = fs::read_to_string("/proc/sys/kernel/overflowuid");
    let overflow = number.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW);
    user == overflow
        && !fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| has_all_users(&map))
}

/// Whether a namespace's map (user_namespaces(7)) has a number for each user. A line of the map
/// contains the first number in this namespace, the first number in the parent namespace, and the
/// count of numbers.
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
    fn only_own_user_and_root_are_allowed_by_default() {
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
    fn number_that_many_users_share_does_not_count_as_own() {
        let error = message(check(&Users::Own, OWN, true));
        assert!(error.contains("user namespace") && error.contains("--allow-user any"), "{error}");
        assert!(check(&Users::OwnAnd(vec![OWN]), OWN, true).is_ok(), "the settings allow it");
        assert!(has_all_users("         0          0 4294967295\n"));
        assert!(!has_all_users("0 100000 65536\n") && !has_all_users(""));
        assert!(!is_one_of_many(OWN));
    }
}
