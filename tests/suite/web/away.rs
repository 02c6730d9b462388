//! A database that is away, at the start and under an open page.

use super::access::{sign_in, token};
use super::client::{Ask, get, serve};
use crate::support::TestDb;
#[cfg(feature = "postgres")]
use crate::support::proxy::Proxy;
use crate::support::wait::until;
use windlass::{Database, NewJob};
use windlass_console::web::RunningServer;

fn page(server: &RunningServer) -> super::client::Reply {
    let ask = Ask::new(server.address(), "GET", "/").header("Accept", "text/html");
    ask.send()
}

fn it_starts_without_tables(db: &TestDb) {
    let server = serve(&db.database);
    let says = page(&server);
    assert_eq!(says.status, 503, "{says:?}");
    let expected = if db.is_postgres() {
        "windlass migrate --database URL"
    } else {
        // There is no file yet.
        "The database does not answer."
    };
    assert!(says.body.contains(expected), "{says:?}");
    assert!(says.header("retry-after").is_some());
    db.database.migrate().unwrap();
    until("the page is there", || page(&server).status == 200);
}

/// The page says it too, instead of an internal error.
fn tables_of_a_version_before_the_first_release_are_named(db: &TestDb) {
    db.execute(
        "INSERT INTO windlass_schema_migrations (version, applied_at) VALUES ('20261121000001', '2026-11-21 00:00:00')",
    );
    let server = serve(&db.database);
    let says = page(&server).expect(503);
    assert!(says.contains("before the first release"), "{says}");
}

crate::on_each_database!(tables_of_a_version_before_the_first_release_are_named);

#[cfg(feature = "postgres")]
#[test]
fn it_starts_while_the_database_is_away() {
    let db = TestDb::postgres();
    let mut proxy = Proxy::closed(&db.url);
    let database = Database::open(&proxy.url(&db.url)).unwrap();
    let server = serve(&database);
    let says = page(&server).expect(503);
    assert!(
        says.contains("Database away")
            && says.contains(" data-again")
            && !says.contains("last seen"),
        "{says}"
    );
    assert!(
        !says.contains(&*db.url) && !says.contains("127.0.0.1"),
        "{says}"
    );
    proxy.open();
    until("the page is there", || page(&server).status == 200);
}

#[cfg(feature = "postgres")]
#[test]
fn a_page_shows_what_was_last_seen() {
    let db = TestDb::postgres();
    let job = NewJob::of_class("send", "{}").queue("mail");
    job.enqueue(&mut db.connection()).unwrap();
    let mut proxy = Proxy::opened(&db.url);
    let database = Database::open(&proxy.url(&db.url)).unwrap();
    let server = serve(&database);
    // A busy machine may not answer the first request in time.
    until("the page is there", || page(&server).status == 200);
    proxy.close();
    let says = page(&server).expect(503);
    let (_, seen) = says.split_once("<div class=\"stale\" inert>").unwrap();
    assert!(seen.contains(">mail<"), "{says}");
    // Programs get one line.
    assert!(get(&server, "/").expect(503).starts_with("Database away\n"));
    proxy.open();
    until("the page is there", || page(&server).status == 200);
}

/// As after a failover, or the restart of a proxy: only what does not answer a new connection is away.
#[cfg(feature = "postgres")]
#[test]
fn a_connection_that_broke_is_replaced() {
    let db = TestDb::postgres();
    let mut proxy = Proxy::opened(&db.url);
    let database = Database::open(&proxy.url(&db.url)).unwrap();
    let server = serve(&database);
    // Each of its threads has a connection then.
    for _ in 0..20 {
        page(&server).expect(200);
    }
    proxy.close();
    proxy.open();
    for _ in 0..20 {
        page(&server).expect(200);
    }
}

#[cfg(feature = "postgres")]
#[test]
fn those_who_signed_in_lately_see_what_was_last_seen() {
    let db = TestDb::postgres();
    let secret = token(&db, "ada", "operator", &[]);
    let mut proxy = Proxy::opened(&db.url);
    let database = Database::open(&proxy.url(&db.url)).unwrap();
    let server = serve(&database);
    let cookie = sign_in(&server, &secret);
    let ask = Ask::new(server.address(), "GET", "/")
        .header("Accept", "text/html")
        .header("Cookie", &cookie);
    until("the page is there", || ask.clone().send().status == 200);
    proxy.close();
    assert!(
        ask.clone()
            .send()
            .expect(503)
            .contains("What was last seen")
    );
    // Nobody is told that they have signed out while their session goes on.
    let leave = Ask::new(server.address(), "POST", "/logout")
        .form("")
        .header("Cookie", &cookie);
    leave.send().expect(503);
    // Others learn only that the database is away.
    let other = ask
        .header("Cookie", &cookie.replace('=', "=0"))
        .send()
        .expect(503);
    assert!(!other.contains("What was last seen"), "{other}");
    let none = page(&server).expect(503);
    assert!(!none.contains("What was last seen"), "{none}");
}

fn set_priority(server: &RunningServer, job: i64, priority: i32) -> super::client::Reply {
    let form = format!("was=mail&ranked=0&queue=mail&priority={priority}");
    super::client::post(server, &format!("/jobs/{job}/change"), &form)
}

/// SQLite itself would go on reading and writing a file that no other process finds.
#[test]
fn a_file_that_is_removed_is_away() {
    let db = TestDb::sqlite();
    let job = NewJob::of_class("send", "{}").queue("mail");
    let job = job.enqueue(&mut db.connection()).unwrap().id.0;
    let server = serve(&db.database);
    // Each of its threads has connections then.
    for _ in 0..20 {
        set_priority(&server, job, 0).expect(303);
        page(&server).expect(200);
    }
    let file = std::path::Path::new(db.address());
    let elsewhere = file.with_extension("elsewhere");
    std::fs::rename(file, &elsewhere).unwrap();
    let says = page(&server).expect(503);
    assert!(says.contains("What was last seen"), "{says}");
    for _ in 0..20 {
        set_priority(&server, job, 7).expect(503);
    }
    std::fs::rename(&elsewhere, file).unwrap();
    until("the page is there", || page(&server).status == 200);
    let priorities = "SELECT count(*) AS n FROM solid_queue_jobs WHERE priority = ";
    assert_eq!(db.count(&format!("{priorities} 7")), 0);
    set_priority(&server, job, 7).expect(303);
    assert_eq!(db.count(&format!("{priorities} 7")), 1);
}

crate::on_each_empty_database!(it_starts_without_tables);
