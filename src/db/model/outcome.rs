//! The outcomes of runs, and their effects on the jobs.

use crate::db::conn::dialect::micros;
use crate::db::model::claim::FinishedRow;
use crate::db::model::fingerprint;
use chrono::NaiveDateTime;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// Why a job failed. The text is cleaned, without NUL and limited in length, so that every database accepts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobFailure {
    /// The type of the error, or a reason from Windlass such as `crashed`.
    pub(crate) kind: String,
    pub(crate) message: String,
    /// `file:line:column` of a panic.
    pub(crate) place: Option<String>,
}

/// The limit of a text: enough for a message with a backtrace, too little to fill a disk.
pub(crate) const MAX_BYTES: usize = 16 * 1024;

impl JobFailure {
    pub(crate) fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        JobFailure {
            kind: clean(kind.into()),
            message: clean(message.into()),
            place: None,
        }
    }

    /// Returns the failure of an interrupted job that may run at most once.
    pub(crate) fn outcome_unknown(how: &str) -> Self {
        Self::new(
            "outcome_unknown",
            format!(
                "its process {how} while it ran; an at-most-once job is not run again by itself"
            ),
        )
    }

    /// Returns the reason of a run that its process cut short, and that counts neither as an attempt nor as a crash.
    pub(crate) fn released(why: impl Into<String>) -> Self {
        Self::new("cut_short", why)
    }

    /// Returns the failure of a job that was running when its process died.
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

    /// Returns the kind and the message.
    pub(crate) fn in_words(&self) -> String {
        format!("{}: {}", self.kind, self.message)
    }

    /// Returns what it has in common with other failures of this class.
    pub(crate) fn fingerprint(&self, class: &str) -> String {
        fingerprint::fingerprint(class, &self.kind, &self.message)
    }

    /// Returns the JSON that Solid Queue and its dashboard read.
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

/// Returns the kind and the message from JSON of [`JobFailure::to_json`] or Solid Queue.
pub(crate) fn in_words(json: &str) -> String {
    let (kind, message) = parts(json);
    if kind.is_empty() {
        message
    } else {
        format!("{kind}: {message}")
    }
}

/// Returns the kind and the message of a failed execution; text that is not JSON is all message.
pub fn parts(json: &str) -> (String, String) {
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

/// Returns the backtrace of a failed execution, or the place of a panic; empty if there is none.
pub fn backtrace(json: &str) -> Vec<String> {
    let error: Value = serde_json::from_str(json).unwrap_or_default();
    let lines = error.get("backtrace").and_then(Value::as_array);
    let lines = lines.into_iter().flatten().filter_map(Value::as_str);
    lines.map(str::to_owned).collect()
}

/// Returns the fingerprint of a failed execution, which another program may have stored.
pub(crate) fn fingerprint_of(class: &str, json: &str) -> String {
    let (kind, message) = parts(json);
    fingerprint::fingerprint(class, &kind, &message)
}

/// Returns the first location in the backtrace of a failed execution.
pub(crate) fn first_location(json: &str) -> Option<String> {
    let error: Value = serde_json::from_str(json).ok()?;
    error["backtrace"][0].as_str().map(str::to_owned)
}

/// Replaces NUL, which Postgres refuses, by U+FFFD, and cuts long text.
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

/// The kinds of failures after which it is unknown what the run has done.
const UNKNOWN_OUTCOMES: [&str; 2] = ["outcome_unknown", "unrecordable"];

/// Returns whether a failed execution, as JSON, leaves open what the run has done.
pub fn is_unknown(json: &str) -> bool {
    let (kind, _) = parts(json);
    UNKNOWN_OUTCOMES.contains(&&*kind) || kind.starts_with("SolidQueue::Processes::")
}

/// The outcome of a job that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultOutcome {
    Succeeded,
    Failed,
    Cancelled,
    Discarded,
}

impl ResultOutcome {
    /// Returns whether a batch with such a job has failed. A job that is discarded was not needed.
    pub(crate) fn is_unsuccessful(self) -> bool {
        matches!(self, ResultOutcome::Failed | ResultOutcome::Cancelled)
    }

    pub(crate) fn column(self) -> &'static str {
        match self {
            ResultOutcome::Succeeded => "succeeded",
            ResultOutcome::Failed => "failed",
            ResultOutcome::Cancelled => "cancelled",
            ResultOutcome::Discarded => "discarded",
        }
    }
}

/// The effect of an unsuccessful run on its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// It fails permanently.
    Fail(JobFailure),
    /// It is retried after the delay.
    Retry(JobFailure, Duration),
    /// It ends, and the failure is ignored.
    Discard(JobFailure),
    /// It ends because a cancel was requested.
    Cancel(JobFailure),
    /// It was claimed too late, and ends without having run.
    Expire(JobFailure),
    /// It runs again after the delay, and this run does not count as an attempt.
    Snooze(Duration),
    /// The same, and the key of its first rate is closed until then.
    RateLimited(Duration),
    /// It waits at a step, and runs again when the wait is over. This run counts neither as an attempt nor as a crash.
    Park(ParkedStep),
    /// The database did not answer a statement of Windlass: it runs again after the delay, and this run counts neither as
    /// an attempt nor as a crash. After too many such runs, the other ending holds.
    GiveBack {
        failure: JobFailure,
        delay: Duration,
        otherwise: Box<Ending>,
    },
    /// Its process interrupted it, for this reason: it runs again, at once or after the delay, and this run counts
    /// neither as an attempt nor as a crash.
    Release(String, Option<Duration>),
}

impl Ending {
    /// Returns the time for which the key of the job's first rate is closed.
    pub(crate) fn closes_rate(&self) -> Option<Duration> {
        match self {
            Ending::RateLimited(after) => Some(*after),
            _ => None,
        }
    }

    /// Removes the text of the failure, which a database may refuse: a job must be able to fail all the same.
    pub(crate) fn drop_text(&mut self) {
        match self {
            Ending::Fail(failure)
            | Ending::Retry(failure, _)
            | Ending::Discard(failure)
            | Ending::Expire(failure)
            | Ending::Cancel(failure) => {
                *failure = unrecordable();
            }
            Ending::GiveBack {
                failure, otherwise, ..
            } => {
                *failure = unrecordable();
                otherwise.drop_text();
            }
            Ending::Snooze(_) | Ending::RateLimited(_) | Ending::Park(_) | Ending::Release(..) => {}
        }
    }
}

fn unrecordable() -> JobFailure {
    JobFailure::new("unrecordable", "the database refused the text of the error")
}

/// The way in which an unsuccessful attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// With an error, and the job was to be retried.
    Retried,
    /// With the failure of the job.
    Failed,
    /// On the job's own request to end without a failure.
    Discarded,
    /// By a cancel request.
    Cancelled,
    /// By the death of its process, and the job was to run again.
    Crashed,
    /// By a database that did not answer a statement of Windlass, and the job was to run again.
    Interrupted,
    /// By the stop of its process, or of what it knew of its claim, and the job was to run again.
    Released,
}

impl AttemptOutcome {
    pub(crate) fn column(self) -> &'static str {
        match self {
            AttemptOutcome::Retried => "retried",
            AttemptOutcome::Failed => "failed",
            AttemptOutcome::Discarded => "discarded",
            AttemptOutcome::Cancelled => "cancelled",
            AttemptOutcome::Crashed => "crashed",
            AttemptOutcome::Interrupted => "interrupted",
            AttemptOutcome::Released => "released",
        }
    }

    pub(crate) fn of_column(text: &str) -> Self {
        match text {
            "retried" => AttemptOutcome::Retried,
            "discarded" => AttemptOutcome::Discarded,
            "cancelled" => AttemptOutcome::Cancelled,
            "crashed" => AttemptOutcome::Crashed,
            "interrupted" => AttemptOutcome::Interrupted,
            "released" => AttemptOutcome::Released,
            _ => AttemptOutcome::Failed,
        }
    }
}

/// The start time of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunStart {
    /// This long ago, by the runner's monotonic clock.
    Ago(Duration),
    /// At this time, by the database's clock. `None` if it never started.
    At(Option<NaiveDateTime>),
}

/// A claim that has just ended, in the transaction that ended it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedRun {
    pub(crate) process_id: i64,
    pub(crate) claim_id: i64,
    pub(crate) job_id: i64,
    pub(crate) began: RunStart,
    /// True if its owner ended it. The owner may check later whether the write got through.
    pub(crate) by_owner: bool,
    /// The treatment of the row of a job that ends without a failure.
    pub(crate) finished: FinishedRow,
}

impl EndedRun {
    /// Returns whether a thread started it.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.began, RunStart::At(None))
    }
}

/// A claim to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimEnd<'a> {
    pub(crate) claim_id: i64,
    pub(crate) ending: &'a Ending,
    /// The time for which its job ran.
    pub(crate) ran: Duration,
    /// The time, by the database's clock, after which no further attempt may be due.
    pub(crate) last_retry: Option<NaiveDateTime>,
}

/// A claim that has ended, and how.
#[derive(Debug)]
pub(crate) struct AppliedEnding {
    pub(crate) claim_id: i64,
    pub(crate) ending: Ending,
}

/// Returns the reason of a job that was not started in time.
pub(crate) fn expired() -> JobFailure {
    JobFailure::new(EXPIRED, "it had not started by the time of its expiry")
}

/// The kind of that reason.
pub(crate) const EXPIRED: &str = "expired";

/// Returns the failure of a job that was cancelled while it ran.
pub(crate) fn cancelled() -> JobFailure {
    JobFailure::new("cancelled", "the job was cancelled while it ran")
}

// --- The wait of a job between two of its runs ---

/// A step at which a job is parked: it gives its thread and claim back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ParkedStep {
    /// The name of the step.
    pub(crate) step: String,
    pub(crate) until: ParkUntil,
}

/// The condition that ends a wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ParkUntil {
    /// The time.
    Pause(Duration),
    /// An event, or a time-out.
    Event { name: String, timeout: Duration },
    /// The ends of jobs and batches, with which the job is connected already. The value of the step names them.
    Joined(String),
}

/// The value of a step whose wait timed out. That of an event is an array with its payload.
pub(crate) const TIMED_OUT: &str = "null";

// --- Results to store ---

/// The time for which a result is kept by default.
pub(crate) const KEEP: Duration = Duration::from_secs(300);

/// The job of a result, and the attempt that ended it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResultOf<'a> {
    pub(crate) job_id: i64,
    pub(crate) attempt: i32,
    pub(crate) class_name: &'a str,
    pub(crate) unique_id: Option<&'a str>,
    pub(crate) batch_id: Option<i64>,
}

/// The value that a job returned.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewOutput<'a> {
    /// As JSON.
    pub(crate) text: Option<&'a str>,
    /// Why there is none.
    pub(crate) problem: Option<&'a str>,
}

/// The stored result of a job that has ended.
#[derive(Debug)]
pub(crate) struct NewResult<'a> {
    pub(crate) of: ResultOf<'a>,
    pub(crate) outcome: ResultOutcome,
    /// The returned value, as JSON.
    pub(crate) text: Option<&'a str>,
    /// Why it failed, or why it has no value.
    pub(crate) error: Option<&'a str>,
    /// The time for which it is kept, in microseconds.
    pub(crate) keep: i64,
}

impl<'a> NewResult<'a> {
    /// Returns the result to store for a job that has finished. Without `keep`, there is none for
    /// jobs that return nothing and have no unique id: their row is enough.
    pub(crate) fn of_finished(
        of: ResultOf<'a>,
        output: NewOutput<'a>,
        keep: Option<Duration>,
    ) -> Option<Self> {
        let NewOutput { text, problem } = output;
        let is_worth_it =
            keep.is_some() || of.unique_id.is_some() || text.is_some() || problem.is_some();
        (is_worth_it && keep != Some(Duration::ZERO)).then(|| NewResult {
            of,
            outcome: ResultOutcome::Succeeded,
            text,
            error: problem,
            keep: micros(keep.unwrap_or(KEEP)),
        })
    }

    /// Returns the result to store for a job that ended otherwise. Without `keep_result`, which is
    /// in milliseconds, there is none for a job without a unique id whose row is kept: that row, its
    /// failed execution and its last attempt are enough.
    pub(crate) fn of_failed(
        of: ResultOf<'a>,
        outcome: ResultOutcome,
        error: &'a str,
        keep_result: Option<u64>,
        row: FinishedRow,
    ) -> Option<Self> {
        let is_worth_it =
            keep_result.is_some() || of.unique_id.is_some() || row == FinishedRow::Delete;
        let keep = micros(keep_result.map_or(KEEP, Duration::from_millis));
        (is_worth_it && keep > 0).then_some(NewResult {
            of,
            outcome,
            text: None,
            error: Some(error),
            keep,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_are_made_storable() {
        let failure = JobFailure::new("a\0b", "ä".repeat(MAX_BYTES));
        assert_eq!(failure.kind, "a\u{FFFD}b");
        assert!(failure.message.len() < MAX_BYTES + 20);
        assert!(failure.message.ends_with("(cut)"));
        assert!(!failure.to_json().contains("\\u0000"));
    }

    #[test]
    fn a_stored_failure_has_the_fingerprint_of_its_parts() {
        let failure = JobFailure::new("io", "user 7").at(Some("src/a.rs:1:2".into()));
        let json = failure.to_json();
        let same = failure.fingerprint("import");
        assert_eq!(fingerprint_of("import", &json), same);
        assert_ne!(fingerprint_of("export", &json), same);
        assert_eq!(first_location(&json).as_deref(), Some("src/a.rs:1:2"));
        assert_eq!(first_location("text"), None);
    }
}
