//! The conditions of a selection of jobs.

use crate::db::conn::dialect::{Dialect, id_list, timestamp};
use crate::db::conn::statement::Param;
use crate::db::model::decision::JobState;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// A selection of jobs, as it is stored; an empty filter selects all. Unknown conditions are an error: a program must
/// not select more jobs than were meant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Filter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ids: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    /// A part of the error of a failed job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The kind of the error of a failed, cancelled or discarded job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The fingerprint of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unique_id: Option<String>,
    /// The batch that they belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batch: Option<i64>,
    /// The batch whose jobs, and those of the batches in it, are found as its members, and by nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) whole_batch: Option<i64>,
    /// A part of the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<String>,
    /// All of these tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tags: Option<Vec<String>>,
    /// At least one of these tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) any_tag: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_from: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_to: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finished_from: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finished_to: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_from: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_to: Option<DateTime<Utc>>,
    /// The newest job, of a walk that follows jobs from state to state.
    #[serde(skip)]
    pub(crate) newest: Option<i64>,
}

impl Filter {
    /// Returns the queue, if that is all that is selected by.
    pub(crate) fn only_queue(&self) -> Option<&str> {
        let rest = Filter {
            queue: None,
            ..self.clone()
        };
        self.queue.as_deref().filter(|_| rest == Filter::default())
    }

    /// Returns the fingerprint, if only some of its failures are selected.
    pub(crate) fn part_of_group(&self) -> Option<&str> {
        let rest = Filter {
            fingerprint: None,
            ..self.clone()
        };
        let is_part = rest != Filter::default() && !rest.has_index();
        self.fingerprint.as_deref().filter(|_| is_part)
    }

    /// Returns whether an index finds its jobs, so that no others are read.
    pub(crate) fn has_index(&self) -> bool {
        self.ids.is_some()
            || self.fingerprint.is_some()
            || self.unique_id.is_some()
            || self.batch.is_some()
            || self.whole_batch.is_some()
    }
}

/// Returns the condition that a job `j` has all of the tags `?`, or one of them. Tags are compared as
/// decoded texts.
fn tagged(dialect: Dialect, has_all: bool) -> String {
    let (of_job, wanted) = match dialect {
        // Other programs may have stored what is no JSON.
        Dialect::Postgres => (
            "SELECT own.tag FROM json_array_elements_text(CASE WHEN strpos(j.policy, '\"tags\":[') > 0 \
               THEN CAST(j.policy AS json) -> 'extras' -> 'tags' END) AS own (tag) WHERE own.tag IS NOT NULL",
            "(SELECT tag FROM json_array_elements_text(CAST(? AS json)) AS named (tag)) AS wanted",
        ),
        Dialect::Sqlite => (
            "SELECT own.value FROM json_each(CASE WHEN json_valid(j.policy) THEN j.policy END, '$.extras.tags') AS own WHERE own.type = 'text'",
            "(SELECT value AS tag FROM json_each(?)) AS wanted",
        ),
    };
    match has_all {
        true => {
            format!("NOT EXISTS (SELECT 1 FROM {wanted} WHERE wanted.tag NOT IN ({of_job}))")
        }
        false => format!("EXISTS (SELECT 1 FROM {wanted} WHERE wanted.tag IN ({of_job}))"),
    }
}

/// Returns the conditions on an execution `e` and its job `j`.
///
/// Conditions with an index that must be used stand alone. The others are `$1 IS NULL OR ..`, so that no planner leaves
/// the order of the scan for an index that finds more rows.
pub(super) fn conditions<'f>(
    dialect: Dialect,
    state: JobState,
    filter: &'f Filter,
) -> Conditions<'f> {
    let mut all = Conditions::default();
    // Named ids are looked up; any other way would read the whole table.
    if let Some(ids) = &filter.ids {
        all.add("j.id IN {in ?}", id_list(ids));
    }
    if let Some(print) = &filter.fingerprint {
        let fails = "e.fingerprint = ?";
        all.add(of_state(state == JobState::Failed, fails), print);
    }
    if let Some(unique_id) = &filter.unique_id {
        all.add("j.unique_id = ?", unique_id);
    }
    if let Some(batch) = filter.batch {
        all.add("j.batch_id = ?", batch);
    }
    // Its jobs are found otherwise: nothing may select all jobs instead.
    if filter.whole_batch.is_some() {
        all.always("false");
    }
    let newest = ("j.id <= ?".to_owned(), filter.newest.map(Param::from));
    let scanned = of_job(dialect, state, filter).into_iter().chain([newest]);
    for (condition, value) in scanned.chain(times(state, filter)) {
        if let Some(value) = value {
            all.add(&format!("(? IS NULL OR {condition})"), value);
        }
    }
    if let Some(condition) = has_ended(state) {
        all.always(condition);
    }
    all
}

/// A condition in which each `?` is the value, if there is one.
type MaybeCondition<'f> = (String, Option<Param<'f>>);

/// Returns the conditions that have no index, but those for the times.
fn of_job(dialect: Dialect, state: JobState, filter: &Filter) -> [MaybeCondition<'_>; 7] {
    let contains = |text: &str| match dialect {
        Dialect::Postgres => format!("strpos({text}, ?) > 0"),
        Dialect::Sqlite => format!("instr({text}, ?) > 0"),
    };
    let json = |tags: &Option<Vec<String>>| {
        let tags = tags.as_ref()?;
        Some(serde_json::to_string(tags).unwrap_or_default().into())
    };
    let in_error = contains("e.error");
    let in_error = of_state(state == JobState::Failed, &in_error).to_owned();
    let queue = match state {
        JobState::Ready | JobState::Scheduled | JobState::Blocked => "e.queue_name = ?",
        _ => "j.queue_name = ?",
    };
    let kind = match state {
        JobState::Cancelled | JobState::Discarded => ("e.kind = ?".to_owned(), text(&filter.kind)),
        _ => (in_error.clone(), filter.kind.as_deref().map(kind_in_error)),
    };
    [
        ("j.class_name = ?".to_owned(), text(&filter.class)),
        (queue.to_owned(), text(&filter.queue)),
        (tagged(dialect, true), json(&filter.tags)),
        (tagged(dialect, false), json(&filter.any_tag)),
        (in_error, text(&filter.error)),
        kind,
        (contains("j.arguments"), text(&filter.arguments)),
    ]
}

fn text(text: &Option<String>) -> Option<Param<'_>> {
    text.as_ref().map(Param::from)
}

/// Returns the condition if jobs in this state can meet it.
fn of_state(is_possible: bool, condition: &str) -> &str {
    if is_possible {
        condition
    } else {
        "(? IS NULL AND false)"
    }
}

/// Returns how the stored error of a failed job contains its kind.
fn kind_in_error(kind: &str) -> Param<'static> {
    let kind = serde_json::to_string(kind).unwrap_or_default();
    format!("\"exception_class\":{kind}").into()
}

/// Returns the conditions for the times.
fn times(state: JobState, filter: &Filter) -> [MaybeCondition<'_>; 6] {
    let finished = match state {
        JobState::Finished | JobState::Cancelled | JobState::Discarded => "j.finished_at",
        _ => "NULL",
    };
    let failed = match state {
        JobState::Failed => "e.created_at",
        _ => "NULL",
    };
    let time = |time: Option<DateTime<Utc>>| time.map(|time| timestamp(time.naive_utc()).into());
    let from = |column: &str, at| (format!("{column} >= {{time ?}}"), time(at));
    let to = |column: &str, at| (format!("{column} < {{time ?}}"), time(at));
    [
        from("j.created_at", filter.created_from),
        to("j.created_at", filter.created_to),
        from(finished, filter.finished_from),
        to(finished, filter.finished_to),
        from(failed, filter.failed_from),
        to(failed, filter.failed_to),
    ]
}

/// Returns the condition for a state of jobs that have ended, which no execution shows.
fn has_ended(state: JobState) -> Option<&'static str> {
    match state {
        JobState::Finished => Some(
            "j.finished_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM windlass_attempts a \
             WHERE a.job_id = j.id AND a.outcome IN ('cancelled', 'discarded'))",
        ),
        JobState::Cancelled => Some("j.finished_at IS NOT NULL AND e.outcome = 'cancelled'"),
        JobState::Discarded => Some("j.finished_at IS NOT NULL AND e.outcome = 'discarded'"),
        _ => None,
    }
}

/// Returns the alias of an execution, or of a job without one, and its join with the job.
pub(super) fn joined(state: JobState) -> String {
    match state {
        JobState::Finished => {
            "solid_queue_jobs e JOIN solid_queue_jobs j ON j.id = e.id".to_owned()
        }
        _ => format!(
            "{} e JOIN solid_queue_jobs j ON j.id = e.job_id",
            state.table()
        ),
    }
}

// --- The conditions of a statement, with their parameters ---

/// Conditions, each after an `AND`, and the parameters of the statement so far.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Conditions<'s> {
    pub text: String,
    pub params: Vec<Param<'s>>,
}

impl<'s> Conditions<'s> {
    #[doc(hidden)]
    pub fn after(params: Vec<Param<'s>>) -> Self {
        Conditions {
            text: String::new(),
            params,
        }
    }

    /// Adds a condition in which each `?` is this value.
    pub fn add(&mut self, condition: &str, value: impl Into<Param<'s>>) {
        let placeholder = self.param(value);
        self.always(&condition.replace('?', &placeholder));
    }

    /// Adds a condition without a value.
    pub fn always(&mut self, condition: &str) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
    }

    /// Adds a parameter, and returns its placeholder in the text.
    pub fn param(&mut self, value: impl Into<Param<'s>>) -> String {
        self.params.push(value.into());
        format!("${}", self.params.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_condition_is_refused() {
        let filter = Filter {
            class: Some("import".into()),
            ..Filter::default()
        };
        let text = serde_json::to_string(&filter).unwrap();
        assert_eq!(text, r#"{"class":"import"}"#);
        assert_eq!(serde_json::from_str::<Filter>(&text).unwrap(), filter);
        let newer = r#"{"class":"import","color":"blue"}"#;
        assert!(serde_json::from_str::<Filter>(newer).is_err());
    }
}
