//! A subject under a separate policy.

use haul_copy::Policy;
use haul_measure::Subject;

use super::workload::OnWorkload;

/// A subject that installs its policy before each sample, outside of the timed part. A policy
/// applies to the whole process, so that nothing else may be measured at the same time.
#[derive(Debug)]
pub struct UnderPolicy<'a> {
    policy: Policy,
    subject: OnWorkload<'a>,
}

impl<'a> UnderPolicy<'a> {
    /// The subject under this policy.
    #[must_use]
    pub fn new(policy: Policy, subject: OnWorkload<'a>) -> Self {
        Self { policy, subject }
    }
}

impl Subject for UnderPolicy<'_> {
    fn name(&self) -> &str {
        self.subject.name()
    }

    fn run(&self, thread: usize, iterations: u64) {
        self.subject.run(thread, iterations);
    }

    fn prepare(&self, thread: usize, round: u64, iterations: u64) {
        // Every thread of a sample installs the same policy.
        self.policy.install();
        self.subject.prepare(thread, round, iterations);
    }
}

/// When this value is dropped, it reinstalls the policy that was in force when the value was
/// created.
#[derive(Debug)]
pub struct Restore(Policy);

impl Restore {
    /// Stores the policy in force.
    #[must_use]
    pub fn current() -> Self {
        Self(Policy::current())
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        self.0.install();
    }
}
