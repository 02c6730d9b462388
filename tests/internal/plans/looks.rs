//! Queries and changes that people and programs make now and then.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::IdRange;
use crate::db::model::claim::{ClaimOf, Fence, FinishedRow};
use crate::db::model::decision::{JobState, KeySlots};
use crate::db::model::extras::TagChange;
use crate::db::model::history::cell::Resolution;
use crate::db::model::new_row::{NewRow, OnConflict};
use crate::db::model::outcome::{Ending, JobFailure};
use crate::db::model::rate::SetPace;
use crate::db::model::recurring::{Definition, RecurringTaskRow};
use crate::db::plans::works::ready_again;
use crate::db::plans::{CLASS, Rows, Work, claim, death, job, named, run, web_pages, *};
use crate::db::query::explain::{self, RubyProcesses};
use crate::db::query::filter::Filter;
use crate::db::query::history::LookBack;
use crate::db::query::{history, job_view, jobs, status, ticks};
use crate::db::table::history::{deltas, series};
use crate::db::table::jobs::EditableJob;
use crate::db::table::public_tokens::NewPublicToken;
use crate::db::table::run_time;
use crate::db::table::run_time::limits::{self, LimitPart, NewRunTimeLimit};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{
    attempts, claimed, pauses, processes, quotas, recurring_executions, recurring_tasks, results,
    semaphores,
};
use crate::db::transition::enqueue::{self, insert_job, rank};
use crate::db::transition::operate::edit::{self, NewArguments};
use crate::db::transition::operate::{self, AtMostOnce};
use crate::db::transition::{clear, end, faults, finish, fire, pause, prune, recover, schedule};
use crate::read::sql::presence::{self, WantedPresence, connection_limit};
use crate::read::sql::{doctor, frame};
use chrono::NaiveDateTime;
use std::time::Duration;

/// They count, compare or sort all that is there, pass over as many rows as
/// are to be kept, or look for any row at all.
pub(crate) const READ_ALL: [&str; 8] = [
    "count the queues",
    "see how late a queue is",
    "count the jobs of a state",
    "look for what is astray",
    "see what waits",
    "list blocked jobs",
    "keep the newest jobs only",
    "count the newest failed jobs",
];

pub(crate) const LOOKS: [(&str, Work); 46] = [
    ("sign in to the web pages", web_pages::sign_in_and_out),
    ("read the frame of a page", web_pages::read_a_frame),
    ("see which jobs have ended", |conn, rows| {
        let ids: Vec<i64> = rows.jobs.iter().copied().take(50).collect();
        job_view::not_ended(conn, &ids)?;
        job_view::arguments(conn, &ids).map(drop)
    }),
    ("read the history", |conn, _| {
        store_and_fold(conn)?;
        let ids = series::ids(conn)?;
        let span = history::Seconds {
            from: 0,
            to: ids.now,
        };
        let is_wanted = |queue: &str, class: &str| queue == "q1" && class.is_empty();
        history::buckets(conn, &ids, Resolution::Hour, span, is_wanted)?;
        history::sums(conn).map(drop)
    }),
    ("check the history", |conn, _| {
        store_and_fold(conn)?;
        deltas::backlog(conn)?;
        history::unreadable(conn, LookBack::NewestRows)?;
        history::unreadable(conn, LookBack::TwoDays).map(drop)
    }),
    ("pause a class", |conn, _| {
        assert!(run_time::insert_class_pause(conn, "plan", None, None)?);
        assert_eq!(run_time::list_paused_classes(conn)?.len(), 1);
        assert!(pause::resume_class(conn, "plan")?);
        Ok(())
    }),
    ("set a limit", |conn, _| {
        for key in ["g/k", "g/*"] {
            let rate = SetPace {
                number: 1,
                period: 1,
                burst: None,
            };
            let new = NewRunTimeLimit {
                slots: Some(3),
                rate: Some(rate),
            };
            pause::set(conn, key, new, None, None)?;
        }
        assert_eq!(limits::list_limits(conn)?.len(), 2);
        for key in ["g/k", "g/*"] {
            for part in [LimitPart::Rate, LimitPart::Slots] {
                assert!(pause::clear(conn, key, part)?);
            }
            assert!(!pause::clear(conn, key, LimitPart::All)?);
        }
        Ok(())
    }),
    ("count the queues", |conn, _| {
        status::queues(conn)?;
        semaphores::list_semaphores(conn)?;
        pauses::size(conn, "q1").map(drop)
    }),
    ("list the quotas", |conn, _| {
        quotas::list_quotas(conn).map(drop)
    }),
    ("see how late a queue is", |conn, _| {
        pauses::latency(conn, "q1").map(drop)
    }),
    ("list the processes", |conn, _| {
        status::processes(conn).map(drop)
    }),
    ("list ready jobs", |conn, _| list(conn, JobState::Ready)),
    ("list scheduled jobs", |conn, _| {
        list(conn, JobState::Scheduled)
    }),
    ("list blocked jobs", |conn, _| list(conn, JobState::Blocked)),
    ("list claimed jobs", |conn, _| list(conn, JobState::Claimed)),
    ("list failed jobs", |conn, _| list(conn, JobState::Failed)),
    ("list finished jobs", |conn, _| {
        list(conn, JobState::Finished)
    }),
    ("list cancelled jobs", |conn, _| {
        list(conn, JobState::Cancelled)
    }),
    ("look named jobs up", |conn, rows| {
        let named = Filter {
            ids: Some(rows.jobs.clone()),
            ..Filter::default()
        };
        jobs::counts(conn, JobState::Ready, &named).map(drop)
    }),
    ("count the jobs of a state", |conn, _| {
        jobs::counts(conn, JobState::Ready, &Filter::default()).map(drop)
    }),
    ("explain", |conn, rows| {
        let job = rows.jobs[3];
        explain::ahead(conn, job)?;
        explain::paused_since(conn, "q1")?;
        run_time::since(conn, "plan")?;
        limits::of_key(conn, "g/k")?;
        explain::registered(conn, "Worker", RubyProcesses::Include)?;
        explain::predecessor(conn, "plan/k", Some(job))?;
        crate::db::table::job_logs::of_job(conn, job)?;
        attempts::of_job(conn, job).map(drop)
    }),
    ("look for what is astray", |conn, _| {
        for rule in doctor::Rule::ALL {
            doctor::inconsistent(conn, rule)?;
        }
        semaphores::check(conn).map(drop)
    }),
    ("ask how the database is", |conn, _| {
        doctor::version(conn)?;
        crate::db::schema::compare::open_functions(conn).unwrap();
        doctor::replication(conn)?;
        connection_limit(conn).map(drop)
    }),
    ("see what waits", |conn, _| {
        wanted_keys::request(conn, [NewRequest::Batch(1)])?;
        wanted_keys::note_waiting(conn, 10)?;
        doctor::stuck(conn)?;
        doctor::load(conn).map(drop)
    }),
    ("see which ready jobs are old", |conn, _| {
        doctor::unserved::old_ready(conn, 60.0).map(drop)
    }),
    ("look for what alerts watch", |conn, _| {
        frame::oldest_transaction(conn)?;
        frame::late_scheduled(conn, 10)?;
        frame::crash_looping(conn)?;
        presence::presences(conn, &WantedPresence::default()).map(drop)
    }),
    ("see which tasks are late", |conn, _| {
        doctor::tasks(conn, 1.0).map(drop)
    }),
    ("pause and resume", |conn, _| {
        pause::pause(conn, "q1", None, None)?;
        pause::resume(conn, "q1").map(drop)
    }),
    ("change a task", change_a_task),
    ("take back what Ruby has failed", |conn, rows| {
        let newest = recover::newest(conn)?;
        let text = format!(
            "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) VALUES \
             ({}, '{{\"exception_class\":\"SolidQueue::Processes::ProcessPrunedError\"}}', '2026-01-01 00:00:00.000000')",
            rows.jobs[3]
        );
        ready_again(conn, &rows.jobs[3..4])?;
        run(conn, &text)?;
        let taken = recover::take_back(
            conn,
            IdRange {
                after: newest,
                up_to: i64::MAX,
            },
            &death(),
        )?;
        assert_eq!(taken.released, rows.jobs[3..4]);
        Ok(())
    }),
    ("wait for the end of a job", |conn, rows| {
        let waiter = results::register_waiter(conn, rows.jobs[3], Duration::from_secs(60))?;
        results::leave(conn, waiter)
    }),
    ("rank by time", |conn, _| {
        let row = NewRow {
            ahead_by: Some(60),
            ..job(None)
        };
        rank::rank_by_time(conn, &mut [row])
    }),
    ("begin what was claimed ahead", |conn, rows| {
        assert_eq!(
            claimed::mark_started(conn, rows.process, &rows.claims)?.len(),
            3
        );
        claimed::drop_orphans(conn, rows.process, &rows.claims)
    }),
    ("see to a process", |conn, rows| {
        processes::is_locked(conn, rows.process)?;
        processes::describe(conn, rows.process, "{}", None)?;
        prune::recover_without_row(conn, rows.process, &death()).map(drop)
    }),
    ("cancel what runs", |conn, rows| {
        for finished in [FinishedRow::Keep, FinishedRow::Delete] {
            let ending = Ending::Cancel(JobFailure::new("cancelled", "message"));
            let fence = Fence {
                claim_id: rows.claims[finished as usize],
                ..fence(rows)
            };
            end::end(conn, fence, &ending, Duration::ZERO, finished)?;
        }
        Ok(())
    }),
    ("look for claims that are locked", |conn, rows| {
        let gone = [rows.claims[0], i64::MAX];
        finish::finish_free(conn, rows.process, &gone, FinishedRow::Keep, KeySlots::None)?;
        let nothing = ClaimOf {
            claim_id: i64::MAX,
            job_id: i64::MAX,
        };
        crate::db::table::jobs::ended_by_owner(conn, nothing).map(drop)
    }),
    ("claim what Ruby has made ready", |conn, rows| {
        let limit = "UPDATE solid_queue_jobs SET concurrency_key = 'plan/k', concurrency_slots = 1";
        run(conn, &format!("{limit} WHERE id >= {}", rows.jobs[3]))?;
        let unnamed = "UPDATE solid_queue_ready_executions SET class_name = NULL";
        run(conn, &format!("{unnamed} WHERE job_id >= {}", rows.jobs[3]))?;
        claim(conn, rows.process, &named()).map(drop)
    }),
    ("enqueue many that differ", |conn, _| {
        let later = NewRow {
            delay: Some(1_000_000),
            ..job(None)
        };
        enqueue::insert_all(conn, &[job(None), later]).map(drop)
    }),
    ("replace what waits behind another", |conn, rows| {
        let again = |on_conflict| NewRow {
            unique_id: Some("v".to_owned()),
            priority: -9,
            on_conflict,
            ..job(None)
        };
        insert_job(conn, &again(OnConflict::Existing))?;
        claim(conn, rows.process, &named())?;
        for on_conflict in [OnConflict::RunAgain, OnConflict::Replace] {
            insert_job(conn, &again(on_conflict))?;
        }
        Ok(())
    }),
    ("replace what is scheduled", |conn, _| {
        let row = NewRow {
            unique_id: Some("w".to_owned()),
            on_conflict: OnConflict::Replace,
            delay: Some(1_000_000),
            ..job(None)
        };
        insert_job(conn, &row)?;
        insert_job(conn, &row).map(drop)
    }),
    ("take away what has lost its job", |conn, rows| {
        let lost = "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
             SELECT id + 1000, 1, 1, 'retried', 'kind', 'message', created_at FROM solid_queue_jobs";
        run(conn, &format!("{lost} WHERE id >= {}", rows.jobs[0]))?;
        let after = rows.jobs[5];
        let [_, attempts, ..] = clear::expired::OWNED;
        clear::expired::delete_orphans(conn, attempts, after, 10).map(drop)
    }),
    ("edit the arguments of a job", |conn, _| {
        let job = insert_job(conn, &job(None))?.id;
        let edit = |_: &EditableJob| {
            QueryResult::Ok(NewArguments {
                text: "{}".to_owned(),
                version: Some(2),
            })
        };
        edit::edit(conn, job, edit)?;
        let limited = insert_job(conn, &limited())?.id;
        edit::edit(conn, limited, edit).map(drop)
    }),
    ("spread retried jobs over time", |conn, _| {
        let job = insert_job(conn, &job(None))?.id;
        ready_again(conn, &[job])?;
        let failed = "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
             SELECT id, '{}', created_at FROM solid_queue_jobs";
        run(conn, &format!("{failed} WHERE id = {job}"))?;
        let spread = operate::RetrySpread {
            start: recurring_tasks::now(conn)?,
            before: 1,
            time_for: &|jobs| Duration::from_secs(3600 * jobs),
        };
        operate::retry_spread(conn, &[job], AtMostOnce::Retry, &spread).map(drop)
    }),
    ("tag jobs", |conn, rows| {
        let tagged = edit::tag(conn, &rows.jobs, TagChange::Add("a"))?;
        assert_eq!(tagged.len(), rows.jobs.len());
        let named = Filter {
            ids: Some(rows.jobs.clone()),
            tags: Some(vec!["a".to_owned()]),
            any_tag: Some(vec!["a".to_owned(), "b".to_owned()]),
            ..Filter::default()
        };
        assert!(!jobs::counts(conn, JobState::Ready, &named)?.is_empty());
        Ok(())
    }),
    ("enqueue with a public token", |conn, _| {
        let token = |digest: &str| {
            Some(NewPublicToken {
                digest: digest.to_owned(),
                shows_result: false,
            })
        };
        let rows = [job(Some("token")), job(Some("token"))];
        let done = enqueue::public_tokens::insert_all(conn, &rows, &[token("1"), token("2")])
            .map_err(|_| RollbackTransaction)?;
        assert!(done.iter().all(|(_, is_stored)| *is_stored));
        Ok(())
    }),
    ("keep the newest jobs only", |conn, rows| {
        faults::finish_unfenced(conn, &[claim_of(rows)])?;
        clear::surplus(conn, 10).map(drop)
    }),
];

fn list(conn: &mut Conn<'_>, state: JobState) -> QueryResult<()> {
    jobs::list_jobs(conn, state, &Filter::default(), 10).map(drop)
}

fn change_a_task(conn: &mut Conn<'_>, rows: &Rows) -> QueryResult<()> {
    let mut task = Definition {
        key: "t2".into(),
        schedule: "@hourly".into(),
        in_ruby: "0 * * * * UTC".into(),
        time_zone: "UTC".into(),
        class_name: CLASS.into(),
        arguments: "{}".into(),
        queue_name: "q1".into(),
        priority: 0,
        description: None,
        options: "{}".into(),
        revision: Some(2),
        start: None,
    };
    let next = |now: NaiveDateTime| now + Duration::from_secs(60);
    for revision in [2, 1] {
        task.revision = Some(revision);
        schedule::schedule(conn, &task, &|now| Some(next(now)))?;
    }
    schedule::pause(conn, "t2")?;
    schedule::resume(conn, "t2", |row| QueryResult::Ok(next(row.now)))?;
    assert_eq!(recurring_tasks::list_tasks(conn, None)?.len(), 1);
    let ran = fire::run_now(conn, "t2", |_| Ok(job(None)));
    assert!(ran.is_ok_and(|job| job > rows.jobs.last().copied()));
    recurring_executions::history(conn, "t2", 10)?;
    ticks::list_ticks(conn, "t2", 10)?;
    let edited =
        |_: &mut Conn<'_>, row: &RecurringTaskRow| QueryResult::Ok((task.clone(), row.now));
    schedule::edit(conn, "t2", edited)?;
    schedule::remove(conn, "t2", |_| QueryResult::Ok(()))?;
    schedule::add(conn, &task, &|now| Some(next(now)))?;
    recurring_tasks::forget(conn)?;
    schedule::unschedule(conn, "t2").map(drop)
}
