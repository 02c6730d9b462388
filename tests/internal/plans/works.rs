//! Everything that processes and programs ask of the tables.

use crate::db::conn::connection::Conn;
use crate::db::conn::listening;
use crate::db::model::claim::{ClaimQueues, Cursor, FinishedRow, PausedScan};
use crate::db::model::decision::KeySlots;
use crate::db::model::new_row::{NewExpiry, NewQuota, NewRow, OnConflict, QuotaLimits};
use crate::db::model::outcome::{ClaimEnd, Ending, JobFailure};
use crate::db::model::recurring::{DueTick, Firing, Overlap};
use crate::db::plans::{
    CLASS, Rows, Work, claim, claim_past_paused, death, fence, finish_and_claim_next,
    finish_and_tell, job, limited, named, register, run, with_steps, *,
};
use crate::db::query::job_view::{self, TextLimits};
use crate::db::query::status;
use crate::db::table::claimed::{self, ClaimNote, Note};
use crate::db::table::job_logs::{self, LoggedRun};
use crate::db::table::quotas::{self, QuotaJob};
use crate::db::table::scheduled::{self, DelayedJob};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{
    classes, expiries, history, jobs, pauses, processes, public_tokens, ready, recurring_tasks,
    run_time, semaphores, steps,
};
use crate::db::transition::clear::{self, ClearLimits};
use crate::db::transition::enqueue;
use crate::db::transition::operate::{self, AtMostOnce};
use crate::db::transition::recover::{self, ProcessAfter};
use crate::db::transition::{dispatch, end, finish, fire, pause, promote, prune, unique};
use std::time::Duration;

/// The works of the loops of a process, on connections of their own.
pub(crate) const LOOPS: [(&str, Work); 52] = [
    ("sample the queues", |conn, _| {
        status::queue(conn, "q1")?;
        status::gates(conn)?;
        status::fleet(conn).map(drop)
    }),
    ("store and fold what ended", |conn, _| store_and_fold(conn)),
    ("clear the history", |conn, _| {
        store_and_fold(conn)?;
        let age =
            "UPDATE windlass_stats_series SET folded_at = '2020-01-01' WHERE class_name = 'a'";
        run(conn, age)?;
        clear::old_buckets(conn, 0)?;
        history::series::idle_gates(conn, Duration::ZERO, 1)?;
        assert!(clear::unused(conn, 10)?.cleared > 0);
        Ok(())
    }),
    ("pass the paused classes", |conn, rows| {
        let (process, newest) = (rows.process, ready::newest(conn)?);
        let passed = Cursor {
            priority: 4,
            job_id: rows.jobs[0],
        };
        for queues in [ClaimQueues::All, named()] {
            claim_past_paused(conn, process, &queues, passed, PausedScan::FromCursors)?;
            let newer = PausedScan::NewerThan(newest - 100);
            claim_past_paused(conn, process, &queues, Cursor::END, newer)?;
        }
        pauses::names(conn).map(drop)
    }),
    ("discard expired jobs", |conn, _| {
        let job = enqueue::insert_job(conn, &expired())?.id;
        let expired = dispatch::expire(conn, 10)?;
        let expired: Vec<i64> = expired.discarded.iter().map(|job| job.id).collect();
        assert_eq!(expired, [job]);
        Ok(())
    }),
    ("start, release and retry jobs with limits", |conn, rows| {
        let job = rows.jobs[0];
        let text = format!(
            "UPDATE solid_queue_jobs SET policy = '{{\"expiry\":{{\"in\":1}}}}' WHERE id = {job}"
        );
        run(conn, &text)?;
        run(
            conn,
            &format!(
                "INSERT INTO windlass_expiries (job_id, expires_at) SELECT {job}, '2099-01-01' \
                      WHERE NOT EXISTS (SELECT 1 FROM windlass_expiries WHERE job_id = {job})"
            ),
        )?;
        assert!(!dispatch::has_expired(conn, job)?);
        let ending = Ending::Retry(JobFailure::new("kind", "message"), Duration::ZERO);
        let end = ClaimEnd {
            claim_id: fence(rows).claim_id,
            ending: &ending,
            ran: Duration::ZERO,
            last_retry: Some(chrono::NaiveDateTime::default()),
        };
        let mut ended = end::end_all(conn, rows.process, &[end], FinishedRow::Keep)?;
        assert!(matches!(ended.remove(0).ending, Ending::Fail(_)));
        expiries::note_released(conn, &[job])
    }),
    ("give a job back", |conn, rows| {
        let failure = JobFailure::new("kind", "message");
        let ending = Ending::GiveBack {
            failure: failure.clone(),
            delay: Duration::ZERO,
            otherwise: Box::new(Ending::Fail(failure)),
        };
        let end = ClaimEnd {
            claim_id: fence(rows).claim_id,
            ending: &ending,
            ran: Duration::ZERO,
            last_retry: None,
        };
        let mut ended = end::end_all(conn, rows.process, &[end], FinishedRow::Keep)?;
        assert!(matches!(ended.remove(0).ending, Ending::GiveBack { .. }));
        Ok(())
    }),
    ("read the paused classes", |conn, _| {
        run_time::paused(conn).map(drop)
    }),
    ("promote and discard", |conn, _| {
        let mut row = limited();
        row.limit.as_mut().unwrap().discards = true;
        enqueue::insert_all(conn, &vec![row; 3])?;
        assert_eq!(promote::promote(conn, 10)?.discarded.len(), 2);
        Ok(())
    }),
    ("signal semaphores of Ruby", |conn, rows| {
        run(
            conn,
            "INSERT INTO solid_queue_semaphores (key, value, expires_at, created_at, updated_at) \
             VALUES ('ruby', 2, '2026-01-01 00:00:00', '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
        )?;
        let job = rows.jobs[0];
        run(
            conn,
            &format!("DELETE FROM solid_queue_claimed_executions WHERE job_id = {job}"),
        )?;
        run(
            conn,
            &format!("UPDATE solid_queue_jobs SET concurrency_key = 'ruby' WHERE id = {job}"),
        )?;
        run(
            conn,
            &format!(
                "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
                 VALUES ({job}, 'q', 0, 'ruby', '2026-01-01 00:10:00', '2026-01-01 00:00:00')"
            ),
        )?;
        let requests = [
            NewRequest::Semaphore(0, 1),
            NewRequest::Key("ruby".to_owned()),
            NewRequest::Semaphore(-1, 1),
        ];
        wanted_keys::request(conn, requests)?;
        assert_eq!(promote::promote(conn, 10)?.ready, [job]);
        Ok(())
    }),
    ("clear", |conn, rows| {
        finish_and_tell(conn, rows)?;
        let unique = format!(
            "INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) VALUES ('cleared', {}, 'until_finished')",
            rows.jobs[0]
        );
        run(conn, &unique)?;
        let step = format!(
            "INSERT INTO windlass_steps (job_id, name, value, created_at) VALUES ({}, 'cleared', '1', '2026-01-01')",
            rows.jobs[0]
        );
        run(conn, &step)?;
        let log = format!(
            "INSERT INTO windlass_job_logs (job_id, claim_id, attempt, started_at, lines, total) VALUES ({}, 1, 1, '2026-01-01', '[]', 0)",
            rows.jobs[0]
        );
        run(conn, &log)?;
        let old = ClearLimits {
            age: Duration::ZERO,
            up_to: 0,
            of_ruby: true,
        };
        let before = rows.jobs[0] - 1;
        let parent = format!(
            "UPDATE solid_queue_jobs SET has_dependents = true WHERE id = {}",
            rows.jobs[0]
        );
        run(conn, &parent)?;
        assert_eq!(clear::finished(conn, old, before, 10)?.cleared, 3);
        for table in clear::expired::EXPIRING {
            clear::expired::delete(conn, table, 10)?;
        }
        for rows in clear::expired::OWNED {
            clear::expired::delete_orphans(conn, rows, 0, 10)?;
        }
        Ok(())
    }),
    ("name the classes", |conn, rows| {
        let class = classes::NewClass {
            class_name: "plan".into(),
            queue_name: "q1".into(),
            redact: "[]".into(),
            internal: true,
            ..classes::NewClass::default()
        };
        classes::see(conn, &[class])?;
        assert_eq!(classes::redact(conn, "plan")?, Some(Vec::new()));
        classes::has_internal(conn, rows.jobs[0])?;
        let refused = classes::named(conn, &["other", "plan"])?;
        assert_eq!(refused[0].class_name, "plan");
        classes::forget(conn, Duration::ZERO).map(drop)
    }),
    ("raise the largest payload", |conn, _| {
        assert!(run_time::set_max_payload(conn, 100_000)?);
        assert_eq!(run_time::max_payload(conn)?, Some(100_000));
        Ok(())
    }),
    ("refuse unknown classes", |conn, _| {
        assert!(run_time::set_strict(conn, true)? && run_time::set_strict(conn, false)?);
        Ok(())
    }),
    ("clear failed jobs", |conn, rows| {
        let ending = Ending::Fail(JobFailure::new("kind", "message"));
        end::end(
            conn,
            fence(rows),
            &ending,
            Duration::ZERO,
            FinishedRow::Keep,
        )?;
        assert!(clear::failed(conn, Duration::ZERO, 0, 10)?.cleared > 0);
        Ok(())
    }),
    ("recover claim by claim", |conn, rows| {
        prune::without_row(conn)?;
        prune::prune_one_by_one(conn, rows.process, None, &death()).map(drop)
    }),
    ("promote", |conn, _| {
        enqueue::insert_all(conn, &vec![limited(); 3])?;
        wanted_keys::last_id(conn)?;
        assert_eq!(promote::promote(conn, 10)?.ready.len(), 1);
        Ok(())
    }),
    ("look for free slots", |conn, _| {
        enqueue::insert_job(conn, &limited())?;
        semaphores::sweep(conn, "", 10).map(drop)
    }),
    ("claim from all queues", |conn, rows| {
        claim(conn, rows.process, &ClaimQueues::All).map(drop)
    }),
    ("claim from named queues", |conn, rows| {
        claim(conn, rows.process, &named()).map(drop)
    }),
    ("list the queues", |conn, _| {
        ready::queue_names(conn, "q").map(drop)
    }),
    ("list the foremost queues", |conn, _| {
        ready::foremost(conn).map(drop)
    }),
    ("look at the paused queues", |conn, _| {
        pause::pause(conn, "q1", None, None)?;
        ready::are_pauses_crowded(conn).map(drop)
    }),
    ("finish and keep", |conn, rows| {
        finish::finish_free(
            conn,
            rows.process,
            &rows.claims,
            FinishedRow::Keep,
            KeySlots::None,
        )
        .map(drop)
    }),
    ("finish and delete", |conn, rows| {
        finish::finish_free(
            conn,
            rows.process,
            &rows.claims,
            FinishedRow::Delete,
            KeySlots::Free,
        )
        .map(drop)
    }),
    ("finish and claim next", |conn, rows| {
        finish_and_claim_next(conn, rows)
    }),
    ("finish and tell", |conn, rows| finish_and_tell(conn, rows)),
    ("look for jobs whose turn has come", |conn, rows| {
        ready_again(conn, &rows.jobs[3..4])?;
        run(conn, &waits_for_another(rows.jobs[3]))?;
        assert_eq!(unique::sweep(conn, Cursor::BEGINNING, 10)?.unblocked, 1);
        Ok(())
    }),
    ("finish a job with steps", |conn, rows| {
        let jobs = vec![with_steps(rows)];
        finish::finish_and_keep(conn, rows.process, jobs, FinishedRow::Keep, KeySlots::None)
            .map(drop)
    }),
    ("note the progress", |conn, rows| {
        let note = Note::default();
        let told = rows.claims.iter().map(|claim| ClaimNote {
            claim_id: *claim,
            note: &note,
        });
        let told: Vec<_> = told.collect();
        claimed::save(conn, rows.process, &told).map(drop)
    }),
    ("store what jobs log", |conn, rows| {
        let line = LoggedRun {
            fence: fence(rows),
            job_id: rows.jobs[0],
            attempt: 1,
            ran: Duration::ZERO,
            lines: "[]".to_owned(),
            total: 1,
            is_first: true,
        };
        job_logs::save(conn, &[line])
    }),
    ("condemn", |conn, rows| {
        let ending = Ending::Fail(JobFailure::new("kind", "message"));
        recover::record_timeout(conn, fence(rows), &ending, ProcessAfter::Ends).map(drop)
    }),
    ("fail", |conn, rows| {
        let ending = Ending::Fail(JobFailure::new("kind", "message"));
        end::end(
            conn,
            fence(rows),
            &ending,
            Duration::ZERO,
            FinishedRow::Keep,
        )
        .map(drop)
    }),
    ("release", |conn, rows| {
        end::release(conn, rows.process, &rows.claims, None).map(drop)
    }),
    ("release for later", |conn, rows| {
        let delay = Some(Duration::from_secs(1));
        end::release(conn, rows.process, &rows.claims, delay).map(drop)
    }),
    ("ask what has ended", |conn, rows| {
        jobs::ended_claims(conn, &[claim_of(rows)]).map(drop)
    }),
    ("read the arguments for a follow-up", |conn, rows| {
        jobs::arguments_of(conn, &rows.jobs).map(drop)
    }),
    ("read the claims", |conn, rows| {
        claimed::held_by(conn, rows.process).map(drop)
    }),
    ("beat", |conn, rows| {
        processes::heartbeat(conn, rows.process, "x").map(drop)
    }),
    ("drain", |conn, rows| processes::drain(conn, rows.process)),
    ("say who listens", |conn, rows| {
        processes::listen(conn, rows.process, true)?;
        listening::pass_on(conn, rows.process)
    }),
    ("ask for jobs", |conn, rows| {
        let peer = register(conn)?;
        let text = format!(
            "UPDATE solid_queue_processes SET channel = 'c', listening = (id <> {})",
            rows.process
        );
        run(conn, &text)?;
        processes::request_release(conn, peer)?;
        processes::take_release_request(conn, rows.process).map(drop)
    }),
    ("recover what was claimed ahead", |conn, rows| {
        let text = format!(
            "UPDATE solid_queue_claimed_executions SET prefetched = true WHERE id = {}",
            rows.claims[0]
        );
        run(conn, &text)?;
        prune::prune(conn, rows.process, None, &death()).map(drop)
    }),
    ("deregister", |conn, _| {
        let process = register(conn)?;
        prune::deregister(conn, process).map(drop)
    }),
    ("dispatch", |conn, rows| {
        let job = DelayedJob {
            keeps_slot: true,
            job_id: rows.jobs[3],
            delay: Duration::ZERO,
        };
        scheduled::insert_each(conn, &[job])?;
        ready_again(conn, &rows.jobs[3..4])?;
        dispatch::dispatch(conn, 10, &[]).map(drop)
    }),
    ("dispatch past refused jobs", |conn, rows| {
        dispatch::dispatch(conn, 10, &rows.jobs[..1])?;
        dispatch::one_by_one(conn, 10, &[])?;
        wanted_keys::postpone(conn, 0)
    }),
    ("fire recurring tasks", |conn, rows| {
        fire(conn, rows, Overlap::QueueOne)?;
        run(conn, "DELETE FROM solid_queue_recurring_tasks")?;
        fire(conn, rows, Overlap::Allow)?;
        let now = recurring_tasks::now(conn)?;
        recurring_tasks::next_tick(conn, r#"["t1"]"#, now).map(drop)
    }),
    ("look for due jobs", |conn, _| {
        scheduled::next_due(conn).map(drop)
    }),
    ("watch", |conn, _| processes::observe(conn).map(drop)),
    ("find a child's processes", |conn, _| {
        prune::of_child(conn, "x").map(drop)
    }),
    ("prune", |conn, rows| {
        prune::prune(conn, rows.process, None, &death()).map(drop)
    }),
    ("prune again and again", |conn, rows| {
        let text = format!(
            "UPDATE solid_queue_jobs SET crash_count = 2 + id % 3 WHERE id >= {}",
            rows.jobs[0]
        );
        run(conn, &text)?;
        prune::prune(conn, rows.process, Some(0), &death()).map(drop)
    }),
];

/// The works of a program, on connections of its own.
pub(crate) const CALLERS: [(&str, Work); 20] = [
    ("enqueue and explain a job with an expiry", |conn, _| {
        let job = enqueue::insert_job(conn, &expired())?.id;
        assert!(expiries::of_job(conn, job)?.is_some());
        Ok(())
    }),
    ("enqueue with a quota", |conn, rows| {
        let quota = NewQuota {
            name: "plan".into(),
            limits: QuotaLimits {
                waiting: Some(1),
                per_second: Some(2),
                per_minute: Some(2),
                per_day: Some(10),
                shed: true,
            },
        };
        // A note of a job that does not wait any more.
        quotas::note(
            conn,
            &[QuotaJob {
                job_id: rows.jobs[0],
                quota: "plan".into(),
                slot: 0,
            }],
        )?;
        let row = || NewRow {
            quota: Some(quota.clone()),
            ..NewRow::new("plan".into(), "{}".into(), "q1".into(), 0)
        };
        enqueue::admit::insert_all(conn, &[row(), row(), row()])
            .map_err(|_| RollbackTransaction)?;
        clear::clear(conn, 10).map(drop)
    }),
    ("cancel", |conn, rows| {
        operate::cancel(conn, &rows.jobs).map(drop)
    }),
    ("discard", |conn, rows| {
        operate::discard(conn, &rows.jobs).map(drop)
    }),
    ("retry", |conn, rows| {
        let ending = Ending::Fail(JobFailure::new("kind", "message"));
        end::end(
            conn,
            fence(rows),
            &ending,
            Duration::ZERO,
            FinishedRow::Keep,
        )?;
        operate::retry(conn, &rows.jobs, AtMostOnce::Leave).map(drop)
    }),
    ("move", |conn, rows| {
        operate::reschedule(conn, &rows.jobs, operate::RunTime::In(1_000_000))?;
        operate::change_priority(conn, &rows.jobs, 7)?;
        operate::open(conn, &rows.jobs).map(drop)
    }),
    ("do a step", |conn, rows| {
        steps::begin(conn, fence(rows), "a")?;
        steps::record(conn, rows.jobs[0], "a", "null")
    }),
    ("show a job", |conn, rows| {
        steps::first(conn, rows.jobs[0], 10).map(drop)
    }),
    ("read the steps", |conn, rows| {
        steps::of_job(conn, rows.jobs[0], 10).map(drop)
    }),
    ("finish in a transaction of the job", |conn, rows| {
        let claim = claim_of(rows);
        finish::finish_and_keep(
            conn,
            rows.process,
            vec![with_steps(rows)],
            FinishedRow::Keep,
            KeySlots::None,
        )?;
        jobs::ended_by_owner(conn, claim).map(drop)
    }),
    ("enqueue", |conn, _| {
        enqueue::insert_job(conn, &job(None)).map(drop)
    }),
    ("enqueue with a key", |conn, _| {
        enqueue::insert_job(conn, &job(Some("k")))?;
        enqueue::insert_job(conn, &job(Some("k"))).map(drop)
    }),
    ("see a job by its token", |conn, _| {
        public_tokens::find(conn, "none").map(drop)
    }),
    ("enqueue many", |conn, _| {
        enqueue::insert_all(conn, &vec![job(None); 3]).map(drop)
    }),
    ("enqueue many that are alike", |conn, _| {
        for (number, limit) in [None, limited().limit].into_iter().enumerate() {
            let row = |name: u32| NewRow {
                unique_id: Some(format!("alike {number} {name}")),
                limit: limit.clone(),
                ..job(None)
            };
            let all = enqueue::insert_all(conn, &[row(2), row(3), row(4)])?;
            assert!(all[2].is_new);
            let some = enqueue::insert_all(conn, &[row(4), row(5)])?;
            assert_eq!([some[0].is_new, some[1].is_new], [false, true]);
            let plain = NewRow {
                unique_id: None,
                ..row(1)
            };
            enqueue::insert_all(conn, &vec![plain; 3])?;
        }
        Ok(())
    }),
    ("enqueue many that differ", |conn, _| {
        let other = NewRow {
            priority: 7,
            ..job(None)
        };
        enqueue::insert_all(conn, &[job(None), other]).map(drop)
    }),
    ("enqueue many with keys", |conn, _| {
        let rows = [job(Some("k")), job(None), job(Some("l")), job(Some("k"))];
        enqueue::insert_all(conn, &rows).map(drop)
    }),
    ("enqueue with a unique id", |conn, rows| {
        for on_conflict in [OnConflict::Existing, OnConflict::Replace] {
            let row = NewRow {
                unique_id: Some("u".to_owned()),
                on_conflict,
                ..job(None)
            };
            enqueue::insert_job(conn, &row)?;
            enqueue::insert_job(conn, &row)?;
        }
        unique::retake(conn, &rows.jobs).map(drop)
    }),
    ("enqueue with a free unique id", |conn, _| {
        let delays = [None, None, Some(1)];
        for (delay, limit) in delays.into_iter().zip([None, limited().limit, None]) {
            let row = NewRow {
                unique_id: Some(format!("free {} {}", delay.is_some(), limit.is_some())),
                delay,
                limit,
                ..job(None)
            };
            enqueue::insert_job(conn, &row)?;
        }
        Ok(())
    }),
    ("look a job up", |conn, rows| {
        job_view::with_unique_id(conn, "u")?;
        job_view::jobs(conn, &rows.jobs[..1], TextLimits::WHOLE)?;
        job_view::results(conn, &rows.jobs[..1], TextLimits::WHOLE).map(drop)
    }),
];

/// Schedules a task, with two jobs that may not have ended, and fires its tick.
fn fire(conn: &mut Conn<'_>, rows: &Rows, overlap: Overlap) -> QueryResult<()> {
    let text = format!(
        "INSERT INTO solid_queue_recurring_tasks \
           (key, schedule, class_name, static, next_run_at, open_jobs, created_at, updated_at) \
         VALUES ('t1', '@hourly', '{CLASS}', FALSE, '2026-01-01 00:00:00.000000', '[7,{}]', '2026-01-01', '2026-01-01')",
        rows.jobs[5]
    );
    run(conn, &text)?;
    let due = recurring_tasks::due(conn, r#"["t1"]"#, 0)?;
    let tick = due[0].next_run_at.unwrap();
    let firing = Firing {
        task: &due[0],
        ticks: &[DueTick {
            at: tick,
            job: job(None),
        }],
        next_run_at: tick + Duration::from_secs(3600),
        overlap,
    };
    let fired = fire::fire(conn, &[firing])?.remove(0).unwrap();
    assert_eq!(fired.jobs.is_empty(), overlap == Overlap::QueueOne);
    Ok(())
}

/// Makes room for a dispatch of jobs that are ready.
pub(crate) fn ready_again(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    run(
        conn,
        &format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {}",
            jobs[0]
        ),
    )
}

/// A job that has expired.
fn expired() -> NewRow {
    let mut row = job(None);
    row.policy = Some(r#"{"expiry":{"in":1}}"#.to_owned());
    row.expiry = Some(NewExpiry::At(chrono::NaiveDateTime::default()));
    row
}

/// Has a job wait for another, which is gone.
fn waits_for_another(job: i64) -> String {
    format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, concurrency_key, expires_at, created_at) \
         VALUES ({job}, 'q1', '{}', '9999-12-31 23:59:59.000000', '2026-01-01')",
        crate::db::model::new_row::UNIQUE_SUCCESSOR
    )
}
