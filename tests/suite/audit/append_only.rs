//! The database refuses to change the audit, and to delete what is young.

use super::{actions, days_ago, entries};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::wait::until;
use std::time::Duration;
use windlass::audit::Actor;
use windlass::processes::Retention;
use windlass::{AsConn, Conn, Supervisor};
use windlass_console::Verdict;

on_each_database!(
    rows_are_not_changed,
    only_old_rows_are_cleared,
    a_short_retention_is_refused,
    a_missing_trigger_is_found,
);

fn try_execute(db: &TestDb, sql: &str) -> Result<usize, String> {
    use diesel::RunQueryDsl as _;
    let mut connection = db.connect();
    let done = match connection.as_conn() {
        Conn::Sqlite(c) => diesel::sql_query(sql).execute(c),
        #[cfg(feature = "postgres")]
        Conn::Postgres(c) => diesel::sql_query(sql).execute(c),
        _ => unreachable!(),
    };
    done.map_err(|error| error.to_string())
}

fn insert(db: &TestDb, actor: &str, days: u32) {
    db.execute(&format!(
        "INSERT INTO windlass_audit (created_at, actor, via, action) VALUES ({}, '{actor}', 'cli', 'x')",
        days_ago(db, days)
    ));
}

fn rows_are_not_changed(db: &TestDb) {
    Actor::named("ada")
        .pause_queue(&mut db.connection(), "mail")
        .unwrap();
    insert(db, "old", 31);
    let id = entries(db)[0].id;
    let before = actions(db);
    let mut refused = vec![
        "UPDATE windlass_audit SET actor = 'eve'".to_owned(),
        "UPDATE windlass_audit SET reason = NULL WHERE actor = 'old'".to_owned(),
        "DELETE FROM windlass_audit".to_owned(),
        format!("DELETE FROM windlass_audit WHERE id = {id}"),
    ];
    if db.is_postgres() {
        refused.push("TRUNCATE windlass_audit".to_owned());
        refused.push(format!(
            "INSERT INTO windlass_audit (id, created_at, actor, via, action) VALUES ({id}, '2020-01-01', 'eve', 'x', 'x') \
             ON CONFLICT (id) DO UPDATE SET actor = 'eve'"
        ));
    } else {
        refused.push(format!(
            "REPLACE INTO windlass_audit (id, created_at, actor, via, action) VALUES ({id}, '2020-01-01', 'eve', 'x', 'x')"
        ));
        refused.push("UPDATE OR REPLACE windlass_audit SET id = id + 1".to_owned());
    }
    for statement in refused {
        let error = try_execute(db, &statement).unwrap_err();
        assert!(error.contains("append-only"), "{statement}: {error}");
    }
    assert_eq!(actions(db), before);
    // An entry that is old enough may be deleted.
    assert_eq!(
        try_execute(db, "DELETE FROM windlass_audit WHERE actor = 'old'"),
        Ok(1)
    );
}

fn only_old_rows_are_cleared(db: &TestDb) {
    for (actor, days) in [("a", 500), ("b", 401), ("c", 399), ("d", 31), ("e", 1)] {
        insert(db, actor, days);
    }
    let cleared = Events::default();
    let run = |retention: Retention, left: &[&str]| {
        let mut supervisor = Supervisor::new(&db.database)
            .retention(retention.every(Duration::from_millis(20)))
            .subscriber(cleared.subscriber())
            .start()
            .unwrap();
        until("old rows are cleared", || {
            let actors: Vec<String> = entries(db).into_iter().map(|one| one.actor).collect();
            actors == left
        });
        supervisor.stop();
        supervisor.join(Duration::from_secs(60)).unwrap();
    };
    run(Retention::new(), &["c", "d", "e"]);
    run(
        Retention::new().audit_for(Retention::AUDIT_AT_LEAST),
        &["e"],
    );
}

fn a_short_retention_is_refused(db: &TestDb) {
    let day = Duration::from_secs(24 * 3600);
    let refused = Supervisor::new(&db.database)
        .retention(Retention::new().audit_for(29 * day))
        .start()
        .unwrap_err();
    assert!(refused.to_string().contains("30 days"), "{refused}");
    assert!(Retention::forever() != Retention::new());
}

fn a_missing_trigger_is_found(db: &TestDb) {
    let verdict = |check: &str| {
        let findings = windlass_console::doctor(&mut db.connection()).unwrap();
        let found = findings.into_iter().find(|finding| finding.check == check);
        found.map(|finding| (finding.verdict, finding.says))
    };
    assert_eq!(verdict("audit").unwrap().0, Verdict::Fine);
    if db.is_postgres() {
        db.execute("ALTER TABLE windlass_audit DISABLE TRIGGER windlass_audit_keep");
        assert_eq!(verdict("audit").unwrap().0, Verdict::Warning);
        db.execute("ALTER TABLE windlass_audit ENABLE TRIGGER USER");
        assert_eq!(verdict("audit").unwrap().0, Verdict::Fine);
        db.execute("DROP TRIGGER windlass_audit_keep ON windlass_audit");
    } else {
        db.execute("DROP TRIGGER windlass_audit_keep");
    }
    let (found, says) = verdict("schema").unwrap();
    assert!(
        found == Verdict::Problem && says.contains("windlass_audit_keep"),
        "{says}"
    );
    let refused = Supervisor::new(&db.database).start().unwrap_err();
    assert!(
        refused.to_string().contains("windlass_audit_keep"),
        "{refused}"
    );
    db.database.migrate().unwrap();
    assert_eq!(verdict("schema").unwrap().0, Verdict::Fine);
    Actor::named("ada")
        .pause_queue(&mut db.connection(), "mail")
        .unwrap();
    assert!(try_execute(db, "UPDATE windlass_audit SET actor = 'eve'").is_err());
}
