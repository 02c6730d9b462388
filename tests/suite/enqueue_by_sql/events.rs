//! Events that are emitted by SQL.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::enqueue_by_sql::{literal, run};
use serde_json::value::RawValue;
use windlass::events::emit;

on_each_database!(
    an_event_by_sql_is_that_of_rust,
    what_is_no_event_is_refused_by_sql,
    an_event_of_a_rolled_back_transaction_is_none,
    the_largest_payload_is_a_setting,
);

fn by_sql(db: &TestDb, name: &str, payload: &str) -> Result<(), String> {
    let (name, payload) = (literal(&name.into()), literal(&payload.into()));
    run(db, &statement(db, &format!("{name}, {payload}")))
}

fn statement(db: &TestDb, values: &str) -> String {
    match db.is_postgres() {
        true => format!("SELECT windlass_emit({values})"),
        false => format!("INSERT INTO windlass_events_emit (name, payload) VALUES ({values})"),
    }
}

fn by_rust(db: &TestDb, name: &str, payload: &str) -> Result<(), String> {
    let payload = RawValue::from_string(payload.to_owned()).unwrap();
    let emitted = emit(&mut db.connection(), name, &payload);
    emitted.map_err(|error| error.to_string())
}

fn an_event_by_sql_is_that_of_rust(db: &TestDb) {
    let other = if db.is_postgres() {
        TestDb::postgres()
    } else {
        TestDb::sqlite()
    };
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let long = "n".repeat(255);
    for (name, payload, accepted) in [
        ("order/1", r#"{"paid": true, "by": ["card", null]}"#, true),
        ("order/1", r#"{"by":["card",null],"paid":true}"#, true),
        ("order/1", r#"{"paid": false, "by": ["card", null]}"#, false),
        ("order/1", r#"{"paid": true}"#, false),
        ("list", "[1, 2]", true),
        ("list", "[2, 1]", false),
        ("list", "[1, 2, 2]", false),
        ("number", "1.5", true),
        ("number", "1.50", true),
        ("number", "\"1.5\"", false),
        ("null", "null", true),
        ("null", "0", false),
        ("wörter 'n' \"so\"; --", "\"é\\u00e9\"", true),
        (&long, "1", true),
        (&format!("{long}n"), "1", false),
        ("", "1", false),
        ("large", &text(65_536), true),
        ("larger", &text(65_537), false),
        ("deep", &nested(120), true),
        ("deeper", &nested(121), false),
    ] {
        let (rust, sql) = (by_rust(db, name, payload), by_sql(&other, name, payload));
        assert_eq!(
            (rust.is_ok(), sql.is_ok()),
            (accepted, accepted),
            "{name} {payload:.80}: {rust:?} {sql:?}"
        );
    }
    for rows in [
        "SELECT name || ' ' || payload AS t FROM windlass_events ORDER BY 1",
        "SELECT kind || ' ' || name AS t FROM windlass_wanted_keys ORDER BY id",
    ] {
        assert_eq!(db.texts(rows), other.texts(rows));
    }
}

fn the_largest_payload_is_a_setting(db: &TestDb) {
    use windlass::audit::Actor;
    let payload = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let conn = &mut db.connection();
    assert_eq!(windlass::events::max_payload(conn).unwrap(), 65_536);
    for beyond in [0, 65_535, 67_108_865] {
        let error = Actor::default().set_max_payload(conn, beyond).unwrap_err();
        assert!(error.to_string().contains("65536 to 67108864"), "{error}");
    }
    assert!(Actor::named("ada").set_max_payload(conn, 100_000).unwrap());
    assert!(!Actor::named("ada").set_max_payload(conn, 100_000).unwrap());
    assert_eq!(windlass::events::max_payload(conn).unwrap(), 100_000);
    by_rust(db, "rust", &payload(100_000)).unwrap();
    by_sql(db, "sql", &payload(100_000)).unwrap();
    for error in [
        by_rust(db, "larger", &payload(100_001)).unwrap_err(),
        by_sql(db, "larger", &payload(100_001)).unwrap_err(),
    ] {
        assert!(error.contains("windlass events max"), "{error}");
    }
    let said = crate::support::program::windlass(&db.url, &["events", "max"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        format!("{said:?}").contains("at most 100000 bytes"),
        "{said:?}"
    );
    // Text that is no number counts as none.
    db.execute("UPDATE windlass_settings SET value = 'much' WHERE name = 'max_event_payload'");
    assert!(by_sql(db, "much", &payload(65_537)).is_err());
    assert!(by_rust(db, "much", &payload(65_537)).is_err());
    let done = db.texts("SELECT action || ' ' || target AS t FROM windlass_audit ORDER BY id");
    assert_eq!(done, ["events.max 100000"]);
}

fn what_is_no_event_is_refused_by_sql(db: &TestDb) {
    for values in [
        "NULL, '1'",
        "'a', '{'",
        "'a', ''",
        r#"'a', '"\u0000"'"#,
        r#"'a', '"\ud800"'"#,
        "'a', '1e999'",
        "'a', '[98765432109876543210]'",
    ] {
        let error = run(db, &statement(db, values)).unwrap_err();
        assert!(error.contains("cannot emit"), "{values}: {error}");
    }
    assert_eq!(db.rows_of("windlass_events"), 0);
    run(db, &statement(db, "'a', NULL")).unwrap();
    assert_eq!(
        db.texts("SELECT payload AS t FROM windlass_events"),
        ["null"]
    );
    assert!(
        by_sql(db, "a", "1")
            .unwrap_err()
            .contains("another payload")
    );
}

fn an_event_of_a_rolled_back_transaction_is_none(db: &TestDb) {
    let conn = &mut db.connection();
    crate::support::db::execute(conn, "BEGIN");
    crate::support::db::execute(conn, &statement(db, "'a', '1'"));
    crate::support::db::execute(conn, "ROLLBACK");
    assert_eq!(db.rows_of("windlass_events"), 0);
    assert_eq!(db.rows_of("windlass_wanted_keys"), 0);
}
