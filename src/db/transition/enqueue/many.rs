//! Inserts many jobs with one statement, on Postgres together with their first executions.
//!
//! A column in which no job has a value is left out. Most bulk enqueues are of jobs that are alike: they differ only in
//! their arguments and names, and what they have in common is passed once.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::listening;
use crate::db::conn::statement::{Param, Statement};
use crate::db::model::job_columns::{JobColumns, JobShape};
use crate::db::model::new_row::{NewRow, UNIQUE_SUCCESSOR, WAITS_FOR_PARENTS};
use crate::db::table::blocked;
use crate::db::table::jobs::reserve;
use crate::db::table::semaphores::NEVER_EXPIRES;
use crate::db::transition::enqueue::executions::{self, NewEntry};
use crate::db::transition::enqueue::one::{InsertText, on_conflict};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// The rows of one statement: well below the limits on parameters and message sizes.
pub(crate) const CHUNK: usize = 1_000;

/// The form of a statement that inserts many jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ManyForm {
    is_postgres: bool,
    shape: JobShape,
    /// True if the jobs differ in more than [names](is_name): each column is passed for each job.
    is_mixed: bool,
    /// True if the id of each job is passed.
    is_numbered: bool,
    /// True if some of the jobs are blocked until other jobs end.
    has_blocked: bool,
}

/// Returns whether a column names a job, or what it is about, so that each job has another value.
fn is_name(column: &str) -> bool {
    matches!(
        column,
        "arguments"
            | "active_job_id"
            | "idempotency_key"
            | "unique_id"
            | "concurrency_key"
            | "rates"
            | "gate"
    )
}

/// Returns whether two jobs differ in nothing but [names](is_name).
fn are_alike(one: &NewRow, other: &NewRow) -> bool {
    let limit = |row: &NewRow| {
        let limit = row.limit.as_ref();
        limit.map(|limit| (limit.slots, limit.discards, limit.ordered))
    };
    one.queue_name == other.queue_name
        && one.class_name == other.class_name
        && (one.priority, one.at_most_once) == (other.priority, other.at_most_once)
        && (one.max_attempts, one.max_crashes) == (other.max_attempts, other.max_crashes)
        && (one.batch_id, one.at, one.delay) == (other.batch_id, other.at, other.delay)
        && (&one.policy, &one.traceparent) == (&other.policy, &other.traceparent)
        && one.tenant == other.tenant
        && limit(one) == limit(other)
}

impl ManyForm {
    fn of(conn: &Conn<'_>, rows: &[&NewRow]) -> Self {
        let are_alike = |pair: &[&NewRow]| are_alike(pair[0], pair[1]);
        ManyForm {
            is_postgres: conn.dialect() == Dialect::Postgres,
            shape: JobShape::of(rows.iter().copied()),
            is_mixed: !rows.windows(2).all(are_alike),
            is_numbered: false,
            has_blocked: false,
        }
    }

    fn is_for_each(self, column: &str) -> bool {
        self.is_mixed || is_name(column)
    }

    /// Returns the statement, and its columns.
    fn text(self) -> Arc<InsertText> {
        static TEXTS: LazyLock<Mutex<HashMap<ManyForm, Arc<InsertText>>>> =
            LazyLock::new(Mutex::default);
        let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let text = texts.entry(self).or_insert_with(|| {
            let columns = JobColumns::of(self.shape);
            let text = match self.is_postgres {
                true => Dialect::Postgres.render(&self.with_executions(&columns)),
                false => Dialect::Sqlite.render(&self.jobs_only(&columns)),
            };
            Arc::new((columns, text))
        });
        Arc::clone(text)
    }
}

/// Inserts jobs without keys that wait for no other job, at most a [`CHUNK`], and returns their ids in order. SQLite needs
/// a transaction of the caller; Postgres does it in one statement. Those with unique ids have one scope, and none of them is
/// inserted if one of the ids has a row; see [`insert_free`](crate::db::transition::enqueue::free::insert_free).
pub(crate) fn insert_many(conn: &mut Conn<'_>, rows: &[&NewRow]) -> QueryResult<Vec<i64>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    if conn.dialect() == Dialect::Sqlite {
        let ids = reserve(conn, rows.len())?;
        let entry = |(&id, &row): (&i64, &_)| NewEntry {
            id,
            row,
            is_behind: false,
        };
        let entries: Vec<NewEntry<'_>> = ids.iter().zip(rows).map(entry).collect();
        insert_numbered(conn, &entries)?;
        return Ok(ids);
    }
    let form = ManyForm::of(conn, rows);
    let text = form.text();
    let (columns, text) = &*text;
    let statement = bind_arrays(Statement::new(text), columns, rows, form);
    let statement = match (form.shape.has_unique_id, rows.first()) {
        // A cached plan of a table that was empty would read all of it for each name.
        (true, Some(row)) => statement.bind(row.unique_scope.column()).uncached(),
        _ => statement,
    };
    // `unnest` keeps the order of its arrays, and the ids follow it.
    let mut ids = inserted(conn, statement)?;
    ids.sort_unstable();
    Ok(ids)
}

/// Inserts jobs that have their ids, at most a [`CHUNK`], in the transaction of the caller. Returns the ids of those whose
/// idempotency key was free.
pub(crate) fn insert_numbered(
    conn: &mut Conn<'_>,
    entries: &[NewEntry<'_>],
) -> QueryResult<BTreeSet<i64>> {
    let rows: Vec<&NewRow> = entries.iter().map(|entry| entry.row).collect();
    let form = ManyForm {
        is_numbered: true,
        has_blocked: entries.iter().any(NewEntry::is_blocked),
        ..ManyForm::of(conn, &rows)
    };
    match conn.dialect() {
        Dialect::Postgres => insert_arrays(conn, form, entries, &rows),
        Dialect::Sqlite => insert_json(conn, form, entries),
    }
}

// --- Postgres: an array for each column ---

/// The jobs that one statement has inserted.
#[derive(QueryableByName)]
struct InsertedJobs {
    /// Eight bytes each: a thousand rows would take longer than their values.
    #[diesel(sql_type = Nullable<Binary>)]
    ids: Option<Vec<u8>>,
    /// The jobs for which a worker is to be woken.
    #[diesel(sql_type = BigInt)]
    heard: i64,
}

/// Runs the statement, wakes workers, and returns the ids of the jobs.
fn inserted(conn: &mut Conn<'_>, statement: Statement<'_>) -> QueryResult<Vec<i64>> {
    let jobs: InsertedJobs = statement.get_result(conn)?;
    if jobs.heard > 0 {
        listening::announce(conn, usize::try_from(jobs.heard).unwrap_or(usize::MAX))?;
    }
    let ids = jobs.ids.unwrap_or_default();
    let (ids, _) = ids.as_chunks::<8>();
    Ok(ids.iter().map(|id| i64::from_be_bytes(*id)).collect())
}

impl ManyForm {
    /// Returns the statement that inserts jobs and their executions. The parameters behind the columns are the ids of all
    /// jobs, of those that are blocked, and of those that wait for a job with the same unique id; or the scope of the unique
    /// ids that it takes.
    fn with_executions(self, columns: &JobColumns) -> String {
        let shape = self.shape;
        let has_rest = self.is_mixed || shape.has_time || shape.has_rate || self.has_blocked;
        let returning = match (has_rest, shape.has_limit || shape.has_rate) {
            (true, true) => blocked::RETURNING,
            (true, false) => executions::RETURNING,
            (false, true) => "id, concurrency_key",
            (false, false) => "id",
        };
        let job = self.job_cte(columns, returning);
        let (executions, count) = match has_rest {
            true => self.mixed_executions(columns.len()),
            false if shape.has_limit => {
                let keys = "SELECT DISTINCT concurrency_key";
                (
                    blocked::fresh_ctes(columns, "concurrency_key", keys),
                    "(SELECT count(*) FROM wanted)".to_owned(),
                )
            }
            false => (executions::fresh_cte(columns), "count(*)".to_owned()),
        };
        let text = format!(
            "WITH {job}, {executions} SELECT string_agg(int8send(id), '') AS ids, \
               CASE WHEN {} THEN {count} ELSE 0 END AS heard FROM job",
            listening::IS_HEARD
        );
        // Once for all jobs.
        text.replace("{now}", "(SELECT {now})")
    }

    /// Returns whether the statement takes the unique ids of the jobs.
    fn takes_names(self) -> bool {
        self.shape.has_unique_id && !self.is_numbered
    }

    fn job_cte(self, columns: &JobColumns, returning: &str) -> String {
        let each = |name: &&str| self.is_for_each(name);
        let mut names: Vec<&str> = columns.inputs().filter(each).collect();
        let mut arrays: Vec<String> = names.iter().map(|name| columns.parameter(name)).collect();
        let values = columns.values(|name, _| match self.is_for_each(name) {
            true => name.to_owned(),
            false => columns.parameter(name),
        });
        let id = if self.is_numbered { ", id" } else { "" };
        if self.is_numbered {
            names.push("id");
            arrays.push(format!("${}", columns.len() + 1));
        }
        let (are_free, returning, taken) = match self.takes_names() {
            true => (
                format!(
                    "WHERE NOT EXISTS (SELECT 1 FROM windlass_unique_jobs WHERE unique_id = ANY ({}))",
                    columns.parameter("unique_id")
                ),
                format!("{returning}, unique_id"),
                // In the order of all who take some, so that no two wait for each other.
                format!(
                    ", taken AS (INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
                       SELECT unique_id, id, ${} FROM job ORDER BY unique_id COLLATE \"C\")",
                    columns.len() + 1
                ),
            ),
            false => (String::new(), returning.to_owned(), String::new()),
        };
        format!(
            "job AS (INSERT INTO solid_queue_jobs ({}{id}) SELECT {values}{id} FROM unnest({}) AS input ({}) {are_free} {} \
               RETURNING {returning}){taken}",
            columns.names(),
            arrays.join(", "),
            names.join(", "),
            on_conflict(self.shape),
        )
    }

    /// Returns the CTEs for jobs of which some may be blocked, scheduled, limited and ready, and an expression for how many
    /// may be taken by workers.
    fn mixed_executions(self, parameters: usize) -> (String, String) {
        let [waiting, behind] = [2, 3].map(|place| parameters + place);
        let mut ctes = Vec::new();
        let mut free = "job";
        if self.has_blocked {
            free = "free";
            ctes.push(format!(
                "free AS (SELECT * FROM job WHERE id <> ALL (${waiting}))"
            ));
            ctes.push(format!(
                "blocked AS (INSERT INTO solid_queue_blocked_executions \
                   (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
                 SELECT id, queue_name, priority, \
                   CASE WHEN id = ANY (${behind}) THEN '{UNIQUE_SUCCESSOR}' ELSE '{WAITS_FOR_PARENTS}' END, \
                   timestamp '{NEVER_EXPIRES}', {{now}} FROM job WHERE id = ANY (${waiting}))"
            ));
        }
        let (mut unlimited, mut count) =
            (free.to_owned(), "(SELECT count(*) FROM ready)".to_owned());
        if self.shape.has_limit || self.shape.has_rate {
            ctes.push(blocked::limited_ctes(free, "wanted"));
            unlimited = format!("{free} WHERE concurrency_key IS NULL AND gate IS NULL AND");
            count += " + (SELECT count(*) FROM wanted)";
        }
        ctes.push(executions::due_cte("ready", &unlimited));
        if self.shape.has_time {
            ctes.push(executions::later_cte(free));
        }
        (ctes.join(", "), count)
    }
}

/// Binds the values of the jobs: an array, or the value that all have.
fn bind_arrays<'r>(
    statement: Statement<'r>,
    columns: &JobColumns,
    rows: &[&'r NewRow],
    form: ManyForm,
) -> Statement<'r> {
    let Some(first) = rows.first() else {
        return statement;
    };
    let values = columns.named_params(first).enumerate();
    values.fold(statement, |statement, (index, (name, value))| {
        statement.bind(match form.is_for_each(name) {
            true => Param::array(rows.iter().map(|row| columns.param(index, row))),
            false => value,
        })
    })
}

fn insert_arrays(
    conn: &mut Conn<'_>,
    form: ManyForm,
    entries: &[NewEntry<'_>],
    rows: &[&NewRow],
) -> QueryResult<BTreeSet<i64>> {
    let text = form.text();
    let (columns, text) = &*text;
    let ids = |which: fn(&NewEntry<'_>) -> bool| -> Vec<i64> {
        let entries = entries.iter().filter(|entry| which(entry));
        entries.map(|entry| entry.id).collect()
    };
    let statement = bind_arrays(Statement::new(text), columns, rows, form).bind(ids(|_| true));
    let statement = match form.has_blocked {
        true => statement
            .bind(ids(|entry| entry.is_blocked()))
            .bind(ids(|entry| entry.is_behind)),
        false => statement,
    };
    Ok(inserted(conn, statement)?.into_iter().collect())
}

// --- SQLite: one JSON text, which is many times faster than one statement for each job ---

impl ManyForm {
    /// Returns the statement that inserts the jobs. The parameter behind the columns is the list of jobs: of each an array of
    /// the values that it has for itself, or the only one; its id is the last of them, or follows from the id of the first
    /// job, which is the next parameter.
    fn jobs_only(self, columns: &JobColumns) -> String {
        let names = columns.inputs().filter(|name| self.is_for_each(name));
        let names: Vec<&str> = names.collect();
        let parts = names.len() + usize::from(self.is_numbered);
        let part = |position: usize| match parts {
            1 => "value".to_owned(),
            _ => format!("value ->> {position}"),
        };
        let values = columns.values(
            |name, _| match names.iter().position(|each| *each == name) {
                Some(position) => part(position),
                None => columns.parameter(name),
            },
        );
        let list = columns.len() + 1;
        let id = match self.is_numbered {
            true => part(names.len()),
            false => format!("${} + key", list + 1),
        };
        let returning = if self.shape.has_key {
            "RETURNING id"
        } else {
            ""
        };
        format!(
            "INSERT INTO solid_queue_jobs ({}, id) SELECT {values}, {id} FROM json_each(${list}) WHERE true {} {returning}",
            columns.names(),
            on_conflict(self.shape),
        )
    }

    /// Returns the JSON of the values that each of the jobs has for itself.
    fn list<'r>(
        self,
        columns: &JobColumns,
        entries: &[NewEntry<'r>],
    ) -> Result<String, serde_json::Error> {
        let each = |entry: &NewEntry<'r>| -> Vec<Param<'r>> {
            let own = columns.named_params(entry.row);
            let own = own.filter(|(name, _)| self.is_for_each(name));
            let own = own.map(|(_, value)| value);
            let id = self.is_numbered.then(|| Param::from(entry.id));
            own.chain(id).collect()
        };
        let values = entries.iter().map(each);
        let own = columns.inputs().filter(|name| self.is_for_each(name));
        match own.count() + usize::from(self.is_numbered) {
            1 => serde_json::to_string(&values.flatten().collect::<Vec<_>>()),
            _ => serde_json::to_string(&values.collect::<Vec<_>>()),
        }
    }
}

fn insert_json(
    conn: &mut Conn<'_>,
    form: ManyForm,
    entries: &[NewEntry<'_>],
) -> QueryResult<BTreeSet<i64>> {
    let Some(first) = entries.first() else {
        return Ok(BTreeSet::new());
    };
    let ids: Vec<i64> = entries.iter().map(|entry| entry.id).collect();
    let follow = ids.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let form = ManyForm {
        is_numbered: !follow,
        ..form
    };
    let text = form.text();
    let (columns, text) = &*text;
    // The parameters of what differs are not in the text.
    let common = columns.named_params(first.row);
    let common = common.map(|(name, value)| match form.is_for_each(name) {
        true => Param::Bool(false),
        false => value,
    });
    let list = form.list(columns, entries);
    let list = list.map_err(|error| diesel::result::Error::SerializationError(Box::new(error)))?;
    let statement = Statement::new(text).bind_all(common).bind(list);
    let statement = match follow {
        true => statement.bind(first.id),
        false => statement,
    };
    let mut entries = entries.to_vec();
    let mut new: BTreeSet<i64> = ids.into_iter().collect();
    match form.shape.has_key {
        true => {
            let jobs: Vec<Id> = statement.load(conn)?;
            new = jobs.into_iter().map(|job| job.id).collect();
            entries.retain(|entry| new.contains(&entry.id));
        }
        false => statement.execute(conn)?,
    }
    entries.sort_unstable_by_key(|entry| entry.id);
    let alike = (!form.is_mixed).then_some(first.row);
    executions::insert_executions(conn, &entries, alike)?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::new_row::NewLimit;

    type Change = fn(&mut NewRow);

    fn row() -> NewRow {
        NewRow::new("class".into(), "{}".into(), "queue".into(), 0)
    }

    /// A column that `are_alike` forgets would give all jobs of a statement the value of the first.
    #[test]
    fn jobs_that_differ_in_a_column_that_is_no_name_are_not_alike() {
        let limit = NewLimit {
            key: "key".into(),
            slots: 1,
            discards: false,
            ordered: false,
        };
        let limited = || NewRow {
            limit: Some(limit.clone()),
            ..row()
        };
        let changes: [(NewRow, Change); 14] = [
            (row(), |row| row.queue_name.push('2')),
            (row(), |row| row.class_name.push('2')),
            (row(), |row| row.priority = 2),
            (row(), |row| row.max_attempts = Some(2)),
            (row(), |row| row.max_crashes = Some(2)),
            (row(), |row| row.at_most_once = true),
            (row(), |row| row.policy = Some("{}".into())),
            (row(), |row| row.traceparent = Some("00".into())),
            (row(), |row| row.tenant = Some("a".into())),
            (row(), |row| row.batch_id = Some(2)),
            (row(), |row| row.at = Some(Default::default())),
            (row(), |row| row.delay = Some(2)),
            (limited(), |row| {
                row.limit.iter_mut().for_each(|limit| limit.slots = 2);
            }),
            (limited(), |row| {
                row.limit.iter_mut().for_each(|limit| limit.discards = true);
            }),
        ];
        let columns = JobColumns::all();
        let mut missing: BTreeSet<&str> = columns.inputs().filter(|name| !is_name(name)).collect();
        for (one, change) in &changes {
            let mut other = one.clone();
            change(&mut other);
            let values = |row| -> Vec<String> {
                let values = columns.named_params(row);
                values
                    .map(|(name, value)| format!("{name} {value:?}"))
                    .collect()
            };
            let (old, new) = (values(one), values(&other));
            assert_ne!(old, new);
            assert!(!are_alike(one, &other), "{other:?}");
            let differ = columns.inputs().zip(old.iter().zip(&new));
            for (name, _) in differ.filter(|(_, (old, new))| old != new) {
                missing.remove(name);
            }
        }
        assert!(missing.is_empty(), "no change of {missing:?} is checked");
    }
}
