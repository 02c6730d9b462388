//! The ways in which a job's own code can end: with a value, an error, or a request.

use crate::db::Refusal;
use crate::db::model::outcome::ParkedStep;
use crate::error::Error;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// The return type of [`Job::perform`](crate::Job::perform).
///
/// ```
/// use windlass::JobResult;
///
/// fn parse(text: &str) -> JobResult<u32> {
///     Ok(text.trim().parse()?) // any error is a failed attempt
/// }
/// assert!(parse("seven").is_err());
/// ```
pub type JobResult<T = ()> = Result<T, JobError>;

/// The reason why an attempt ended without a result. `?` and `into` create it from any error or
/// text. The job's [`Policy`](crate::Policy) decides what happens next, unless the job overrides
/// it:
///
/// ```
/// use std::time::Duration;
/// use windlass::{JobError, JobResult};
///
/// fn charge(status: u16) -> JobResult {
///     match status {
///         200 => Ok(()),
///         // Try again later, if an attempt is left.
///         429 => Err(JobError::from("too many requests").retry_after(Duration::from_secs(60))),
///         // Further attempts would not help.
///         402 => Err(JobError::from("the card was refused").fail()),
///         // The result is no longer needed.
///         404 => Err(JobError::from("the order is gone").discard()),
///         // Too early: this does not count as an attempt.
///         425 => Err(JobError::snooze(Duration::from_secs(600))),
///         _ => Err("the server is in trouble".into()),
///     }
/// }
/// # let _ = charge(200);
/// ```
///
/// # When the database does not answer
/// An [`Error`](crate::Error) of Windlass because the connection was lost, or the database busy, is
/// not the job's fault. A job that returns it, directly or within an error of its own, is released:
/// this counts neither as an attempt nor as a crash, and
/// [`jobs::find`](crate::jobs::find()) lists it as [interrupted](crate::jobs::AttemptOutcome::Interrupted). The
/// delay grows from 0 to 4 min. After 10 times within an hour the policy decides, as it does for an
/// at-most-once job at once. In a [step](crate::Context::step), and in the transaction of
/// [`finish_in`](crate::Context::finish_in), the same holds for the job's own statements.
///
/// # As an error
/// It does not implement [`std::error::Error`], because it is created from any error that does. To
/// pass it on as an error, use its text: `error.to_string()`.
#[derive(Debug)]
pub struct JobError {
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) location: Option<String>,
    pub(crate) decision: RequestedEnding,
    /// Returns the type name of the error that it was created from.
    origin: Option<fn() -> &'static str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of a panic.
pub(crate) const PANIC: &str = "panic";

/// The value that a job returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobOutput {
    /// As JSON; `None` for `()` and everything else that is `null`.
    pub(crate) text: Option<String>,
    /// The reason why there is no text although a value was returned.
    pub(crate) problem: Option<String>,
}

impl JobOutput {
    /// Drops the text, which a database may reject for its own reasons: the job must be able to
    /// finish anyway.
    pub(crate) fn drop_text(&mut self) {
        if self.text.take().is_some() {
            self.problem = Some("unrecordable: the database refused the result".to_owned());
        }
    }
}

/// The ending that the job's code requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedEnding {
    ByPolicy,
    RetryAfter(Duration),
    Fail,
    Discard,
    Snooze(Duration),
    /// The other side has said no: the key of its first rate is closed for so long.
    RateLimited(Duration),
    /// The job waits at a step.
    Park(Box<ParkedStep>),
    Interrupted(Interrupted),
    /// A statement of Windlass failed because the connection was lost or the database was busy.
    Unanswered,
}

impl RequestedEnding {
    /// Returns whether the job asks to run again.
    pub(crate) fn asks_for_more(&self) -> bool {
        use RequestedEnding::{RateLimited, RetryAfter, Snooze};
        matches!(self, Snooze(_) | RateLimited(_) | RetryAfter(_))
    }
}

/// Returns whether the connection was lost, or the database busy or in trouble.
fn is_unanswered(error: &diesel::result::Error) -> bool {
    Refusal::of(error) != Refusal::Content
}

/// Returns the same of a statement of Windlass.
fn is_own_unanswered(error: &Error) -> bool {
    match error {
        Error::Query { source, .. } => is_unanswered(source),
        Error::Connect { .. } => true,
        _ => false,
    }
}

impl JobError {
    pub(crate) fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        JobError {
            kind: kind.into(),
            message: message.into(),
            location: None,
            decision: RequestedEnding::ByPolicy,
            origin: None,
            source: None,
        }
    }

    /// Treats an interruption as one only if it was raised for the job.
    ///
    /// It also recognizes one if the job's own error kept only its text: many error types hide
    /// their causes.
    pub(crate) fn heed(mut self, is_raised: impl Fn(Interrupted) -> bool) -> Self {
        let Some(origin) = self.origin else {
            return self;
        };
        match self.decision {
            RequestedEnding::Interrupted(interrupted) if !is_raised(interrupted) => {
                self.decision = RequestedEnding::ByPolicy;
                origin().clone_into(&mut self.kind);
                self.message = format!(
                    "the job returned an interruption that was not raised for it: {}",
                    self.message
                );
            }
            RequestedEnding::ByPolicy | RequestedEnding::Unanswered => {
                let mut all = Interrupted::ALL.into_iter();
                let is_told = |one: &Interrupted| self.message.contains(&one.to_string());
                if let Some(interrupted) = all.find(|one| is_raised(*one) && is_told(one)) {
                    self.decision = RequestedEnding::Interrupted(interrupted);
                    interrupted.kind().clone_into(&mut self.kind);
                }
            }
            _ => {}
        }
        self
    }

    /// Treats a statement of the job that got no answer like one of Windlass. It is in a transaction
    /// that Windlass started or should have, or that ends the job, so nothing of it is kept, or all.
    pub(crate) fn in_own_transaction(mut self) -> Self {
        let mut error = self.source.as_deref().map(|error| error as &dyn StdError);
        while let Some(cause) = error.filter(|_| self.decision == RequestedEnding::ByPolicy) {
            if cause.downcast_ref().is_some_and(is_unanswered) {
                self.decision = RequestedEnding::Unanswered;
            }
            error = cause.source();
        }
        self
    }

    /// Ends this run without counting it as an attempt, and runs the job again after `delay`.
    ///
    /// An at-most-once job fails instead. If [the process stops](crate::Context::is_stopping),
    /// return [`Interrupted::Stopping`] rather than this.
    pub fn snooze(delay: Duration) -> Self {
        let mut error = JobError::new("snoozed", "it is to run later");
        error.decision = RequestedEnding::Snooze(delay);
        error
    }

    /// Ends this run because the other side has said no, as by the status 429 of HTTP: the job runs again after `after`, and
    /// this run does not count as an attempt. Until then no further job becomes ready that has the key of its first [rate](crate::limits::Rate).
    /// The start counts.
    ///
    /// Without a rate it is [`snooze`](Self::snooze). An at-most-once job fails instead.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{JobError, JobResult};
    ///
    /// fn push(status: u16, retry_after: u64) -> JobResult {
    ///     match status {
    ///         429 => Err(JobError::rate_limited(Duration::from_secs(retry_after))),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// # assert!(push(429, 7).is_err());
    /// ```
    pub fn rate_limited(after: Duration) -> Self {
        let mut error = JobError::new("rate_limited", "the other side allows no more for now");
        error.decision = RequestedEnding::RateLimited(after);
        error
    }

    /// Ends this run because the job waits at a step.
    pub(crate) fn park(parked: ParkedStep) -> Self {
        let message = format!("the job waits at its step `{}`", parked.step);
        let mut error = JobError::new("waits", message);
        error.decision = RequestedEnding::Park(Box::new(parked));
        error
    }

    /// Sets the delay before the next attempt, if one is left, regardless of the back-off. An
    /// at-most-once job fails instead.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.decision = RequestedEnding::RetryAfter(delay);
        self
    }

    /// Fails the job permanently, even if attempts are left.
    #[must_use]
    pub fn fail(mut self) -> Self {
        self.decision = RequestedEnding::Fail;
        self
    }

    /// Discards the job: it is not tried again, and has not failed either. It is kept like a
    /// finished job, with this error as the reason.
    #[must_use]
    pub fn discard(mut self) -> Self {
        self.decision = RequestedEnding::Discard;
        self
    }

    /// Returns the type name of the error that this was created from.
    ///
    /// It is `error` for a text or a boxed error. Errors of the framework have names such as
    /// `panic`, `timeout` or `undecodable_arguments`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns whether it is a panic, which has no other kind.
    pub(crate) fn is_panic(&self) -> bool {
        self.origin.is_none() && self.kind == PANIC
    }

    /// Returns the error's message, including the messages of its causes.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the error that this was created from, if it was an `E`.
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
        let mut is_unanswered = error.downcast_ref().is_some_and(is_own_unanswered);
        let mut cause = error.source();
        while let Some(error) = cause {
            // Many errors include the text of their cause.
            let text = error.to_string();
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            // An interruption is also recognized inside an error of the job's own.
            interrupted = interrupted.or(error.downcast_ref().copied());
            is_unanswered |= error.downcast_ref().is_some_and(is_own_unanswered);
            cause = error.source();
        }
        let kind = interrupted.map_or_else(kind_of::<E>, Interrupted::kind);
        JobError {
            origin: Some(kind_of::<E>),
            decision: match interrupted {
                Some(interrupted) => RequestedEnding::Interrupted(interrupted),
                None if is_unanswered => RequestedEnding::Unanswered,
                None => RequestedEnding::ByPolicy,
            },
            source: Some(error),
            ..JobError::new(kind, message)
        }
    }
}

/// Returns the name of an error's type if it is meaningful: a text or a box has none of its own.
fn kind_of<E>() -> &'static str {
    use std::any::type_name;
    let name = type_name::<E>();
    let texts = [type_name::<String>(), type_name::<&str>()];
    let wraps = ["alloc::boxed::Box<dyn ", "alloc::borrow::Cow<"];
    if texts.contains(&name) || wraps.iter().any(|wrap| name.starts_with(wrap)) {
        "error"
    } else if name == type_name::<Interrupted>() {
        // Under its public name, wherever its file is.
        "windlass::Interrupted"
    } else {
        name
    }
}

/// The reason why a running job should stop, as returned by
/// [`Context::check`](crate::Context::check).
///
/// Return it with `?`, directly or within an error of the job's own. The run then ends as each
/// variant describes. An interruption that was not raised for the job is an ordinary error.
///
/// ```
/// use windlass::{Context, Interrupted, JobResult};
///
/// fn import(cx: &Context<'_, ()>) -> JobResult {
///     for _ in 0..1_000 {
///         if let Err(interrupted) = cx.check() {
///             if interrupted == Interrupted::Cancelled {
///                 println!("an operator has cancelled the job");
///             }
///             return Err(interrupted.into());
///         }
///         // imports one row
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Interrupted {
    /// The process can no longer rely on its claim: no heartbeat was accepted for too long, or the
    /// claim is gone.
    ///
    /// The job is released, unless it was recovered before. This counts neither as an attempt nor
    /// as a crash. An at-most-once job fails as `outcome_unknown`.
    #[error("the process can no longer rely on its claim on the job")]
    Lost,
    /// The process is stopping, and the job was still running after the shutdown timeout.
    ///
    /// The job is released, which counts neither as an attempt nor as a crash. An at-most-once job
    /// fails as `outcome_unknown`. A job may return this earlier, as soon as
    /// [`is_stopping`](crate::Context::is_stopping) returns `true`.
    #[error("the job was interrupted by the stop of its process")]
    Stopping,
    /// The job was [cancelled](crate::jobs::cancel), and its outcome is "cancelled".
    #[error("the job was cancelled while it ran")]
    Cancelled,
    /// The job has run for longer than its [`timeout`](crate::Policy::timeout). The attempt counts,
    /// and [`on_timeout`](crate::Policy::on_timeout) decides what happens next.
    #[error("the job ran for longer than its timeout")]
    TimedOut,
}

impl Interrupted {
    const ALL: [Interrupted; 4] = [
        Interrupted::Lost,
        Interrupted::Stopping,
        Interrupted::Cancelled,
        Interrupted::TimedOut,
    ];

    /// Returns its bit in a set of interruptions.
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }

    fn kind(self) -> &'static str {
        match self {
            Interrupted::Lost => "lost",
            Interrupted::Stopping => "stopping",
            Interrupted::Cancelled => "cancelled",
            Interrupted::TimedOut => "timeout",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no luck")]
    struct Wrapped(#[source] Interrupted);

    const BY_POLICY: RequestedEnding = RequestedEnding::ByPolicy;

    fn heeded(
        error: impl Into<JobError>,
        raised: &[Interrupted],
    ) -> (RequestedEnding, String, String) {
        let error = error.into().heed(|one| raised.contains(&one));
        (error.decision, error.kind, error.message)
    }

    #[test]
    fn only_what_was_raised_is_an_interruption() {
        for one in Interrupted::ALL {
            let text = one.to_string();
            let raised = (
                RequestedEnding::Interrupted(one),
                one.kind().to_owned(),
                text.clone(),
            );
            assert_eq!(heeded(one, &[one]), raised);
            let others: Vec<_> = Interrupted::ALL.into_iter().filter(|i| *i != one).collect();
            let (decision, kind, message) = heeded(one, &others);
            assert_eq!((decision, &*kind), (BY_POLICY, "windlass::Interrupted"));
            assert!(
                message.contains("not raised") && message.ends_with(&text),
                "{message}"
            );
            let (decision, kind, _) = heeded(Wrapped(one), &others);
            assert_eq!(
                (decision, &*kind),
                (BY_POLICY, std::any::type_name::<Wrapped>())
            );
        }
    }

    #[test]
    fn an_error_of_ones_own_may_keep_no_more_than_the_text() {
        for one in Interrupted::ALL {
            for error in [
                JobError::from(Wrapped(one)),
                format!("no luck: {one}").into(),
            ] {
                let (decision, kind, _) = heeded(error, &[one]);
                assert_eq!(
                    (decision, &*kind),
                    (RequestedEnding::Interrupted(one), one.kind())
                );
            }
            let (decision, ..) = heeded(format!("no luck: {one}"), &[]);
            assert_eq!(decision, BY_POLICY);
            let (decision, ..) = heeded("no luck", &Interrupted::ALL);
            assert_eq!(decision, BY_POLICY);
        }
    }

    #[test]
    fn the_job_decides_before_that() {
        let error = JobError::from(Interrupted::Lost).fail();
        assert_eq!(heeded(error, &[Interrupted::Lost]).0, RequestedEnding::Fail);
        let panicked = JobError::new("panic", Interrupted::Lost.to_string());
        assert_eq!(heeded(panicked, &[Interrupted::Lost]).0, BY_POLICY);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot begin: {source}")]
    struct Outer {
        #[source]
        source: fmt::Error,
    }

    #[test]
    fn the_text_of_a_cause_comes_once() {
        let error = JobError::from(Outer { source: fmt::Error });
        let cause = fmt::Error.to_string();
        assert_eq!(error.message(), format!("cannot begin: {cause}"));
        assert!(error.kind().ends_with("Outer"), "{}", error.kind());
    }

    #[test]
    fn texts_and_boxes_are_of_the_kind_error() {
        let boxed: Box<dyn StdError + Send + Sync> = "boxed".into();
        let all: [JobError; 4] = [
            "a text".into(),
            "a text".to_owned().into(),
            std::borrow::Cow::from("a text").into(),
            boxed.into(),
        ];
        for error in all {
            assert_eq!(error.kind(), "error");
        }
    }
}
