//! Every way a program, a configuration or a run can be refused: the attempt, the value, the limit
//! and the remedy.

/// Why the simulator refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting that no machine could have.
    #[error("{setting} = {value}: {limit}; change it in the configuration")]
    Setting {
        /// Where it stands, as `core.window_entries`.
        setting: &'static str,
        /// What it was.
        value: String,
        /// What it must be.
        limit: String,
    },
}

impl Error {
    /// A setting outside its limit.
    pub fn setting(
        setting: &'static str,
        value: impl std::fmt::Display,
        limit: impl Into<String>,
    ) -> Self {
        Self::Setting { setting, value: value.to_string(), limit: limit.into() }
    }
}
