//! How a run ended and what is to become of its job.

use crate::db::conn::sql::micros;
use crate::db::model::claim::Finished;
use chrono::NaiveDateTime;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::time::Duration;

/// Why a job failed, cleaned: no NUL, no endless text, so that no database
/// refuses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The type of the error, or a reason of ours such as `crashed`.
    pub(crate) kind: String,
    pub(crate) message: String,
    /// `file:line:column` of a panic.
    pub(crate) place: Option<String>,
}

/// Enough for a message with a backtrace, too little to fill a disk.
pub(crate) const MAX_BYTES: usize = 16 * 1024;

impl Failure {
    pub(crate) fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Failure {
            kind: clean(kind.into()),
            message: clean(message.into()),
            place: None,
        }
    }

    /// Of a job that may run at most once and was cut off.
    pub(crate) fn outcome_unknown(how: &str) -> Self {
        Self::new(
            "outcome_unknown",
            format!(
                "its process {how} while it ran; an at-most-once job is not run again by itself"
            ),
        )
    }

    /// Of a job that ran when its process died.
    pub(crate) fn crashed(how: &str, crashes: i32) -> Self {
        Self::new(
            "crashed",
            format!("its process {how} while it ran, {crashes} times in all"),
        )
    }

    pub(crate) fn at(mut self, place: Option<String>) -> Self {
        self.place = place.map(clean);
        self
    }

    /// The kind and the message.
    pub(crate) fn in_words(&self) -> String {
        format!("{}: {}", self.kind, self.message)
    }

    /// As Solid Queue and its dashboard read it.
    pub(crate) fn to_json(&self) -> String {
        let backtrace: Vec<&String> = self.place.iter().collect();
        json!({
            "exception_class": self.kind,
            "message": self.message,
            "backtrace": backtrace,
        })
        .to_string()
    }
}

/// The kind and the message of what [`Failure::to_json`] or Solid Queue wrote.
pub(crate) fn in_words(json: &str) -> String {
    let (kind, message) = parts(json);
    if kind.is_empty() {
        message
    } else {
        format!("{kind}: {message}")
    }
}

/// The kind and the message of a failed execution; what is no JSON is all
/// message.
pub(crate) fn parts(json: &str) -> (String, String) {
    match serde_json::from_str::<Value>(json) {
        Ok(Value::Object(error)) => {
            let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
            (
                text("exception_class").to_owned(),
                text("message").to_owned(),
            )
        }
        _ => (String::new(), json.to_owned()),
    }
}

/// NUL, which Postgres refuses, becomes U+FFFD; what is too long is cut.
fn clean(text: String) -> String {
    let mut text = if text.contains('\0') {
        text.replace('\0', "\u{FFFD}")
    } else {
        text
    };
    if text.len() > MAX_BYTES {
        let end = (0..=MAX_BYTES)
            .rev()
            .find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str(" ... (cut)");
    }
    text
}

/// The job to be enqueued when another has failed for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hook {
    pub(crate) class: String,
    pub(crate) queue: String,
    pub(crate) priority: i32,
}

/// Of the policy that is stored with a job, what its end needs.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredPolicy {
    #[serde(default, deserialize_with = "readable")]
    pub(crate) on_failure: Option<Hook>,
    /// In milliseconds.
    #[serde(default, deserialize_with = "readable")]
    pub(crate) keep_result: Option<u64>,
}

/// Reads one part of a policy. A part of an unknown form counts as missing, so
/// that the other parts stay in force.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    part: D,
) -> Result<Option<T>, D::Error> {
    Value::deserialize(part).map(|part| serde_json::from_value(part).ok())
}

/// For how long a result is kept of which nothing else is said.
pub(crate) const KEEP: Duration = Duration::from_secs(300);

/// How a job has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultOutcome {
    Succeeded,
    Failed,
    Cancelled,
    Discarded,
}

/// What is kept of a job that has ended: an array in the order of the columns.
#[derive(Debug, Serialize)]
pub(crate) struct NewResult<'a>(
    pub(crate) i64,
    /// The unique id.
    pub(crate) Option<&'a str>,
    /// The class.
    pub(crate) &'a str,
    pub(crate) ResultOutcome,
    /// What it returned, as JSON.
    pub(crate) Option<&'a str>,
    /// Why it failed, or why its result is not there.
    pub(crate) Option<&'a str>,
    /// The attempt that ended it.
    pub(crate) i32,
    /// For how many microseconds it is kept.
    pub(crate) i64,
);

impl<'a> NewResult<'a> {
    /// What is kept of a job that has finished. Without a word about it
    /// (`keep`), that is nothing for jobs which return nothing and have no
    /// unique id: their row tells as much.
    pub(crate) fn of_finished(
        (job_id, attempt): (i64, u32),
        class_name: &'a str,
        unique_id: Option<&'a str>,
        (text, problem): (Option<&'a str>, Option<&'a str>),
        keep: Option<Duration>,
    ) -> Option<Self> {
        let is_worth_it =
            keep.is_some() || unique_id.is_some() || text.is_some() || problem.is_some();
        (is_worth_it && keep != Some(Duration::ZERO)).then(|| {
            NewResult(
                job_id,
                unique_id,
                class_name,
                ResultOutcome::Succeeded,
                text,
                problem,
                i32::try_from(attempt).unwrap_or(i32::MAX),
                micros(keep.unwrap_or(KEEP)),
            )
        })
    }

    /// What is kept of a job that has ended otherwise, unless its policy says
    /// nothing is: `keep_result`, in milliseconds.
    pub(crate) fn of_failed(
        (job_id, attempt): (i64, i32),
        class_name: &'a str,
        unique_id: Option<&'a str>,
        (outcome, error): (ResultOutcome, &'a str),
        keep_result: Option<u64>,
    ) -> Option<Self> {
        let keep = micros(keep_result.map_or(KEEP, Duration::from_millis));
        (keep > 0).then_some(NewResult(
            job_id,
            unique_id,
            class_name,
            outcome,
            None,
            Some(error),
            attempt,
            keep,
        ))
    }
}

/// What is to become of a job whose run did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// It has failed for good.
    Fail(Failure),
    /// It is tried again after the delay.
    Retry(Failure, Duration),
    /// It ends, and nobody minds.
    Discard(Failure),
    /// It ends because somebody asked for that.
    Cancel(Failure),
    /// It runs again after the delay, and this run was no attempt.
    Snooze(Duration),
    /// It was cut off by its process, for this reason: it runs again at once,
    /// and this run was neither an attempt nor a crash.
    Release(String),
}

impl Ending {
    /// Leaves out the text of the failure, which a database may refuse for
    /// reasons of its own: a job must be able to fail all the same.
    pub(crate) fn drop_text(&mut self) {
        match self {
            Ending::Fail(failure)
            | Ending::Retry(failure, _)
            | Ending::Discard(failure)
            | Ending::Cancel(failure) => {
                *failure =
                    Failure::new("unrecordable", "the database refused the text of the error");
            }
            Ending::Snooze(_) | Ending::Release(_) => {}
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// With an error, and the job was to be tried again.
    Retried,
    /// With the failure of the job.
    Failed,
    /// By the job's own word, which made it end without having failed.
    Discarded,
    /// By request.
    Cancelled,
    /// With the death of its process, and the job was to run again.
    Crashed,
}

impl AttemptOutcome {
    pub(crate) fn column(self) -> &'static str {
        match self {
            AttemptOutcome::Retried => "retried",
            AttemptOutcome::Failed => "failed",
            AttemptOutcome::Discarded => "discarded",
            AttemptOutcome::Cancelled => "cancelled",
            AttemptOutcome::Crashed => "crashed",
        }
    }

    pub(crate) fn of_column(text: &str) -> Self {
        match text {
            "retried" => AttemptOutcome::Retried,
            "discarded" => AttemptOutcome::Discarded,
            "cancelled" => AttemptOutcome::Cancelled,
            "crashed" => AttemptOutcome::Crashed,
            _ => AttemptOutcome::Failed,
        }
    }
}

/// When a run began.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Began {
    /// So long ago, by the runner's monotonic clock.
    Ago(Duration),
    /// At this time, by the database's clock. `None`: it never began.
    At(Option<NaiveDateTime>),
}

/// A claim that has just ended, in the transaction that ended it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedRun {
    pub(crate) process_id: i64,
    pub(crate) claim_id: i64,
    pub(crate) job_id: i64,
    pub(crate) began: Began,
    /// Whether its owner ended it, who may ask later whether that got through.
    pub(crate) by_owner: bool,
    /// What becomes of the row of a job that ends without having failed.
    pub(crate) finished: Finished,
}

impl EndedRun {
    /// Whether a thread had it.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.began, Began::At(None))
    }
}

/// A claim, how it is to end, and for how long its job ran.
pub(crate) type End<'a> = (i64, &'a Ending, Duration);

/// Claims that have ended, and how.
pub(crate) type Endings = Vec<(i64, Ending)>;

/// The failure of a job that was cancelled while it ran.
pub(crate) fn cancelled() -> Failure {
    Failure::new("cancelled", "the job was cancelled while it ran")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_are_made_storable() {
        let failure = Failure::new("a\0b", "ä".repeat(MAX_BYTES));
        assert_eq!(failure.kind, "a\u{FFFD}b");
        assert!(failure.message.len() < MAX_BYTES + 20);
        assert!(failure.message.ends_with("(cut)"));
        assert!(!failure.to_json().contains("\\u0000"));
    }
}
