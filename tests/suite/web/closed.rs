//! Requests from elsewhere change nothing, and the server answers to no other name.

use super::access::{sign_in, token};
use super::client::{Ask, KeptConnection, get, post, serve};
use crate::support::TestDb;
use windlass::NewJob;
use windlass_console::web::Server;

/// The number of requests that must be refused.
const REQUESTS: usize = 10_000;

fn one_of<'a>(choices: &[&'a str]) -> &'a str {
    choices[fastrand::usize(..choices.len())]
}

/// A request that a page elsewhere could make a browser send, or that a browser would never send.
/// The first headers make sure that it is not from a page of the server.
fn from_elsewhere(host: &str, cookie: &str) -> Vec<u8> {
    let method = one_of(&[
        "POST", "POST", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "post", "TRACE", "X",
    ]);
    let path = one_of(&[
        "/theme",
        "/logout",
        "/login",
        "/queues/mail/pause",
        "/queues/mail/resume",
        "/failed/retry",
        "/failed/discard",
        "/jobs/1/discard",
        "/jobs/1/cancel",
        "/recurring/nightly/run",
        "/db/other/queues/mail/pause",
        "//theme",
        "/theme?x=1",
        "/",
    ]);
    let site = one_of(&[
        "cross-site",
        "same-site",
        "none",
        "",
        "Same-Origin",
        "same-origin ,x",
        "cross-site, same-origin",
    ]);
    let origin = one_of(&[
        "",
        "null",
        "http://evil.example",
        "https://evil.example:4040",
        "http://localhost.evil.example",
        "file://",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost:1",
        "chrome-extension://abc",
    ]);
    let other = format!("evil.example:{}", fastrand::u16(..));
    let named = if fastrand::bool() { host } else { &other };
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {named}\r\n");
    // Without either header there is nothing that proves it.
    if !site.is_empty() {
        text.push_str(&format!("Sec-Fetch-Site: {site}\r\n"));
    }
    if !origin.is_empty() {
        text.push_str(&format!("Origin: {origin}\r\n"));
    }
    if fastrand::u8(..) < 230 {
        text.push_str(&format!("Cookie: {cookie}\r\n"));
    }
    let extra = [
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
        "Referer: http://127.0.0.1/",
        "X-Requested-With: XMLHttpRequest",
        "X-HTTP-Method-Override: POST",
        "Accept: text/html",
        "X-Forwarded-Host: 127.0.0.1",
        "Authorization: Basic YTpi",
        "Content-Type: application/json",
        "Content-Type: text/plain",
        "Content-Type: multipart/form-data; boundary=x",
        "Content-Type: application/x-www-form-urlencoded",
    ];
    for header in extra {
        if fastrand::u8(..) < 60 {
            text.push_str(&format!("{header}\r\n"));
        }
    }
    let body = one_of(&[
        "",
        "theme=dark",
        "back=%2F&theme=light",
        "{\"a\":1}",
        "reason=x&count=1",
    ]);
    text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    text.into_bytes()
}

fn nothing_from_elsewhere_is_accepted(db: &TestDb) {
    let mut conn = db.connect();
    NewJob::of_class("send", "{}")
        .queue("mail")
        .enqueue(&mut conn)
        .unwrap();
    let server = serve(&db.database);
    let cookie = sign_in(&server, &token(db, "ada", "operator", &[]));
    let host = server.address().to_string();
    let signed_in = Ask::new(server.address(), "GET", "/").header("Cookie", &cookie);
    let before = signed_in.clone().send().expect(200);
    let mut connection = KeptConnection::new(server.address());
    let mut refused = 0;
    while refused < REQUESTS {
        let request = from_elsewhere(&host, &cookie);
        if let Some(status) = connection.send(&request) {
            assert!(
                status >= 400,
                "{status}: {}",
                String::from_utf8_lossy(&request)
            );
            refused += 1;
        }
    }
    // The session still lives, no queue is paused, and no job has gone.
    assert!(signed_in.send().expect(200).contains("mail") && before.contains("mail"));
    assert_eq!((db.rows("pauses"), db.rows("jobs")), (0, 1));
    // The same request of a page of this server is accepted.
    assert_eq!(post(&server, "/theme", "theme=dark").status, 303);
}

fn only_pages_of_the_server_change_something(db: &TestDb) {
    let server = serve(&db.database);
    let plain = Ask::new(server.address(), "POST", "/theme").form("theme=dark");
    let own = format!("http://{}", server.address());
    let status = |site: &str, origin: &str| {
        let mut ask = plain.clone().without("Sec-Fetch-Site");
        for (name, value) in [("Sec-Fetch-Site", site), ("Origin", origin)] {
            if !value.is_empty() {
                ask = ask.header(name, value);
            }
        }
        ask.send().status
    };
    assert_eq!(status("same-origin", ""), 303);
    assert_eq!(status("same-origin", &own), 303);
    assert_eq!(status("", &own), 303);
    for (site, origin) in [
        ("", ""),
        ("cross-site", &*own),
        ("same-site", ""),
        ("none", ""),
        ("", "null"),
        ("", "http://evil.example"),
        // Behind a proxy that the server does not know.
        ("same-origin", "https://evil.example"),
        ("same-origin", "null"),
    ] {
        assert_eq!(status(site, origin), 403, "{site} {origin}");
    }
    let json = plain.clone().header("Content-Type", "application/json");
    assert_eq!(json.send().status, 415);
    let large = format!("theme={}", "x".repeat(300_000));
    assert_eq!(post(&server, "/theme", &large).status, 413);
    // A program with a token needs no browser's headers; a page elsewhere cannot send one.
    let program = plain.without("Sec-Fetch-Site");
    let secret = token(db, "ada", "viewer", &[]);
    let program = program.header("Authorization", &format!("Bearer {secret}"));
    assert_eq!(program.clone().send().status, 303);
    assert_eq!(
        program
            .header("Origin", "http://evil.example")
            .send()
            .status,
        403
    );
}

fn it_answers_to_its_own_names_only(db: &TestDb) {
    let bearer = format!("Bearer {}", token(db, "ada", "viewer", &[]));
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .host("Jobs.example.com")
        .public_origin("https://other.example.com")
        .start()
        .unwrap();
    let status = |host: &str| {
        let ask = Ask::new(server.address(), "GET", "/").header("Host", host);
        ask.header("Authorization", &bearer).send().status
    };
    for host in [
        "localhost:1",
        "127.0.0.1",
        "[::1]:4040",
        "10.1.2.3",
        "jobs.example.com",
        "other.example.com:443",
    ] {
        assert_eq!(status(host), 200, "{host}");
    }
    for host in [
        "evil.example",
        "example.com",
        "jobs.example.com.evil.example",
        "127.0.0.1.evil.example",
        "x:y",
    ] {
        assert_eq!(status(host), 421, "{host}");
    }
    let none = Ask::new(server.address(), "GET", "/").without("Host");
    assert_eq!(none.send().status, 400);
    let full = Ask::new(server.address(), "GET", "http://evil.example/");
    assert_eq!(full.send().status, 421);
    // A probe calls by any name, and learns nothing.
    let probe = Ask::new(server.address(), "GET", "/livez").header("Host", "web-1.pod");
    assert_eq!(probe.send().expect(200), "alive\n");
    // And so is what is refused: it says nothing about what is there.
    let refused = Ask::new(server.address(), "GET", "/").header("Host", "evil.example");
    assert!(!refused.send().body.contains("windlass_"));
    assert_eq!(get(&server, "/").status, 401);
}

fn errors_tell_nothing_about_the_inside(db: &TestDb) {
    let server = serve(&db.database);
    db.execute("ALTER TABLE solid_queue_failed_executions RENAME TO elsewhere");
    for accept in ["text/html", "*/*"] {
        let ask = Ask::new(server.address(), "GET", "/").header("Accept", accept);
        let page = ask.send();
        assert!(page.status >= 500, "{page:?}");
        for word in [
            "SELECT",
            "solid_queue",
            "elsewhere",
            "relation",
            "sqlite",
            "jobs.db\"",
            "src/",
        ] {
            assert!(!page.body.contains(word), "{word}: {}", page.body);
        }
    }
    db.execute("ALTER TABLE elsewhere RENAME TO solid_queue_failed_executions");
}

crate::on_each_database!(
    nothing_from_elsewhere_is_accepted,
    only_pages_of_the_server_change_something,
    it_answers_to_its_own_names_only,
    errors_tell_nothing_about_the_inside,
);
