//! Live updates, and what a viewer that does not read does to the others.

use super::access::{sign_in, token};
use super::client::{Ask, Updates, get, serve};
use crate::support::TestDb;
use crate::support::program::windlass;
#[cfg(feature = "postgres")]
use crate::support::proxy::{Proxy, Swallow};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use windlass::NewJob;
use windlass_console::web::RunningServer;

fn updates(server: &RunningServer, path: &str) -> Ask {
    Ask::new(server.address(), "GET", path).header("Accept", "text/event-stream")
}

fn an_open_page_is_kept_up_to_date(db: &TestDb) {
    let server = serve(&db.database);
    let page = get(&server, "/").expect(200);
    let (_, from) = page.split_once("data-live-from=\"").unwrap();
    let (from, _) = from.split_once('"').unwrap();
    let mut updates = Updates::open(&updates(&server, from));
    updates.until("event: fragments");
    updates.until("A queue appears here while jobs are ready on it.");
    let job = NewJob::of_class("send", "{}").queue("mail");
    job.enqueue(&mut db.connection()).unwrap();
    // Only what has changed is sent.
    updates.until("event: fragments");
    updates.until("\"overview/queues\":\"<section data-live=");
    updates.until(">mail<");
}

fn only_live_pages_that_a_viewer_may_see_are_sent(db: &TestDb) {
    let server = serve(&db.database);
    for path in [
        "/live",
        "/live?path=%2Flogin",
        "/live?path=%2Fnowhere",
        "/live?path=http%3A%2F%2Fevil.example",
        "/live?path=",
        // Pages that take long are not read again and again.
        "/live?path=%2Fdoctor%3Ffull%3D1",
        "/live?path=%2F%3Falone%3Dthe-checks-of-doctor",
    ] {
        assert_eq!(updates(&server, path).send().status, 404, "{path}");
    }
    token(db, "ada", "operator", &[]);
    crate::support::wait::until("everyone must sign in", || {
        updates(&server, "/live?path=%2Flogin").send().status == 401
    });
    assert_eq!(updates(&server, "/live?path=%2F").send().status, 401);
}

fn a_revoked_token_ends_live_updates(db: &TestDb) {
    let server = serve(&db.database);
    let secret = token(db, "ada", "viewer", &[]);
    let cookie = sign_in(&server, &secret);
    let ask = updates(&server, "/live?path=%2F");
    let mut by_session = Updates::open(&ask.clone().header("Cookie", &cookie));
    let bearer = format!("Bearer {secret}");
    let mut by_token = Updates::open(&ask.header("Authorization", &bearer));
    for updates in [&mut by_session, &mut by_token] {
        updates.until("event: fragments");
    }
    assert_eq!(
        windlass(&db.url, &["web", "tokens", "revoke", "ada"]).code,
        Some(0)
    );
    by_session.until_end();
    by_token.until_end();
}

fn the_first_token_ends_live_updates_without_one(db: &TestDb) {
    let server = serve(&db.database);
    let mut open = Updates::open(&updates(&server, "/live?path=%2F"));
    open.until("event: fragments");
    token(db, "ada", "viewer", &[]);
    open.until_end();
}

fn a_stop_ends_open_pages(db: &TestDb) {
    let server = serve(&db.database);
    let mut open: Vec<Updates> = (0..10)
        .map(|_| Updates::open(&updates(&server, "/live?path=%2F")))
        .collect();
    // One that never ends its request.
    let mut unfinished = TcpStream::connect(server.address()).unwrap();
    unfinished.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
    let start = Instant::now();
    server.stop();
    open.iter_mut().for_each(Updates::until_end);
    server.wait();
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}

/// With 50 viewers, one of which reads nothing, and with the database frozen if it is a server,
/// the thread of the network still answers.
fn the_server_lives_while_the_database_is_frozen(db: &TestDb) {
    #[cfg(feature = "postgres")]
    let proxy = db.is_postgres().then(|| Proxy::opened(&db.url));
    #[cfg(feature = "postgres")]
    let database = match &proxy {
        Some(proxy) => windlass::Database::open(&proxy.url(&db.url)).unwrap(),
        None => db.database.clone(),
    };
    #[cfg(not(feature = "postgres"))]
    let database = db.database.clone();
    let server = serve(&database);
    let deaf = updates(&server, "/live?path=%2F").open();
    let mut viewers: Vec<Updates> = (1..50)
        .map(|_| Updates::open(&updates(&server, "/live?path=%2F")))
        .collect();
    viewers
        .iter_mut()
        .for_each(|viewer| viewer.until("event: fragments"));
    #[cfg(feature = "postgres")]
    if let Some(proxy) = &proxy {
        proxy.swallow(Swallow::Everything);
    }
    // Pages that wait for the database in vain, meanwhile.
    let pages: Vec<_> = (0..20)
        .map(|_| {
            Ask::new(server.address(), "GET", "/")
                .header("Connection", "close")
                .open()
        })
        .collect();
    let mut slowest = Duration::ZERO;
    for _ in 0..100 {
        let start = Instant::now();
        assert_eq!(get(&server, "/livez").expect(200), "alive\n");
        slowest = slowest.max(start.elapsed());
    }
    eprintln!("/livez beside 50 viewers and 20 pages: {slowest:?} at most");
    #[cfg(feature = "postgres")]
    if let Some(proxy) = &proxy {
        viewers
            .iter_mut()
            .for_each(|viewer| viewer.until("event: away"));
        proxy.pass();
        viewers
            .iter_mut()
            .for_each(|viewer| viewer.until("event: fragments"));
    }
    drop((deaf, pages));
}

crate::on_each_database!(
    an_open_page_is_kept_up_to_date,
    only_live_pages_that_a_viewer_may_see_are_sent,
    a_revoked_token_ends_live_updates,
    the_first_token_ends_live_updates_without_one,
    a_stop_ends_open_pages,
    the_server_lives_while_the_database_is_frozen,
);
