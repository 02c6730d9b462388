//! Rows that cannot be read are skipped and reported.

use super::{finished, fold_all, insert_at, rows, sum_of, total};
use crate::db::conn::connection::{AsConn, Conn};
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::table::history::deltas;
use crate::db::transition::fold::{self, FoldWhen, Folded};
use crate::history::{HistoryFilter, TimeRange};
use crate::read::doctor::doctor;
use crate::read::doctor::scope::Verdict;

on_each_database!(
    damaged_contributions_are_passed_over,
    a_damaged_row_stays_and_the_rest_goes_on,
    what_a_newer_program_has_written_is_left_to_it,
    doctor_reports_what_waits,
);

/// A literal of these bytes.
fn bytes(conn: &Conn<'_>, hex: &str) -> String {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => format!("'\\x{hex}'"),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => format!("x'{hex}'"),
    }
}

/// Has the newest contribution consist of these bytes.
fn spoil(conn: &mut Conn<'_>, hex: &str) {
    let bytes = bytes(conn, hex);
    let newest = "SELECT max(id) FROM windlass_stats_deltas";
    let text = format!("UPDATE windlass_stats_deltas SET data = {bytes} WHERE id = ({newest})");
    execute(conn, &text);
}

fn statistics(conn: &mut crate::db::DbConnection) -> (Verdict, String) {
    let findings = doctor(conn).unwrap();
    let found = findings.into_iter().find(|one| one.check == "statistics");
    let found = found.unwrap();
    (found.verdict, found.says)
}

fn damaged_contributions_are_passed_over(db: &TestDb) {
    let mut conn = db.connect();
    for hex in ["", "01", "0100ff", "02", "01ff"] {
        deltas::insert_with(&mut conn.as_conn(), &finished("mail", "send", 1)).unwrap();
        spoil(&mut conn.as_conn(), hex);
    }
    deltas::insert_with(&mut conn.as_conn(), &finished("mail", "send", 5)).unwrap();
    assert_eq!(total(&mut conn).finished, 5);
    fold_all(&mut conn.as_conn());
    fold_all(&mut conn.as_conn());
    assert_eq!(total(&mut conn).finished, 5);
    let all = HistoryFilter::all();
    assert_eq!(sum_of(&mut conn, &all, TimeRange::Hour).finished, 5);
    assert_eq!(rows(&mut conn, "windlass_stats_deltas"), 5);
    let (verdict, says) = statistics(&mut conn);
    assert_eq!(verdict, Verdict::Warning);
    assert!(
        says.starts_with("5 rows of the history cannot be read"),
        "{says}"
    );
}

fn a_damaged_row_stays_and_the_rest_goes_on(db: &TestDb) {
    let mut conn = db.connect();
    let mut first = finished("mail", "send", 1);
    first.merge(&finished("mail", "drop", 100));
    deltas::insert_with(&mut conn.as_conn(), &first).unwrap();
    fold_all(&mut conn.as_conn());
    assert_eq!(statistics(&mut conn).0, Verdict::Fine);
    let damage = bytes(&conn.as_conn(), "01ff");
    let of_mail =
        "(SELECT id FROM windlass_stats_series WHERE queue_name = 'mail' AND class_name = 'send')";
    execute(
        &mut conn.as_conn(),
        &format!(
            "UPDATE windlass_stats SET data = {damage} WHERE series_id = {of_mail} AND resolution = 60"
        ),
    );
    execute(
        &mut conn.as_conn(),
        &format!(
            "UPDATE windlass_stats SET data = {damage} WHERE resolution = 0 \
             AND series_id IN (SELECT id FROM windlass_stats_series WHERE class_name = '')"
        ),
    );
    deltas::insert_with(&mut conn.as_conn(), &finished("mail", "send", 10)).unwrap();
    fold_all(&mut conn.as_conn());
    assert_eq!(total(&mut conn).finished, 111);
    let send = HistoryFilter::all().queue("mail").class("send");
    assert_eq!(sum_of(&mut conn, &send, TimeRange::Hour).finished, 0);
    assert_eq!(sum_of(&mut conn, &send, TimeRange::Day).finished, 11);
    let mail = HistoryFilter::all().queue("mail");
    assert_eq!(sum_of(&mut conn, &mail, TimeRange::Hour).finished, 111);
    let (verdict, says) = statistics(&mut conn);
    assert_eq!(verdict, Verdict::Warning);
    assert!(says.starts_with("3 rows"), "{says}");
}

fn what_a_newer_program_has_written_is_left_to_it(db: &TestDb) {
    let mut conn = db.connect();
    deltas::insert_with(&mut conn.as_conn(), &finished("mail", "send", 1)).unwrap();
    fold_all(&mut conn.as_conn());
    let newer = bytes(&conn.as_conn(), "0200");
    let of_mail = "resolution = 0 \
         AND series_id IN (SELECT id FROM windlass_stats_series WHERE queue_name = 'mail')";
    let delete_totals = format!("DELETE FROM windlass_stats WHERE {of_mail}");
    for (row, back) in [
        (
            format!("UPDATE windlass_stats SET data = {newer} WHERE resolution = 3600"),
            "DELETE FROM windlass_stats WHERE resolution = 3600",
        ),
        (
            format!("UPDATE windlass_stats SET data = {newer} WHERE {of_mail}"),
            &*delete_totals,
        ),
    ] {
        execute(&mut conn.as_conn(), &row);
        deltas::insert_with(&mut conn.as_conn(), &finished("mail", "send", 10)).unwrap();
        deltas::insert_with(&mut conn.as_conn(), &finished("new", "send", 10)).unwrap();
        let (before, series) = (total(&mut conn), rows(&mut conn, "windlass_stats_series"));
        let folded = fold::fold(&mut conn.as_conn(), FoldWhen::Now, None).unwrap();
        assert_eq!(folded, Folded::LeftToNewer);
        assert_eq!(rows(&mut conn, "windlass_stats_deltas"), 2);
        assert_eq!(rows(&mut conn, "windlass_stats_series"), series);
        assert_eq!(total(&mut conn), before);
        execute(&mut conn.as_conn(), back);
        fold_all(&mut conn.as_conn());
        assert!(total(&mut conn).finished >= before.finished);
        assert_eq!(rows(&mut conn, "windlass_stats_deltas"), 0);
    }
}

fn doctor_reports_what_waits(db: &TestDb) {
    let mut conn = db.connect();
    assert_eq!(statistics(&mut conn).0, Verdict::Fine);
    let now = crate::db::table::history::series::ids(&mut conn.as_conn())
        .unwrap()
        .now;
    insert_at(&mut conn.as_conn(), &finished("mail", "send", 1), now - 250);
    assert_eq!(statistics(&mut conn).0, Verdict::Fine);
    insert_at(
        &mut conn.as_conn(),
        &finished("mail", "send", 1),
        now - 1_000,
    );
    execute(
        &mut conn.as_conn(),
        "DELETE FROM windlass_stats_deltas WHERE id = 1",
    );
    let (verdict, says) = statistics(&mut conn);
    assert_eq!(verdict, Verdict::Warning);
    assert!(
        says.starts_with("the history was not folded for 1"),
        "{says}"
    );
    assert!(says.contains(" s: 1 contributions wait"), "{says}");
    fold_all(&mut conn.as_conn());
    assert_eq!(statistics(&mut conn).0, Verdict::Fine);
    // A worker that should have folded.
    let worker = "INSERT INTO solid_queue_processes (kind, name, pid, heartbeat_seq, created_at, last_heartbeat_at, metadata) \
         VALUES ('Worker', 'w', 1, 3, '2026-11-20 10:00:00.000000', '2099-11-20 10:00:00.000000', '{\"windlass\":\"1\"}')";
    execute(&mut conn.as_conn(), worker);
    assert_eq!(statistics(&mut conn).0, Verdict::Fine);
    let old = "UPDATE windlass_stats_series SET folded_at = '2026-11-20 10:00:00.000000'";
    execute(&mut conn.as_conn(), old);
    let (verdict, says) = statistics(&mut conn);
    assert_eq!(verdict, Verdict::Warning, "{says}");
}
