//! The handling of a subject that fails in the middle of a run.

use crate::context::Context;
use crate::error::Error;

/// Returns the result of a subject. If the subject failed and the run can continue without it,
/// this returns `None`, warns the context, and keeps the reason in `failure`.
///
/// # Errors
/// The subject failed and is needed for every comparison.
pub(crate) fn or_leave_out<T>(
    done: Result<T, Error>,
    name: &str,
    is_needed: bool,
    failure: &mut Option<Error>,
    context: &mut Context<'_>,
) -> Result<Option<T>, Error> {
    let error = match done {
        Ok(value) => return Ok(Some(value)),
        Err(error) if is_needed => return Err(error),
        Err(error) => error,
    };
    (context.warn)(&format!("{name} is left out: {error}"));
    *failure = Some(error);
    Ok(None)
}
