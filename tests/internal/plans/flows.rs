//! Everything about batches.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::model::claim::FinishedRow;
use crate::db::model::finished::{FinishedJob, KeySlots};
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::{Ending, JobFailure};
use crate::db::plans::{Rows, Work, fence, job, run};
use crate::db::query::batches as looks;
use crate::db::table::flows::CHILD;
use crate::db::table::flows::batches::{self, Addition, NewBatchRow};
use crate::db::table::flows::edges::{Otherwise, RunsOn};
use crate::db::table::wanted_keys;
use crate::db::transition::flows::{complete, enqueue as flows, leave};
use crate::db::transition::{clear, end, enqueue, finish, operate, promote};
use diesel::QueryResult;
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) const FLOWS: [(&str, Work); 9] = [
    ("enqueue a batch and add to it", |conn, _| {
        let (batch, _) = enqueued(conn)?;
        assert_eq!(batches::accepts(conn, batch)?, Addition::Accepted);
        let new = enqueue::insert_all(conn, &[member(batch)])?[0].id;
        flows::add(conn, batch, &[new])?;
        promote_all(conn)
    }),
    ("end a batch with a batch in it", |conn, rows| {
        let (inner, _) = enqueued(conn)?;
        let (outer, _) = enqueued(conn)?;
        flows::nest(conn, outer, inner)?;
        join(conn, rows, inner)?;
        let done = FinishedJob {
            claim_id: rows.claims[0],
            result: None,
            named: None,
            has_steps: false,
            has_batch: true,
        };
        let (row, slots) = (FinishedRow::Keep, KeySlots::None);
        finish::finish_and_keep(conn, rows.process, vec![done], row, slots)?;
        for batch in [inner, outer] {
            run(
                conn,
                &format!(
                    "DELETE FROM solid_queue_batch_executions WHERE batch_id = {batch} AND job_id NOT IN \
                 (SELECT child_job_id FROM windlass_edges)"
                ),
            )?;
        }
        promote_all(conn)
    }),
    ("fail in a batch and be retried", |conn, rows| {
        let (batch, _) = enqueued(conn)?;
        join(conn, rows, batch)?;
        let ending = Ending::Fail(JobFailure::new("kind", "message"));
        end::end(
            conn,
            fence(rows),
            &ending,
            Duration::ZERO,
            FinishedRow::Keep,
        )?;
        leave::rejoin(conn, &rows.jobs[..1])
    }),
    ("cancel what follows", |conn, _| {
        let (_, follows) = enqueued(conn)?;
        operate::cancel(conn, &follows)?;
        let gone = BTreeSet::from([format!("{CHILD}{}", follows[0])]);
        wanted_keys::request_promotion(conn, &gone)?;
        promote_all(conn)
    }),
    ("look at batches", |conn, _| {
        let (batch, follows) = enqueued(conn)?;
        assert!(looks::status(conn, batch)?.is_some());
        assert!(looks::awaited(conn, follows[0])?.is_some());
        Ok(())
    }),
    ("look at the front of a batch", |conn, _| {
        let (batch, _) = enqueued(conn)?;
        // Not sent on SQLite, which keeps no entries of deleted rows.
        if conn.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let fronts = batches::fronts(conn, &[(batch, 1)])?;
        assert!(fronts[0].id == batch && fronts[0].first.is_some());
        Ok(())
    }),
    ("look for stalled batches", |conn, _| {
        complete::request_stalled(conn, 0, 10).map(drop)
    }),
    ("look for ended jobs in batches", |conn, rows| {
        let (batch, _) = enqueued(conn)?;
        join(conn, rows, batch)?;
        let first = rows.jobs[0];
        run(
            conn,
            &format!(
                "UPDATE solid_queue_batch_executions SET created_at = '2020-01-01' WHERE job_id = {first}"
            ),
        )?;
        run(
            conn,
            &format!("UPDATE solid_queue_jobs SET finished_at = '2020-01-01' WHERE id = {first}"),
        )?;
        assert_eq!(leave::sweep(conn, first - 1, 1_000)?.left, 1);
        Ok(())
    }),
    ("clear batches", |conn, _| {
        let (batch, _) = enqueued(conn)?;
        run(
            conn,
            &format!(
                "UPDATE solid_queue_batches SET finished_at = '2020-01-01' WHERE id = {batch}"
            ),
        )?;
        run(
            conn,
            &format!(
                "DELETE FROM solid_queue_jobs WHERE batch_id = {batch} OR id IN \
             (SELECT child_job_id FROM windlass_edges WHERE parent_batch_id = {batch})"
            ),
        )?;
        let cleared = clear::batches::over(conn, Duration::ZERO, batch - 1, 10)?;
        assert_eq!(cleared.cleared, 1);
        run(
            conn,
            "UPDATE windlass_edges SET parent_batch_id = -1 WHERE id <= 5",
        )?;
        run(
            conn,
            "UPDATE windlass_batch_failures SET batch_id = -1 WHERE job_id < 0",
        )?;
        for table in clear::batches::TABLES_OF_BATCHES {
            clear::batches::orphans(conn, table, -5, 10)?;
        }
        Ok(())
    }),
];

fn promote_all(conn: &mut Conn<'_>) -> QueryResult<()> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    Ok(())
}

fn member(batch: i64) -> NewRow {
    NewRow {
        batch_id: Some(batch),
        ..job(None)
    }
}

/// A batch with a job, and the jobs that follow it.
fn enqueued(conn: &mut Conn<'_>) -> QueryResult<(i64, Vec<i64>)> {
    let uuid = format!("windlass-plan-{:x}", fastrand::u64(..));
    let new = NewBatchRow {
        name: "plan",
        metadata: None,
        uuid: &uuid,
    };
    let batch = batches::insert(conn, &new)?;
    let mut follows = Vec::new();
    for (runs_on, otherwise) in [
        (RunsOn::Success, Otherwise::Wait),
        (RunsOn::Failure, Otherwise::Drop),
        (RunsOn::Finish, Otherwise::Drop),
    ] {
        follows.extend(flows::follow(
            conn,
            batch,
            &[job(None)],
            runs_on,
            otherwise,
        )?);
    }
    let jobs = enqueue::insert_all(conn, &[member(batch)])?;
    flows::fill(conn, batch, &[jobs[0].id])?;
    flows::end_if_empty(conn, batch)?;
    Ok((batch, follows))
}

/// Lets the first job that the process holds be one of the batch.
fn join(conn: &mut Conn<'_>, rows: &Rows, batch: i64) -> QueryResult<()> {
    let first = rows.jobs[0];
    run(
        conn,
        &format!("UPDATE solid_queue_jobs SET batch_id = {batch} WHERE id = {first}"),
    )?;
    flows::fill(conn, batch, &[first])
}
