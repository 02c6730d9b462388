//! The selection of a list of jobs, and the table and the order in which they are found.

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use serde::de::IgnoredAny;
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::query::filter::Conditions;
use windlass::jobs::JobState;

/// Arguments longer than this, in characters, are not searched.
pub(crate) const SEARCHED_ARGUMENTS: i64 = 64 * 1024;

/// The selection of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobSearch {
    /// `None` is every state.
    pub(crate) state: Option<JobState>,
    pub(crate) queue: Option<String>,
    pub(crate) class: Option<String>,
    /// A part of the error of a job that failed, or was cancelled or discarded.
    pub(crate) error: Option<String>,
    pub(crate) unique_id: Option<String>,
    pub(crate) tag: Option<String>,
    /// The batch that they belong to.
    pub(crate) batch: Option<i64>,
    /// A part of the arguments.
    pub(crate) arguments: Option<String>,
    /// The fingerprint of a failed job.
    pub(crate) fingerprint: Option<String>,
    /// From when on the job was enqueued, as a time of the database. Of a job that failed, or was
    /// cancelled or discarded: when it was.
    pub(crate) from: Option<String>,
    /// Before when.
    pub(crate) to: Option<String>,
    /// True if the times are always those of the enqueue.
    pub(crate) by_enqueue: bool,
}

impl JobSearch {
    /// Returns whether every row of the list is a job that is searched for.
    pub(crate) fn is_plain(&self) -> bool {
        let of_state = JobSearch {
            state: self.state,
            ..JobSearch::default()
        };
        self.state != Some(JobState::Finished) && *self == of_state
    }

    pub(crate) fn table(&self) -> &'static str {
        self.state.map_or("solid_queue_jobs", JobState::table)
    }

    /// Returns the column by which the list is ordered: ids, which grow with time. Jobs that ended
    /// without success are in the order in which they did.
    pub(crate) fn key(&self) -> &'static str {
        use JobState::{Blocked, Claimed, Ready, Scheduled};
        match self.state {
            Some(Ready | Scheduled | Blocked | Claimed) => "job_id",
            _ => "id",
        }
    }

    /// Returns the column with the id of the job.
    pub(crate) fn job(&self) -> &'static str {
        match self.state {
            None | Some(JobState::Finished) => "id",
            Some(_) => "job_id",
        }
    }

    /// Returns the table and the column whose ids grow with the time by which the list is narrowed.
    pub(crate) fn clock(&self) -> (&'static str, &'static str) {
        match self.state {
            _ if self.by_enqueue => ("solid_queue_jobs", "created_at"),
            Some(JobState::Failed) => (self.table(), "created_at"),
            Some(JobState::Cancelled | JobState::Discarded) => (self.table(), "ended_at"),
            _ => ("solid_queue_jobs", "created_at"),
        }
    }

    /// Returns whether the times are those of the jobs' rows.
    pub(crate) fn is_by_job(&self) -> bool {
        self.clock().0 == "solid_queue_jobs"
    }

    /// Returns whether the list is read from the table of jobs.
    pub(crate) fn is_of_jobs(&self) -> bool {
        self.table() == "solid_queue_jobs"
    }

    /// Returns whether the keys of the list are ids of jobs.
    pub(crate) fn has_job_keys(&self) -> bool {
        use JobState::{Cancelled, Discarded, Failed};
        !matches!(self.state, Some(Failed | Cancelled | Discarded))
    }

    /// Returns the part of the conditions that the index of the list knows.
    pub(crate) fn add_indexed<'s>(&'s self, to: &mut Conditions<'s>) {
        // SQLite takes the index only if its own condition is there word for word.
        let ended = "e.outcome IN ('cancelled', 'discarded') AND e.outcome = ";
        match self.state {
            Some(JobState::Cancelled) => to.always(&format!("{ended}'cancelled'")),
            Some(JobState::Discarded) => to.always(&format!("{ended}'discarded'")),
            _ => {}
        }
        if let Some(print) = &self.fingerprint {
            to.add("e.fingerprint = ?", print);
        }
    }

    /// Returns all other conditions, on the `found` row and its `job`.
    pub(crate) fn add_others<'s>(&'s self, dialect: Dialect, to: &mut Conditions<'s>) {
        if self.state == Some(JobState::Finished) {
            to.always("job.finished_at IS NOT NULL");
            to.always(
                "NOT EXISTS (SELECT 1 FROM windlass_attempts a WHERE a.job_id = job.id AND a.outcome IN ('cancelled', 'discarded'))",
            );
        }
        let contains = match dialect {
            Dialect::Postgres => "strpos",
            Dialect::Sqlite => "instr",
        };
        let error = match self.state {
            Some(JobState::Failed) => "found.error",
            Some(JobState::Cancelled | JobState::Discarded) => {
                "found.kind || ': ' || found.message"
            }
            _ => "NULL",
        };
        let at = match self.is_by_job() {
            true => "job.created_at".to_owned(),
            false => format!("found.{}", self.clock().1),
        };
        let conditions = [
            ("job.queue_name = ?".to_owned(), &self.queue),
            ("job.class_name = ?".to_owned(), &self.class),
            ("job.unique_id = ?".to_owned(), &self.unique_id),
            (format!("{at} >= {{time ?}}"), &self.from),
            (format!("{at} < {{time ?}}"), &self.to),
            (tagged(dialect).to_owned(), &self.tag),
            (format!("{contains}({error}, ?) > 0"), &self.error),
        ];
        for (condition, value) in conditions {
            if let Some(value) = value {
                to.add(&condition, value);
            }
        }
        if let Some(batch) = self.batch {
            to.add("job.batch_id = ?", batch);
        }
        self.add_arguments(contains, to);
    }

    fn add_arguments<'s>(&'s self, contains: &str, to: &mut Conditions<'s>) {
        if self.arguments.is_none() {
            return;
        }
        let texts = self.argument_texts().into_iter().map(|text| {
            let placeholder = to.param(text);
            format!("{contains}(job.arguments, {placeholder}) > 0")
        });
        let texts: Vec<String> = texts.collect();
        // Of a class with hidden fields, all jobs are read, and searched where they are shown. Where
        // the search stops, and how long it takes, would tell otherwise whether a guess is right.
        to.always(&format!(
            "length(job.arguments) <= {SEARCHED_ARGUMENTS} AND EXISTS (SELECT 1 FROM windlass_classes known \
             WHERE known.class_name = job.class_name AND (known.redact <> '[]' OR {}))",
            texts.join(" OR ")
        ));
    }

    /// Returns the texts of which the arguments contain one: what was asked for and, for `name: value`,
    /// the ways of writing it in JSON.
    pub(crate) fn argument_texts(&self) -> Vec<String> {
        let text = self.arguments.clone().unwrap_or_default();
        let mut all = Vec::new();
        if let Some((name, value)) = text.split_once(':') {
            let (name, value) = (name.trim().trim_matches('"'), value.trim());
            let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
            if !name.is_empty() && name.chars().all(is_name) && !value.is_empty() {
                let is_json = serde_json::from_str::<IgnoredAny>(value).is_ok();
                let value = match is_json {
                    true => value.to_owned(),
                    false => serde_json::Value::from(value).to_string(),
                };
                all.extend([
                    format!("\"{name}\":{value}"),
                    format!("\"{name}\": {value}"),
                ]);
            }
        }
        if !all.contains(&text) {
            all.push(text);
        }
        all
    }
}

/// Returns the condition that a `job` has a tag. The policy of another program may not be JSON.
fn tagged(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => {
            "? IN (SELECT own.tag FROM json_array_elements_text(CASE WHEN strpos(job.policy, '\"tags\":[') > 0 \
             THEN CAST(job.policy AS json) -> 'extras' -> 'tags' END) AS own (tag))"
        }
        Dialect::Sqlite => {
            "? IN (SELECT own.value FROM json_each(CASE WHEN json_valid(job.policy) THEN job.policy END, '$.extras.tags') AS own \
             WHERE own.type = 'text')"
        }
    }
}

// --- The number of jobs of each state, up to a limit ---

/// The highest number that is counted.
pub(crate) const COUNTED: i64 = 10_000;

/// The number of jobs in each state; `COUNTED + 1` is more than are counted.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct StateCounts {
    #[diesel(sql_type = BigInt)]
    pub(crate) all_jobs: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) ready: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) scheduled: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) blocked: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) claimed: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) failed: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) cancelled: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) discarded: i64,
}

impl StateCounts {
    /// Returns whether any state has more jobs than are counted.
    pub(crate) fn is_more(&self) -> bool {
        let counts = [
            self.all_jobs,
            self.ready,
            self.scheduled,
            self.blocked,
            self.claimed,
            self.failed,
            self.cancelled,
            self.discarded,
        ];
        counts.iter().any(|count| *count > COUNTED)
    }
}

/// Counts the jobs of each state. Finished ones are not counted: without an index, a count could
/// have to pass all others first.
pub(crate) fn counts(conn: &mut Conn<'_>) -> QueryResult<StateCounts> {
    let most = COUNTED + 1;
    // From the newest on: where the oldest were, there may be many rows that were deleted lately.
    let count = |(id, of): (&str, &str)| {
        format!(
            "(SELECT count(*) FROM (SELECT {id} FROM {of} {id} > 0 ORDER BY {id} DESC LIMIT {most}) AS counted)"
        )
    };
    let ended = |outcome: &str| {
        format!(
            "windlass_attempts WHERE outcome IN ('cancelled', 'discarded') AND outcome = '{outcome}' AND"
        )
    };
    let [
        all,
        ready,
        scheduled,
        blocked,
        claimed,
        failed,
        cancelled,
        discarded,
    ] = [
        ("id", "solid_queue_jobs WHERE"),
        ("job_id", "solid_queue_ready_executions WHERE"),
        ("job_id", "solid_queue_scheduled_executions WHERE"),
        ("job_id", "solid_queue_blocked_executions WHERE"),
        ("job_id", "solid_queue_claimed_executions WHERE"),
        ("job_id", "solid_queue_failed_executions WHERE"),
        ("id", &ended("cancelled")),
        ("id", &ended("discarded")),
    ]
    .map(count);
    // A large table is not counted: Postgres would pass each job that was deleted lately.
    let all = match conn.dialect() {
        Dialect::Sqlite => all,
        Dialect::Postgres => format!(
            "(SELECT CASE WHEN (SELECT reltuples FROM pg_class WHERE oid = CAST('solid_queue_jobs' AS regclass)) > 10 * {most} \
             THEN {most} ELSE {all} END)"
        ),
    };
    let text = format!(
        "SELECT {all} AS all_jobs, {ready} AS ready, {scheduled} AS scheduled, {blocked} AS blocked, {claimed} AS claimed, \
         {failed} AS failed, {cancelled} AS cancelled, {discarded} AS discarded"
    );
    Statement::new(text).uncached().get_result(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_value_is_searched_as_json() {
        let texts = |text: &str| {
            let search = JobSearch {
                arguments: Some(text.to_owned()),
                ..JobSearch::default()
            };
            search.argument_texts()
        };
        assert_eq!(texts("ada"), ["ada"]);
        assert_eq!(
            texts("customer: 7"),
            ["\"customer\":7", "\"customer\": 7", "customer: 7"]
        );
        assert_eq!(texts("\"a\":1"), ["\"a\":1", "\"a\": 1"]);
        assert_eq!(texts("file: a.csv")[0], "\"file\":\"a.csv\"");
        assert_eq!(
            texts("https://a/b"),
            ["\"https\":\"//a/b\"", "\"https\": \"//a/b\"", "https://a/b"]
        );
        assert_eq!(texts(": 7"), [": 7"]);
    }
}
