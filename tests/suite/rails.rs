//! Rows that a Rails app wrote with nothing but Solid Queue's own columns.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::{Log, Note};
use crate::support::solid_queue;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Context, Dispatcher, Job, JobResult, Registry, Worker};

/// Rails notifies nobody, so Postgres has to be polled.
const POLLING: Duration = Duration::from_millis(20);

/// Fields that all may be missing: decoding the envelope itself would do.
#[derive(Debug, Serialize, Deserialize)]
struct Optional {
    file: Option<String>,
    #[serde(default)]
    lines: u32,
}

impl Job for Optional {
    const NAME: &'static str = "Optional";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(format!("{:?} {}", self.file, self.lines));
        Ok(())
    }
}

fn a_job_from_rails_is_performed(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    solid_queue::enqueue(
        db,
        "note",
        r#"[{"text":"it's from Ruby ✓","_aj_symbol_keys":["text"]}]"#,
    );
    until("the job is done", || log.len() == 1);
    solid_queue::enqueue(
        db,
        "note",
        r#"[{"text":"by keyword","_aj_ruby2_keywords":["text"]}]"#,
    );
    until("the other is done", || log.len() == 2);
    assert_eq!(log.lines(), ["it's from Ruby ✓", "by keyword"]);
    until("both are finished", || {
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL") == 2
    });
}

fn a_scheduled_job_from_rails_is_dispatched(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    solid_queue::schedule(
        db,
        "note",
        r#"[{"text":"due"}]"#,
        "2026-01-01 00:00:00.000001",
    );
    solid_queue::schedule(
        db,
        "note",
        r#"[{"text":"not yet"}]"#,
        "2999-01-01 00:00:00.000001",
    );
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("the due job is done", || log.len() == 1);
    assert_eq!(log.lines(), ["due"]);
    assert_eq!(db.rows("scheduled_executions"), 1);
}

fn the_envelope_is_opened_even_if_every_field_may_be_missing(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Optional>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    solid_queue::enqueue(db, "Optional", r#"[{"file":"users.csv","lines":7}]"#);
    until("the job is done", || log.len() == 1);
    assert_eq!(log.lines(), [r#"Some("users.csv") 7"#]);
}

/// The worker cannot see the class before it has claimed the row.
fn a_class_that_only_rails_knows_is_given_back(db: &TestDb) {
    let log = Arc::new(Log::default());
    let events = Events::default();
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    solid_queue::enqueue(db, "ReportJob", "[1]");
    solid_queue::enqueue(db, "note", r#"[{"text":"known"}]"#);
    until("the known job is done", || log.len() == 1);
    until("the unknown one is given back", || {
        db.rows("scheduled_executions") == 1
    });
    assert_eq!(db.rows("failed_executions"), 0);
    assert_eq!(events.count("Failed"), 0);
    until("it is told", || events.count("Released") == 1);
    // Nobody's attempt, and not due before others had their chance.
    let soon = if db.is_postgres() {
        "(statement_timestamp() AT TIME ZONE 'UTC') + interval '15 seconds'"
    } else {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now', '15 seconds')"
    };
    assert_eq!(
        db.count(&format!(
            "SELECT count(*) AS n FROM solid_queue_scheduled_executions s JOIN solid_queue_jobs j ON j.id = s.job_id \
             WHERE j.class_name = 'ReportJob' AND j.attempts = 0 AND s.scheduled_at > {soon}"
        )),
        1
    );
    // When it is due again, a worker that knows the class gets it.
    db.execute(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2026-01-01 00:00:00.000000'",
    );
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("it is ready", || db.rows("ready_executions") == 1);
    assert_eq!(
        db.texts("SELECT class_name AS t FROM solid_queue_ready_executions"),
        ["ReportJob"]
    );
}

on_each_database!(
    a_job_from_rails_is_performed,
    a_scheduled_job_from_rails_is_dispatched,
    the_envelope_is_opened_even_if_every_field_may_be_missing,
    a_class_that_only_rails_knows_is_given_back,
);
