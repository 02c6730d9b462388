//! The bounds of a job, and the reasons why one beyond them is refused.

/// The most bytes of arguments, unless the type of the job or the enqueue sets another maximum.
pub(crate) const MAX_ARGUMENTS: usize = 64 * 1024;

/// The most bytes of the value of a step, unless the type of the job sets another maximum.
pub(crate) const MAX_STEP: usize = 64 * 1024;

/// The reason why a job that runs at most once is refused.
pub(crate) const ONE_ATTEMPT: &str =
    "it has at-most-once delivery and more than one attempt; choose one";

/// Returns why a job is refused whose arguments, tags and metadata take more bytes than they may.
pub(crate) fn beyond_maximum(size: usize, most: usize) -> Option<String> {
    (size > most).then(|| {
        format!(
            "its arguments, tags and metadata take {size} bytes, more than the {most} allowed; store the data elsewhere and \
             pass a reference, or raise `MAX_ARGUMENTS`"
        )
    })
}
