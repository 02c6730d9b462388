//! Enqueueing while the database does not answer, or is busy.

use super::super::access::token;
use super::super::client::serve;
use super::Program;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::wait::eventually;

const BODY: &str = "{\"class\": \"a\"}";

/// Another transaction holds what an enqueue takes: nothing is stored, and the sender is to try again.
fn a_locked_database_is_busy(db: &TestDb) {
    let secret = token(db, "shop", "enqueuer", &[]);
    let server = serve(&db.database);
    let program = Program::with_token(&server, &secret);
    assert_eq!(program.post("/v1/jobs", BODY).status(), 202);
    let mut other = db.connect();
    if db.is_postgres() {
        execute(&mut other, "BEGIN");
        execute(&mut other, "LOCK TABLE solid_queue_jobs");
    } else {
        execute(&mut other, "BEGIN IMMEDIATE");
    }
    for (path, body) in [
        ("/v1/jobs", BODY),
        ("/v1/jobs:batch", "{\"jobs\": [{\"class\": \"a\"}]}"),
    ] {
        let answer = program.post(path, body);
        answer.refused(503);
        assert!(answer.reply.header("retry-after").is_some());
    }
    execute(&mut other, "ROLLBACK");
    let done = eventually("the database is free", || {
        let answer = program.post("/v1/jobs", BODY);
        (answer.status() == 202).then_some(answer)
    });
    assert_eq!(done.json["outcome"], "new");
    assert_eq!(db.rows("jobs"), 2);
}

/// Connections that were cut while nothing used them are no reason to refuse anything.
#[cfg(feature = "postgres")]
#[test]
fn a_cut_connection_is_opened_again() {
    let db = TestDb::postgres();
    let secret = token(&db, "shop", "enqueuer", &[]);
    // So that the connections of this server can be told from others.
    let name = format!("cut-{}", std::process::id());
    let mark = if db.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{mark}application_name={name}", db.url);
    let database = windlass::Database::open(&url).unwrap();
    let server = serve(&database);
    let program = Program::with_token(&server, &secret);
    let cut = format!(
        "SELECT count(pg_terminate_backend(pid)) AS n FROM pg_stat_activity WHERE application_name = '{name}'"
    );
    for _ in 0..5 {
        for _ in 0..6 {
            let answer = program.post("/v1/jobs", BODY);
            assert!([202, 503].contains(&answer.status()), "{answer:?}");
        }
        assert!(db.count(&cut) > 0);
    }
    eventually("it goes on", || {
        (program.post("/v1/jobs", BODY).status() == 202).then_some(())
    });
}

on_each_database!(a_locked_database_is_busy);
