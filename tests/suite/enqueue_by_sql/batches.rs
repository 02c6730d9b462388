//! Batches that are opened and filled by SQL.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::{execute, texts};
use crate::support::enqueue_by_sql::{literal, run};
use crate::support::jobs::{Log, Note};
use std::sync::Arc;
use windlass::batches::BatchFilter;
use windlass::{DbConnection, NewJob, Registry};

on_each_database!(
    a_batch_by_sql_is_over_when_its_jobs_are,
    a_batch_without_jobs_is_over_at_the_commit,
    what_is_no_batch_is_refused,
    many_jobs_join_a_batch_at_once,
    a_rolled_back_batch_is_none,
    adding_jobs_keeps_no_other_transaction_waiting,
);

/// Opens a batch in the transaction of the connection, and returns its id.
fn open(db: &TestDb, conn: &mut DbConnection, name: &str) -> String {
    if db.is_postgres() {
        let text = format!("SELECT CAST(windlass_open_batch('{name}') AS text) AS t");
        return texts(conn, &text).remove(0);
    }
    execute(
        conn,
        &format!("INSERT INTO windlass_open_batch (name) VALUES ('{name}')"),
    );
    let newest = "SELECT CAST(max(id) AS text) AS t FROM solid_queue_batches";
    texts(conn, newest).remove(0)
}

fn enqueue_list(db: &TestDb, conn: &mut DbConnection, jobs: &str) {
    let jobs = literal(&jobs.into());
    let text = match db.is_postgres() {
        true => format!("SELECT windlass_enqueue_many('note', {jobs})"),
        false => format!("INSERT INTO windlass_enqueue_many (class, jobs) VALUES ('note', {jobs})"),
    };
    execute(conn, &text);
}

fn drain(db: &TestDb) -> Vec<String> {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _drained = windlass::testing::drain(&mut db.connection(), &registry).unwrap();
    log.lines()
}

fn a_batch_by_sql_is_over_when_its_jobs_are(db: &TestDb) {
    let conn = &mut db.connection();
    execute(conn, "BEGIN");
    let batch = open(db, conn, "import");
    let job =
        |text: &str| format!("{{\"arguments\": {{\"text\": \"{text}\"}}, \"batch_id\": {batch}}}");
    enqueue_list(db, conn, &format!("[{}, {}]", job("a"), job("b")));
    execute(
        conn,
        &format!(
            "INSERT INTO windlass_enqueue (class, arguments, batch_id, tags) VALUES ('note', '{{\"text\": \"c\"}}', {batch}, '[\"t\"]')"
        ),
    );
    for (text, runs_on) in [
        ("done", "NULL"),
        ("failed", "'failure'"),
        ("over", "'finish'"),
    ] {
        execute(
            conn,
            &format!(
                "INSERT INTO windlass_enqueue (class, arguments, after_batch, runs_on) \
                 VALUES ('note', '{{\"text\": \"{text}\"}}', {batch}, {runs_on})"
            ),
        );
    }
    execute(conn, "COMMIT");
    let open = windlass::batches::list(conn, BatchFilter::Open, None, 20).unwrap();
    assert_eq!((open.len(), open[0].name.as_str()), (1, "import"));
    let mut lines = drain(db);
    lines[..3].sort();
    lines[3..].sort();
    assert_eq!(lines, ["a", "b", "c", "done", "over"]);
    let status = open[0].id.status(conn).unwrap();
    assert_eq!((status.total, status.open, status.failures), (3, 0, 0));
    let late = format!("INSERT INTO windlass_enqueue (class, batch_id) VALUES ('note', {batch})");
    assert!(run(db, &late).unwrap_err().contains("over"));
}

fn a_batch_without_jobs_is_over_at_the_commit(db: &TestDb) {
    let conn = &mut db.connection();
    execute(conn, "BEGIN");
    let batch: i64 = open(db, conn, "empty").parse().unwrap();
    execute(conn, "COMMIT");
    drain(db);
    assert!(windlass::BatchId(batch).status(conn).unwrap().is_over());
}

fn what_is_no_batch_is_refused(db: &TestDb) {
    for (values, says) in [
        ("NULL, NULL", "its name is missing"),
        ("'', NULL", "its name must have"),
        ("'a b', NULL", "its name must have"),
        ("'a', '{'", "JSON"),
        ("'a', '\"\\u0000\"'", "NUL"),
        ("'a', '[1e999]'", "beyond a float"),
    ] {
        let text = match db.is_postgres() {
            true => format!("SELECT windlass_open_batch({values})"),
            false => format!("INSERT INTO windlass_open_batch (name, metadata) VALUES ({values})"),
        };
        let error = run(db, &text).unwrap_err();
        assert!(
            error.contains(says) && error.contains("cannot open"),
            "{values}: {error}"
        );
    }
    assert_eq!(db.rows("batches"), 0);
}

fn many_jobs_join_a_batch_at_once(db: &TestDb) {
    let conn = &mut db.connection();
    execute(conn, "BEGIN");
    let batch = open(db, conn, "import");
    let options = literal(&format!("{{\"batch_id\": {batch}}}").into());
    let each = match db.is_postgres() {
        true => format!("SELECT windlass_enqueue_each_v2('note', ARRAY['1', '2', '3'], {options})"),
        false => format!(
            "INSERT INTO windlass_enqueue_each_v2 VALUES ('note', '[\"1\", \"2\", \"3\"]', {options})"
        ),
    };
    execute(conn, &each);
    execute(conn, "COMMIT");
    let added =
        "SELECT CAST(sum(amount) AS bigint) AS n FROM windlass_wanted_keys WHERE kind = 'batch'";
    assert_eq!(
        (db.count(added), db.rows_of("solid_queue_batch_executions")),
        (3, 3)
    );
    let requests = "SELECT count(*) AS n FROM windlass_wanted_keys WHERE amount IS NOT NULL";
    assert_eq!(db.count(requests), 1);
}

fn a_rolled_back_batch_is_none(db: &TestDb) {
    let conn = &mut db.connection();
    execute(conn, "BEGIN");
    let batch = open(db, conn, "import");
    enqueue_list(db, conn, &format!("[{{\"batch_id\": {batch}}}]"));
    execute(conn, "ROLLBACK");
    assert_eq!((db.rows("batches"), db.rows("jobs")), (0, 0));
    assert_eq!(db.rows_of("windlass_wanted_keys"), 0);
}

/// SQLite has one writer at a time, whatever it writes.
fn adding_jobs_keeps_no_other_transaction_waiting(db: &TestDb) {
    if !db.is_postgres() {
        return;
    }
    let (first, second) = (&mut db.connection(), &mut db.connection());
    execute(first, "BEGIN");
    let batch = open(db, first, "import");
    execute(first, "COMMIT");
    let batch = windlass::BatchId(batch.parse().unwrap());
    let job = NewJob::of_class("note", "{\"text\": \"a\"}");
    job.batch(batch).enqueue(first).unwrap();
    execute(second, "SET lock_timeout = '10s'");
    let add = format!(
        "INSERT INTO windlass_enqueue (class, batch_id) VALUES ('note', {})",
        batch.0
    );
    execute(first, "BEGIN");
    execute(first, &add);
    execute(second, "BEGIN");
    execute(second, &add);
    execute(second, "COMMIT");
    execute(first, "COMMIT");
    assert_eq!(batch.status(second).unwrap().open, 3);
}
