//! On SQLite: `EXPLAIN QUERY PLAN`, without statistics and with them.
#![allow(
    irrefutable_let_patterns,
    reason = "with one feature there is one kind of connection"
)]

use super::*;
use diesel::sql_types::Text;

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

const FILL: &str = "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, created_at, updated_at) \
       WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) \
       SELECT 'q' || (i % 10), 'note', '{}', '2026-01-01', '2026-01-01' FROM n; \
     INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, created_at) \
       SELECT id, queue_name, id % 5, class_name, created_at FROM solid_queue_jobs; \
     INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, scheduled_at, created_at) \
       SELECT id, queue_name, strftime('%Y-%m-%d %H:%M:%f000', '2030-01-01', id || ' seconds'), created_at FROM solid_queue_jobs; \
     INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) \
       SELECT id, 1000000 + id % 1000, created_at FROM solid_queue_jobs; \
     INSERT INTO solid_queue_recurring_executions (job_id, task_key, run_at, created_at) \
       SELECT id, 't' || (id % 10), strftime('%Y-%m-%d %H:%M:%f000', '2020-01-01', id || ' minutes'), created_at FROM solid_queue_jobs;";

fn plan(conn: &mut Conn<'_>, statement: &str) -> Vec<String> {
    let Conn::Sqlite(conn) = conn else {
        unreachable!()
    };
    let steps: Vec<Step> = diesel::sql_query(format!("EXPLAIN QUERY PLAN {statement}"))
        .load(*conn)
        .unwrap_or_else(|error| panic!("{error}: {statement}"));
    steps.into_iter().map(|step| step.detail).collect()
}

/// Whether a step reads a table from end to end. A scan along the index is
/// how a claim takes the first few; a search without one is none.
fn reads_all(step: &str) -> bool {
    let mut words = step.split(' ');
    let is_read = ["SCAN", "SEARCH"].contains(&words.next().unwrap_or_default());
    let table = words.next().unwrap_or_default();
    let is_large =
        LARGE.contains(&table) || ["r", "c", "j", "b", "e", "u", "h", "f"].contains(&table);
    let by = step.split_once(" USING ").map_or("", |(_, by)| by);
    let is_searched = step.starts_with("SEARCH") && !by.is_empty();
    is_read && is_large && !is_searched && !by.contains("index_solid_queue_poll_all")
}

fn check(conn: &mut Conn<'_>, what: &str, statement: &str) {
    let plan = plan(conn, statement);
    let sorts = |step: &String| {
        ["claim", "dispatch"]
            .iter()
            .any(|one| what.starts_with(one))
            && statement.contains("LIMIT")
            && step.contains("TEMP B-TREE")
    };
    let bad = plan.iter().find(|step| reads_all(step) || sorts(step));
    assert!(bad.is_none(), "{what}: {bad:?}\n{statement}\n{plan:#?}");
}

#[test]
fn no_statement_reads_a_large_table_from_end_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jobs.db");
    let database = Database::open(path.to_str().unwrap()).unwrap();
    database.migrate().unwrap();
    let mut heard = Heard::new(&database);
    let mut statements = Vec::new();
    for (what, work) in LOOPS.iter().chain(&CALLERS) {
        let sent = heard.statements_of(*work);
        statements.extend(sent.into_iter().map(|text| (*what, text)));
    }
    let mut conn = heard.connection.as_conn();
    let Conn::Sqlite(c) = &mut conn else {
        unreachable!()
    };
    diesel::connection::SimpleConnection::batch_execute(*c, FILL).unwrap();
    diesel::connection::SimpleConnection::batch_execute(*c, FILL_BESIDE).unwrap();
    for analyzed in [false, true] {
        for (what, statement) in &statements {
            check(&mut conn, what, statement);
        }
        if !analyzed {
            run(&mut conn, "ANALYZE").unwrap();
        }
    }
    // The check can fail: this one reads all.
    for all in ["sum(priority)", "max(created_at)"] {
        let plan = plan(&mut conn, &format!("SELECT {all} FROM solid_queue_jobs"));
        assert!(reads_all(&plan[0]), "{plan:?}");
    }
}
