//! `windlass_unique_jobs`: which job holds a unique id.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::conn::statement::{InputRows, Statement};
use diesel::prelude::*;
use diesel::sql_types::Text;
use std::collections::BTreeSet;

/// A row to insert: the unique id, its job and its scope.
#[derive(Debug)]
pub(crate) struct NewUniqueRow<'a>(pub(crate) &'a str, pub(crate) i64, pub(crate) &'static str);

#[derive(QueryableByName)]
struct TakenUniqueId {
    #[diesel(sql_type = Text)]
    unique_id: String,
}

/// Inserts unique ids that have no row, waits for transactions that are inserting the same ones,
/// and returns the inserted ones.
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
         ORDER BY 1 ON CONFLICT (unique_id) DO NOTHING",
        input.item(conn.dialect())
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
    let names: BTreeSet<String> = rows.into_iter().map(|row| row.unique_id).collect();
    Ok(entries
        .iter()
        .filter(|entry| names.contains(entry.0))
        .map(|entry| entry.0.to_owned())
        .collect())
}
