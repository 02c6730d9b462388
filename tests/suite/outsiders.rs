//! The jobs that outsiders may see and enqueue: public tokens and internal classes.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;
use windlass::jobs::{self, TaskStatus};
use windlass::processes::Retention;
use windlass::testing;
use windlass::{
    Context, Error, Job, JobResult, NewJob, OnConflict, Policy, RecurringTask, Registry,
    Supervisor, Worker, enqueue_all,
};

on_each_database!(
    a_token_leads_to_its_job_alone,
    the_public_view_has_no_internals,
    a_repeated_enqueue_gets_a_token_of_its_own_job_only,
    a_failed_enqueue_leaves_no_token,
    tokens_go_with_the_result,
    internal_classes_are_refused_by_name,
    workers_store_which_classes_are_internal,
    arguments_of_internal_classes_are_not_set_from_outside,
);

/// Returns a text; its result is public.
#[derive(Serialize, Deserialize)]
struct Export {
    secret: String,
}

impl Job for Export {
    const NAME: &'static str = "export";
    const PUBLIC_RESULT: bool = true;
    type State = ();
    type Output = String;

    fn perform(self, _: &Context<'_, ()>) -> JobResult<String> {
        match &*self.secret {
            "bad" => Err("the host db1 is away".into()),
            _ => Ok("export.csv".to_owned()),
        }
    }
}

/// The same, without the result. Only the program itself may enqueue it.
#[derive(Serialize, Deserialize)]
struct Audit;

impl Job for Audit {
    const NAME: &'static str = "audit";
    const ALIASES: &'static [&'static str] = &["old_audit"];
    const INTERNAL: bool = true;
    type State = ();
    type Output = String;

    fn perform(self, _: &Context<'_, ()>) -> JobResult<String> {
        Ok("internal".to_owned())
    }
}

fn export(secret: &str) -> NewJob {
    let secret = secret.to_owned();
    NewJob::new(&Export { secret }).unwrap()
}

fn registry() -> Registry {
    Registry::new().register::<Export>(()).register::<Audit>(())
}

fn tokens(db: &TestDb) -> i64 {
    db.rows_of("windlass_public_tokens")
}

fn a_token_leads_to_its_job_alone(db: &TestDb) {
    let conn = &mut db.connection();
    let all = [
        export("a").public_token(),
        export("b"),
        export("c").public_token(),
    ];
    let jobs = enqueue_all(conn, all).unwrap();
    assert!(jobs[1].public_token.is_none());
    for index in [0, 2] {
        let token = jobs[index].public_token.unwrap().to_string();
        assert_eq!(token.len(), 40);
        let task = jobs::status_by_token(conn, &token).unwrap().unwrap();
        assert_eq!(task.job_id, jobs[index].id);
        // Only the digest is stored.
        let stored = db.texts("SELECT digest AS t FROM windlass_public_tokens");
        assert!(stored.len() == 2 && !stored.contains(&token));
        for wrong in [
            &*token.to_uppercase(),
            &token[1..],
            &format!("{token} "),
            &*stored[0],
            "",
            "'",
            "a\0b",
            &"x".repeat(100_000),
        ] {
            let found = jobs::status_by_token(conn, wrong).unwrap();
            // A token of digits only is the same in capitals.
            assert!(found.is_none() || wrong == token, "{wrong}");
        }
    }
}

fn the_public_view_has_no_internals(db: &TestDb) {
    let conn = &mut db.connection();
    let jobs = [
        export("good").public_token(),
        export("bad").public_token(),
        NewJob::new(&Audit).unwrap().public_token(),
    ];
    let jobs = enqueue_all(conn, jobs).unwrap();
    let seen = |token: Option<jobs::PublicToken>| {
        let token = token.unwrap().to_string();
        let task = jobs::status_by_token(&mut db.connection(), &token);
        task.unwrap().unwrap().public()
    };
    assert_eq!(seen(jobs[0].public_token).status, TaskStatus::Queued);
    let _ = testing::drain(conn, &registry()).unwrap();
    let good = seen(jobs[0].public_token);
    assert_eq!(good.status, TaskStatus::Succeeded);
    assert_eq!(good.result, Some(json!("export.csv")));
    assert!(good.finished_at.is_some());
    let bad = seen(jobs[1].public_token);
    assert_eq!(bad.status, TaskStatus::Failed);
    let text = serde_json::to_string(&[good, bad]).unwrap();
    for internal in ["db1", "bad", "class", "queue", "default", "job_id"] {
        assert!(!text.contains(internal), "{text}");
    }
    assert_eq!(seen(jobs[2].public_token).result, None);
    // Found by its id, it shows no result either.
    let info = jobs::status(conn, jobs[0].id).unwrap().unwrap();
    assert!(info.result.is_some() && info.public().result.is_none());
}

fn a_repeated_enqueue_gets_a_token_of_its_own_job_only(db: &TestDb) {
    let conn = &mut db.connection();
    let keyed = || {
        export("a")
            .idempotency_key("k")
            .unique_id("u")
            .public_token()
    };
    let first = keyed().enqueue(conn).unwrap();
    let again = keyed().enqueue(conn).unwrap();
    assert!(!again.is_new && again.public_token != first.public_token);
    for token in [first.public_token, again.public_token] {
        let task = jobs::status_by_token(conn, &token.unwrap().to_string());
        assert_eq!(task.unwrap().unwrap().job_id, first.id);
    }
    // Another caller's key, and none: the job is not theirs.
    for other in [
        export("b").idempotency_key("other").unique_id("u"),
        export("b").unique_id("u"),
    ] {
        let other = other.public_token().enqueue(conn).unwrap();
        assert_eq!((other.id, other.public_token), (first.id, None));
    }
    let replacing = Policy::new().on_conflict(OnConflict::Replace);
    let replaced = export("b").unique_id("u").policy(replacing).public_token();
    let replaced = replaced.enqueue(conn).unwrap();
    assert!(replaced.id == first.id && replaced.public_token.is_some());
    assert_eq!(tokens(db), 3);
    // Many repeats do not fill the table.
    for _ in 0..5 {
        enqueue_all(conn, vec![keyed(); 30]).unwrap();
    }
    assert_eq!(tokens(db), 100);
}

fn a_failed_enqueue_leaves_no_token(db: &TestDb) {
    let conn = &mut db.connection();
    let refusing = || {
        let policy = Policy::new().on_conflict(OnConflict::Refuse);
        export("a").unique_id("u").policy(policy).public_token()
    };
    refusing().enqueue(conn).unwrap();
    assert!(matches!(
        refusing().enqueue(conn),
        Err(Error::UniqueIdTaken { .. })
    ));
    let both = enqueue_all(conn, [refusing(), export("b").public_token()]).unwrap();
    assert!(both[0].public_token.is_none() && both[1].public_token.is_some());
    assert_eq!(tokens(db), 2);
}

fn tokens_go_with_the_result(db: &TestDb) {
    let conn = &mut db.connection();
    let unkept = Policy::new()
        .keep_finished(false)
        .keep_result(Duration::from_secs(3_600));
    let gone = export("a")
        .policy(unkept)
        .public_token()
        .enqueue(conn)
        .unwrap();
    let waiting = export("b")
        .after(Duration::from_secs(86_400))
        .public_token();
    let waiting = waiting.enqueue(conn).unwrap();
    let worker = Worker::new(&db.database, registry()).start().unwrap();
    let look = |job: &windlass::Enqueued| {
        let token = job.public_token.unwrap().to_string();
        jobs::status_by_token(&mut db.connection(), &token).unwrap()
    };
    until("it has finished", || {
        look(&gone).is_some_and(|task| task.status == TaskStatus::Succeeded)
    });
    worker.stop();
    assert_eq!(db.rows("jobs"), 1);
    let clears = || {
        let retention = Retention::new().every(Duration::from_millis(20));
        Supervisor::new(&db.database)
            .retention(retention)
            .start()
            .unwrap()
    };
    // The tables are walked over in order: when the second orphan is gone, all were.
    let orphan = "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
         SELECT 4711, 1, 1, 'retried', 'x', 'x', created_at FROM solid_queue_jobs";
    let supervisor = clears();
    for _ in 0..2 {
        db.execute(orphan);
        until("a round is over", || db.rows_of("windlass_attempts") == 0);
    }
    supervisor.stop();
    assert_eq!(look(&gone).unwrap().result, Some(json!("export.csv")));
    db.execute("UPDATE windlass_results SET expires_at = finished_at");
    assert!(look(&gone).is_none(), "like one that never was");
    let _supervisor = clears();
    until("its token is gone", || tokens(db) == 1);
    assert!(look(&waiting).is_some());
}

fn internal(error: &Error) -> bool {
    matches!(error, Error::InternalClass { .. })
}

fn internal_classes_are_refused_by_name(db: &TestDb) {
    let conn = &mut db.connection();
    let refused = registry().new_job("old_audit", "null").unwrap_err();
    assert!(internal(&refused), "{refused}");
    assert!(registry().new_job("export", r#"{"secret":"x"}"#).is_ok());
    // No worker has stored yet that it is internal.
    NewJob::of_class("audit", "null").enqueue(conn).unwrap();
    db.execute(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, internal, seen_at) \
         SELECT 'audit', 'default', '[]', true, created_at FROM solid_queue_jobs",
    );
    let by_name = || NewJob::of_class("audit", "null");
    assert!(internal(&by_name().enqueue(conn).unwrap_err()));
    let all = [NewJob::of_class("other", "{}"), by_name()];
    assert!(internal(&enqueue_all(conn, all).unwrap_err()));
    let task = RecurringTask::of_class("t", "@yearly", "audit", "null").unwrap();
    assert!(internal(
        &windlass::recurring::schedule(conn, &task).unwrap_err()
    ));
    {
        let said = windlass(&db.url, &["enqueue", "audit"]);
        assert!(!said.is_done() && said.err.contains("internal"), "{said:?}");
    }
    assert_eq!(db.rows("jobs"), 1);
    // As values of their type, they are enqueued.
    Audit.enqueue(conn).unwrap();
    enqueue_all(conn, [NewJob::new(&Audit).unwrap()]).unwrap();
    let task = RecurringTask::new("t", "@yearly", &Audit).unwrap();
    windlass::recurring::schedule(conn, &task).unwrap();
    windlass::recurring::run_now(conn, "t").unwrap();
    assert_eq!(db.rows("jobs"), 4);
}

fn workers_store_which_classes_are_internal(db: &TestDb) {
    // As a program of the version before stores it.
    let now = "(SELECT max(applied_at) FROM windlass_schema_migrations)";
    db.execute(&format!(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, seen_at) VALUES ('audit', 'default', '[]', {now})"
    ));
    let _worker = Worker::new(&db.database, registry()).start().unwrap();
    let is = "SELECT class_name AS t FROM windlass_classes WHERE internal ORDER BY class_name";
    until("they are stored", || db.texts(is) == ["audit", "old_audit"]);
    let refused = NewJob::of_class("old_audit", "null").enqueue(&mut db.connection());
    assert!(internal(&refused.unwrap_err()));
    NewJob::of_class("export", r#"{"secret":"x"}"#)
        .enqueue(&mut db.connection())
        .unwrap();
}

fn arguments_of_internal_classes_are_not_set_from_outside(db: &TestDb) {
    let conn = &mut db.connection();
    let job = Audit.enqueue(conn).unwrap().id;
    let task = RecurringTask::new("t", "@yearly", &Audit).unwrap();
    windlass::recurring::schedule(conn, &task).unwrap();
    db.execute(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, internal, seen_at) \
         SELECT 'audit', 'default', '[]', true, created_at FROM solid_queue_jobs",
    );
    let registry = registry();
    for registry in [None, Some(&registry)] {
        let error = jobs::edit_arguments(conn, job, "null", registry).unwrap_err();
        let expected = format!("cannot edit job {job}: its type is internal");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    {
        let other =
            "recurring add other --class export --schedule @yearly --arguments {\"secret\":\"x\"}";
        let run = |line: &str| windlass(&db.url, &line.split(' ').collect::<Vec<_>>());
        assert!(run(other).is_done());
        for line in [
            "recurring add new --class audit --schedule @yearly",
            "recurring change other --class audit",
            "recurring change t --arguments {\"a\":1}",
            "jobs edit 1 --arguments null",
        ] {
            let said = run(line);
            assert!(!said.is_done() && said.err.contains("internal"), "{said:?}");
        }
        // The time of its runs is not secret, and it may run under another name.
        assert!(run("recurring change t --schedule @daily --queue x").is_done());
        assert!(run("recurring change t --class export").is_done());
    }
    let tasks = windlass::recurring::list(conn).unwrap();
    assert!(tasks.iter().all(|task| task.class_name != "audit"));
}
