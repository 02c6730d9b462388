//! Actions of operators: the audit, operations on many jobs, and groups of failed jobs.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::IdRange;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::decision::JobState;
use crate::db::plans::{Rows, Work, job, limited, run, *};
use crate::db::query::filter::Filter;
use crate::db::query::jobs;
use crate::db::table::audit::{self, AuditFilter};
use crate::db::table::operations::{self, NewOperationRow, OperationAdvance};
use crate::db::transition::audit::{self as actions, AuditEffect, AuditTrail};
use crate::db::transition::operate::edit;
use crate::db::transition::{enqueue, fingerprint};
use crate::read::sql::doctor;
use std::time::Duration;

pub(crate) const OPERATORS: [(&str, Work); 11] = [
    ("move jobs to another queue", |conn, rows| {
        let later = NewRow {
            delay: Some(1_000_000),
            ..job(None)
        };
        let more = enqueue::insert_all(conn, &[later, limited()])?;
        let mut jobs = rows.jobs.clone();
        jobs.extend(more.iter().map(|job| job.id));
        assert_eq!(edit::requeue(conn, &jobs, "q9")?.len(), 5);
        Ok(())
    }),
    ("walk through the failed jobs", |conn, _| {
        for filter in filters() {
            let range = IdRange {
                after: jobs::first(conn, JobState::Failed)?,
                up_to: jobs::last(conn, JobState::Failed)?,
            };
            jobs::next(conn, JobState::Failed, &filter, range, 10)?;
        }
        Ok(())
    }),
    ("walk through the ready jobs", |conn, _| {
        let range = IdRange {
            after: 0,
            up_to: jobs::last(conn, JobState::Ready)?,
        };
        jobs::next(conn, JobState::Ready, &Filter::default(), range, 10).map(drop)
    }),
    ("count a group of failed jobs", |conn, _| {
        for filter in filters().into_iter().filter(Filter::has_index) {
            jobs::count(conn, JobState::Failed, &filter, 10)?;
        }
        Ok(())
    }),
    ("count the newest failed jobs", |conn, _| {
        for filter in filters() {
            jobs::count(conn, JobState::Failed, &filter, 10)?;
        }
        Ok(())
    }),
    ("count the ready jobs of a queue", |conn, _| {
        let filter = Filter {
            queue: Some("q1".to_owned()),
            ..Filter::default()
        };
        jobs::count(conn, JobState::Ready, &filter, 10).map(drop)
    }),
    ("group the failed jobs", |conn, _| {
        failed(conn, "'00ff'")?;
        let known = jobs::fingerprints(conn, 10)?;
        assert_eq!(jobs::groups(conn, &known, 10)?[0].count, 1);
        Ok(())
    }),
    ("store fingerprints", |conn, _| {
        failed(conn, "NULL")?;
        assert_eq!(fingerprint::fill(conn, 1)?.cleared, 1);
        Ok(())
    }),
    ("walk through the audit", |conn, _| {
        let actor = Actor::named("ada");
        let mut trail = AuditTrail::new(&actor, AuditAction::RetryJobs).target("t");
        for _ in 0..2 {
            trail.record(conn, |_| QueryResult::Ok(()), |()| AuditEffect::Jobs(3))?;
        }
        let all = AuditFilter::default;
        let text = |text: &str| Some(text.to_owned());
        let time = Some(chrono::NaiveDateTime::default());
        for filter in [
            all(),
            AuditFilter {
                actor: text("ada"),
                ..all()
            },
            AuditFilter {
                action: text("jobs.retry"),
                ..all()
            },
            AuditFilter {
                target: text("t"),
                ..all()
            },
            AuditFilter {
                operation: Some(1),
                ..all()
            },
            AuditFilter {
                since: time,
                until: time,
                ..all()
            },
            AuditFilter {
                before: Some(7),
                after: Some(1),
                ..all()
            },
            AuditFilter {
                parts_of: Some(1),
                ..all()
            },
        ] {
            audit::list_audit_rows(conn, &filter, 10)?;
        }
        assert_eq!(audit::list_audit_rows(conn, &all(), 10)?[0].total, Some(6));
        doctor::disabled_triggers(conn).map(drop)
    }),
    ("clear the audit", |conn, _| {
        let old = "INSERT INTO windlass_audit (created_at, actor, via, action) \
             VALUES ('2026-01-01 00:00:00.000000', 'a', 'cli', 'b')";
        run(conn, old)?;
        let age = Duration::from_secs(30 * 24 * 3600);
        assert_eq!(audit::clear(conn, age, 1)?, 1);
        Ok(())
    }),
    ("run an operation", run_an_operation),
];

fn filters() -> [Filter; 5] {
    let all = Filter::default;
    let text = |text: &str| Some(text.to_owned());
    let time = Some(chrono::DateTime::default());
    [
        all(),
        Filter {
            fingerprint: text("00ff"),
            ..all()
        },
        Filter {
            fingerprint: text("00ff"),
            queue: text("q1"),
            ..all()
        },
        Filter {
            unique_id: text("u"),
            ..all()
        },
        Filter {
            kind: text("io"),
            arguments: text("{"),
            created_from: time,
            failed_to: time,
            ..all()
        },
    ]
}

/// Makes a job fail, with this fingerprint.
fn failed(conn: &mut Conn<'_>, fingerprint: &str) -> QueryResult<()> {
    let job = enqueue::insert_job(conn, &job(None))?.id;
    let text = format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at, fingerprint) \
         VALUES ({job}, '{{}}', '2026-01-01', {fingerprint})"
    );
    run(conn, &text)
}

fn run_an_operation(conn: &mut Conn<'_>, _: &Rows) -> QueryResult<()> {
    let actor = Actor::named("ada");
    let start = |conn: &mut Conn<'_>, request_id| {
        let new = NewOperationRow {
            actor: &actor,
            action: AuditAction::RetryJobs.column(),
            parameters: "{}",
            filter: "{}",
            bounds: "[]",
            place: "{}",
            total: Some(7),
            total_is_exact: true,
            request_id: Some(request_id),
        };
        actions::start(conn, &new)
    };
    let id = start(conn, "one")?;
    assert_eq!(start(conn, "one")?, id);
    assert_eq!(operations::open(conn, 10)?, [id]);
    assert_eq!(operations::stillest(conn)?.unwrap().id, id);
    let advance = OperationAdvance {
        place: "{}".to_owned(),
        counts: "{}".to_owned(),
        looked_at: 1,
        changed: 1,
        is_done: true,
        error: None,
    };
    assert!(actions::advance(conn, id, |_, _| Ok(Some(advance)))?.is_some());
    let other = start(conn, "other")?;
    assert!(actions::stop(conn, &actor, other)?);
    assert_eq!(operations::find(conn, id)?.unwrap().state, "done");
    assert_eq!(operations::list_operations(conn, None, 10)?.len(), 2);
    operations::clear(conn, Duration::ZERO, 10).map(drop)
}
