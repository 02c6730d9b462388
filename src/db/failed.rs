//! `solid_queue_failed_executions`: why a job failed.

use super::conn::{Conn, on};
use super::jobs::{self, NewRow};
use super::results::{self, ResultOutcome};
use super::sql::{cached, sql};
use super::unique;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
const MAX_BYTES: usize = 16 * 1024;

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
    pub(super) fn in_words(&self) -> String {
        format!("{}: {}", self.kind, self.message)
    }

    /// As Solid Queue and its dashboard read it.
    fn to_json(&self) -> String {
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

/// Records why a job failed. A failed execution that is there already would
/// be a leftover: the newer reason wins.
pub(super) fn insert(conn: &mut Conn<'_>, job_id: i64, failure: &Failure) -> QueryResult<()> {
    let text = conn.write(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT id, $1, {now} FROM solid_queue_jobs WHERE id = $2 \
         ON CONFLICT (job_id) DO UPDATE SET error = excluded.error, created_at = excluded.created_at",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(failure.to_json())
            .bind::<BigInt, _>(job_id)
    )
    .execute(c))?;
    let named = results::record(conn, &[job_id], ResultOutcome::Failed, failure, 1)?;
    if !named.is_empty() {
        unique::unblock(conn, &named)?;
    }
    follow_up(conn, job_id, failure)
}

/// The job to be enqueued when another has failed for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hook {
    pub(crate) class: String,
    pub(crate) queue: String,
    pub(crate) priority: i32,
}

#[derive(Deserialize)]
struct Policy {
    on_failure: Option<Hook>,
}

#[derive(QueryableByName)]
struct FailedJob {
    #[diesel(sql_type = Text)]
    class_name: String,
    #[diesel(sql_type = Text)]
    queue_name: String,
    #[diesel(sql_type = Nullable<Text>)]
    arguments: Option<String>,
    #[diesel(sql_type = Integer)]
    attempts: i32,
    #[diesel(sql_type = Text)]
    policy: String,
}

/// Enqueues the job that its policy names for the failure.
fn follow_up(conn: &mut Conn<'_>, job_id: i64, failure: &Failure) -> QueryResult<()> {
    let text = conn.write(
        "SELECT class_name, queue_name, arguments, attempts, policy FROM solid_queue_jobs \
         WHERE id = $1 AND policy IS NOT NULL",
    );
    let job: Option<FailedJob> = on!(conn, |c| cached(sql(text).bind::<BigInt, _>(job_id))
        .get_result(c))
    .optional()?;
    let Some(job) = job else { return Ok(()) };
    let policy: Option<Policy> = serde_json::from_str(&job.policy).ok();
    let Some(hook) = policy.and_then(|policy| policy.on_failure) else {
        return Ok(());
    };
    let arguments = job.arguments.as_deref().unwrap_or("null");
    let arguments = json!({
        "job_id": job_id,
        "class_name": job.class_name,
        "queue_name": job.queue_name,
        "arguments": serde_json::from_str(arguments).unwrap_or(Value::Null),
        "attempts": job.attempts.saturating_add(1),
        "kind": failure.kind,
        "message": failure.message,
    });
    let row = NewRow::new(hook.class, arguments.to_string(), hook.queue, hook.priority);
    jobs::insert(conn, &row).map(drop)
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
