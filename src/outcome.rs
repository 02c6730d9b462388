//! How a job's own code may end: with a value, an error, or a wish.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// What [`Job::perform`](crate::Job::perform) returns.
pub type JobResult<T = ()> = Result<T, JobError>;

/// Why an attempt ended without a result; made of any error, or of a text, by
/// `?` and `into`. The job's [`Policy`](crate::Policy) says what comes of it,
/// unless the job decides:
///
/// ```
/// use std::time::Duration;
/// use windlass::{JobError, JobResult};
///
/// fn charge(status: u16) -> JobResult {
///     match status {
///         200 => Ok(()),
///         // A further attempt, if one is left, but not before.
///         429 => Err(JobError::from("too many requests").retry_after(Duration::from_secs(60))),
///         // No attempt would help.
///         402 => Err(JobError::from("the card was refused").fail()),
///         // It does not matter any more.
///         404 => Err(JobError::from("the order is gone").discard()),
///         // Not an attempt at all: it was too early.
///         425 => Err(JobError::snooze(Duration::from_secs(600))),
///         _ => Err("the server is in trouble".into()),
///     }
/// }
/// # let _ = charge(200);
/// ```
#[derive(Debug)]
pub struct JobError {
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) place: Option<String>,
    pub(crate) decision: Decision,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What a job has returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// As JSON; nothing for `()` and whatever else is `null`.
    pub(crate) text: Option<String>,
    /// Why there is no text although it returned something.
    pub(crate) problem: Option<String>,
}

impl Output {
    /// Leaves out the text, which a database may refuse for reasons of its
    /// own: a job must be able to finish all the same.
    pub(crate) fn drop_text(&mut self) {
        if self.text.take().is_some() {
            self.problem = Some("unrecordable: the database refused the result".to_owned());
        }
    }
}

/// What the job's code wants to come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    ByPolicy,
    RetryAfter(Duration),
    Fail,
    Discard,
    Snooze(Duration),
    Interrupted(Interrupted),
}

impl JobError {
    pub(crate) fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        JobError {
            kind: kind.into(),
            message: message.into(),
            place: None,
            decision: Decision::ByPolicy,
            source: None,
        }
    }

    /// Ends this run without counting it as an attempt, and runs the job
    /// again after `delay`; at once with a delay of zero, for a job that
    /// [is asked to stop](crate::Context::is_stopping). An at-most-once job
    /// fails instead.
    pub fn snooze(delay: Duration) -> Self {
        let mut error = JobError::new("snoozed", "it is to run later");
        error.decision = Decision::Snooze(delay);
        error
    }

    /// The next attempt, if one is left, comes after `delay`, whatever the
    /// back-off says. An at-most-once job fails instead.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.decision = Decision::RetryAfter(delay);
        self
    }

    /// The job has failed for good, however many attempts are left.
    #[must_use]
    pub fn fail(mut self) -> Self {
        self.decision = Decision::Fail;
        self
    }

    /// The job has ended and is not tried again, and it has not failed either:
    /// it is kept like a finished one, with this as the reason.
    #[must_use]
    pub fn discard(mut self) -> Self {
        self.decision = Decision::Discard;
        self
    }

    /// The type of the error it was made of, or `panic`, `timeout`,
    /// `undecodable_arguments` and the like.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The error's message, with those of its causes.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error it was made of, if that was an `E`.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.source.as_ref()?.downcast_ref()
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for JobError {
    fn from(error: E) -> Self {
        let error: Box<dyn StdError + Send + Sync> = error.into();
        let mut message = error.to_string();
        let mut interrupted = error.downcast_ref::<Interrupted>().copied();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            // In an error of the job's own it is understood as well.
            interrupted = interrupted.or(error.downcast_ref().copied());
            cause = error.source();
        }
        let kind = interrupted.map_or(std::any::type_name::<E>(), Interrupted::kind);
        JobError {
            decision: interrupted.map_or(Decision::ByPolicy, Decision::Interrupted),
            source: Some(error),
            ..JobError::new(kind, message)
        }
    }
}

/// Why a running job should end, as [`Context::check`](crate::Context::check)
/// tells it.
///
/// Returned with `?`, also within an error of the job's own, it is
/// understood: a cancelled job is cancelled, not failed, and one that timed
/// out ends as its policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Interrupted {
    /// The process lost its claim on the job: it was taken for dead, or could
    /// not reach the database for too long.
    #[error("the claim on this job is lost: another process may be performing it")]
    Lost,
    /// Somebody asked for the job to be cancelled.
    #[error("the job was cancelled while it ran")]
    Cancelled,
    /// The job has run for longer than its
    /// [`timeout`](crate::Policy::timeout).
    #[error("the job ran for longer than its timeout")]
    TimedOut,
}

impl Interrupted {
    fn kind(self) -> &'static str {
        match self {
            Interrupted::Lost => "lost",
            Interrupted::Cancelled => "cancelled",
            Interrupted::TimedOut => "timeout",
        }
    }
}
