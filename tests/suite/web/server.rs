//! Properties that all answers share, and the life of a server.

use super::client::{ANSWER, Ask, get, post, serve};
use crate::support::TestDb;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use windlass::NewJob;

fn every_answer_has_the_headers_of_a_closed_site(db: &TestDb) {
    let server = serve(&db.database);
    for path in ["/", "/nowhere", "/livez", "/favicon.ico", "/assets/x.css"] {
        let reply = get(&server, path);
        for (name, value) in [
            (
                "content-security-policy",
                "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
            ),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{path}");
        }
    }
}

fn assets_never_change_under_their_name(db: &TestDb) {
    let server = serve(&db.database);
    let page = get(&server, "/").expect(200);
    for start in ["href=\"/assets/style.", "src=\"/assets/windlass."] {
        let (_, rest) = page.split_once(start).unwrap();
        let (name, _) = rest.split_once('"').unwrap();
        let (_, stem) = start.split_once('"').unwrap();
        let path = format!("{stem}{name}");
        let plain = get(&server, &path);
        let cached = Some("public, max-age=31536000, immutable");
        assert_eq!((plain.status, plain.header("cache-control")), (200, cached));
        let ask = Ask::new(server.address(), "GET", &path).header("Accept-Encoding", "br, gzip");
        let compressed = ask.send();
        assert_eq!(compressed.header("content-encoding"), Some("gzip"));
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(compressed.bytes.as_slice());
        decoder.read_to_string(&mut text).unwrap();
        assert_eq!(text, plain.body);
    }
}

fn a_page_is_compressed_if_the_browser_can_read_that(db: &TestDb) {
    let server = serve(&db.database);
    let ask = Ask::new(server.address(), "GET", "/");
    assert_eq!(ask.clone().send().header("content-encoding"), None);
    let refused = ask.clone().header("Accept-Encoding", "gzip;q=0");
    assert_eq!(refused.send().header("content-encoding"), None);
    let reply = ask.header("Accept-Encoding", "gzip, deflate").send();
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
}

fn the_theme_is_kept_in_a_cookie(db: &TestDb) {
    let server = serve(&db.database);
    let reply = post(&server, "/theme", "theme=dark&back=%2Fqueues%3Fa%3D1");
    assert_eq!(
        (reply.status, reply.header("location")),
        (303, Some("/queues?a=1"))
    );
    assert!(reply.cookies()[0].starts_with("windlass_theme=dark; Path=/; "));
    let elsewhere = post(&server, "/theme", "theme=dark&back=%2F%2Fevil.example");
    assert_eq!(elsewhere.header("location"), Some("/"));
    let ask = Ask::new(server.address(), "GET", "/").header("Cookie", "a=b; windlass_theme=dark");
    assert!(ask.send().expect(200).contains("data-theme=\"dark\""));
}

fn head_is_answered_like_get(db: &TestDb) {
    let server = serve(&db.database);
    for path in ["/recurring", "/nowhere", "/livez"] {
        let (head, get) = (
            Ask::new(server.address(), "HEAD", path).send(),
            get(&server, path),
        );
        assert_eq!(
            (head.status, head.body.as_str()),
            (get.status, ""),
            "{path}"
        );
        assert_eq!(head.header("content-length"), get.header("content-length"));
    }
}

/// Requests that are never completed hold no connection for long.
#[test]
fn an_unfinished_request_is_ended() {
    let db = TestDb::sqlite();
    let server = serve(&db.database);
    let open = |text: &str| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let host = format!("Host: {}\r\n", server.address());
    let head = open(&format!("GET / HTTP/1.1\r\n{host}X: "));
    let body = open(&format!(
        "POST /theme HTTP/1.1\r\n{host}Sec-Fetch-Site: same-origin\r\nContent-Length: 10\r\n\r\nthe"
    ));
    for (mut stream, says) in [(head, ""), (body, "408 Request Timeout")] {
        let mut text = String::new();
        // A connection that was reset has ended, too.
        if let Err(error) = stream.read_to_string(&mut text) {
            assert_ne!(
                error.kind(),
                ErrorKind::WouldBlock,
                "it is still open: {text}"
            );
        }
        assert!(text.contains(says), "{says}: {text}");
    }
}

/// Clients that keep connections open do not make a probe fail: those that have been idle for longest give way.
#[test]
fn a_probe_is_answered_beside_many_idle_connections() {
    let db = TestDb::sqlite();
    let server = serve(&db.database);
    let mut idle = Vec::new();
    for number in 0..700 {
        idle.push(TcpStream::connect(server.address()).unwrap());
        if number % 100 == 99 {
            get(&server, "/livez").expect(200);
        }
    }
    for _ in 0..20 {
        get(&server, "/livez").expect(200);
        idle.push(TcpStream::connect(server.address()).unwrap());
    }
    // The newest of them still serve.
    let mut last = idle.pop().unwrap();
    last.set_read_timeout(Some(ANSWER)).unwrap();
    let ask = format!(
        "GET /livez HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        server.address()
    );
    last.write_all(ask.as_bytes()).unwrap();
    let mut text = String::new();
    last.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}

/// More searches than may wait for a thread leave room for other pages.
fn searches_leave_room_for_other_pages(db: &TestDb) {
    let jobs = (0..300).map(|n| {
        NewJob::of_class(
            "big",
            format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(20_000)),
        )
    });
    windlass::enqueue_all(&mut db.connection(), jobs).unwrap();
    let server = serve(&db.database);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| get(&server, "/jobs?args=nothing+has+this"));
        }
        for _ in 0..20 {
            get(&server, "/queues").expect(200);
        }
    });
}

crate::on_each_database!(
    searches_leave_room_for_other_pages,
    every_answer_has_the_headers_of_a_closed_site,
    assets_never_change_under_their_name,
    a_page_is_compressed_if_the_browser_can_read_that,
    the_theme_is_kept_in_a_cookie,
    head_is_answered_like_get,
);
