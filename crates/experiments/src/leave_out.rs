//! What becomes of a subject that fails in the middle of a run.

use crate::context::Context;
use crate::error::Error;

/// What was done; or, where a subject failed that the run can do without, nothing: the context is
/// warned, and `failure` keeps why.
///
/// # Errors
/// It failed and is needed: nothing is left to compare.
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
