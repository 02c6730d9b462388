//! Why a page cannot be shown, or a change not be made.

use crate::db::Refusal;
use crate::db::conn::reading::ReadFailure;
use crate::error::{Error, SchemaError};
use std::time::Duration;

/// Becomes a page with a status and an explanation. Its texts reach the viewer.
#[derive(Debug)]
pub(crate) enum PageError {
    /// 404: what the address names does not exist (any more).
    NotFound(String),
    /// 400: the request cannot mean anything; says what is accepted.
    Invalid(String),
    /// 409: it cannot be done any more, or not now; says why and what to do.
    Conflict(String),
    /// 422: the idempotency key belongs to another request.
    KeyReused(String),
    /// 403: the viewer's role does not allow it.
    Forbidden,
    /// 403: for another reason, which is told.
    Refused(String),
    /// 401: the viewer must sign in.
    SignIn,
    /// 401: there is no such token, or it may not be used any more.
    WrongToken,
    /// 429: a quota is used up; says when to try again, if that is known.
    OverQuota(String, Option<Duration>),
    /// 429: too many attempts.
    TooMany(Duration),
    /// 503: the database does not answer.
    Away,
    /// 503: it takes too long.
    Late,
    /// 503: another transaction holds what it takes.
    Busy,
    /// 503: the tables are missing or too old.
    Tables(&'static str),
    /// 500: the text is logged and not shown.
    Internal(String),
}

impl PageError {
    /// Returns the error of a page that panicked.
    pub(crate) fn panicked(path: &str) -> Self {
        PageError::Internal(format!("the page {path} panicked"))
    }
}

impl From<Error> for PageError {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSuchJob { .. } | Error::NoSuchBatch { .. } => {
                PageError::NotFound(error.to_string())
            }
            Error::BatchOfRuby { .. } => PageError::Invalid(error.to_string()),
            Error::InvalidJob { .. }
            | Error::InternalClass { .. }
            | Error::UnknownClass { .. }
            | Error::InvalidName { .. }
            | Error::Schedule { .. }
            | Error::Settings(_) => PageError::Invalid(error.to_string()),
            Error::UniqueIdTaken { .. } | Error::Edit { .. } | Error::RecurringTask { .. } => {
                PageError::Conflict(error.to_string())
            }
            Error::Connect { .. } | Error::GaveUp { .. } => PageError::Away,
            Error::QuotaExceeded { retry_after, .. } => {
                PageError::OverQuota(error.to_string(), retry_after)
            }
            Error::NamesLocked { .. } => PageError::Busy,
            Error::Query { ref source, .. } => match Refusal::of(source) {
                Refusal::Busy => PageError::Busy,
                Refusal::Trouble => PageError::Away,
                Refusal::Content => PageError::Internal(error.to_string()),
            },
            Error::Schema(SchemaError::Missing { .. }) => {
                PageError::Tables("The database has no Windlass tables yet.")
            }
            Error::Schema(SchemaError::Old { .. }) => PageError::Tables(
                "The tables are of an earlier version of Windlass than this program.",
            ),
            Error::Schema(SchemaError::Incomplete { .. }) => {
                PageError::Tables("A part of the tables was dropped.")
            }
            other => PageError::Internal(other.to_string()),
        }
    }
}

impl From<ReadFailure> for PageError {
    fn from(failure: ReadFailure) -> Self {
        match failure {
            ReadFailure::Late | ReadFailure::Cut => PageError::Late,
            ReadFailure::Lost(_) => PageError::Away,
            ReadFailure::Failed(error) => error.into(),
        }
    }
}

impl From<askama::Error> for PageError {
    fn from(error: askama::Error) -> Self {
        PageError::Internal(format!("cannot render the page: {error}"))
    }
}
