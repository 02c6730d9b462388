//! The conditions of a selection of jobs.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::sql::{id_list, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::state::JobState;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// Which jobs to select; an empty filter selects all. As it is stored: a program that does not know
/// one of its conditions must not select more jobs than were meant.
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
}

impl Filter {
    /// Returns whether an index finds its jobs, so that no others are read.
    pub(crate) fn has_index(&self) -> bool {
        self.ids.is_some() || self.fingerprint.is_some() || self.unique_id.is_some()
    }

    fn has_times(&self) -> bool {
        let times = [
            self.created_from,
            self.created_to,
            self.finished_from,
            self.finished_to,
            self.failed_from,
            self.failed_to,
        ];
        times.iter().any(Option::is_some)
    }

    fn has_details(&self) -> bool {
        self.kind.is_some() || self.arguments.is_some()
    }
}

/// Returns the conditions for the tags of a job `j`, which are compared as decoded texts. The
/// parameters are `$5` and `$6`.
fn tagged(dialect: Dialect) -> String {
    let (of_job, wanted) = match dialect {
        // Other programs may have stored what is no JSON.
        Dialect::Postgres => (
            "SELECT own.tag FROM json_array_elements_text(CASE WHEN strpos(j.policy, '\"tags\":[') > 0 \
               THEN CAST(j.policy AS json) -> 'extras' -> 'tags' END) AS own (tag) WHERE own.tag IS NOT NULL",
            ["$5", "$6"].map(|tags| {
                format!("(SELECT tag FROM json_array_elements_text(CAST({tags} AS json)) AS named (tag)) AS wanted")
            }),
        ),
        Dialect::Sqlite => (
            "SELECT own.value FROM json_each(CASE WHEN json_valid(j.policy) THEN j.policy END, '$.extras.tags') AS own WHERE own.type = 'text'",
            ["$5", "$6"].map(|tags| format!("(SELECT value AS tag FROM json_each({tags})) AS wanted")),
        ),
    };
    let [all, any] = wanted;
    format!(
        "($5 IS NULL OR NOT EXISTS (SELECT 1 FROM {all} WHERE wanted.tag NOT IN ({of_job}))) \
         AND ($6 IS NULL OR EXISTS (SELECT 1 FROM {any} WHERE wanted.tag IN ({of_job})))"
    )
}

/// The number of the first parameter after those of [`conditions`].
pub(crate) const NEXT: usize = 18;

/// Returns the conditions on an execution `e` and its job `j`. The parameters are `$1` to `$17`.
///
/// What has an index that must be used is a condition of its own. The others are `$2 IS NULL OR ..`,
/// so that no planner leaves the order of the scan for an index that finds more rows.
pub(crate) fn conditions(conn: &Conn<'_>, state: JobState, filter: &Filter) -> String {
    let contains = |text: &str, part: &str| match conn.dialect() {
        Dialect::Postgres => format!("strpos({text}, {part}) > 0"),
        Dialect::Sqlite => format!("instr({text}, {part}) > 0"),
    };
    // Named ids are looked up; any other way would read the whole table.
    let mut all = vec![match filter.ids {
        Some(_) => "j.id IN {in $1}".to_owned(),
        None => "$1 IS NULL".to_owned(),
    }];
    all.push("($2 IS NULL OR j.class_name = $2) AND ($3 IS NULL OR j.queue_name = $3)".to_owned());
    let error = match state {
        JobState::Failed => contains("e.error", "$4"),
        _ => "false".to_owned(),
    };
    all.push(format!("($4 IS NULL OR {error})"));
    all.push(tagged(conn.dialect()));
    if filter.fingerprint.is_some() {
        all.push(match state {
            JobState::Failed => "e.fingerprint = $7".to_owned(),
            _ => "false".to_owned(),
        });
    }
    if filter.unique_id.is_some() {
        all.push("j.unique_id = $8".to_owned());
    }
    if filter.has_details() {
        let kind = match state {
            JobState::Failed => contains("e.error", "$9"),
            JobState::Cancelled | JobState::Discarded => "e.kind = $17".to_owned(),
            _ => "false".to_owned(),
        };
        let arguments = contains("j.arguments", "$10");
        all.push(format!(
            "($9 IS NULL OR {kind}) AND ($10 IS NULL OR {arguments})"
        ));
    }
    if filter.has_times() {
        all.push(times(state));
    }
    all.extend(has_ended(state).map(str::to_owned));
    all.join(" AND ")
}

/// Returns the conditions for the times. The parameters are `$11` to `$16`.
fn times(state: JobState) -> String {
    let finished = match state {
        JobState::Finished | JobState::Cancelled | JobState::Discarded => "j.finished_at",
        _ => "NULL",
    };
    let failed = match state {
        JobState::Failed => "e.created_at",
        _ => "NULL",
    };
    let between = |column: &str, from: usize, to: usize| {
        format!(
            "(${from} IS NULL OR {column} >= {{time ${from}}}) AND (${to} IS NULL OR {column} < {{time ${to}}})"
        )
    };
    [
        between("j.created_at", 11, 12),
        between(finished, 13, 14),
        between(failed, 15, 16),
    ]
    .join(" AND ")
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
pub(crate) fn joined(state: JobState) -> String {
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

/// Returns the statement with the values of the parameters of [`conditions`].
pub(crate) fn filtered(text: String, filter: &Filter) -> Statement<'_> {
    let json = |texts: &Option<Vec<String>>| {
        texts
            .as_ref()
            .map(|texts| serde_json::to_string(texts).unwrap_or_default())
    };
    let in_error = filter.kind.as_ref().map(|kind| {
        let kind = serde_json::to_string(kind).unwrap_or_default();
        format!("\"exception_class\":{kind}")
    });
    let time = |time: Option<DateTime<Utc>>| time.map(|time| timestamp(time.naive_utc()));
    Statement::new(text)
        .bind(filter.ids.as_deref().map(id_list))
        .bind(&filter.class)
        .bind(&filter.queue)
        .bind(&filter.error)
        .bind(json(&filter.tags))
        .bind(json(&filter.any_tag))
        .bind(&filter.fingerprint)
        .bind(&filter.unique_id)
        .bind(in_error)
        .bind(&filter.arguments)
        .bind(time(filter.created_from))
        .bind(time(filter.created_to))
        .bind(time(filter.finished_from))
        .bind(time(filter.finished_to))
        .bind(time(filter.failed_from))
        .bind(time(filter.failed_to))
        .bind(&filter.kind)
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
