//! The names of spans and attributes: the semantic conventions of OpenTelemetry for messaging, and
//! what Windlass adds to them.

use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::Ending;
use crate::error::Error;
use crate::job::context::Run;
use opentelemetry::{KeyValue, Value};

/// The instrumentation scope of all spans.
pub(super) const SCOPE: &str = "windlass";

const MESSAGING_SYSTEM: &str = "messaging.system";
const MESSAGING_DESTINATION_NAME: &str = "messaging.destination.name";
const MESSAGING_OPERATION_NAME: &str = "messaging.operation.name";
const MESSAGING_OPERATION_TYPE: &str = "messaging.operation.type";
const MESSAGING_MESSAGE_ID: &str = "messaging.message.id";
const MESSAGING_BATCH_MESSAGE_COUNT: &str = "messaging.batch.message_count";
const ERROR_TYPE: &str = "error.type";
const JOB_CLASS: &str = "windlass.job.class";
const JOB_ATTEMPT: &str = "windlass.job.attempt";
const JOB_OUTCOME: &str = "windlass.job.outcome";

/// The value of `error.type` for an error without a name of its own.
const OTHER: &str = "_OTHER";

/// Returns the value that all jobs have, if they have the same.
fn common<'r>(rows: &'r [NewRow], value: impl Fn(&'r NewRow) -> &'r str) -> Option<&'r str> {
    let first = value(rows.first()?);
    let is_same = rows.iter().all(|row| value(row) == first);
    is_same.then_some(first)
}

/// Returns the name of the span of an enqueue: `send {queue}`.
pub(super) fn send_name(rows: &[NewRow]) -> String {
    match common(rows, |row| &row.queue_name) {
        Some(queue) => format!("send {queue}"),
        None => "send".to_owned(),
    }
}

/// Returns the attributes of the span of an enqueue, before it.
pub(super) fn of_send(rows: &[NewRow], is_batch: bool) -> Vec<KeyValue> {
    let mut attributes = operation("send", common(rows, |row| &row.queue_name));
    if let Some(class) = common(rows, |row| &row.class_name) {
        attributes.push(KeyValue::new(JOB_CLASS, class.to_owned()));
    }
    if is_batch {
        let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        attributes.push(KeyValue::new(MESSAGING_BATCH_MESSAGE_COUNT, count));
    }
    attributes
}

/// Returns the attribute that names a job.
pub(super) fn message_id(job: i64) -> KeyValue {
    KeyValue::new(MESSAGING_MESSAGE_ID, job.to_string())
}

/// Returns the name of the span of a run: `process {queue}`.
pub(super) fn process_name(run: &Run) -> String {
    format!("process {}", run.job.queue_name)
}

/// Returns the attributes of the span of a run, at its start.
pub(super) fn of_process(run: &Run) -> Vec<KeyValue> {
    let mut attributes = operation("process", Some(&run.job.queue_name));
    attributes.push(message_id(run.job_id));
    attributes.push(KeyValue::new(JOB_CLASS, run.job.class_name.clone()));
    attributes.push(KeyValue::new(JOB_ATTEMPT, i64::from(run.attempt)));
    attributes
}

/// The attributes of every span. The name of each operation is also its type.
fn operation(name: &'static str, queue: Option<&str>) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(8);
    attributes.push(KeyValue::new(MESSAGING_SYSTEM, "windlass"));
    attributes.push(KeyValue::new(MESSAGING_OPERATION_NAME, name));
    attributes.push(KeyValue::new(MESSAGING_OPERATION_TYPE, name));
    if let Some(queue) = queue {
        attributes.push(KeyValue::new(MESSAGING_DESTINATION_NAME, queue.to_owned()));
    }
    attributes
}

/// Returns the attribute that names how a run ended; `None` is a success.
pub(super) fn outcome(ending: Option<&Ending>) -> KeyValue {
    let outcome = match ending {
        None => "finished",
        Some(Ending::Fail(_)) => "failed",
        Some(Ending::Retry(..)) => "retried",
        Some(Ending::Discard(_) | Ending::Expire(_)) => "discarded",
        Some(Ending::Cancel(_)) => "cancelled",
        Some(Ending::Snooze(_) | Ending::RateLimited(_)) => "snoozed",
        Some(Ending::Park(_)) => "parked",
        Some(Ending::Release(..) | Ending::GiveBack { .. }) => "released",
    };
    KeyValue::new(JOB_OUTCOME, outcome)
}

/// Returns the attribute that names an error.
pub(super) fn error_type(kind: impl Into<Value>) -> KeyValue {
    KeyValue::new(ERROR_TYPE, kind)
}

/// Returns the name of the error of an enqueue.
pub(super) fn enqueue_error(error: &Error) -> &'static str {
    match error {
        Error::Connect { .. } | Error::GaveUp { .. } => "connect",
        Error::InternalClass { .. } => "internal_class",
        Error::Query { .. } => "query",
        Error::QuotaExceeded { .. } => "quota_exceeded",
        Error::UniqueIdTaken { .. } => "unique_id_taken",
        _ => OTHER,
    }
}
