//! A Postgres server that is not there, or does not let us in.

use super::{fails, with_password};
use crate::support::TestDb;
use crate::support::program::windlass;
use crate::support::proxy::Proxy;

fn replace_name(url: &str, name: &str) -> String {
    let (before, parameters) = url.split_once('?').unwrap();
    let (server, _) = before.rsplit_once('/').unwrap();
    format!("{server}/{name}?{parameters}")
}

#[test]
fn nobody_listens() {
    let db = TestDb::empty_postgres();
    let proxy = Proxy::closed(&db.url);
    let url = with_password(&proxy.url(&db.url));
    for command in ["status", "migrate"] {
        let said = windlass(&url, &[command]);
        fails(
            &said,
            &[
                "cannot open the database postgres://127.0.0.1:",
                "Is the server running",
            ],
        );
        assert!(!said.err.contains("hunter2"), "{}", said.err);
    }
}

#[test]
fn no_such_database() {
    let db = TestDb::empty_postgres();
    let url = replace_name(&with_password(&db.url), "windlass_nowhere");
    let said = windlass(&url, &["migrate"]);
    fails(
        &said,
        &["\"windlass_nowhere\" does not exist", "create it first"],
    );
    assert!(!said.err.contains("hunter2"), "{}", said.err);
}

#[test]
fn no_such_user() {
    let db = TestDb::empty_postgres();
    let (_, rest) = db
        .url
        .split_once('@')
        .expect("the tests' server names a user");
    let url = format!("postgres://nobody_here:hunter2@{rest}");
    let said = windlass(&url, &["status"]);
    fails(
        &said,
        &["nobody_here", "check user and password in the address"],
    );
    assert!(!said.err.contains("hunter2"), "{}", said.err);
}

/// Since Postgres 15, nobody but the owner may create tables in `public`.
#[test]
fn a_user_who_may_not_create_tables() {
    let db = TestDb::empty_postgres();
    let schema = &db.texts("SELECT current_schema()::text AS t")[0];
    db.execute(&format!("GRANT USAGE ON SCHEMA {schema} TO pg_monitor"));
    let url = format!("{}%20-crole%3Dpg_monitor", db.url);
    fails(
        &windlass(&url, &["migrate"]),
        &["rolled back", "permission denied", "GRANT CREATE ON"],
    );
    assert_eq!(
        db.count("SELECT count(*) AS n FROM pg_tables WHERE schemaname = current_schema()"),
        0
    );
}

/// libpq would take the wrong part of the password for the host, the port or
/// a broken code, and show it.
#[test]
fn a_password_with_characters_that_must_be_escaped() {
    let db = TestDb::empty_postgres();
    for password in ["hun@ter2", "hun/ter2", "hun?ter2", "hun%ter2", "hun#@/ter2"] {
        let url = with_password(&db.url).replace("hunter2", password);
        let said = windlass(&url, &["status"]);
        fails(&said, &["as `%40 %2F %3F %23 %25`"]);
        assert!(
            !said.err.contains("hun") && !said.err.contains("ter2"),
            "{}",
            said.err
        );
    }
    let said = windlass(
        &with_password(&db.url).replace("hunter2", "hun%40ter%252"),
        &["migrate"],
    );
    assert!(said.is_done(), "{said:?}");
}
