//! Inserts jobs in bulk that differ only in their arguments, unique ids and concurrency keys, as in
//! most bulk enqueues: what they have in common is passed once.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, IdRange};
use crate::db::conn::listening;
use crate::db::conn::statement::{Param, Statement};
use crate::db::model::job_columns::{JobColumns, JobTraits};
use crate::db::model::new_row::NewRow;
use crate::db::table::{blocked, executions, wanted_keys};
use crate::db::transition::enqueue::insert::{CHUNK, ready_cte, reserve};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A job of a bulk insert, in the order of the rows.
#[derive(Debug, QueryableByName)]
pub(crate) struct BulkJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    /// `false` if another job may hold its unique id: nothing was inserted.
    #[diesel(sql_type = Bool)]
    pub(crate) is_new: bool,
}

/// Returns what the jobs have beside arguments, if they are alike. Their unique ids are distinct
/// then, and of one chunk, so that one statement takes them in order.
pub(crate) fn traits(rows: &[NewRow]) -> Option<JobTraits> {
    type Numbers = (i32, Option<i32>, Option<i32>, bool, Option<i64>);
    type CommonLimit = Option<(i32, bool, bool)>;
    fn common(row: &NewRow) -> ([&str; 3], [Option<&str>; 2], Numbers, CommonLimit, bool) {
        (
            [&row.queue_name, &row.class_name, row.unique_scope.column()],
            [row.policy.as_deref(), row.traceparent.as_deref()],
            (
                row.priority,
                row.max_attempts,
                row.max_crashes,
                row.at_most_once,
                row.batch_id,
            ),
            row.limit
                .as_ref()
                .map(|limit| (limit.slots, limit.discards, limit.ordered)),
            row.is_dependent(),
        )
    }
    let first = rows.first()?;
    let has_unique_id = first.unique_id.is_some();
    if has_unique_id && (rows.len() > CHUNK || first.is_dependent()) {
        return None;
    }
    let expected = common(first);
    let mut names = BTreeSet::new();
    let are_alike = rows.iter().all(|row| {
        row.at.is_none()
            && row.delay.is_none()
            && row.active_job_id.is_none()
            && row.idempotency_key.is_none()
            && row.unique_id.is_some() == has_unique_id
            && common(row) == expected
            && row.unique_id.as_ref().is_none_or(|name| names.insert(name))
    });
    are_alike.then_some(JobTraits {
        has_unique_id,
        has_limit: first.limit.is_some(),
    })
}

/// Inserts such jobs, at most a [`CHUNK`], and returns all of them in order. SQLite needs a
/// transaction of the caller, and so do unique ids.
pub(crate) fn insert_alike(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    traits: JobTraits,
) -> QueryResult<Vec<BulkJob>> {
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    match conn.dialect() {
        Dialect::Postgres if traits.has_unique_id => {
            insert_arrays(conn, rows, traits, Conflicts::Some)
        }
        Dialect::Postgres => insert_arrays(conn, rows, traits, Conflicts::None),
        Dialect::Sqlite => insert_json(conn, rows, first, traits),
    }
}

/// The columns that differ, with the values of a job.
fn varying(name: &str) -> bool {
    matches!(name, "arguments" | "unique_id" | "concurrency_key")
}

/// A statement and the columns that it takes.
type AlikeStatements = LazyLock<[(JobColumns, String); 4]>;

/// Inserts on Postgres outside a transaction, in one statement. Returns no jobs, and inserts none,
/// if another job may hold one of the unique ids.
pub(crate) fn insert_if_free(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    traits: JobTraits,
) -> QueryResult<Vec<BulkJob>> {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    match insert_arrays(conn, rows, traits, Conflicts::None) {
        // Another transaction has just inserted one.
        Err(DatabaseError(UniqueViolation, _)) if traits.has_unique_id => Ok(Vec::new()),
        done => done,
    }
}

/// Inserts on Postgres, in one statement. `unnest` keeps the order of its arrays, and the ids follow
/// it.
fn insert_arrays(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    traits: JobTraits,
    conflicts: Conflicts,
) -> QueryResult<Vec<BulkJob>> {
    static IF_FREE: AlikeStatements = LazyLock::new(|| statements(Conflicts::None));
    static THE_FREE: AlikeStatements = LazyLock::new(|| statements(Conflicts::Some));
    let statements = match conflicts {
        Conflicts::None => &IF_FREE,
        Conflicts::Some => &THE_FREE,
    };
    let (columns, text) = &statements[traits.index()];
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let mut statement = bind_arrays(Statement::new(text), columns, rows, first);
    if traits.has_unique_id {
        statement = statement.bind(first.unique_scope.column());
    }
    let mut jobs: Vec<BulkJob> = statement.load(conn)?;
    jobs.sort_unstable_by_key(|job| job.id);
    Ok(jobs)
}

/// Binds the arrays of what differs, and the values of the rest.
pub(crate) fn bind_arrays<'r>(
    mut statement: Statement<'r>,
    columns: &JobColumns,
    rows: &'r [NewRow],
    first: &'r NewRow,
) -> Statement<'r> {
    for (index, (name, param)) in columns.named_params(first).enumerate() {
        statement = statement.bind(if varying(name) {
            Param::array(rows.iter().map(|row| columns.param(index, row)))
        } else {
            param
        });
    }
    statement
}

fn statements(conflicts: Conflicts) -> [(JobColumns, String); 4] {
    JobTraits::ALL.map(|traits| {
        let columns = JobColumns::alike(traits);
        let text = array_statement(&columns, traits, conflicts);
        (columns, text)
    })
}

/// The expectation of a statement about other jobs that hold some of the unique ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conflicts {
    /// If there is one, it inserts nothing.
    None,
    /// It inserts the other jobs.
    Some,
}

/// Returns the arrays of an insert, as rows.
pub(crate) fn input(columns: &JobColumns) -> String {
    let names = columns.inputs_where(varying);
    let arrays: Vec<String> = names.iter().map(|name| columns.parameter(name)).collect();
    format!(
        "unnest({}) AS input ({})",
        arrays.join(", "),
        names.join(", ")
    )
}

/// Returns the values of the jobs of [`input`].
pub(crate) fn values(columns: &JobColumns) -> String {
    columns.values(|name, _| match varying(name) {
        true => name.to_owned(),
        false => columns.parameter(name),
    })
}

fn array_statement(columns: &JobColumns, traits: JobTraits, conflicts: Conflicts) -> String {
    let (scope, input, values) = (columns.len() + 1, input(columns), values(columns));
    let (entered, count) = if traits.has_limit {
        let key = "concurrency_key";
        let keys = "SELECT DISTINCT concurrency_key";
        (blocked::fresh_ctes(columns, key, keys), "wanted")
    } else {
        (ready_cte(columns), "job")
    };
    let wake = listening::wake(&format!("(SELECT count(*) FROM {count})"));
    let names = columns.names();
    let job = format!("job AS (INSERT INTO solid_queue_jobs ({names}");
    let returning = traits.returning();
    match conflicts {
        Conflicts::None if !traits.has_unique_id => format!(
            "WITH {job}) SELECT {values} FROM {input} RETURNING {returning}), \
             {entered} SELECT id, true AS is_new, {wake} AS notified FROM job"
        ),
        Conflicts::None => format!(
            "WITH {job}) SELECT {values} FROM {input} WHERE NOT (SELECT EXISTS \
               (SELECT 1 FROM windlass_unique_jobs WHERE unique_id = ANY ({}))) RETURNING {returning}), \
             taken AS (INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
               SELECT unique_id, id, ${scope} FROM job ORDER BY unique_id), \
             {entered} SELECT id, true AS is_new, {wake} AS notified FROM job",
            columns.parameter("unique_id"),
        ),
        Conflicts::Some => format!(
            "WITH once AS MATERIALIZED (SELECT pg_get_serial_sequence('solid_queue_jobs', 'id')::regclass AS ids), \
             input AS MATERIALIZED (SELECT nextval(once.ids) AS id, input.* FROM once CROSS JOIN {input}), \
             taken AS (INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
               SELECT unique_id, id, ${scope} FROM input ORDER BY unique_id \
               ON CONFLICT (unique_id) DO NOTHING RETURNING job_id), \
             {job}, id) SELECT {values}, id FROM input WHERE {IS_TAKEN} RETURNING {returning}), \
             {entered} SELECT id, {IS_TAKEN} AS is_new, {wake} AS notified FROM input"
        ),
    }
}

/// A condition: a job of `input` has taken its unique id. In this form, the ids are looked up in a
/// hash table, however few the planner expects.
const IS_TAKEN: &str = "(id IN (SELECT job_id FROM taken)) IS TRUE";

/// Inserts on SQLite: the rows are one JSON text. The caller's transaction holds the write lock, so
/// the ids are reserved for it.
fn insert_json(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    first: &NewRow,
    traits: JobTraits,
) -> QueryResult<Vec<BulkJob>> {
    let ids = reserve(conn, rows.len())?;
    let (Some(&low), Some(&high)) = (ids.first(), ids.last()) else {
        return Ok(Vec::new());
    };
    insert_jobs(conn, rows, low, traits)?;
    let range = IdRange {
        after: low - 1,
        up_to: high,
    };
    let mut new: Option<BTreeSet<i64>> = None;
    if traits.has_unique_id {
        new = executions::take_free(conn, range, first.unique_scope)?;
    }
    if traits.has_limit {
        blocked::insert_fresh(conn, range, &first.limit)?;
        let keys = ids.iter().zip(rows);
        let keys = keys.filter(|(id, _)| new.as_ref().is_none_or(|new| new.contains(id)));
        let keys: BTreeSet<String> = keys
            .filter_map(|(_, row)| row.concurrency_key().map(str::to_owned))
            .collect();
        wanted_keys::request_promotion(conn, &keys)?;
    } else {
        let text = "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
             SELECT id, $1, $2, $3, $4, {now} FROM solid_queue_jobs WHERE id BETWEEN $5 AND $6";
        Statement::new(text)
            .bind(&first.queue_name)
            .bind(first.priority)
            .bind(&first.class_name)
            .bind(first.at_most_once || first.max_crashes == Some(0))
            .bind(low)
            .bind(high)
            .execute(conn)?;
    }
    let jobs = ids.into_iter().map(|id| BulkJob {
        id,
        is_new: new.as_ref().is_none_or(|new| new.contains(&id)),
    });
    Ok(jobs.collect())
}

/// Inserts the jobs, of which the first has the id `low`.
pub(crate) fn insert_jobs(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    low: i64,
    traits: JobTraits,
) -> QueryResult<()> {
    static JSON: AlikeStatements = LazyLock::new(|| JobTraits::ALL.map(json_statement));
    let (columns, text) = &JSON[traits.index()];
    let [first, ..] = rows else {
        return Ok(());
    };
    let mut statement = Statement::new(text);
    for (name, param) in columns.named_params(first) {
        // The parameters of the others are not in the text.
        statement = statement.bind(if varying(name) {
            Param::Bool(false)
        } else {
            param
        });
    }
    let values = json_rows(columns, rows)
        .map_err(|error| diesel::result::Error::SerializationError(Box::new(error)))?;
    statement.bind(low).bind(values).execute(conn)
}

fn json_statement(traits: JobTraits) -> (JobColumns, String) {
    let columns = JobColumns::alike(traits);
    let names = columns.inputs_where(varying);
    let values = columns.values(|name, _| {
        let place = names.iter().position(|varying| *varying == name);
        match place {
            None => columns.parameter(name),
            Some(_) if names.len() == 1 => "value".to_owned(),
            Some(place) => format!("value ->> {place}"),
        }
    });
    let text = format!(
        "INSERT INTO solid_queue_jobs ({}, id) SELECT {values}, ${} + key FROM json_each(${})",
        columns.names(),
        columns.len() + 1,
        columns.len() + 2,
    );
    (columns, text)
}

/// Returns the values that differ: an array for each job, or, if it is only one value, this one.
fn json_rows(columns: &JobColumns, rows: &[NewRow]) -> serde_json::Result<String> {
    let values = rows.iter().map(|row| {
        let params = columns.named_params(row);
        let params = params.filter(|(name, _)| varying(name));
        let mut params: Vec<Param<'_>> = params.map(|(_, param)| param).collect();
        match params.len() {
            1 => serde_json::to_value(params.pop()),
            _ => serde_json::to_value(params),
        }
    });
    serde_json::to_string(&values.collect::<Result<Vec<_>, _>>()?)
}
