//! Everything about batches.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::model::claim::{Cursor, FinishedRow};
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::{Ending, JobFailure};
use crate::db::plans::{Rows, Work, fence, job, run};
use crate::db::query::batches::walk::{self, BatchWalk, Members};
use crate::db::query::batches::{self as looks, BatchesWanted};
use crate::db::query::flows::{self as graph, EdgesOf};
use crate::db::query::job_view::{self, TextLimits};
use crate::db::table::flows::batches::{self, Addition, NewBatchRow};
use crate::db::table::flows::edges::{self, Resolved};
use crate::db::table::flows::{members, parents};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::transition::enqueue::{self, flows};
use crate::db::transition::flows::{admit, leave};
use crate::db::transition::{clear, end, finish, operate, promote};
use crate::read::sql::doctor::batches::{self as batch_rules, BatchRule};
use diesel::QueryResult;
use std::time::Duration;

pub(crate) const FLOWS: [(&str, Work); 17] = [
    ("enqueue a batch and add to it", |conn, rows| {
        let (batch, _) = enqueued(conn)?;
        assert_eq!(batches::accepts(conn, batch)?, Addition::Accepted);
        assert_eq!(looks::alike(conn, batch, &rows.jobs, "plan")?, None);
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
        assert_eq!(batches::without_retry(conn, &[batch])?, [0; 0]);
        assert!(!members::decide_failures(conn, batch)?);
        edges::give_up(conn, Resolved::Batches, &[batch])?;
        members::keep_failures(conn, &rows.jobs[1..2])?;
        leave::rejoin(conn, &rows.jobs[..1])
    }),
    ("cancel what follows", |conn, _| {
        let (_, follows) = enqueued(conn)?;
        operate::cancel(conn, &follows)?;
        wanted_keys::request(conn, [NewRequest::Child(follows[0])])?;
        promote_all(conn)
    }),
    ("look at batches", |conn, _| {
        let (batch, follows) = enqueued(conn)?;
        assert!(looks::status(conn, batch)?.is_some());
        assert!(looks::awaited_batch(conn, follows[0])?.is_some());
        Ok(())
    }),
    ("wait for jobs, which end in each way", |conn, rows| {
        let parents = &rows.jobs[..3];
        let all: Vec<Parent> = parents.iter().map(|job| Parent::Job(*job)).collect();
        let (batch, _) = enqueued(conn)?;
        let mut child = waits(&all);
        child
            .follows
            .get_or_insert_default()
            .parents
            .push((Parent::Batch(batch), None));
        let child = enqueue::insert_job(conn, &child)?.id;
        assert_eq!(parents::first_unknown(conn, parents)?, None);
        assert_eq!(batches::first_unknown(conn, &[batch])?, None);
        assert!(looks::awaited_jobs(conn, child)?.is_some());
        promote_all(conn)?;
        let fails = Ending::Fail(JobFailure::new("kind", "message"));
        let keep = FinishedRow::Keep;
        end::end(conn, fence(rows), &fails, Duration::ZERO, keep)?;
        operate::discard(conn, &rows.jobs[3..])?;
        promote_all(conn)?;
        wanted_keys::request(conn, [NewRequest::Ended(i64::MAX)])?;
        promote_all(conn)
    }),
    ("look for jobs that wait in vain", |conn, rows| {
        admit::request_overdue(conn, Cursor::BEGINNING, 10)?;
        enqueue::insert_job(conn, &waits(&[Parent::Job(rows.jobs[0])]))?;
        run(
            conn,
            "UPDATE windlass_edges SET created_at = '2020-01-01' WHERE parent_job_id IS NOT NULL",
        )?;
        admit::request_overdue(conn, Cursor::BEGINNING, 10).map(drop)
    }),
    ("read inputs", |conn, rows| {
        let (batch, _) = enqueued(conn)?;
        let mut child = waits(&[Parent::Job(rows.jobs[0]), Parent::Batch(batch)]);
        for (_, name) in &mut child.follows.get_or_insert_default().parents {
            *name = Some("a".to_owned());
        }
        let child = enqueue::insert_job(conn, &child)?.id;
        assert!(graph::named(conn, child, "a")?.is_some());
        graph::of_jobs(conn, child, 0)?;
        assert_eq!(graph::batches(conn, child)?.len(), 1);
        graph::of_batch(conn, batch, 0)?;
        let result = "INSERT INTO windlass_results (job_id, class_name, outcome, result, attempt, finished_at, expires_at)";
        let past = "'2000-01-01 00:00:00.000000'";
        let parent = rows.jobs[0];
        run(
            conn,
            &format!("DELETE FROM windlass_results WHERE job_id = {parent}"),
        )?;
        run(
            conn,
            &format!("{result} VALUES ({parent}, 'plan', 'succeeded', '1', 1, {past}, {past})"),
        )?;
        clear::expired::delete(conn, clear::expired::EXPIRING[0], 10).map(drop)
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
    ("list batches", |conn, _| {
        enqueued(conn)?;
        for wanted in [
            BatchesWanted::All,
            BatchesWanted::Open,
            BatchesWanted::Ended,
            BatchesWanted::Failed,
        ] {
            looks::page(conn, wanted, i64::MAX, 50, 10_000)?;
        }
        Ok(())
    }),
    ("look at one batch", |conn, _| {
        let (batch, _) = enqueued(conn)?;
        assert!(looks::one(conn, batch, 10_000)?.is_some());
        assert_eq!(looks::following(conn, batch, 10)?.len(), 3);
        looks::inner(conn, &[batch], 10).map(drop)
    }),
    ("look at what waits for what", |conn, rows| {
        let (batch, follows) = enqueued(conn)?;
        for which in [
            EdgesOf::Children,
            EdgesOf::ParentJobs,
            EdgesOf::ParentBatches,
        ] {
            graph::edges(conn, which, &[batch, follows[0]], 100)?;
        }
        graph::batches_of(conn, &rows.jobs[..2])?;
        let found = job_view::jobs(conn, &rows.jobs[..2], TextLimits::NONE)?;
        assert_eq!(found.len(), 2);
        job_view::results(conn, &rows.jobs[..2], TextLimits::NONE)?;
        assert_eq!(looks::some(conn, &[batch], 10_000)?.len(), 1);
        Ok(())
    }),
    ("pass the jobs of batches", |conn, _| {
        let (inner, _) = enqueued(conn)?;
        let (outer, _) = enqueued(conn)?;
        flows::nest(conn, outer, inner)?;
        for (which, expected) in [(Members::Open, 2), (Members::Failed, 0)] {
            let (mut walk, mut found) = (BatchWalk::of(outer, which), 0);
            while !walk.is_done() {
                found += walk.next(conn, which, 1)?.len();
            }
            assert_eq!(found, expected);
            walk::last(conn, which, outer)?;
        }
        Ok(())
    }),
    ("check batches", |conn, _| {
        enqueued(conn)?;
        for rule in BatchRule::ALL {
            batch_rules::broken(conn, rule)?;
        }
        Ok(())
    }),
    ("look for stalled batches", |conn, _| {
        leave::request_stalled(conn, 0, 10).map(drop)
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
        let cleared = clear::clear_ended_batches(conn, Duration::ZERO, batch - 1, 10)?;
        assert_eq!(cleared.cleared, 1);
        run(
            conn,
            "UPDATE windlass_edges SET child_job_id = -id WHERE id <= 5",
        )?;
        run(
            conn,
            "UPDATE windlass_batch_failures SET batch_id = -1 WHERE job_id < 0",
        )?;
        for rows in clear::expired::OWNED {
            clear::expired::delete_orphans(conn, rows, -5, 10)?;
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
    let batch = batches::create_batch(conn, &new)?;
    let mut follows = Vec::new();
    for (runs_on, otherwise) in [
        (On::Success, Otherwise::Wait),
        (On::Failure, Otherwise::Drop),
        (On::Finish, Otherwise::Drop),
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

/// A job that waits for these.
fn waits(parents: &[Parent]) -> NewRow {
    let follows = Follows {
        parents: parents.iter().map(|parent| (*parent, None)).collect(),
        ..Follows::default()
    };
    NewRow {
        follows: Some(Box::new(follows)),
        ..job(None)
    }
}
