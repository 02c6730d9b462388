//! Inserts jobs that may exist already, with idempotency keys or unique ids, and jobs that wait for others.
//!
//! Ids are assigned first, in the order of the jobs. Then unique ids are taken and jobs inserted in
//! the order of their unique ids and keys, so that two bulk enqueues with the same ones in another
//! order never deadlock.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Execution, Id, id_list, job_ids};
use crate::db::conn::listening;
use crate::db::conn::statement::{Param, Statement};
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_row::{
    EnqueueOutcome, Inserted, NewRow, UNIQUE_SUCCESSOR, WAITS_FOR_PARENTS,
};
use crate::db::table::blocked::{self, RETURNING};
use crate::db::table::flows::edges;
use crate::db::table::semaphores::NEVER_EXPIRES;
use crate::db::transition::enqueue::insert::{CHUNK, reserve};
use crate::db::transition::unique::{self, NumberedRow, ROUNDS, Taken};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

/// A job to insert.
#[derive(Clone, Copy)]
struct NewEntry<'r> {
    id: i64,
    row: &'r NewRow,
    /// True if it waits for the end of the job that holds its unique id.
    is_behind: bool,
}

impl NewEntry<'_> {
    fn is_blocked(&self) -> bool {
        self.is_behind || self.row.is_dependent()
    }
}

/// Inserts jobs in the caller's transaction, and returns the result of each, in order.
pub(crate) fn insert_keyed(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    let ids = reserve(conn, rows.len())?;
    let mut inserted: HashMap<i64, Inserted> = HashMap::with_capacity(rows.len());
    let numbered = ids.iter().zip(rows);
    let mut rest: Vec<NumberedRow<'_>> =
        numbered.map(|(&id, row)| NumberedRow { id, row }).collect();
    while !rest.is_empty() {
        // A used key decides, whatever holds the unique id.
        let both = rest.iter().filter(|one| one.row.unique_id.is_some());
        let keys: Vec<&str> = both
            .filter_map(|one| one.row.idempotency_key.as_deref())
            .collect();
        let known = with_keys(conn, &keys)?;
        rest.retain(|NumberedRow { id, row }| match known.get(key(row)) {
            Some(job) if row.unique_id.is_some() => {
                inserted.insert(*id, Inserted::new(*job, EnqueueOutcome::Existing));
                false
            }
            _ => true,
        });
        let (now, later) = first_round(rest);
        insert_round(conn, &now, &mut inserted)?;
        rest = later;
    }
    ids.iter()
        .map(|id| {
            inserted
                .get(id)
                .copied()
                .ok_or(diesel::result::Error::NotFound)
        })
        .collect()
}

/// Splits off the jobs that do not depend on an earlier one. Of two with the same unique id, or of
/// one with a unique id and one that shares its key, the second comes in a later round, and any
/// that shares its key after it.
fn first_round(rows: Vec<NumberedRow<'_>>) -> (Vec<NumberedRow<'_>>, Vec<NumberedRow<'_>>) {
    let (mut names, mut keys, mut late) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    rows.into_iter().partition(|NumberedRow { row, .. }| {
        let (name, key) = (row.unique_id.as_deref(), row.idempotency_key.as_deref());
        let meets_name = name.is_some_and(|name| !names.insert(name));
        let meets_key = key.is_some_and(|key| !keys.insert(key));
        let waits = meets_name
            || (meets_key && name.is_some())
            || key.is_some_and(|key| late.contains(key));
        if waits {
            late.extend(key);
        }
        !waits
    })
}

fn key(row: &NewRow) -> &str {
    row.idempotency_key.as_deref().unwrap_or_default()
}

/// Inserts jobs with distinct unique ids.
fn insert_round(
    conn: &mut Conn<'_>,
    rows: &[NumberedRow<'_>],
    inserted: &mut HashMap<i64, Inserted>,
) -> QueryResult<()> {
    let taken: HashMap<i64, Taken> = unique::take(conn, rows)?;
    let mut entries = Vec::with_capacity(rows.len());
    for NumberedRow { id, row } in rows {
        let is_behind = match taken.get(id) {
            Some(Taken::Known(job, outcome)) => {
                inserted.insert(*id, Inserted::new(*job, *outcome));
                continue;
            }
            Some(Taken::Behind) => true,
            Some(Taken::Free) | None => false,
        };
        entries.push(NewEntry {
            id: *id,
            row,
            is_behind,
        });
    }
    entries.sort_by_key(|entry| (entry.row.idempotency_key.is_some(), key(entry.row)));
    for chunk in entries.chunks(CHUNK) {
        let mut rest = chunk.to_vec();
        for _ in 0..ROUNDS {
            rest = insert_entries(conn, &rest, inserted)?;
            if rest.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Inserts the jobs whose keys are free. Returns those whose key was used, by a job that was deleted
/// before it could be read: they keep their ids, under which their unique ids are taken.
fn insert_entries<'r>(
    conn: &mut Conn<'_>,
    entries: &[NewEntry<'r>],
    inserted: &mut HashMap<i64, Inserted>,
) -> QueryResult<Vec<NewEntry<'r>>> {
    let new: BTreeSet<i64> = match conn.dialect() {
        Dialect::Postgres => insert_arrays(conn, entries)?,
        Dialect::Sqlite => insert_json(conn, entries)?,
    };
    let (new, known): (Vec<NewEntry<'r>>, Vec<_>) =
        entries.iter().partition(|entry| new.contains(&entry.id));
    for entry in new {
        let outcome = if entry.is_behind {
            EnqueueOutcome::Again
        } else {
            EnqueueOutcome::New
        };
        inserted.insert(entry.id, Inserted::new(entry.id, outcome));
    }
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<&str> = known.iter().map(|entry| key(entry.row)).collect();
    let jobs = with_keys(conn, &keys)?;
    let mut rest = Vec::new();
    for entry in known {
        match jobs.get(key(entry.row)) {
            Some(job) => {
                let known = Inserted::new(*job, EnqueueOutcome::Existing);
                inserted.insert(entry.id, known);
            }
            None => rest.push(entry),
        }
    }
    Ok(rest)
}

#[derive(QueryableByName)]
struct JobWithKey {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    idempotency_key: String,
}

/// Returns the jobs that have these keys.
fn with_keys(conn: &mut Conn<'_>, keys: &[&str]) -> QueryResult<HashMap<String, i64>> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    const FIND: &str = "SELECT id, idempotency_key FROM solid_queue_jobs WHERE idempotency_key";
    let statement = match conn.dialect() {
        Dialect::Postgres => Statement::new(format!("{FIND} = ANY ($1)")).bind(keys),
        Dialect::Sqlite => {
            let keys = serde_json::to_string(keys).unwrap_or_default();
            Statement::new(format!("{FIND} IN (SELECT value FROM json_each($1))")).bind(keys)
        }
    };
    let rows: Vec<JobWithKey> = statement.load(conn)?;
    Ok(rows
        .into_iter()
        .map(|row| (row.idempotency_key, row.id))
        .collect())
}

/// The statement that inserts entries: those that are free and have no limit are ready, the others
/// scheduled or blocked.
static ENTRIES: LazyLock<(JobColumns, String)> = LazyLock::new(|| {
    let columns = JobColumns::all();
    let [ids, blocked, behind] = [1, 2, 3].map(|place| columns.len() + place);
    let text = format!(
        "WITH job AS (INSERT INTO solid_queue_jobs ({names}, id) SELECT {values}, id \
           FROM unnest({placeholders}, ${ids}) WITH ORDINALITY AS input ({inputs}, id, ord) \
           ORDER BY ord ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING \
           RETURNING {RETURNING}), \
         free AS (SELECT * FROM job WHERE id <> ALL (${blocked})), \
         blocked AS (INSERT INTO solid_queue_blocked_executions \
             (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
           SELECT id, queue_name, priority, \
             CASE WHEN id = ANY (${behind}) THEN '{UNIQUE_SUCCESSOR}' ELSE '{WAITS_FOR_PARENTS}' END, \
             timestamp '{NEVER_EXPIRES}', {{now}} FROM job WHERE id = ANY (${blocked})), \
         {limited}, \
         ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
           SELECT id, queue_name, priority, class_name, {{cautious}}, {{now}} FROM free \
           WHERE (scheduled_at IS NULL OR scheduled_at <= {{now}}) AND concurrency_key IS NULL ORDER BY id RETURNING 1), \
         later AS (INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
           SELECT id, queue_name, priority, scheduled_at, {{now}} FROM free WHERE scheduled_at > {{now}} ORDER BY id), \
         woken AS (SELECT CASE WHEN EXISTS (SELECT 1 FROM ready) OR EXISTS (SELECT 1 FROM wanted) THEN {wake} END) \
         SELECT id, (SELECT count(*) FROM woken) AS woken FROM job",
        names = columns.names(),
        values = columns.values(|name, _| name.to_owned()),
        placeholders = columns.placeholders(),
        inputs = columns.inputs(),
        limited = blocked::limited_ctes("free", "wanted"),
        wake = listening::wake("(SELECT count(*) FROM ready) + (SELECT count(*) FROM wanted)"),
    );
    (columns, text)
});

/// Inserts on Postgres in one statement, in the order of the entries. Returns the ids of the jobs
/// that did not exist.
fn insert_arrays(conn: &mut Conn<'_>, entries: &[NewEntry<'_>]) -> QueryResult<BTreeSet<i64>> {
    let (columns, text) = &*ENTRIES;
    let ids = |which: fn(&NewEntry<'_>) -> bool| -> Vec<i64> {
        let entries = entries.iter().filter(|entry| which(entry));
        entries.map(|entry| entry.id).collect()
    };
    let rows: Vec<&NewRow> = entries.iter().map(|entry| entry.row).collect();
    let rows: Vec<Id> = columns
        .bind_arrays(Statement::new(text), &rows)
        .bind(ids(|_| true))
        .bind(ids(|entry| entry.is_blocked()))
        .bind(ids(|entry| entry.is_behind))
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Inserts on SQLite: all rows are one JSON text, as in [`bulk`](super::bulk). Returns the ids of
/// the jobs that did not exist.
fn insert_json(conn: &mut Conn<'_>, entries: &[NewEntry<'_>]) -> QueryResult<BTreeSet<i64>> {
    static JSON: LazyLock<(JobColumns, String)> = LazyLock::new(|| {
        let columns = JobColumns::all();
        let text = format!(
            "INSERT INTO solid_queue_jobs ({}, id) SELECT {}, value ->> {} FROM json_each($1) WHERE true ORDER BY key \
             ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING id",
            columns.names(),
            columns.values(|_, index| format!("value ->> {index}")),
            columns.len(),
        );
        (columns, text)
    });
    let (columns, text) = &*JSON;
    let values = entries.iter().map(|entry| {
        let id = std::iter::once(Param::from(entry.id));
        columns.params(entry.row).into_iter().chain(id).collect()
    });
    let values: Vec<Vec<Param<'_>>> = values.collect();
    let values = serde_json::to_string(&values)
        .map_err(|error| diesel::result::Error::SerializationError(Box::new(error)))?;
    let rows: Vec<Id> = Statement::new(text).bind(values).load(conn)?;
    let new: BTreeSet<i64> = rows.into_iter().map(|row| row.id).collect();
    let entries = entries.iter().filter(|entry| new.contains(&entry.id));
    insert_executions(conn, &entries.collect::<Vec<_>>())?;
    Ok(new)
}

/// Inserts the executions of new jobs: those that are free and have no limit are ready, the others
/// scheduled or blocked.
fn insert_executions(conn: &mut Conn<'_>, entries: &[&NewEntry<'_>]) -> QueryResult<()> {
    let ids = |which: fn(&NewEntry<'_>) -> bool| -> Vec<i64> {
        let entries = entries.iter().filter(|entry| which(entry));
        entries.map(|entry| entry.id).collect()
    };
    let has_time = |entry: &NewEntry<'_>| entry.row.at.is_some() || entry.row.delay.is_some();
    let behind = ids(|entry| entry.is_behind);
    if !behind.is_empty() {
        blocked::block(conn, &behind)?;
    }
    let waiting = ids(|entry| entry.row.is_dependent());
    if !waiting.is_empty() {
        edges::block(conn, &waiting)?;
    }
    let mut later = Vec::new();
    if entries.iter().any(|entry| has_time(entry)) {
        let text = "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
             SELECT id, queue_name, priority, scheduled_at, created_at FROM solid_queue_jobs \
             WHERE id IN {in $1} AND scheduled_at > created_at ORDER BY id RETURNING job_id";
        let free = id_list(&ids(|entry| !entry.is_blocked()));
        let rows: Vec<Execution> = Statement::new(text).bind(free).load(conn)?;
        later = job_ids(rows);
        later.sort_unstable();
    }
    let is_due = |id: &i64| later.binary_search(id).is_err();
    let mut due = ids(|entry| !entry.is_blocked() && entry.row.limit.is_none());
    due.retain(is_due);
    if !due.is_empty() {
        let text = "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
             SELECT id, queue_name, priority, class_name, {cautious}, created_at FROM solid_queue_jobs \
             WHERE id IN {in $1} ORDER BY id";
        Statement::new(text).bind(id_list(&due)).execute(conn)?;
    }
    let mut limited = ids(|entry| !entry.is_blocked() && entry.row.limit.is_some());
    limited.retain(is_due);
    if limited.is_empty() {
        return Ok(());
    }
    blocked::insert_blocked(conn, &limited)
}
