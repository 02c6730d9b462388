//! What follows the end of a run that did not finish.

use crate::db::conn::connection::{Conn, on};
use crate::db::conn::sql::{cached, sql};
use crate::db::model::claim::{Ended, Finished};
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::{
    AttemptOutcome, Began, End, EndedRun, Ending, Endings, FailedJob, Failure, Policy,
    ResultOutcome, cancelled,
};
use crate::db::table::{attempts, claimed, failed, results};
use crate::db::transition::{enqueue, place, unblock};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Fails a job for good: keeps the reason and the result, lets the next job
/// with its unique id go on, and enqueues the job that its policy names.
pub(crate) fn fail(conn: &mut Conn<'_>, job_id: i64, failure: &Failure) -> QueryResult<()> {
    failed::insert(conn, job_id, failure)?;
    let named = results::record(conn, &[job_id], ResultOutcome::Failed, failure, 1)?;
    if !named.is_empty() {
        unblock::unblock(conn, &named)?;
    }
    follow_up(conn, job_id, failure)
}

/// Enqueues the job that its policy names for the failure.
fn follow_up(conn: &mut Conn<'_>, job_id: i64, failure: &Failure) -> QueryResult<()> {
    let text = conn.write(
        "SELECT class_name, queue_name, arguments, attempts, policy FROM solid_queue_jobs \
         WHERE id = $1 AND policy IS NOT NULL",
    );
    let job: Option<FailedJob> = on!(conn, |c| cached(sql(text).bind::<BigInt, _>(job_id))
        .get_result(c))
    .optional()?;
    let Some(job) = job else { return Ok(()) };
    let policy: Option<Policy> = serde_json::from_str(&job.policy).ok();
    let Some(hook) = policy.and_then(|policy| policy.on_failure) else {
        return Ok(());
    };
    let arguments = job.arguments.as_deref().unwrap_or("null");
    let arguments = json!({
        "job_id": job_id,
        "class_name": job.class_name,
        "queue_name": job.queue_name,
        "arguments": serde_json::from_str(arguments).unwrap_or(Value::Null),
        "attempts": job.attempts.saturating_add(1),
        "kind": failure.kind,
        "message": failure.message,
    });
    let row = NewRow::new(hook.class, arguments.to_string(), hook.queue, hook.priority);
    enqueue::insert(conn, &row).map(drop)
}

/// Does what follows the ends of claims.
pub(crate) fn follow_all(
    conn: &mut Conn<'_>,
    process_id: i64,
    ends: &[End<'_>],
    (held, finished): (Vec<Ended>, Finished),
) -> QueryResult<Endings> {
    let held: BTreeMap<i64, Ended> = held.into_iter().map(|row| (row.claim_id, row)).collect();
    let mut done = Vec::with_capacity(held.len());
    for (claim_id, ending, ran) in ends {
        let Some(ended) = held.get(claim_id) else {
            continue;
        };
        let ending = if ended.cancelled {
            Ending::Cancel(cancelled())
        } else {
            (*ending).clone()
        };
        let run = EndedRun {
            process_id,
            claim_id: *claim_id,
            job_id: ended.job_id,
            began: Began::Ago(*ran),
            by_owner: true,
            finished,
        };
        follow(conn, &run, &ending)?;
        done.push((*claim_id, ending));
    }
    Ok(done)
}

/// Does what follows the end of a claim.
pub(crate) fn follow(conn: &mut Conn<'_>, run: &EndedRun, ending: &Ending) -> QueryResult<()> {
    match ending {
        Ending::Fail(failure) => {
            fail(conn, run.job_id, failure)?;
            attempts::insert(conn, run, AttemptOutcome::Failed, failure)?;
            count(conn, run)
        }
        Ending::Retry(failure, delay) => {
            place::make_waiting(conn, &[run.job_id], Some(*delay))?;
            attempts::insert(conn, run, AttemptOutcome::Retried, failure)?;
            count(conn, run)
        }
        Ending::Discard(failure) => {
            attempts::insert(conn, run, AttemptOutcome::Discarded, failure)?;
            close(conn, run, ResultOutcome::Discarded, failure)
        }
        Ending::Cancel(failure) if !run.has_begun() => {
            attempts::insert_waiting(conn, &[run.job_id], AttemptOutcome::Cancelled, failure)?;
            close(conn, run, ResultOutcome::Cancelled, failure)
        }
        Ending::Cancel(failure) => {
            attempts::insert(conn, run, AttemptOutcome::Cancelled, failure)?;
            close(conn, run, ResultOutcome::Cancelled, failure)
        }
        Ending::Snooze(_) | Ending::Release(_) => {
            let delay = match ending {
                Ending::Snooze(delay) => Some(*delay),
                _ => None,
            };
            place::make_waiting(conn, &[run.job_id], delay)?;
            if run.by_owner {
                claimed::note_claim(conn, run.claim_id, run.job_id)?;
            }
            Ok(())
        }
    }
}

/// One attempt was used.
pub(crate) fn count(conn: &mut Conn<'_>, run: &EndedRun) -> QueryResult<()> {
    // A count that can grow no more, as other programs may leave it, stays.
    let text = conn.write(
        "UPDATE solid_queue_jobs SET attempts = {next attempts}, last_claim_id = coalesce($1, last_claim_id), \
         updated_at = {now} WHERE id = $2",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<Nullable<BigInt>, _>(run.by_owner.then_some(run.claim_id))
            .bind::<BigInt, _>(run.job_id)
    )
    .execute(c))
    .map(drop)
}

/// The job has come to its end without having failed.
fn close(
    conn: &mut Conn<'_>,
    run: &EndedRun,
    outcome: ResultOutcome,
    failure: &Failure,
) -> QueryResult<()> {
    let ran = i32::from(run.has_begun());
    let named = results::record(conn, &[run.job_id], outcome, failure, ran)?;
    if run.finished == Finished::Delete {
        crate::db::transition::clear::delete(conn, &[run.job_id])?;
    } else {
        crate::db::table::steps::remove(conn, &[run.job_id])?;
        if run.has_begun() {
            count(conn, run)?;
        } else if run.by_owner {
            claimed::note_claim(conn, run.claim_id, run.job_id)?;
        }
        let text = conn.write("UPDATE solid_queue_jobs SET finished_at = {now} WHERE id = $1");
        on!(conn, |c| cached(sql(text).bind::<BigInt, _>(run.job_id))
            .execute(c))?;
    }
    if !named.is_empty() {
        unblock::unblock(conn, &named)?;
    }
    Ok(())
}
