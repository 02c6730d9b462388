//! The rules of `doctor`, checked for the newest rows only.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::statement::Statement;
use crate::db::query::doctor::{FIRST, Inconsistent, Rule};
use crate::db::query::newest_job::newest_id;
use diesel::prelude::*;

/// How many of the newest rows of each table are checked.
pub(crate) const NEWEST: u32 = 1_000;

const PLACES: [&str; 5] = ["ready", "claimed", "scheduled", "blocked", "failed"];

/// Among how many of the newest ids of jobs they are: Postgres passes each that was deleted lately.
const NEWEST_IDS: u32 = 50 * NEWEST;

/// Returns the id after which the newest jobs are.
fn before_newest(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => "0".to_owned(),
        Dialect::Postgres => format!(
            "greatest({}, {NEWEST_IDS}) - {NEWEST_IDS}",
            newest_id(dialect)
        ),
    }
}

/// Returns a SELECT of the newest executions of a kind, with conditions on an execution `newest`.
fn newest(place: &str, condition: &str) -> String {
    format!(
        "SELECT newest.job_id AS id FROM (SELECT job_id, id FROM solid_queue_{place}_executions WHERE id > 0 \
         ORDER BY id DESC LIMIT {NEWEST}) AS newest WHERE {condition}"
    )
}

/// Returns an expression for how many executions of a kind a job has: one or none.
///
/// For EXISTS, Postgres may read the whole table once, instead of looking each job up.
fn count_in(place: &str, job: &str) -> String {
    format!("(SELECT count(*) FROM solid_queue_{place}_executions o WHERE o.job_id = {job})")
}

fn query(rule: Rule, dialect: Dialect) -> String {
    let of_all = |condition: &str| {
        PLACES
            .map(|place| newest(place, condition))
            .join(" UNION ALL ")
    };
    let jobs = |condition: &str| {
        format!("(SELECT count(*) FROM solid_queue_jobs j WHERE j.id = newest.job_id{condition})")
    };
    match rule {
        Rule::IsSomewhere => {
            let everywhere = PLACES.map(|place| count_in(place, "newest.id"));
            format!(
                "SELECT newest.id FROM (SELECT id, finished_at FROM solid_queue_jobs \
                   WHERE id > {} ORDER BY id DESC LIMIT {NEWEST}) \
                 AS newest WHERE newest.finished_at IS NULL AND {} = 0",
                before_newest(dialect),
                everywhere.join(" + ")
            )
        }
        Rule::IsInOnePlace => {
            let of_places = PLACES.map(|place| {
                let others = PLACES.iter().filter(|other| **other != place);
                let others: Vec<String> = others
                    .map(|other| count_in(other, "newest.job_id"))
                    .collect();
                newest(place, &format!("{} > 0", others.join(" + ")))
            });
            of_places.join(" UNION ")
        }
        Rule::HasLeft => of_all(&format!("{} > 0", jobs(" AND j.finished_at IS NOT NULL"))),
        Rule::IsThere => of_all(&format!("{} = 0", jobs(""))),
        Rule::IsHeld => format!(
            "SELECT newest.job_id AS id FROM (SELECT job_id, process_id, id FROM solid_queue_claimed_executions WHERE id > 0 \
             ORDER BY id DESC LIMIT {NEWEST}) AS newest \
             WHERE (SELECT count(*) FROM solid_queue_processes p WHERE p.id = newest.process_id) = 0"
        ),
    }
}

/// Finds the jobs that break a rule, among the newest rows.
pub(crate) fn inconsistent(conn: &mut Conn<'_>, rule: Rule) -> QueryResult<Inconsistent> {
    let text = format!(
        "SELECT id FROM ({}) AS inconsistent ORDER BY id",
        query(rule, conn.dialect())
    );
    let rows: Vec<Id> = Statement::new(text).unkept().load(conn)?;
    Ok(Inconsistent {
        count: rows.len() as i64,
        jobs: rows.into_iter().take(FIRST).map(|row| row.id).collect(),
    })
}
