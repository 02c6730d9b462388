//! `windlass_unique_jobs`: which job holds a unique id.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, id_list};
use crate::db::conn::statement::{InputRows, Statement};
use crate::db::model::new_row::UniqueScope;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::collections::BTreeSet;

/// A row: the job that holds the unique id.
#[derive(QueryableByName)]
pub(crate) struct UniqueRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) scope: String,
    /// The job that has to end before it.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) after_job_id: Option<i64>,
}

/// A row to insert: the unique id, its job and its scope.
#[derive(Debug)]
pub(crate) struct NewUniqueRow<'a>(pub(crate) &'a str, pub(crate) i64, pub(crate) &'static str);

#[derive(QueryableByName)]
struct TakenUniqueId {
    #[diesel(sql_type = Text)]
    unique_id: String,
}

/// Inserts unique ids that have no row, waits for transactions that are inserting the same ones,
/// and returns the inserted ones. The jobs of more than one are new: they hold no other unique id.
pub(crate) fn insert_free_unique_ids(
    conn: &mut Conn<'_>,
    entries: &[NewUniqueRow<'_>],
) -> QueryResult<BTreeSet<String>> {
    let input = InputRows {
        names: ["unique_id", "job_id", "scope"],
        rows: entries
            .iter()
            .map(|NewUniqueRow(name, job, scope)| [(*name).into(), job.into(), (*scope).into()])
            .collect(),
    };
    let text = format!(
        "INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
         SELECT input.unique_id, input.job_id, input.scope FROM {} WHERE true \
         ORDER BY {} ON CONFLICT (unique_id) DO NOTHING",
        input.item(conn.dialect()),
        match conn.dialect() {
            Dialect::Postgres => "input.unique_id COLLATE \"C\"",
            Dialect::Sqlite => "input.unique_id",
        }
    );
    let params = input.params(conn.dialect());
    let taken = Statement::new(text).bind_all(params).changes(conn)?;
    if taken == 0 {
        return Ok(BTreeSet::new());
    }
    if taken == entries.len() {
        return Ok(entries.iter().map(|entry| entry.0.to_owned()).collect());
    }
    let jobs: Vec<i64> = entries.iter().map(|entry| entry.1).collect();
    let text = "SELECT unique_id FROM windlass_unique_jobs WHERE job_id IN {in $1}";
    let rows: Vec<TakenUniqueId> = Statement::new(text).bind(id_list(&jobs)).load(conn)?;
    Ok(rows.into_iter().map(|row| row.unique_id).collect())
}

/// Inserts unique ids of one scope, for jobs from the id `first` on, on SQLite. Returns `false`, and inserts none, if one
/// has a row.
pub(crate) fn insert_if_free(
    conn: &mut Conn<'_>,
    first: i64,
    names: &[&str],
    scope: UniqueScope,
) -> QueryResult<bool> {
    let text = "INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
         SELECT value, $1 + key, $2 FROM json_each($3) WHERE true ORDER BY value ON CONFLICT (unique_id) DO NOTHING";
    let list = serde_json::to_string(names);
    let list = list.map_err(|error| diesel::result::Error::SerializationError(Box::new(error)))?;
    let statement = Statement::new(text).bind(first).bind(scope.column());
    if statement.bind(list).changes(conn)? == names.len() {
        return Ok(true);
    }
    let text = "DELETE FROM windlass_unique_jobs WHERE job_id BETWEEN $1 AND $2";
    let last = first + names.len() as i64 - 1;
    Statement::new(text).bind(first).bind(last).execute(conn)?;
    Ok(false)
}

/// Locks the row of a unique id.
pub(crate) fn lock_unique_id(conn: &mut Conn<'_>, name: &str) -> QueryResult<Option<UniqueRow>> {
    let text =
        "SELECT job_id, scope, after_job_id FROM windlass_unique_jobs WHERE unique_id = $1 {lock}";
    Statement::new(text).bind(name).get_result(conn).optional()
}

/// Gives a unique id, whose row is locked, to another job.
pub(crate) fn give_unique_id(
    conn: &mut Conn<'_>,
    name: &str,
    job: i64,
    scope: UniqueScope,
    after: Option<i64>,
) -> QueryResult<()> {
    let text = "UPDATE windlass_unique_jobs SET job_id = $1, scope = $2, after_job_id = $3 WHERE unique_id = $4";
    Statement::new(text)
        .bind(job)
        .bind(scope.column())
        .bind(after)
        .bind(name)
        .execute(conn)
}
