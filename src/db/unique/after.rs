//! What becomes of unique ids after a job: who waited for it goes on, a job
//! that failed takes its own back, and those of jobs that are gone are free.

use super::{AGAIN, TURNS, UniqueScope, holder, insert, lock, take_over};
use crate::db::conn::{Conn, on};
use crate::db::execution::{Execution, job_ids};
use crate::db::sql::{cached, id_list, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use serde::Deserialize;

/// Lets up to `batch` jobs go on whose unique id another had to give up
/// first, and returns how many. With `ended`, only those that waited for one
/// of these jobs.
pub(crate) fn unblock(
    conn: &mut Conn<'_>,
    ended: Option<&[i64]>,
    batch: usize,
) -> QueryResult<usize> {
    conn.transaction(|conn| {
        let which = match ended {
            Some(_) => {
                "b.job_id IN (SELECT job_id FROM windlass_unique_jobs WHERE after_job_id IN {in $3})"
            }
            None => "$3 = ''",
        };
        let text = conn.write(&format!(
            "SELECT b.job_id FROM solid_queue_blocked_executions b WHERE b.concurrency_key = $1 AND NOT EXISTS ( \
               SELECT 1 FROM windlass_unique_jobs u JOIN solid_queue_jobs h ON h.id = u.after_job_id \
               WHERE u.job_id = b.job_id AND h.finished_at IS NULL \
               AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = h.id)) \
             AND $2 > 0 AND {which} ORDER BY b.job_id + 0 LIMIT $2 {{lock skip of b}}"
        ));
        let free: Vec<Execution> = on!(conn, |c| cached(
            sql(text)
                .bind::<Text, _>(AGAIN)
                .bind::<BigInt, _>(batch as i64)
                .bind::<Text, _>(ended.map(id_list).unwrap_or_default())
        )
        .load(c))?;
        let free = job_ids(free);
        if free.is_empty() {
            return Ok(0);
        }
        let text = conn.write("DELETE FROM solid_queue_blocked_executions WHERE job_id IN {in $1}");
        on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(&free))).execute(c))?;
        crate::db::moves::place(conn, &free)?;
        Ok(free.len())
    })
}

#[derive(QueryableByName)]
struct Named {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    unique_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
}

#[derive(Deserialize)]
struct Policy {
    unique_scope: Option<UniqueScope>,
}

/// Takes the unique ids back for jobs that have failed and are to run again,
/// and returns those of the jobs whose unique id another holds by now.
pub(in crate::db) fn retake(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = conn.write(
        "WITH chosen AS MATERIALIZED (SELECT id, unique_id, policy FROM solid_queue_jobs WHERE id IN {in $1}) \
         SELECT id, unique_id, policy FROM chosen WHERE unique_id IS NOT NULL ORDER BY unique_id, id",
    );
    let named: Vec<Named> = on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(jobs)))
        .load(c))?;
    let mut refused = Vec::new();
    let mut had = String::new();
    for job in named {
        // Of two with the same one, only the first can have it.
        if job.unique_id == had || !retake_one(conn, &job)? {
            refused.push(job.id);
        } else {
            had = job.unique_id;
        }
    }
    Ok(refused)
}

fn retake_one(conn: &mut Conn<'_>, job: &Named) -> QueryResult<bool> {
    let stored: Option<Policy> = job
        .policy
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    let scope = stored
        .and_then(|policy| policy.unique_scope)
        .unwrap_or_default();
    let name = &job.unique_id;
    for _ in 0..TURNS {
        if !insert(conn, &[(name, job.id, scope.column())])?.is_empty() {
            return Ok(true);
        }
        let Some(hold) = lock(conn, name)? else {
            continue;
        };
        if holder(conn, &hold)?.is_some_and(|(holder, _)| holder != job.id) {
            return Ok(false);
        }
        take_over(conn, name, (job.id, scope), None)?;
        return Ok(true);
    }
    Err(diesel::result::Error::NotFound)
}

/// Takes away the rows of jobs that are gone, but for those that a result
/// still holds and those that somebody is about to change.
pub(in crate::db) fn forget(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<usize> {
    // Counts and not NOT EXISTS, for which the planner may read all jobs at once.
    let text = conn.write(
        "DELETE FROM windlass_unique_jobs WHERE unique_id IN (SELECT unique_id FROM windlass_unique_jobs u \
         WHERE job_id IN {in $1} \
         AND (SELECT count(*) FROM windlass_results r WHERE r.job_id = u.job_id AND r.expires_at > {now}) = 0 \
         AND (SELECT count(*) FROM solid_queue_jobs h WHERE h.id = u.after_job_id AND h.finished_at IS NULL) = 0 \
         ORDER BY unique_id || '' {lock skip})",
    );
    on!(conn, |c| sql(text)
        .bind::<Text, _>(id_list(jobs))
        .execute(c))
}
