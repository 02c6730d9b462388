//! On SQLite: `EXPLAIN QUERY PLAN`, without statistics and with them.
#![allow(
    irrefutable_let_patterns,
    reason = "with one feature there is one kind of connection"
)]

use crate::db::conn::connection::Conn;
use crate::db::conn::database::Database;
use crate::db::plans::looks::READ_ALL;
use crate::db::plans::works::{CALLERS, LOOPS};
use crate::db::plans::{Heard, LARGE, Size, run, *};
use diesel::sql_types::Text;

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

const NUMBERS: &str = "(WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < {N}) SELECT id FROM n)";

fn time(beginning: &str, unit: &str) -> String {
    format!("strftime('%Y-%m-%d %H:%M:%f000', '{beginning}', id || ' {unit}s')")
}

fn plan(conn: &mut Conn<'_>, statement: &str) -> Vec<String> {
    let Conn::Sqlite(conn) = conn else {
        unreachable!()
    };
    let steps: Vec<Step> = diesel::sql_query(format!("EXPLAIN QUERY PLAN {statement}"))
        .load(*conn)
        .unwrap_or_else(|error| panic!("{error}: {statement}"));
    steps.into_iter().map(|step| step.detail).collect()
}

/// Returns whether a step reads a table from end to end. A scan along the index
/// does not, as a claim takes only the first few. A search without an index does.
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
    // Of a list, the first few are read in its order.
    let is_list = what.starts_with("list") && what.ends_with("jobs") || what.starts_with("walk");
    let is_bad = |step: &&String| {
        if is_list {
            return step.contains("TEMP B-TREE");
        }
        // The last id is where the tree of the table ends.
        let is_last = ["max(id)", "max(r.id)"]
            .iter()
            .any(|last| statement.contains(last));
        reads_all(step) && !is_last || sorts(step)
    };
    let bad = plan.iter().find(is_bad);
    // All other indexes would pass the executions of paused classes.
    let by_id = "SEARCH r USING INTEGER PRIMARY KEY (rowid>?)";
    let is_newer = statement.contains("r.id > ");
    assert!(
        !is_newer || plan.iter().any(|step| step == by_id),
        "{plan:#?}"
    );
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
    let looks = all_looks();
    let looks = looks.iter().filter(|(what, _)| !READ_ALL.contains(what));
    for (what, work) in LOOPS.iter().chain(&CALLERS).chain(looks) {
        let sent = heard.statements_of(*work);
        statements.extend(sent.into_iter().map(|text| (*what, text)));
    }
    let mut conn = heard.connection.as_conn();
    let Conn::Sqlite(c) = &mut conn else {
        unreachable!()
    };
    let fill = Size::LARGE.fill(NUMBERS, time);
    diesel::connection::SimpleConnection::batch_execute(*c, &fill).unwrap();
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
