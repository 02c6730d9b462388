//! The notes about claims that heartbeats store.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::statement::Statement;
use crate::db::conn::typed::with_conn;
use crate::db::internal_tests::db::{TestDb, execute};
use crate::db::prefer_indexes;
use crate::db::table::claimed::{self, ClaimNote, Note};
use diesel::connection::{Connection as _, InstrumentationEvent};
use diesel::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const CLAIMS: i64 = 500;

/// Returns the statement that stores notes, as it is sent.
fn sent(conn: &mut Conn<'_>, notes: &[ClaimNote<'_>]) -> String {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    with_conn!(conn, |c| c.set_instrumentation(
        move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event {
                hears.lock().unwrap().push(query.to_string());
            }
        }
    ));
    let stored = claimed::save(conn, 1, notes).unwrap();
    assert_eq!(stored.len(), notes.len());
    let heard = heard.lock().unwrap();
    let text = heard.iter().find(|text| text.contains("SET note")).unwrap();
    text.split(" -- binds").next().unwrap().to_owned()
}

#[derive(QueryableByName)]
struct PlanLine {
    #[diesel(sql_type = diesel::sql_types::Text, column_name = "QUERY PLAN")]
    line: String,
}

/// Not by a join of each claim with each other: sessions of Windlass have no other than nested loops.
#[test]
fn each_claim_finds_its_own_note() {
    let db = TestDb::postgres();
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    prefer_indexes(conn).unwrap();
    execute(
        conn,
        &format!(
            "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) \
             SELECT n, 1, '2026-01-01' FROM generate_series(1, {CLAIMS}) AS n"
        ),
    );
    let note = Note::default();
    let notes: Vec<ClaimNote<'_>> = (1..=CLAIMS)
        .map(|claim_id| ClaimNote {
            claim_id,
            note: &note,
        })
        .collect();
    let text = sent(conn, &notes);
    let told: BTreeMap<i64, &str> = (1..=CLAIMS).map(|claim| (claim, "{}")).collect();
    let plan: Vec<PlanLine> = Statement::new(format!("EXPLAIN ANALYZE {text}"))
        .uncached()
        .bind(serde_json::to_string(&told).unwrap())
        .bind(1_i64)
        .load(conn)
        .unwrap();
    let lines: Vec<String> = plan.into_iter().map(|row| row.line).collect();
    assert!(
        lines.iter().all(|line| !line.contains("Join Filter")),
        "{}",
        lines.join("\n")
    );
}
