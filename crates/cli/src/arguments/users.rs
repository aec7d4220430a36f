//! Users on the command line. Every command that connects to other processes accepts the same
//! names.

use haul::channel::Users;
use haul_machine::sys;

/// A user that `--allow-user` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Every user.
    Any,
    /// This user.
    One(u32),
}

impl Allowed {
    /// Parses a name, a number, or `any`.
    ///
    /// # Errors
    ///
    /// No user has this name.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "any" {
            return Ok(Self::Any);
        }
        let known = text.parse().ok().or_else(|| sys::user_of(text));
        let remedy = "name one that `getent passwd` lists, its number, or any";
        known.map(Self::One).ok_or_else(|| format!("no user has this name; {remedy}"))
    }

    /// The users that all these options together allow.
    pub(crate) fn users(all: &[Self]) -> Users {
        let numbers: Option<Vec<u32>> = all
            .iter()
            .map(|one| match one {
                Self::Any => None,
                Self::One(number) => Some(*number),
            })
            .collect();
        match numbers {
            None => Users::Any,
            Some(numbers) if numbers.is_empty() => Users::Own,
            Some(numbers) => Users::OwnAnd(numbers),
        }
    }
}
